"""The shells around containers by themselves: messages, cgroups, pids, CDI files, the store, and a disk that hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.daemon import engine
from vgpud.containers import cdi, disk_work, server
from vgpud.containers import messages as wire
from vgpud.containers.server import Containers, Site, slice_name
from vgpud.core.events import ContainerCreated, ContainerStarted, ForgetContainer, SaveContainer, SaveSlice
from vgpud.core.model import Container, Denied, Reason, Share, Slice, Spec
from vgpud.core.observed import Snapshot
from vgpud.core.origins import User
from vgpud.daemon import cdi as daemon_cdi
from vgpud.errors import DriverError
from vgpud.host import cgroups, processes
from vgpud.metrics import Metrics
from vgpud.oci.request import Limits, RequestError
from vgpud.store.database import MIGRATIONS, Store

KNOWN = Container("c" * 64, "a", True, 12, 34, "/docker/c", 56, started=True)
ALLOCATED = User("a", ephemeral=True, cdi_device=True, cdi_used=True)
SLICE = Slice(ALLOCATED, "u", 1, Spec(500), (Share("GPU-0", 500, 500, 1, 1),), 0, 1)


# ---- messages ----


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda noise: wire.PROTOCOL + b"\nop create\n" + noise))
def test_any_bytes_are_a_request_or_a_wire_error(raw: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        parts = wire.split(raw)
        if parts:
            header = wire.parse_header(parts[0])
            assert header.operation in wire.OPERATIONS and 0 <= header.body_bytes <= wire.BODY_BYTES_MAX
    with contextlib.suppress(wire.WireError):
        assert wire.parse_state(raw).bundle.startswith("/")


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=40), st.binary(max_size=50))
def test_a_request_arrives_as_it_was_sent(name: str, body: bytes) -> None:
    raw = engine.message("create", body, id=name, bundle=f"/b/{name.replace(chr(0), '')}", self="/front")
    parts = wire.split(raw)
    assert parts and parts[1] == body
    header = wire.parse_header(parts[0])
    assert (header.container_id, header.front, header.body_bytes) == (name, "/front", len(body))


def test_a_refusal_is_one_line() -> None:
    status, body = engine.parse(wire.refusal("what\nand\rwhy\x1b[2J"))
    assert (status, body) == ("refused", b"what and why [2J")


@pytest.mark.parametrize(
    "state", [{"id": 1}, {"id": "a", "bundle": "b"}, [], 5, {"id": "a", "bundle": "/b", "pid": "x"}]
)
def test_states_that_are_none(state: Any) -> None:
    with pytest.raises(wire.WireError, match="state"):
        wire.parse_state(json.dumps(state).encode())


def test_names_of_slices() -> None:
    assert slice_name("0123456789abcdef" * 4) == "c-0123456789ab"
    odd = {slice_name(name) for name in ("test", "Test", "a_very-long.name+of-somebody", "0123456789AB")}
    assert len(odd) == 4 and all(len(name) == 14 and name.islower() for name in odd)


# ---- processes and cgroups ----


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("0::/system.slice/docker-a.scope\n", ("/system.slice/docker-a.scope",)),
        ("0::/\n", ()),
        ("9:name=systemd:/docker/a\n4:memory:/docker/a\n1:cpu:/\n0::/docker/b\n", ("/docker/b", "/docker/a")),
        ("0::/docker/a (deleted)\n", ("/docker/a",)),
        ("0::/a:b:c\n", ("/a:b:c",)),
        ("0::/../x\n", ("/../x",)),
        ("", ()),
        ("garbage\n", ()),
    ],
)
def test_cgroup_paths(text: str, paths: tuple[str, ...]) -> None:
    assert cgroups.parse(text) == paths


def test_a_hierarchy_without_a_controller_comes_last() -> None:
    """podman gives a systemd in a container that one to write, where version 1 is in use."""
    text = "3:name=systemd:/libpod/other\n2:pids:/libpod/mine\n1:cpu:/libpod/mine\n"
    assert cgroups.parse(text) == ("/libpod/mine", "/libpod/other")


def test_the_path_that_is_the_containers_alone() -> None:
    assert cgroups.own_path(("/pods/p", "/pods/p/c"), ("/pods/p", "/engine")) == "/pods/p/c"
    assert cgroups.own_path(("/user.slice",), ("/user.slice",)) == "", "cgroups are switched off"
    assert cgroups.own_path((), ()) == ""


def _proc(folder: Path, pid: int, cgroup: str, state: str = "S", comm: str = "sh", threads: int = 1) -> None:
    (folder / str(pid)).mkdir(parents=True)
    (folder / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")
    rest = " ".join(["0"] * 16 + [str(threads), "0", "777"] + ["0"] * 20)
    (folder / str(pid) / "stat").write_text(f"{pid} ({comm}) {state} {rest}\n")


def test_members_of_a_cgroup(tmp_path: Path) -> None:
    _proc(tmp_path, 1, "/docker/a")
    _proc(tmp_path, 2, "/docker/a/below")
    _proc(tmp_path, 3, "/docker/ab")
    _proc(tmp_path, 4, "/docker/a", state="Z")
    _proc(tmp_path, 6, "/docker/a", state="Z", threads=2)
    (tmp_path / "self").mkdir()
    (tmp_path / "5").mkdir()
    assert sorted(cgroups.members("/docker/a", tmp_path)) == [1, 2, 6]


@pytest.mark.parametrize("comm", ["sh", "a) Z 1 (b", ")", "x y", "("])
def test_start_time_whatever_the_program_is_called(tmp_path: Path, comm: str) -> None:
    _proc(tmp_path, 7, "/", comm=comm)
    assert processes.start_time(7, tmp_path) == 777
    assert processes.runs(7, tmp_path)
    assert processes.start_time(8, tmp_path) == 0
    assert not processes.runs(8, tmp_path)


def test_a_process_is_its_pid_and_its_start() -> None:
    process = subprocess.Popen(["sleep", "600"])
    started = processes.start_time(process.pid)
    assert processes.open_process(process.pid, started + 1) == -1
    pidfd = processes.open_process(process.pid, started)
    assert pidfd >= 0 and not processes.has_ended(pidfd)
    process.kill()
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    assert processes.has_ended(pidfd)
    assert processes.open_process(process.pid, started) == -1, "a zombie has ended"
    assert not processes.runs(process.pid)
    process.wait()
    os.close(pidfd)


# ---- the store ----


def test_the_store_keeps_containers(tmp_path: Path) -> None:
    store = Store(tmp_path)
    other = replace(KNOWN, container_id="d", started=False, cgroup="")
    store.apply([SaveSlice(SLICE), SaveContainer(KNOWN), SaveContainer(other), SaveContainer(replace(KNOWN, pid=99))])
    store.apply([ForgetContainer("d"), ForgetContainer("unknown")])
    store.close()
    loaded = Store(tmp_path).load(10)
    assert loaded.containers == (replace(KNOWN, pid=99),)
    assert loaded.slices == (SLICE,)


def test_a_database_of_the_last_release_is_taken_over(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "vgpud.sqlite3", isolation_level=None)
    for statement in MIGRATIONS[0]:
        database.execute(statement)
    database.execute("PRAGMA user_version = 1")
    body = json.loads(
        '{"name": "a", "uid": "u", "serial": 1, "spec": {"gpus_milli": 500, "min_milli": null, "max_milli": null,'
        ' "mem_min_bytes": null, "mem_max_bytes": null, "weight": 0, "priority": 0, "device_uuids": []},'
        ' "shares": [{"device_uuid": "GPU-0", "min_milli": 500, "max_milli": 500, "mem_min_bytes": 1,'
        ' "mem_max_bytes": 1}], "ephemeral": false, "owner_uid": 0, "created_wall_ns": 1, "revision": 4}'
    )
    database.execute("INSERT INTO slices VALUES ('u', 'a', ?)", (json.dumps(body),))
    database.close()
    store = Store(tmp_path)
    (kept,) = store.load(10).slices
    assert (kept.origin, kept.revision) == (User("a"), 4)
    assert kept.spec == Spec(500)
    store.apply([SaveContainer(KNOWN)])
    assert store.load(10).containers == (KNOWN,)


def test_the_metric_has_a_bounded_label() -> None:
    metrics = Metrics()
    metrics.put(Snapshot(containers=(("train", 3), ("serve", 1))))
    (family,) = [m for m in metrics.collect() if m.name == "vgpu_containers"]
    assert {s.labels["slice"]: s.value for s in family.samples} == {"train": 3, "serve": 1}
    assert all(s.labels.keys() == {"slice"} for s in family.samples)


# ---- CDI files ----


def make_collected(**fields: Any) -> cdi.Collected:
    nodes = [
        {"path": path, "type": "c", "permissions": "rw"} for path in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1")
    ]
    own = {"GPU-0": frozenset({"/dev/nvidia0"}), "GPU-1": frozenset({"/dev/nvidia1"})}
    return replace(cdi.Collected({"deviceNodes": nodes, "mounts": []}, ("0.5", "1"), own), **fields)


def test_instances_of_a_gpu_have_its_node_in_common(tmp_path: Path) -> None:
    paths = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3")
    nodes = [{"path": path, "type": "c", "permissions": "rw"} for path in paths]
    each = {
        "MIG-a": frozenset({"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3"}),
        "MIG-b": frozenset({"/dev/nvidia0"}),
        "GPU-1": frozenset({"/dev/nvidia1"}),
    }
    files = cdi.Cdi(tmp_path)
    instances = frozenset({"MIG-a", "MIG-b"})
    assert files.set(cdi.Collected({"deviceNodes": nodes, "mounts": []}, ("1",), each, instances))
    assert _paths(tmp_path, cdi.FILE) == ["/dev/nvidiactl", "/dev/nvidia1"], "a slice by size is on GPUs"
    for name, uuid in (("a", "MIG-a"), ("b", "MIG-b"), ("c", "GPU-1")):
        files.open(name, [uuid])
    found = {name: _paths(tmp_path, f"vgpu.dev-gpu_{name}.json") for name in "abc"}
    assert found == {
        "a": ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3"],
        "b": ["/dev/nvidiactl", "/dev/nvidia0"],
        "c": ["/dev/nvidiactl", "/dev/nvidia1"],
    }


def test_where_there_are_only_instances_a_size_is_a_part_of_one(tmp_path: Path) -> None:
    nodes = [{"path": path, "type": "c", "permissions": "rw"} for path in ("/dev/nvidia-caps/nvidia-cap3", "/dev/a")]
    each = {"MIG-a": frozenset({"/dev/nvidia-caps/nvidia-cap3"}), "MIG-b": frozenset[str]()}
    cdi.Cdi(tmp_path).set(cdi.Collected({"deviceNodes": nodes, "mounts": []}, ("1",), each))
    assert _paths(tmp_path, cdi.FILE) == ["/dev/nvidia-caps/nvidia-cap3", "/dev/a"]


def _paths(folder: Path, name: str) -> list[str]:
    return [node["path"] for node in read(folder, name)["containerEdits"]["deviceNodes"]]


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def test_sizes() -> None:
    assert cdi.sizes(3, 4000)[-4:] == ("0.9", "1", "2", "3")
    assert cdi.sizes(8, 4000)[-1] == "4", "no more than a container may ask for"
    assert cdi.sizes(1, 250) == ("0.1", "0.2", "0.25")


def test_a_one_time_device_has_the_nodes_of_its_slice(tmp_path: Path) -> None:
    files = cdi.Cdi(tmp_path)
    files.open("early", ["GPU-1"])
    assert files.why_not and not list(tmp_path.iterdir()), "nothing before the devices are known"
    assert files.set(make_collected()) and not files.why_not
    files.open("late", ["GPU-0", "GPU-1"])
    nodes = {
        name: [n["path"] for n in read(tmp_path, f"vgpu.dev-gpu_{name}.json")["containerEdits"]["deviceNodes"]]
        for name in ("early", "late")
    }
    assert nodes == {
        "early": ["/dev/nvidiactl", "/dev/nvidia1"],
        "late": ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"],
    }


def test_files_are_written_when_something_changes(tmp_path: Path) -> None:
    files = cdi.Cdi(tmp_path / "made")
    assert files.set(make_collected())
    assert not files.set(make_collected())
    file = tmp_path / "made" / "vgpu.dev-gpu.json"
    assert file.stat().st_mode & 0o777 == 0o644
    file.unlink()
    assert files.set(make_collected()), "somebody emptied /var/run/cdi"
    assert files.set(make_collected(sizes=("0.5",)))
    assert [d["name"] for d in read(file.parent, file.name)["devices"]] == ["0.5"]
    assert files.set(make_collected(sizes=())), "a file without devices is invalid"
    assert not file.exists()
    files.open("x", [])
    assert files.set(None, "no driver") and files.why_not == "no driver"
    assert not list(file.parent.iterdir()), "a stale file would promise what cannot be had"
    files.close("x")
    files.close("x")


def test_driver_files_of_the_specification_are_covered(tmp_path: Path) -> None:
    for library in ("libvgpu.so", "libvgpu-ml.so"):
        (tmp_path / library).touch()
    mounts = [
        {"source": f"/host/{n}", "destination": f"/usr/lib64/{n}", "options": ["ro"]}
        for n in ("libcuda.so.9", "libx.so")
    ]
    found = cdi.nvidia_cdi.Edits(mounts=mounts, env=["NVIDIA_VISIBLE_DEVICES=void", "A=1"], gids=[44])
    facts = cdi.Facts(tmp_path, Path("/d"), None, "", Path("/run/vgpud/cdi"), "/front", (), (), 4000, "closed")
    edits = cdi._edits(found, tmp_path, facts)
    sources = {m["containerPath"]: m["hostPath"] for m in edits["mounts"]}
    assert sources["/usr/lib64/libcuda.so.9"] == str(tmp_path / "libvgpu.so")
    assert sources["/usr/lib64/libx.so"] == "/host/libx.so"
    assert edits["env"] == ["A=1", "VGPU_MODE=closed"]
    assert str(tmp_path / "libvgpu-ml.so") in sources.values(), "found by no mount of theirs: added where loaders look"


def test_a_driver_on_a_hanging_disk_takes_one_thread_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, looks = threading.Event(), []

    def hang(_facts: object) -> cdi.Collected:
        looks.append(1)
        go_on.wait(60)
        return make_collected()

    monkeypatch.setattr(daemon_cdi, "collect", hang)
    monkeypatch.setattr(daemon_cdi, "COLLECT_S", 0.1)

    async def scenario() -> list[str]:
        notes: list[str] = []
        files = daemon_cdi.DeviceFiles(tmp_path, lambda: None, lambda entry: notes.append(entry.kind))
        await files.refresh()
        await files.refresh()
        assert len(looks) == 1 and "see its disk" in files.why_not()
        go_on.set()
        while not (tmp_path / "vgpu.dev-gpu.json").exists():
            await files.refresh()
        assert files.why_not() == ""
        return notes

    assert asyncio.run(scenario()) == ["cdi.failed", "cdi.written"]


# ---- a disk that hangs ----


class Backend:
    """A daemon that says yes to everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.containers: dict[str, Container] = {}
        self.end_reasons: list[str] = []
        self.notes: list[str] = []

    def site(self) -> Site:
        return Site(self.folder, self.folder, Path("/d"), None, "/sim", (), "coast", Limits(4000), "session")

    def container(self, container_id: str) -> Container | None:
        return self.containers.get(container_id)

    async def create_container(self, event: ContainerCreated) -> Slice | Denied:
        self.containers[event.container_id] = Container(
            event.container_id, "a", True, event.pid, event.pid_start, "", event.wall_ns
        )
        return SLICE

    async def start_container(self, event: ContainerStarted) -> Slice | Denied:
        return SLICE

    def end_container(self, container_id: str, why: str, restarts: bool = False) -> None:
        self.containers.pop(container_id, None)
        self.end_reasons.append(why)

    def indices(self, slice_: Slice) -> tuple[int, ...]:
        return (0,)

    def container_note(self, kind: str, container_id: str, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Preparing hangs until the event is set."""
    go_on = threading.Event()
    monkeypatch.setattr(server, "prepare", lambda *_: go_on.wait(60) or 1 / 0)
    monkeypatch.setattr(server, "library_tree", lambda *_: Path("/tree"))
    yield go_on
    go_on.set()


async def talk(path: Path, request: bytes) -> tuple[str, bytes]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(request)
    writer.write_eof()
    reply = await reader.read()
    writer.close()
    return engine.parse(reply)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ZeroDivisionError(), b"see its log"),
        (
            PermissionError(13, "Permission denied", "/x"),
            b"preparing the container: [Errno 13] Permission denied: '/x'",
        ),
        (DriverError("no shims: build them"), b"preparing the container: no shims: build them"),
        (RequestError("musl"), b"musl"),
    ],
)
def test_whatever_fails_is_answered_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, message: bytes
) -> None:
    def fail(*_: object) -> Path:
        raise fault

    monkeypatch.setattr(server, "library_tree", fail)
    config = json.dumps({"ociVersion": "1.0.2", "process": {"env": ["VGPU=0.5"]}}).encode()

    async def scenario() -> None:
        backend = Backend(tmp_path)
        made = Containers(backend)
        made.start(tmp_path / "runtime.sock", tmp_path / "private.sock", 0o660, -1)
        status, body = await talk(tmp_path / "runtime.sock", engine.message("create", config, id="c", bundle="/b"))
        assert status == "refused" and message in body, body
        assert not backend.containers and backend.end_reasons == ["it could not be prepared"]
        await made.stop()

    asyncio.run(scenario())


def test_files_of_former_containers_go_and_those_of_new_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first container may come while leftovers of former ones are still being removed."""
    scratch = tmp_path / "containers"
    for name in ("former", "lives"):
        (scratch / name).mkdir(parents=True)
    monkeypatch.setattr(server, "scratch_of", lambda _site, container: scratch / container.container_id)
    in_thread = asyncio.to_thread

    async def late(work: Any, *arguments: Any) -> Any:
        (scratch / "new").mkdir()
        return await in_thread(work, *arguments)

    async def scenario() -> None:
        made = Containers(Backend(tmp_path))
        me = os.getpid()
        made.adopt([replace(KNOWN, container_id="lives", pid=me, pid_start=processes.start_time(me), cgroup="")])
        monkeypatch.setattr(asyncio, "to_thread", late)
        made.start(tmp_path / "runtime.sock", tmp_path / "private.sock", 0o660, -1)
        while (scratch / "former").exists():
            await asyncio.sleep(0.01)
        assert sorted(path.name for path in scratch.iterdir()) == ["lives", "new"]
        await made.stop()

    asyncio.run(scenario())


def test_a_hanging_disk_does_not_keep_the_daemon_from_ending() -> None:
    script = """
import asyncio, threading
from vgpud.containers.disk_work import Work

async def main():
    try:
        await Work().run(0.1, threading.Event().wait)
    except asyncio.TimeoutError:
        print("late")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "late\n"


def test_one_process_takes_few_of_the_requests_in_hand(tmp_path: Path) -> None:
    """Also by connections that say nothing; what is closed is free."""

    async def scenario() -> None:
        made = Containers(Backend(tmp_path))
        path = tmp_path / "runtime.sock"
        made.start(path, tmp_path / "private.sock", 0o660, -1)
        silent = [await asyncio.open_unix_connection(str(path)) for _ in range(server.PER_PROCESS_MAX)]
        state = json.dumps({"id": "c0", "bundle": "/b", "pid": 0}).encode()
        status, body = await talk(path, engine.message("stopped", state))
        said = f"pid {os.getpid()} has {server.PER_PROCESS_MAX} requests in progress"
        assert (status, said.encode() in body) == ("refused", True)
        for _reader, writer in silent:
            writer.close()
        while (await talk(path, engine.message("stopped", state)))[0] != "ok":
            await asyncio.sleep(0.01)
        await made.stop()

    asyncio.run(scenario())


def test_containers_of_other_pods_leave_requests_to_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the claim to be read again, which tenants could do with any number of containers."""
    monkeypatch.setattr(server, "PER_PROCESS_MAX", server.REQUESTS_MAX)
    config = json.dumps({"ociVersion": "1.0.2", "process": {"env": ["VGPU_SLICE=k"]}}).encode()
    known = asyncio.Event()

    class Claimed(Backend):
        async def create_container(self, event: ContainerCreated) -> Slice | Denied:
            return Denied(Reason.DENIED, "not reserved for this pod", field="pod")

        async def wait_for_pod(self, slice_name: str, pod: str) -> bool:
            return await known.wait() and False

    async def scenario() -> None:
        made = Containers(Claimed(tmp_path))
        path = tmp_path / "runtime.sock"
        made.start(path, tmp_path / "private.sock", 0o660, -1)
        create = [engine.message("create", config, id=f"c{n}", bundle="/b") for n in range(server.REQUESTS_MAX)]
        asking = [asyncio.create_task(talk(path, one)) for one in create]
        done, waiting = await asyncio.wait(asking, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < server.REQUESTS_MAX - server.POD_WAITS_MAX:
            more, waiting = await asyncio.wait(waiting, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            assert more, f"{len(waiting)} wait"
            done |= more
        known.set()
        assert {status for status, _body in await asyncio.gather(*asking)} == {"refused"}
        assert made._pod_waits == 0
        await made.stop()

    asyncio.run(scenario())


def test_a_hanging_disk_stops_neither_the_loop_nor_other_requests(
    tmp_path: Path, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WORK_S", 3.0)
    monkeypatch.setattr(server, "PER_PROCESS_MAX", server.REQUESTS_MAX)
    config = json.dumps({"ociVersion": "1.0.2", "process": {"env": ["VGPU=0.5"]}}).encode()

    async def scenario() -> None:
        backend = Backend(tmp_path)
        made = Containers(backend)
        path = tmp_path / "runtime.sock"
        made.start(path, tmp_path / "private.sock", 0o660, -1)
        assert path.stat().st_mode & 0o777 == 0o660
        stuck = [
            asyncio.create_task(talk(path, engine.message("create", config, id=f"c{number}", bundle="/b")))
            for number in range(disk_work.ACTIVE_MAX)
        ]
        while len(backend.containers) < disk_work.ACTIVE_MAX:
            await asyncio.sleep(0.01)
        state = json.dumps({"id": "c0", "bundle": "/b", "pid": 0}).encode()
        assert await talk(path, engine.message("stopped", state)) == ("ok", b""), "answered while all workers hang"
        assert not any(task.done() for task in stuck)
        for status, body in await asyncio.gather(*stuck):
            assert status == "refused" and b"longer than 3 s" in body, body
        assert not backend.containers, "nothing is kept for containers that could not be prepared"
        plain = json.dumps({"ociVersion": "1.0.2", "process": {"env": ["VGPU=none"]}}).encode()
        assert (await talk(path, engine.message("create", plain, id="d", bundle="/b")))[0] == "pass", (
            "what hangs is left"
        )
        monkeypatch.setattr(disk_work, "THREADS_MAX", disk_work.ACTIVE_MAX)
        status, body = await talk(path, engine.message("create", plain, id="d", bundle="/b"))
        assert status == "refused" and b"still wait for a disk" in body, body
        await made.stop()
        assert path.exists(), "fronts wait for the next daemon"

    asyncio.run(scenario())
