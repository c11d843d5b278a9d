"""`vgpud` as a command: what it refuses and how, what survives, of what the service manager is notified."""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import grpc
import pytest

from tests.attach import client
from tests.daemon.node import Node, wait_until
from tests.ports import find_free_ports
from vgpud._shim import ffi
from vgpud.errors import ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb

UNIT = Path(__file__).parents[2] / "vgpud" / "setup" / "vgpud.service"


def refusal(node: Node, code: ExitCode, *words: str, arguments: tuple[str, ...] = ()) -> None:
    """The daemon refuses with this exit code and one line that holds the words, and creates nothing."""
    done = node.run(*arguments)
    assert done.returncode == code, done.stderr
    line = done.stderr.strip()
    assert line.startswith("vgpud: ")
    assert "\n" not in line
    for word in words:
        assert word in line
    assert not node.runtime.exists()
    assert not node.state.exists()


def test_driver_that_does_not_start(node: Node) -> None:
    node.env = {"FAKE_CUINIT": "803"}
    refusal(node, ExitCode.UNREACHABLE, "cuInit says CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "nvidia-smi")
    node.env = {"FAKE_CUINIT": "100"}
    refusal(node, ExitCode.UNREACHABLE, "CUDA_ERROR_NO_DEVICE", "--device sim")


def test_driver_that_is_missing(node: Node) -> None:
    node.settings["driver"] = '"/nonexistent/libcuda.so.1"'
    refusal(node, ExitCode.UNREACHABLE, "no CUDA driver", "/nonexistent/libcuda.so.1", "install the NVIDIA driver")


def test_driver_that_crashes_does_not_take_us_along(node: Node, tmp_path: Path) -> None:
    source, library = tmp_path / "crash.c", tmp_path / "crash.so"
    source.write_text("int cuInit(unsigned f) { (void)f; return *(volatile int *)8; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    node.settings["driver"] = f'"{library}"'
    refusal(node, ExitCode.UNREACHABLE, "crashed", str(library))


def test_nvml_that_is_missing(node: Node) -> None:
    node.settings["nvml"] = '"/nonexistent/libnvidia-ml.so.1"'
    refusal(node, ExitCode.UNREACHABLE, "no NVML", "/nonexistent/libnvidia-ml.so.1")


def test_no_device(node: Node) -> None:
    node.env = {"FAKE_DEVICES": "0"}
    refusal(node, ExitCode.UNREACHABLE, "lists no device")


def test_devices_that_cannot_be_shared(node: Node) -> None:
    node.env = {"FAKE_COMPUTE_MODE": "3"}
    refusal(node, ExitCode.DEVICE_REFUSED, "exclusive-process", "nvidia-smi -i 0 -c DEFAULT")
    node.env = {"FAKE_MIG": "1"}
    refusal(node, ExitCode.DEVICE_REFUSED, "MIG", "-mig 0")


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ({"FAKE_CUINIT": "803"}, ExitCode.UNREACHABLE),
        ({"FAKE_DEVICES": "0"}, ExitCode.UNREACHABLE),
        ({"FAKE_MIG": "1"}, ExitCode.DEVICE_REFUSED),
        ({"FAKE_COMPUTE_MODE": "3"}, ExitCode.DEVICE_REFUSED),
    ],
)
def test_systemd_tries_again_until_the_driver_and_the_devices_are_there(
    node: Node, tmp_path: Path, missing: dict[str, str], code: int
) -> None:
    """A daemon that was started before them is not to be forgotten; every second would fill the log."""
    node.env = missing
    unit = [line.partition("=") for line in UNIT.read_text().splitlines() if line[:1] not in ("#", "[", "")]
    settings = {name: value for name, _, value in unit}
    assert str(node.run().returncode) == str(int(code)) not in settings["RestartPreventExitStatus"].split()
    assert settings["Restart"] == "on-failure" and settings["StartLimitIntervalSec"] == "0"
    sleep = tmp_path / "sleep"
    sleep.write_text("#!/bin/sh\necho $1\n")
    sleep.chmod(0o755)

    def pause(status: int) -> str:
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "EXIT_STATUS": str(status)}
        words = shlex.split(settings["ExecStopPost"])
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.strip()

    stop_s = int(settings["TimeoutStopSec"].removesuffix("s"))
    assert 5 <= int(pause(code)) < stop_s and not any(map(pause, (0, 1, 2, 8)))


def test_device_that_is_not_there(node: Node) -> None:
    node.env = {"FAKE_NODE": "171"}
    refusal(node, ExitCode.USAGE, "'GPU-1'", "GPU-000000ab-", arguments=("--device", "GPU-1"))


def test_simulated_device_without_its_server(node: Node) -> None:
    simulated = Path(__file__).parent.parent.parent / "vgpud" / "lib" / "sim" / "libcuda.so.1"
    if not simulated.exists():
        pytest.skip("the simulated driver is not built: make build")
    arguments = ("--device", "sim", "--sim-dir", str(node.directory / "nosim"))
    refusal(node, ExitCode.UNREACHABLE, "simulated", "vgpu sim start", arguments=arguments)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("defualt_max", '"same"', ("'defualt_max'", "did you mean 'default_max'?")),
        ("mode", '"cost"', ("'cost'", '"coast"')),
        ("device", '"cuda"', ("'cuda'", '"sim"')),
        ("slices_max", '"many"', ("'many'", "a whole number")),
        ("slices_max", "0", ("slices_max = 0", "1 to 128")),
        ("metrics", '"9419"', ("'9419'", "127.0.0.1:9419")),
        ("metrics", f'"a:{"9" * 5000}"', ("metrics = ", "127.0.0.1:9419")),
        ("listen", f'"a:{"9" * 5000}"', ("listen = ", "0.0.0.0:7443")),
        ("socket_mode", '"0466"', ("0660",)),
        ("context_bytes", '"8"', ("context_bytes: 8 has no unit", "write 8G")),
        ("state_bytes_max", "2.5", ("state_bytes_max = 2.5", "a whole number")),
        ("group", '"no-such-group-here"', ("no-such-group-here", "groupadd")),
        ("runtime_dir", "3", ("runtime_dir = 3", "a string")),
        ("[arbiter]", "quantom_ns = 1", ("'quantom_ns'", "'quantum_ns'")),
        ("[arbiter]", "quantum_ns = 1", ("quantum_ns = 1", "ns")),
        ("x = [", "", ("is not TOML",)),
    ],
)
def test_wrong_configuration(node: Node, key: str, value: str, words: tuple[str, ...]) -> None:
    node.settings[key] = value
    refusal(node, ExitCode.USAGE, *words)


def test_check_config(node: Node) -> None:
    node.settings = {"default_max": '"device"', "context_bytes": '"512MiB"', "[arbiter]": "quantum_ns = 6_000_000"}
    node.write_config()
    check = [sys.executable, "-m", "vgpud.serve", "check-config"]
    good = subprocess.run([*check, "--config", node.config], capture_output=True, text=True, check=False)
    assert (good.returncode, good.stdout) == (0, f"{node.config}: ok\n")
    node.settings = {"nodes": '"x"'}
    node.write_config()
    bad = subprocess.run([*check, "--config", node.config], capture_output=True, text=True, check=False)
    assert bad.returncode == ExitCode.USAGE
    assert "no key 'nodes': did you mean 'node'?" in bad.stderr
    none = subprocess.run([*check, "--config", "/nonexistent.toml"], capture_output=True, text=True, check=False)
    assert none.returncode == ExitCode.USAGE


def test_second_daemon_is_refused_and_the_first_unharmed(node: Node) -> None:
    node.start()
    node.create()
    done = node.run()
    assert done.returncode == ExitCode.CONFLICT
    assert node.process
    assert f"pid {node.process.pid} (" in done.stderr
    assert f"API socket {node.runtime / 'vgpud.sock'}: stop that one" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert node.names() == ["a"]
    assert client.attach(node.socket()).status == client.OK


def test_second_daemon_on_the_same_state_is_refused(node: Node) -> None:
    node.start()
    node.env = {"FAKE_NODE": "1"}  # another device
    done = node.run("--runtime-dir", str(node.directory / "other"))
    assert done.returncode == ExitCode.CONFLICT
    assert f"uses {node.state}: stop it or choose another --state-dir" in done.stderr
    assert node.create().name == "a"


def test_one_directory_for_everything(node: Node) -> None:
    node.state = node.runtime
    node.start()
    assert node.create().name == "a"


def test_socket_rights(node: Node) -> None:
    group = os.getgroups()[0] if os.getgroups() else os.getgid()
    import grp

    node.settings["group"] = f'"{grp.getgrgid(group).gr_name}"'
    node.start()
    info = (node.runtime / "vgpud.sock").stat()
    assert (info.st_mode & 0o777, info.st_gid) == (0o660, group)
    assert (node.runtime / "private").stat().st_mode & 0o777 == 0o700


def test_a_strict_umask_does_not_close_the_slices(node: Node) -> None:
    node.start(preexec=lambda: os.umask(0o077) and None)
    node.create()
    for path in (node.runtime, node.runtime / "slices", Path(node.socket()).parent):
        assert path.stat().st_mode & 0o777 == 0o755, path
    assert Path(node.socket()).stat().st_mode & 0o777 == 0o666
    assert [p.stat().st_mode & 0o077 for p in (node.runtime / "private", node.state)] == [0, 0]


def test_runtime_directory_that_others_can_write(node: Node) -> None:
    node.runtime.mkdir()
    node.runtime.chmod(0o777)
    done = node.run()
    assert done.returncode == ExitCode.DENIED
    assert f"chmod go-w {node.runtime}" in done.stderr
    assert not list(node.runtime.iterdir())


def test_runtime_directory_with_a_long_name(node: Node) -> None:
    node.runtime = node.directory / ("x" * 90)
    refusal(node, ExitCode.USAGE, "too long", "--runtime-dir")


def test_metrics_address_that_is_taken(node: Node) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = node.run("--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == ExitCode.OTHER
    assert "Address already in use; choose another (--metrics" in done.stderr.splitlines()[-1]


def test_graceful_stop(node: Node) -> None:
    node.start()
    node.create()
    tenant = client.attach(node.socket())
    assert node.stop(signal.SIGTERM) == ExitCode.OK
    assert tenant.sock.recv(1) == b"", "the tenant sees the end and coasts"
    assert Path(node.socket()).exists(), "containers have its directory mounted"
    assert not (node.runtime / "vgpud.sock").exists()


def test_slices_survive_kill(node: Node) -> None:
    node.start()
    made = node.create("a", 250, request_id="r1")
    node.create("b", 300)
    node.slices.DeleteSlice(pb.DeleteSliceRequest(name="b"))
    node.stop(signal.SIGKILL)
    node.start()
    kept = node.get("a")
    assert (kept.uid, kept.spec, kept.revision) == (made.uid, made.spec, made.revision)
    assert node.names() == ["a"]
    assert node.create("a", 250, request_id="r1").uid == made.uid, "the request is still known"
    assert client.attach(node.socket()).status == client.OK, "a stale socket was replaced"


def test_nothing_acknowledged_is_lost(node: Node) -> None:
    """Kills the daemon at random moments while slices are made and removed; what was answered must be there."""
    alive: set[str] = set()
    maybe: set[str] = set()
    for round_ in range(5):
        node.start()
        names = set(node.names())
        assert alive <= names <= alive | maybe
        alive, maybe = names, set()
        assert node.process
        threading.Timer(0.02 + 0.03 * round_, node.process.kill).start()
        try:
            for number in range(1000):
                if len(alive) > 5:
                    name = alive.pop()
                    maybe.add(name)
                    node.slices.DeleteSlice(pb.DeleteSliceRequest(name=name))
                    maybe.discard(name)
                name = f"s{round_}-{number}"
                maybe.add(name)
                node.create(name, 10, spec={"mem_min_bytes": 1 << 30, "mem_max_bytes": 1 << 30})
                maybe.discard(name)
                alive.add(name)
        except grpc.RpcError:
            node.process.wait()
            node.process = None
            node.hang_up()


def test_tenants_come_back_after_a_restart(node: Node) -> None:
    node.start()
    node.create(ephemeral=True)
    first = client.attach(node.socket())
    uuid = first.devices[0][0]
    node.stop(signal.SIGKILL)
    assert first.sock.recv(1) == b""
    node.start()
    assert node.processes() == []
    assert node.names() == ["a"], "an ephemeral slice waits for its programs"
    back = client.attach(node.socket(), client.request(client.RESUME, held=((uuid, 1 << 30),)))
    (shown,) = node.processes()
    assert shown.resumed
    assert shown.devices[0].mem_held_bytes == 1 << 30
    assert shown.process_id == back.process_id > first.process_id


def test_full_disk_refuses_new_slices_only(node: Node) -> None:
    """A limit on the size of files stands for the full disk; the pages of new programs are files as well."""
    node.start()
    node.create("a", 100)
    tenant = client.attach(node.socket())
    wait_until(node.processes, "the program in the list")
    assert node.process
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    with pytest.raises(grpc.RpcError) as error:
        node.create("b", 100)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "nothing was changed" in error.value.details()
    assert "check that its disk has free space" in error.value.details()
    assert node.names() == ["a"]
    assert not Path(node.socket("b")).exists()
    refused = client.attach(node.socket())
    assert (refused.status, refused.fds) == (client.FULL, [])
    assert "out of resources" in refused.text
    assert [p.process_id for p in node.processes()] == [tenant.process_id], "running programs are not touched"
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, unlimited)
    assert node.create("b", 100).name == "b", "it recovers without a restart"
    assert client.attach(node.socket()).status == client.OK


def test_new_numbers_do_not_wait_for_the_disk(node: Node) -> None:
    """A process that holds the database stands for a slow disk: the change is in force before it is answered."""
    node.start()
    node.create("a", 500)
    tenant = client.attach(node.socket())
    control, _report = tenant.map()
    limits = client.PAGE + ffi.offsetof("struct vg_control_device", "min_milli")

    def read_limits() -> tuple[int, int]:
        return struct.unpack_from("<II", control, limits)

    wait_until(lambda: read_limits() == (500, 500), "the first numbers")
    request = pb.UpdateSliceRequest(name="a", spec=pb.SliceSpec(min_milli=200, max_milli=800))
    with contextlib.closing(sqlite3.connect(node.state / "vgpud.sqlite3", isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        waiting = node.slices.UpdateSlice.future(request)
        wait_until(lambda: read_limits() == (200, 800), "the change in force")
        assert not waiting.done(), "what is answered is saved"
        busy.execute("COMMIT")
        (device,) = waiting.result().slice.devices
        assert (device.min_milli, device.max_milli) == (200, 800)
        busy.execute("BEGIN IMMEDIATE")
        request.spec.max_milli = 900
        with pytest.raises(grpc.RpcError) as error:
            node.slices.UpdateSlice(request)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "nothing was changed" in error.value.details()
        busy.execute("COMMIT")
    wait_until(lambda: read_limits() == (200, 800), "the old numbers again")
    assert node.get().devices[0].max_milli == 800


def test_slice_whose_socket_cannot_be_made_is_taken_back(node: Node) -> None:
    node.start()
    in_the_way = node.runtime / "slices" / "b"
    in_the_way.write_text("not a directory")
    with pytest.raises(grpc.RpcError) as error:
        node.create("b", 700, request_id="r")
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "nothing was created" in error.value.details()
    assert node.names() == []
    in_the_way.unlink()
    assert node.create("b", 700, request_id="r").name == "b", "neither the room nor the request was used up"


def test_names_are_as_long_as_the_socket_allows(node: Node) -> None:
    node.runtime = node.directory / ("x" * 40)
    node.start()
    name_chars_max = 107 - len(f"{node.runtime}/slices//attach.sock")
    assert 8 <= name_chars_max < 40
    node.create("n" * name_chars_max, 100)
    assert client.attach(node.socket("n" * name_chars_max)).status == client.OK
    with pytest.raises(grpc.RpcError) as error:
        node.create("n" * (name_chars_max + 1), 100)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_state_that_cannot_be_written(node: Node) -> None:
    node.state.mkdir(0o700)
    (node.state / "vgpud.sqlite3").mkdir()
    done = node.run()
    assert done.returncode == ExitCode.OTHER
    assert f"cannot open the state database {node.state}/vgpud.sqlite3" in done.stderr.splitlines()[-1]


def test_state_of_a_newer_release(node: Node) -> None:
    node.start()
    node.stop()
    with contextlib.closing(sqlite3.connect(node.state / "vgpud.sqlite3")) as db:
        db.execute("PRAGMA user_version = 99")
    done = node.run()
    assert done.returncode == ExitCode.OTHER
    assert "newer vgpud" in done.stderr


def test_reload(node: Node) -> None:
    node.start()
    node.create("a", 100)
    tenant = client.attach(node.socket())
    node.settings |= {"default_max": '"device"', "mode": '"closed"', "events_max": "5", "idle_after_s": "60"}
    node.write_config()
    assert node.process
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "config.reloaded" in node.event_kinds(), "the reload")
    made = node.create("b", 100)
    assert (made.devices[0].max_milli, made.spec.idle_after_ns) == (1000, 60_000_000_000)
    assert not node.get("a").spec.idle_after_ns, "what was made before keeps what was the site's then"
    control, _report = tenant.map()
    assert control[12] == 2, "attached tenants learn the new mode"
    assert node.nodes.GetNode(pb.GetNodeRequest()).node.mode == pb.TENANT_MODE_CLOSED
    assert "needs a restart: events_max" in node.log.read_text()
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: node.log.read_text().count("needs a restart: events_max") == 2, "it still does")
    node.settings["nonsense"] = "1"
    node.write_config()
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "configuration not changed" in node.log.read_text(), "the refusal")
    assert node.create("c", 100).devices[0].max_milli == 1000


def test_service_manager_is_notified(node: Node) -> None:
    address = node.directory / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(address))
        heard.settimeout(30)
        node.env = {"NOTIFY_SOCKET": str(address)}
        node.start()
        messages = [heard.recv(200)]
        assert messages[0].startswith(b"EXTEND_TIMEOUT_USEC=900000000\n"), "checking a large database takes a while"
        while b"READY=1" not in messages[-1]:
            messages.append(heard.recv(200))
        while messages[-1] != b"WATCHDOG=1":
            messages.append(heard.recv(200))
        node.stop(signal.SIGTERM)
        while messages[-1] != b"STOPPING=1":
            messages.append(heard.recv(200))


def test_metrics(node: Node) -> None:
    (port,) = find_free_ports(1)
    node.settings["metrics"] = f'"127.0.0.1:{port}"'
    node.start()
    node.create("a", 250)
    client.attach(node.socket())

    def page() -> str:
        return str(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode())

    text = wait_until(lambda: page() if "vgpu_hook_clients 1.0" in page() else "", "the client in the metrics")
    uuid = node.nodes.ListDevices(pb.ListDevicesRequest()).devices[0].uuid
    for line in (
        f'vgpu_gpu_info{{gpu_index="0",gpu_uuid="{uuid}",name="FAKE 0",simulated="false"}} 1.0',
        f'vgpu_gpu_allocated_gpus{{gpu_index="0",gpu_uuid="{uuid}"}} 0.25',
        f'vgpu_gpu_utilization_ratio{{gpu_index="0",gpu_uuid="{uuid}"}} 0.5',
        "vgpu_slices 1.0",
        'vgpu_rpc_duration_seconds_count{code="OK",method="CreateSlice"} 1.0',
        'vgpu_build_info{node="n1"',
    ):
        assert line in text, line
    limit = next(line for line in text.splitlines() if line.startswith("vgpu_slice_memory_limit_bytes{"))
    assert float(limit.rsplit(" ", 1)[1]) == 20 << 30
    assert "pid" not in text


def test_nvml_that_is_lost_is_a_value(node: Node) -> None:
    flag = node.directory / "lost"
    node.env = {"FAKE_LOST": str(flag)}
    node.start()
    device = lambda: node.nodes.ListDevices(pb.ListDevicesRequest()).devices[0]  # noqa: E731
    wait_until(lambda: device().utilization_ratio == 0.5, "the first reading")
    flag.touch()
    wait_until(lambda: device().utilization_ratio == 0 and not device().offered, "the loss")
    why = "lost: NVML says that the GPU is lost: see dmesg, then reset it or boot the machine"
    assert device().taken_by == why
    assert node.messages("device.lost") == [f"device 0 is {why}: nothing new is placed there"]
    with pytest.raises(grpc.RpcError, match="lost: NVML says"):
        node.create()
    flag.unlink()
    wait_until(lambda: device().utilization_ratio == 0.5 and device().offered, "the return")
    assert node.create().name == "a", "the daemon went on"


def test_wall_clock_is_for_display_only() -> None:
    """Deadlines and durations come from the monotonic clock: the wall clock is read where time stamps are made."""
    root = Path(__file__).parent.parent.parent / "vgpud"
    users = {"cli", "client", "console"}  # programs of users, which show moments and take them from people
    paths = [p.relative_to(root) for p in root.rglob("*.py") if "time.time_ns()" in p.read_text()]
    readers = {str(path) for path in paths if path.parts[0] not in users}
    # the queue's clock, which never goes back, and when an attempt was found lost
    queue = {"daemon/jobs/clock.py", "jobs/runner.py"}
    queue |= {"daemon/jobs/notices.py"}  # numbers that no former daemon has used
    validity = {"certs/issue.py", "serve.py"}  # certificates say from when and until when
    stamps = {
        "daemon/slices/events.py",
        "daemon/slices/node.py",
        "daemon/attach_backend.py",
        "api/server.py",
        "containers/server.py",
        "containers/steps.py",
        "store/opening.py",
    }
    stamps |= {"store/manual_backup.py"}
    stamps |= {"api/history.py", "daemon/history.py"}  # when something was used, which bounds no wait
    stamps |= {"api/tokens.py"}
    stamps |= {"daemon/slices/rotation.py", "daemon/slices/suspend.py"}  # since when memory is on the host
    stamps |= {"daemon/slices/publication.py"}  # when the driver last said what it has published
    assert readers == stamps | queue | validity
    core = [p.read_text().replace("monotonic_ns()", "") for p in (root / "core").rglob("*.py")]
    assert not any("time_ns()" in text for text in core)


def test_idle_daemon_uses_little(node: Node) -> None:
    node.start()
    node.create()
    assert node.process
    stat = Path(f"/proc/{node.process.pid}/stat")
    cpu = lambda: sum(map(int, stat.read_text().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")  # noqa: E731
    before = cpu()
    time.sleep(2)
    assert cpu() - before < 1.0, "half a core would be a busy loop"
