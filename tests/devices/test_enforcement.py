"""Programs that bypass the hook on the simulated device: charged to their slice, frozen or killed by policy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attach import client
from tests.attach.test_server import borrow
from tests.daemon.node import PATIENCE_S, Node, wait_until
from vgpud import paths
from vgpud.core.devices.enforce import FREEZE, KILL, STRANGER, Act
from vgpud.devices import driver_faults, enforcement
from vgpud.host import processes
from vgpud.simdevice import state_page
from vgpud.simdevice.process import SimulatedDevice

pytestmark = pytest.mark.skipif(
    not (paths.sim_lib_dir() / "libcuda.so.1").exists(), reason="the simulated driver is not built: run make"
)
MIB, GIB = 1 << 20, 1 << 30
CONTEXT_BYTES = 256 * MIB
OTHER_UID = 65534


@pytest.fixture
def device(node: Node) -> Iterator[SimulatedDevice]:
    config = {"devices": 1, "memory_bytes": 8 * GIB, "context_bytes": CONTEXT_BYTES}
    with SimulatedDevice(node.directory / "sim", config) as started:
        yield started


@pytest.fixture
def programs(node: Node, device: SimulatedDevice) -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that end with the test, stopped or not."""
    programs: list[subprocess.Popen[str]] = []
    yield programs
    for program in programs:
        program.kill()
        program.communicate()


def serve(node: Node, device: SimulatedDevice, **policy: str) -> None:
    node.settings |= {key: f'"{verb}"' for key, verb in policy.items()}
    node.start("--device", "sim", "--sim-dir", str(device.directory))


def start_bypass(device: SimulatedDevice, programs: list[subprocess.Popen[str]], size: int, *socket: str) -> int:
    """A program that bypasses the hook and is no service of root's; its pid once it has its memory."""
    library = paths.sim_lib_dir() / "libcuda.so.1"
    command = [
        sys.executable,
        "-S",
        str(Path(client.__file__).with_name("past.py")),
        str(library),
        str(size // MIB),
        *socket,
    ]
    env = os.environ | device.environment({})
    if os.getuid() == 0 and not socket:
        env["AS"] = f"{OTHER_UID}:{OTHER_UID}"
    program = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    programs.append(program)
    assert program.stdout and set(program.stdout.readline().split()) == {"0"}
    return program.pid


def test_what_is_past_the_ledger_is_the_slices(
    node: Node, device: SimulatedDevice, programs: list[subprocess.Popen[str]]
) -> None:
    """Shown, and in the way of the slice's other programs; free again when the program has ended."""
    serve(node, device)
    node.create(spec={"mem_max_bytes": 2 * GIB, "mem_min_bytes": 2 * GIB})
    honest = client.attach(node.socket())
    report = borrow(honest, 512 * MIB)
    pid = start_bypass(device, programs, GIB, node.socket())
    shown = wait_until(lambda: (d := node.get().devices[0]).mem_unattributed_bytes and d, "the charge")
    assert shown.mem_unattributed_bytes == GIB + CONTEXT_BYTES
    assert shown.mem_used_bytes == 512 * MIB + GIB + CONTEXT_BYTES
    rows = {p.pid: p.devices[0] for p in node.processes()}
    assert (rows[pid].mem_used_bytes, rows[pid].mem_unattributed_bytes) == (0, GIB + CONTEXT_BYTES)
    assert (rows[os.getpid()].mem_used_bytes, rows[os.getpid()].mem_unattributed_bytes) == (512 * MIB, 0)
    assert "slice a uses 1.3GiB beyond its ledger" in node.messages("memory.unattributed")[0]
    assert node.messages("memory.past_ledger") == [], "below its limit"
    second = client.attach(node.socket())
    assert not asks(second, 512 * MIB), "256 MiB are left"
    programs[-1].kill()
    wait_until(lambda: not node.get().devices[0].mem_unattributed_bytes, "its end")
    assert asks(second, 512 * MIB)
    report.close()
    honest.close()
    second.close()


def asks(tenant: client.Tenant, size: int) -> bool:
    """Whether the daemon grants so much more."""
    import struct

    from tests.attach.test_server import at

    control, report = tenant.map()
    wanted = struct.unpack_from("<I", report, at("vg_report_device", "want_seq"))[0] + 1
    before = struct.unpack_from("<Q", control, at("vg_control_device", "granted_bytes"))[0]
    struct.pack_into("<Q", report, at("vg_report_device", "want_bytes"), size)
    struct.pack_into("<I", report, at("vg_report_device", "want_seq"), wanted)
    tenant.ring()
    answered = at("vg_control_device", "want_answered")
    wait_until(lambda: struct.unpack_from("<I", control, answered)[0] == wanted, "an answer")
    granted = struct.unpack_from("<Q", control, at("vg_control_device", "granted_bytes"))[0] - before
    report.close()
    return bool(granted)


def test_a_stranger_is_only_reported_by_default(
    node: Node, device: SimulatedDevice, programs: list[subprocess.Popen[str]]
) -> None:
    serve(node, device)
    pid = start_bypass(device, programs, GIB)
    wait_until(lambda: node.messages("device.stranger"), "the notice")
    assert not processes.is_stopped(pid) and programs[-1].poll() is None


@pytest.mark.parametrize("stands_still", [False, True])
def test_a_stranger_is_killed(
    node: Node, device: SimulatedDevice, programs: list[subprocess.Popen[str]], stands_still: bool
) -> None:
    serve(node, device, on_stranger="kill")
    node.create()
    tenant = client.attach(node.socket())
    pid = start_bypass(device, programs, GIB)
    if stands_still:
        os.kill(pid, signal.SIGSTOP)
    assert programs[-1].wait(PATIENCE_S) == -signal.SIGKILL
    assert wait_until(lambda: node.messages("stranger.kill"), "the event") == [f"pid {pid} ({comm()}) was killed"]
    assert wait_until(lambda: node.messages("stranger.gone"), "its end")[0].startswith(f"pid {pid} ")
    assert len(node.processes()) == 1, "the tenant lives"
    tenant.close()


def comm() -> str:
    return Path("/proc/self/comm").read_text().strip()


def test_a_stranger_is_frozen(node: Node, device: SimulatedDevice, programs: list[subprocess.Popen[str]]) -> None:
    """And again when a user lets it continue; said once."""
    serve(node, device, on_stranger="freeze")
    pid = start_bypass(device, programs, GIB)
    wait_until(lambda: processes.is_stopped(pid), "the stop")
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: processes.is_stopped(pid), "the next stop")
    assert "was stopped: `kill -CONT" in node.messages("stranger.freeze")[0]
    assert len(node.messages("stranger.freeze")) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="needs root's programs")
def test_what_root_runs_itself_is_left_alone(
    node: Node, device: SimulatedDevice, programs: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.OTHER_UID", 0)
    serve(node, device, on_stranger="kill")
    start_bypass(device, programs, GIB)
    assert "root's own" in wait_until(lambda: node.messages("stranger.kill"), "the event")[0]
    assert programs[-1].poll() is None


def test_excess_is_killed(node: Node, device: SimulatedDevice, programs: list[subprocess.Popen[str]]) -> None:
    """An attached program that takes more than the slice has, past its ledger."""
    serve(node, device, on_excess="kill")
    node.create(spec={"mem_max_bytes": GIB, "mem_min_bytes": GIB})
    tenant = client.attach(node.socket())
    start_bypass(device, programs, 2 * GIB, node.socket())
    assert programs[-1].wait(PATIENCE_S) == -signal.SIGKILL
    assert node.messages("memory.past_ledger")
    assert wait_until(lambda: node.messages("excess.kill"), "the event")
    assert wait_until(lambda: len(node.processes()) == 1, "its end"), "the other one lives"
    tenant.close()


def test_a_programs_name_says_nothing_of_it() -> None:
    """The kernel leaves all but newlines in it as they are."""
    rename = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'\\x0b' + sys.argv[1].encode(), 0, 0, 0); input('.')"
    for name in ("Uid: 4321", "Uid: x", "Uid:", "NSpid: 1 2 x"):
        command = [sys.executable, "-c", rename, name]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            assert program.stdout and program.stdout.read(1)
            assert processes.real_uid(program.pid) == os.getuid(), name
            assert processes._status(program.pid, "NSpid", Path("/proc"))[0].isdigit(), name
            program.communicate(b"\n")


def test_one_thread_that_stands_still_is_no_stopped_program(tmp_path: Path) -> None:
    """A debugger stops threads singly; the rest use the device."""

    def is_stopped_with(states: str) -> bool:
        for thread, state in enumerate(states):
            (tmp_path / f"7/task/{7 + thread}").mkdir(parents=True, exist_ok=True)
            (tmp_path / f"7/task/{7 + thread}/stat").write_text(f"{7 + thread} (p) {state} 1 1")
        return processes.is_stopped(7, tmp_path)

    assert not is_stopped_with("")
    assert is_stopped_with("T") and is_stopped_with("tT") and is_stopped_with("ZT")
    assert not is_stopped_with("tS") and not is_stopped_with("Z")


def test_no_other_process_is_hit(node: Node, device: SimulatedDevice, programs: list[subprocess.Popen[str]]) -> None:
    """A pid that the driver does not list any more may be another program's by now."""
    pid = start_bypass(device, programs, GIB)
    act = Act(KILL, STRANGER, pid, "", "GPU-0", first=True)
    assert enforcement.carry_out(act, lambda: False, ()) == ""
    assert programs[-1].poll() is None
    assert "killed" in enforcement.carry_out(act, lambda: True, ())
    assert programs[-1].wait(PATIENCE_S) == -signal.SIGKILL
    assert enforcement.carry_out(act, lambda: True, ()) == "", "it has ended"


def test_a_containers_program_is_frozen_by_its_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: SimulatedDevice, programs: list[subprocess.Popen[str]]
) -> None:
    """Where that cgroup is the one that we see, else it is stopped by a signal."""
    pid = start_bypass(device, programs, GIB)
    cgroup = "/docker/" + "0123456789abcdef" * 4
    folder = tmp_path / cgroup.lstrip("/")
    folder.mkdir(parents=True)
    monkeypatch.setattr(enforcement, "CGROUPS", tmp_path)
    real = enforcement.cgroups.paths_of
    monkeypatch.setattr(enforcement.cgroups, "paths_of", lambda who: (cgroup,) if who == pid else real(who))
    (folder / "cgroup.procs").write_text("1\n")
    (folder / "cgroup.freeze").write_text("0")
    act = Act(FREEZE, STRANGER, pid, "", "GPU-0", first=True)
    assert "was stopped" in enforcement.carry_out(act, lambda: True, ())
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not processes.is_stopped(pid))
    (folder / "cgroup.procs").write_text(f"1\n{pid}\n")
    assert "with its container" in enforcement.carry_out(act, lambda: True, ())
    assert (folder / "cgroup.freeze").read_text() == "1" and not processes.is_stopped(pid)


def test_a_program_of_a_paused_container_needs_no_freezing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: SimulatedDevice, programs: list[subprocess.Popen[str]]
) -> None:
    pid = start_bypass(device, programs, GIB)
    folder = tmp_path / "docker" / ("0123456789abcdef" * 4)
    folder.mkdir(parents=True)
    for name, text in {"procs": f"{pid}\n", "freeze": "1", "events": "populated 1\nfrozen 1\n"}.items():
        (folder / f"cgroup.{name}").write_text(text)
    monkeypatch.setattr(enforcement, "CGROUPS", tmp_path)
    real, cgroup = enforcement.cgroups.paths_of, f"/{folder.relative_to(tmp_path)}"
    monkeypatch.setattr(enforcement.cgroups, "paths_of", lambda who: (cgroup,) if who == pid else real(who))
    act = Act(FREEZE, STRANGER, pid, "", "GPU-0", first=True)
    assert "is stopped: left alone" in enforcement.carry_out(act, lambda: True, ())
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert "was frozen" in enforcement.carry_out(act, lambda: True, ())


@pytest.mark.parametrize(("version", "is_moved"), [("595.71.05", True), ("580.00.00-sim", False)])
def test_a_program_leaves_the_device_before_it_is_killed_on_some_drivers(
    node: Node,
    device: SimulatedDevice,
    programs: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    is_moved: bool,
) -> None:
    """Where killing one that was restored may hang the host."""
    pid = start_bypass(device, programs, GIB)
    page = device.directory / state_page.PAGE_NAME
    used_bytes = []

    def prepare(own_pid: int) -> None:
        driver_faults.suspend_before_kill(
            version, own_pid, str(paths.sim_lib_dir() / "libcuda.so.1"), str(device.directory)
        )
        used_bytes.append(state_page.read(page).devices[0].used_bytes)
        assert programs[0].poll() is None

    act = Act(KILL, STRANGER, pid, "", "GPU-0", True)
    assert enforcement.carry_out(act, lambda: True, {}, prepare).endswith("was killed")
    assert used_bytes == [0 if is_moved else GIB + CONTEXT_BYTES]
    assert programs[0].wait(PATIENCE_S) == -signal.SIGKILL
