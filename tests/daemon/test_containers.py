"""Containers on a real daemon: created by a stand-in engine, started in cgroups of their own, ended in every way."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from tests.attach import client
from tests.daemon import engine
from tests.daemon.engine import ID, OTHER, Engine, end
from tests.daemon.node import Node, wait_until
from vgpud.containers import disk_work
from vgpud.core.checksums import unseal
from vgpud.v1alpha1 import vgpud_pb2 as pb

CLIENT = Path(client.__file__)
NAME = f"c-{ID[:12]}"
HALF = "VGPU=0.5"
CONTAINER_USER = "12345:12345"

pytestmark = pytest.mark.skipif(engine.why_no_cgroup() != "", reason=engine.why_no_cgroup() or "-")


@pytest.fixture
def site(node: Node) -> Node:
    """A daemon whose devices NVIDIA's CDI specification names, so that containers can get them. Not started yet."""
    node.directory.chmod(0o755)  # other users come as far as the sockets
    folder = node.directory / "nvidia"
    folder.mkdir()
    devices = [{"name": str(index), "containerEdits": {"env": [f"DEVICE={index}"]}} for index in range(2)]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    (folder / "nvidia.json").write_text(json.dumps(spec))
    node.settings |= {"nvidia_cdi_dirs": f'["{folder}"]', "cdi_dir": f'"{node.directory}/cdi"'}
    return node


@pytest.fixture
def fake_engine(site: Node) -> Iterator[Engine]:
    site.start()
    yield from _engine(site)


def _engine(site: Node) -> Iterator[Engine]:
    created = Engine(str(site.runtime / "runtime.sock"), site.directory / "bundles")
    yield created
    created.close()


@pytest.fixture
def cgroups() -> Iterator[list[Path]]:
    with ExitStack() as stack:
        yield [stack.enter_context(engine.cgroup()) for _ in range(2)]


def events(site: Node, kind: str) -> list[str]:
    found = site.events.ListEvents(pb.ListEventsRequest()).events
    return [event.message for event in found if event.kind == kind]


def attach_from(engine: Engine, cgroup: Path, socket_path: str, who: str = "") -> tuple[int, subprocess.Popen[bytes]]:
    """The attach status that a program in the cgroup gets, and the program."""
    process = engine.process(cgroup, sys.executable, str(CLIENT), socket_path, who=who)
    assert process.stdout
    return int(process.stdout.readline()), process


def test_a_request_becomes_a_slice_and_a_configuration(fake_engine: Engine, site: Node) -> None:
    status, body, _runtime = fake_engine.create(HALF, "VGPU_MEM=1g")
    assert status == "config"
    config = json.loads(body)
    mounts = {mount["destination"]: mount["source"] for mount in config["mounts"]}
    assert mounts["/run/vgpu"] == str(site.runtime / "slices" / NAME)
    assert {"createRuntime", "poststop"} <= config["hooks"].keys()
    assert "DEVICE=0" in config["process"]["env"]
    found = site.get(NAME)
    assert (found.spec.gpus_milli, found.spec.mem_max_bytes, found.owner_uid) == (500, 1 << 30, os.getuid())
    assert [(c.id, c.pid, c.cgroup) for c in found.containers] == [(ID, 0, "")]


def test_no_request_passes_and_one_for_nvidia_alone_is_refused(fake_engine: Engine, site: Node) -> None:
    assert fake_engine.create("VGPU=none")[:2] == ("pass", b"")
    path = fake_engine.bundle()
    config = json.loads((path / "config.json").read_text())
    config["hooks"] = {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}
    status, body = engine.ask(fake_engine.socket, engine.message("create", json.dumps(config).encode(), bundle=path))
    assert status == "refused" and b"set VGPU=1" in body
    assert site.names() == []


def test_refusals_reach_the_user_and_leave_nothing(fake_engine: Engine, site: Node) -> None:
    for env, said in ((("VGPU=abc",), b"abc"), (("VGPU=2",), b"2 devices"), (("VGPU=9",), b"--annotation")):
        status, body, _runtime = fake_engine.create(*env)
        assert status == "refused" and said in body and b"\n" not in body, body
    assert site.names() == []
    assert any(f"container {ID[:12]}" in text for text in events(site, "container.refused"))


def test_the_engine_gives_up_before_the_start(fake_engine: Engine, site: Node) -> None:
    _status, _body, runtime = fake_engine.create(HALF)
    assert site.names() == [NAME]
    end(runtime)
    wait_until(lambda: site.names() == [], "the slice's end")
    assert "gave up" in events(site, "container.ended")[0]
    wait_until(lambda: list((site.runtime / "containers").iterdir()) == [], "the end of its files")


def test_it_lives_with_its_first_process(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    init = fake_engine.start_container(cgroups[0], HALF)
    (known,) = site.get(NAME).containers
    assert (known.id, known.pid, Path(known.cgroup).name) == (ID, init.pid, cgroups[0].name)
    end(init)
    wait_until(lambda: site.names() == [], "the slice's end")
    assert fake_engine.hook("stopped") == ("ok", b""), "the hook may come late"


def test_the_hook_ends_it_as_well(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    fake_engine.start_container(cgroups[0], HALF)
    assert fake_engine.hook("stopped") == ("ok", b"")
    assert site.names() == []


def test_others_in_its_cgroup_keep_it(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    """A container with the host's pid namespace: its programs do not die with the first one."""
    init = fake_engine.start_container(cgroups[0], HALF)
    other = fake_engine.process(cgroups[0], "sleep", "600")
    end(init)
    with pytest.raises(AssertionError, match="did not come"):
        _wait_briefly(lambda: site.names() == [])
    end(other)
    wait_until(lambda: site.names() == [], "the slice's end")


def _wait_briefly(condition: object) -> None:
    """Looks several times longer than the daemon takes between two looks at a cgroup; for what must not happen."""
    import time

    assert callable(condition)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come")


def test_the_cgroup_says_whose_a_program_is(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    fake_engine.start_container(cgroups[0], "VGPU=0.25")
    site.create("anyone", 250)
    status, _program = attach_from(fake_engine, cgroups[0], site.socket(NAME), CONTAINER_USER)
    assert status == client.OK, "any user of the container"
    (listed,) = wait_until(site.processes, "the program in the list")
    assert (listed.container, listed.slice, listed.uid) == (ID, NAME, 12345)
    status, _program = attach_from(fake_engine, cgroups[0], site.socket("anyone"))
    assert status == client.DENIED, "no other slice, though it is root and the slice is anyone's"
    status, _program = attach_from(fake_engine, cgroups[1], site.socket(NAME), CONTAINER_USER)
    assert status == client.DENIED, "a stranger outside"


def test_below_its_cgroup_is_inside(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    fake_engine.start_container(cgroups[0], HALF)
    with engine.cgroup(cgroups[0]) as below:
        status, program = attach_from(fake_engine, below, site.socket(NAME), CONTAINER_USER)
        assert status == client.OK
        end(program)


def test_the_shared_socket_finds_the_slice(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    fake_engine.start_container(cgroups[0], HALF)
    shared = str(site.runtime / "cdi" / "attach.sock")
    status, _program = attach_from(fake_engine, cgroups[0], shared, CONTAINER_USER)
    assert status == client.OK
    assert [p.slice for p in wait_until(site.processes, "the program in the list")] == [NAME]
    outside = client.attach(shared)
    assert outside.status == client.NO_SLICE and "--device vgpu.dev/gpu=" in outside.text
    outside.close()


FLOOD = """
import socket, sys, time
socks = []
for _ in range(400):
    socks.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    socks[-1].connect(sys.argv[1])
print("there", flush=True)
time.sleep(600)
"""


def test_silent_programs_of_one_container_keep_no_other_out(
    fake_engine: Engine, site: Node, cgroups: list[Path]
) -> None:
    fake_engine.start_container(cgroups[0], "VGPU=0.25")
    fake_engine.start_container(cgroups[1], "VGPU=0.25", container_id=OTHER)
    shared = str(site.runtime / "cdi" / "attach.sock")
    flood = fake_engine.process(cgroups[0], sys.executable, "-c", FLOOD, shared)
    assert flood.stdout and flood.stdout.readline() == b"there\n"
    status, _program = attach_from(fake_engine, cgroups[1], shared)
    assert status == client.OK


def test_restart_of_a_container(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    """The id is the same; leftovers of the old life do not touch the new one."""
    old = fake_engine.start_container(cgroups[0], "VGPU=1")
    straggler = fake_engine.process(cgroups[0], "sleep", "600")
    first = site.get(NAME).uid
    end(old)
    new = fake_engine.start_container(cgroups[1], "VGPU=1")
    end(straggler)
    assert site.get(NAME).uid != first
    with pytest.raises(AssertionError, match="did not come"):
        _wait_briefly(lambda: site.names() == [])
    end(new)
    wait_until(lambda: site.names() == [], "the slice's end")


def _check_never(condition: Callable[[], bool]) -> None:
    with pytest.raises(AssertionError, match="did not come"):
        _wait_briefly(condition)


def test_a_container_that_runs_keeps_its_id(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    """`runc run` with the id of another bundle's container: the low-level runtime would refuse it after us."""
    init = fake_engine.start_container(cgroups[0], HALF)
    before = site.get(NAME).uid
    status, body, _runtime = fake_engine.create("VGPU=1")
    assert status == "refused" and b"is already running" in body
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hasty:  # the same, and does not wait for the answer
        hasty.connect(fake_engine.socket)
        hasty.sendall(engine.message("create", (fake_engine.bundle(HALF) / "config.json").read_bytes()))
    wait_until(lambda: len(events(site, "container.refused")) == 2, "the second refusal")
    _check_never(lambda: site.names() != [NAME])
    assert site.get(NAME).uid == before and site.get(NAME).spec.gpus_milli == 500
    assert init.poll() is None


def test_names_and_joining(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    fake_engine.start_container(cgroups[0], "VGPU=0.25", "VGPU_NAME=train")
    status, body, _runtime = fake_engine.create("VGPU=0.25", "VGPU_NAME=train", container_id=OTHER)
    assert status == "refused" and ID[:12].encode() in body and b"VGPU_SLICE=train" in body
    fake_engine.start_container(cgroups[1], "VGPU_SLICE=train", container_id=OTHER)
    assert [c.id for c in site.get("train").containers] == [ID, OTHER]


def test_a_user_of_the_sockets_group_reads_to_have_a_daemon(fake_engine: Engine, site: Node) -> None:
    """What they name would be read with root's rights, in a world of mounts that they may have made themselves."""
    who = f"12345:{os.getgid()}"
    status, body, _runtime = fake_engine.create(HALF, who=who)
    assert status == "refused" and b"not those of uid 12345: start a vgpud as that user" in body
    assert site.names() == []
    assert any("uid 12345" in text for text in events(site, "container.refused"))


def test_who_may_not_use_the_socket(fake_engine: Engine) -> None:
    program = "import client, socket, sys; client.become('12345:12345'); s = socket.socket(socket.AF_UNIX);"
    program += "sys.exit(s.connect_ex(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, fake_engine.socket], cwd=CLIENT.parent, check=False)
    assert done.returncode == errno.EACCES


def test_removing_a_containers_slice(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    init = fake_engine.start_container(cgroups[0], HALF)
    with pytest.raises(grpc.RpcError, match=ID[:12]):
        site.slices.DeleteSlice(pb.DeleteSliceRequest(name=NAME))
    site.slices.DeleteSlice(pb.DeleteSliceRequest(name=NAME, force=True))
    assert site.names() == []
    assert "lost its slice" in events(site, "container.warning")[-1]
    end(init)
    assert fake_engine.hook("stopped") == ("ok", b"")


def test_containers_survive_the_daemon(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    kept = fake_engine.start_container(cgroups[0], "VGPU=0.25")
    gone = fake_engine.start_container(cgroups[1], "VGPU=0.25", container_id=OTHER)
    pending = fake_engine.create("VGPU=0.25", container_id="pending")[2]
    before = site.get(NAME).uid
    site.stop(signal.SIGKILL)
    end(gone)
    site.start()
    wait_until(lambda: len(site.names()) == 2, "the end of the one that died meanwhile")
    assert site.get(NAME).uid == before
    assert [(c.id, c.pid) for c in site.get(NAME).containers] == [(ID, kept.pid)]
    end(pending)
    wait_until(lambda: site.names() == [NAME], "the end of the one that never started")
    end(kept)
    wait_until(lambda: site.names() == [], "the end of the one that lived")


def test_a_pid_that_was_used_again_is_another_process(fake_engine: Engine, site: Node, cgroups: list[Path]) -> None:
    init = fake_engine.start_container(cgroups[0], HALF)
    site.stop(signal.SIGKILL)
    database = sqlite3.connect(site.state / "vgpud.sqlite3")
    with database:
        (body,) = database.execute("SELECT body FROM containers").fetchone()
        stored = unseal(body)
        assert stored["pid"] == init.pid
        cgroup = stored["cgroup"] + "-of-the-old-one"
        changed = stored | {"pid_start": stored["pid_start"] - 1, "cgroup": cgroup}
        database.execute("UPDATE containers SET body = ?", (json.dumps(changed),))
    database.close()
    site.start()
    wait_until(lambda: site.names() == [], "the end of a container whose pid is another's")
    assert init.poll() is None


def test_its_files_go_with_it_also_while_no_daemon_ran(fake_engine: Engine, site: Node) -> None:
    bundle = fake_engine.bundle(HALF)
    (bundle / "rootfs/etc/ld.so.preload").write_text("/lib/theirs.so\n")
    _status, _body, runtime = fake_engine.create(HALF)
    assert len(list((site.runtime / "containers").glob("*/ld.so.preload"))) == 1
    site.stop(signal.SIGKILL)
    end(runtime)
    site.start()
    wait_until(lambda: site.names() == [], "the slice's end")
    wait_until(lambda: list((site.runtime / "containers").iterdir()) == [], "the end of its files")


# ---- peers that behave badly ----


@pytest.mark.parametrize(
    ("request_bytes", "message"),
    [
        (b"GET / HTTP/1.1\r\n\r\nx\n\n", b"vgpu-runtime and vgpud of one release"),
        (b"vgpu-runtime 2\nop create\n\n", b"vgpu-runtime and vgpud of one release"),
        (engine.message("destroy", b""), b"'destroy'"),
        (engine.message("create", b"{}", body=99999999), b"not a length"),
        (engine.message("create", b"{}", body=-1), b"not a length"),
        (engine.message("create", b"{}", body=1), b"after the body"),
        (engine.message("create", b"{}", body=3), b"is incomplete"),
        (engine.message("create", b"{}", bundle="relative"), b"not an absolute path"),
        (engine.message("create", b"no json"), b"config.json"),
        (engine.message("create", b"[1]"), b"config.json"),
        (engine.message("create", b"[" * 100000), b"config.json"),
        (engine.message("started", b"{}"), b"state"),
        (engine.message("started", b'{"id": "x", "pid": 4194305, "bundle": "/b"}'), b"pid 4194305"),
        (b"x" * 20000, b"header is longer"),
        (b"vgpu-runtime 1\n\xff\xfe 1\n\n", b"UTF-8"),
    ],
)
def test_garbage_is_answered(shared: Node, request_bytes: bytes, message: bytes) -> None:
    status, body = engine.ask(str(shared.runtime / "runtime.sock"), request_bytes)
    assert status == "refused" and message in body and b"\n" not in body, body


def test_silent_peers_do_not_keep_others_out(fake_engine: Engine, site: Node) -> None:
    silent = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(100)]
    try:
        for sock in silent:
            sock.connect(fake_engine.socket)
        assert site.names() == [], "the API answers meanwhile"
        assert fake_engine.create(HALF)[0] == "config"
    finally:
        for sock in silent:
            sock.close()


def test_the_bound_by_environment_is_live(fake_engine: Engine, site: Node) -> None:
    assert fake_engine.create("VGPU=1")[0] == "config"
    site.settings["container_gpus_max"] = '"0.5"'
    site.write_config()
    assert site.process
    site.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "config.reloaded" in site.event_kinds(), "the new configuration")
    status, body, _runtime = fake_engine.create("VGPU=1", container_id=OTHER)
    assert status == "refused" and b"--annotation dev.vgpu/gpus=1" in body


def test_class_and_priority_by_environment_as_the_site_allows(fake_engine: Engine, site: Node) -> None:
    asked = ("VGPU=0.5", "VGPU_CLASS=latency", "VGPU_PRIORITY=5")
    status, body, _runtime = fake_engine.create(*asked)
    assert status == "refused" and b"VGPU_PRIORITY=5 is more than" in body and site.names() == []
    site.settings |= {"container_priority_max": "5", "container_latency": "true"}
    site.write_config()
    assert site.process
    site.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "config.reloaded" in site.event_kinds(), "the new configuration")
    assert fake_engine.create(*asked)[0] == "config"
    (name,) = site.names()
    spec = site.get(name).spec
    assert (spec.service_class, spec.priority) == (pb.SERVICE_CLASS_LATENCY, 5)


def test_many_at_once(fake_engine: Engine, site: Node) -> None:
    """More than may be worked on at once: every call is answered, and what was granted is exactly what fits."""
    ids = [f"{number:012x}" + "0" * 52 for number in range(70)]
    path = fake_engine.bundle("VGPU=0.1")
    body = (path / "config.json").read_bytes()
    socks = []
    for container_id in ids:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(60)
        sock.connect(fake_engine.socket)
        sock.sendall(engine.message("create", body, id=container_id, bundle=path))
        sock.shutdown(socket.SHUT_WR)
        socks.append(sock)
    answers = [engine.parse(engine._receive(sock))[0] for sock in socks]
    for sock in socks:
        sock.close()
    assert (answers.count("config"), answers.count("refused")) == (10, 60)
    assert len(site.names()) == 10


def test_a_removed_socket_comes_back(fake_engine: Engine, site: Node) -> None:
    os.unlink(fake_engine.socket)
    wait_until(lambda: "socket.repaired" in site.event_kinds(), "the notice")
    assert fake_engine.create(HALF)[0] == "config"


# ---- CDI ----


@pytest.fixture
def with_device(fake_engine: Engine, site: Node) -> Engine:
    """Its bundles are those of containers with one of our CDI devices."""
    fake_engine.mounts.append({"source": str(site.runtime / "cdi"), "destination": "/run/vgpu"})
    return fake_engine


def cdi(site: Node, name: str = "vgpu.dev-gpu.json") -> dict[str, object]:
    text = (site.directory / "cdi" / name).read_text()
    found: dict[str, object] = json.loads(text)
    return found


def one_time(site: Node, **fields: int) -> pb.Slice:
    spec = pb.SliceSpec(gpus_milli=350)
    return site.slices.CreateSlice(pb.CreateSliceRequest(name="job", spec=spec, cdi_device=True, every_user=True)).slice


def test_the_sizes_file(fake_engine: Engine, site: Node) -> None:
    file = cdi(site)
    assert (file["cdiVersion"], file["kind"]) == ("0.5.0", "vgpu.dev/gpu")
    devices = file["devices"]
    assert isinstance(devices, list)
    assert " ".join(d["name"] for d in devices) == "0.1 0.2 0.25 0.3 0.4 0.5 0.6 0.7 0.75 0.8 0.9 1"
    assert devices[5]["containerEdits"] == {"env": ["VGPU=0.5"]}
    edits = file["containerEdits"]
    assert isinstance(edits, dict)
    assert {h["hookName"]: h["args"][1:] for h in edits["hooks"]} == {
        "createRuntime": ["vgpu-hook", "started"],
        "poststop": ["vgpu-hook", "stopped"],
    }
    mounted = {m["containerPath"]: m["hostPath"] for m in edits["mounts"]}
    assert mounted["/run/vgpu"] == str(site.runtime / "cdi")
    assert site.nodes.GetNode(pb.GetNodeRequest()).node.cdi_dir == str(site.directory / "cdi")


def test_a_container_with_a_size(with_device: Engine, site: Node, cgroups: list[Path]) -> None:
    """It bypasses vgpu-runtime: only the hook reports it."""
    with_device.bundle("VGPU=0.25")
    init = with_device.process(cgroups[0], "sleep", "600")
    assert with_device.hook("started", pid=init.pid) == ("ok", b"")
    assert [c.pid for c in site.get(NAME).containers] == [init.pid]
    end(init)
    wait_until(lambda: site.names() == [], "the slice's end")


@pytest.mark.parametrize(("by_device", "daemon_state"), [(False, "served"), (True, "served"), (False, "away")])
def test_the_hosts_run_that_a_container_mounts_is_as_it_was(
    fake_engine: Engine, site: Node, cgroups: list[Path], by_device: bool, daemon_state: str
) -> None:
    run = site.directory / "host-run"
    run.mkdir()
    fake_engine.mounts.append({"source": str(run), "destination": "/run", "type": "bind", "options": ["rbind"]})
    if by_device:
        fake_engine.mounts.append({"source": str(site.runtime / "cdi"), "destination": "/run/vgpu"})
        (run / "vgpu").mkdir()  # by the engine, before it calls the hook
        fake_engine.bundle(HALF)
        init = fake_engine.process(cgroups[0], "sleep", "600")
        assert fake_engine.hook("started", pid=init.pid) == ("ok", b"")
    else:
        init = fake_engine.start_container(cgroups[0], HALF)
        (run / "vgpu").mkdir()
    if daemon_state == "away":
        site.stop(signal.SIGKILL)
    end(init)
    if daemon_state == "away":
        site.start()
    wait_until(lambda: site.names() == [], "the slice's end")
    wait_until(lambda: list(run.iterdir()) == [], "the end of what was made in it")


def test_refusals_of_the_hook(with_device: Engine, site: Node, cgroups: list[Path]) -> None:
    init = with_device.process(cgroups[0], "sleep", "600")
    with_device.bundle("VGPU=2")
    status, body = with_device.hook("started", pid=init.pid)
    assert status == "refused" and b"2 devices" in body
    with_device.bundle("VGPU=none")
    assert b"VGPU=none" in with_device.hook("started", pid=init.pid)[1]
    with_device.bundle(HALF)
    assert b"no cgroup of its own" in with_device.hook("started", pid=os.getpid())[1], "the hook's own cgroup"
    assert site.names() == []


def test_a_bundle_of_a_hook_is_not_waited_for(with_device: Engine, site: Node, cgroups: list[Path]) -> None:
    """Neither a pipe nor a link in the place of config.json holds a worker or leads elsewhere."""
    init = with_device.process(cgroups[0], "sleep", "600")
    config = with_device.bundle(HALF) / "config.json"
    config.unlink()
    os.mkfifo(config)
    for _ in range(2 * disk_work.ACTIVE_MAX):
        status, body = with_device.hook("started", pid=init.pid)
        assert status == "refused" and b"not a regular file" in body, body
    assert with_device.create(HALF, container_id=OTHER)[0] == "config"


def test_an_engine_with_other_pids_is_refused(fake_engine: Engine, site: Node) -> None:
    """In a pid namespace of its own it would name processes of ours as its containers'."""
    path = fake_engine.bundle(HALF)
    request = engine.message("create", (path / "config.json").read_bytes(), bundle=path)
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, engine.__file__, fake_engine.socket]
    apart = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    fake_engine.running.append(apart)
    assert apart.stdin and apart.stdout
    apart.stdin.write(request)
    apart.stdin.close()
    status, body = engine.parse(apart.stdout.read(int(apart.stdout.readline())))
    assert status == "refused" and b"its own pid namespace" in body
    assert site.names() == []


def test_a_slice_removed_during_the_creation_is_not_made_again(
    fake_engine: Engine, site: Node, cgroups: list[Path]
) -> None:
    fake_engine.create(HALF)
    site.slices.DeleteSlice(pb.DeleteSliceRequest(name=NAME, force=True))
    init = fake_engine.process(cgroups[0], "sleep", "600")
    status, body = fake_engine.hook("started", pid=init.pid)
    assert status == "refused" and b"start it again" in body
    assert site.names() == []


def test_a_one_time_device(with_device: Engine, site: Node, cgroups: list[Path]) -> None:
    made = one_time(site)
    assert made.cdi_device == "vgpu.dev/gpu=job"
    (device,) = cdi(site, "vgpu.dev-gpu_job.json")["devices"]  # type: ignore[misc]
    assert device == {"name": "job", "containerEdits": {"env": ["VGPU_SLICE=job"]}}
    with_device.bundle("VGPU_SLICE=job")
    init = with_device.process(cgroups[0], "sleep", "600")
    assert with_device.hook("started", pid=init.pid) == ("ok", b"")
    with_device.bundle("VGPU_SLICE=job", container_id=OTHER)
    second = with_device.process(cgroups[1], "sleep", "600")
    status, body = with_device.hook("started", OTHER, second.pid)
    assert status == "refused" and b"is for one container" in body
    end(init)
    wait_until(lambda: site.names() == [], "the slice's end")
    assert not (site.directory / "cdi/vgpu.dev-gpu_job.json").exists()


def test_an_unused_device_ends(site: Node) -> None:
    site.settings["grace_s"] = "1"
    site.start()
    one_time(site)
    wait_until(lambda: site.names() == [], "its end")
    assert not (site.directory / "cdi/vgpu.dev-gpu_job.json").exists()


def test_device_files_after_a_restart(site: Node) -> None:
    """Those of slices that are there are written, stale ones removed, others' files are left alone."""
    site.start()
    one_time(site)
    site.stop(signal.SIGKILL)
    folder = site.directory / "cdi"
    (folder / "vgpu.dev-gpu_job.json").unlink()
    (folder / "vgpu.dev-gpu_stale.json").write_text("{}")
    (folder / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    site.env["FAKE_DEVICES"] = "2"
    site.start()
    assert sorted(p.name for p in folder.iterdir()) == ["nvidia.yaml", "vgpu.dev-gpu.json", "vgpu.dev-gpu_job.json"]
    devices = cdi(site)["devices"]
    assert isinstance(devices, list) and devices[-1]["name"] == "2", "the second device"


def test_without_cdi(node: Node) -> None:
    node.start()
    with pytest.raises(grpc.RpcError, match="cdi_dir"):
        one_time(node)
    assert node.names() == []


def test_no_specification_of_nvidia_is_said_once(node: Node) -> None:
    node.settings |= {"nvidia_cdi_dirs": "[]", "cdi_dir": f'"{node.directory}/cdi"'}
    node.start()
    with pytest.raises(grpc.RpcError, match="nvidia-ctk"):
        one_time(node)
    assert node.event_kinds().count("cdi.failed") == 1
    assert not (node.directory / "cdi/vgpu.dev-gpu.json").exists()
