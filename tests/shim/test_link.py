"""Attach, devices shown, refusals, a daemon that dies or sends nonsense, and children of every type."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.shim.fake_daemon import MIB, FakeDaemon, FakeDevice, Script, driver_uuid, ffi, lib, memfd, wait_until

TENANT = Path(__file__).with_name("ledger_tenant.py")
NOT_PERMITTED, MISMATCH, OUT_OF_MEMORY, NO_DEVICE, NO_THREAD = 800, 803, 2, 100, 304
CONTEXT = 300 * MIB


@pytest.fixture
def settings(shim: Path, ledger_driver: Path, tmp_path: Path) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(shim),
        "VGPU_DRIVER": str(ledger_driver),
        "VGPU_SOCKET": str(tmp_path / "attach.sock"),
        "VGPU_LOG": str(tmp_path / "log"),
    }


Run = Callable[..., tuple[Any, str]]


@pytest.fixture
def tell(settings: dict[str, str]) -> Run:
    """Runs a scenario of a tenant to its end: what it answers, and its standard error."""

    def do(*words: str, tenant: Path = TENANT, **environment: str) -> tuple[Any, str]:
        done = subprocess.run(
            [sys.executable, str(tenant), *words],
            env={**os.environ, **settings, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    return do


def _daemon(tmp_path: Path, devices: tuple[int, ...] = (0,), **options: Any) -> FakeDaemon:
    return FakeDaemon(tmp_path / "attach.sock", [FakeDevice(driver_uuid(i), (i + 1) << 30) for i in devices], **options)


# ---- devices ----


def _uuid_text(index: int) -> str:
    digits = driver_uuid(index).hex()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [1, 3, 4]),
        ("0,2", [1, 4]),
        ("2,0", [4, 1]),
        ("1", [3]),
        (f"{_uuid_text(4)},{_uuid_text(3)}", [4, 3]),
        ("GPU-05,1", [4, 3]),
        ("0,3,1", [1]),  # the slice has no fourth device: the list ends there, as in CUDA
        (f"1,{_uuid_text(0)},0", [3]),  # a device of the node, but not of the slice
        (_uuid_text(2), []),
        ("0,0,1", []),  # named twice: none at all
        (f"0,{_uuid_text(1)}", []),
        ("0,3,0", [1]),  # it ended before
        ("+1,-0", [3, 1]),
        (" 1 ,\t2", [3, 4]),
        ("1gpu,2", [3, 4]),
        ("0x1", [1]),
        ("+,1", []),
        (f" {_uuid_text(4)} ", [4]),
        (_uuid_text(4).replace("GPU", "gpu"), []),
        ("", []),
        ("-1", []),
        ("abc", []),
    ],
)
def test_the_program_sees_its_devices_only(tell: Run, tmp_path: Path, visible: str | None, indices: list[int]) -> None:
    environment = {"LEDGER_DEVICES": "5"} | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    with _daemon(tmp_path, (1, 3, 4)):
        answer, stderr = tell("init", **environment)
    is_hidden = not indices and visible not in ("", "-1")  # these hide all devices on purpose
    text = "CUDA_VISIBLE_DEVICES names none of the slice's devices, which count from 0, or one twice"
    assert stderr == (f"vgpu: CUDA cannot start: {text}: {visible}\n" if is_hidden else "")
    assert answer["code"] == (0 if indices else NO_DEVICE)
    assert answer["seen"] == indices
    assert answer["totals"] == [(i + 1) << 30 for i in indices]
    assert answer["kept"], "CUDA_VISIBLE_DEVICES of the program is not as it was"


def test_descriptors_are_not_inherited_and_not_standard_ones(tell: Run, tmp_path: Path) -> None:
    with _daemon(tmp_path):
        answer, stderr = tell("init")
    assert answer["inheritable"] == []
    assert answer["lowest"] > 2
    assert stderr == ""


# ---- no daemon ----


@pytest.mark.parametrize(("mode", "code"), [("coast", 0), ("open", 0), ("closed", NOT_PERMITTED)])
def test_without_a_daemon_the_mode_decides(tell: Run, tmp_path: Path, mode: str, code: int) -> None:
    answer, stderr = tell("init", VGPU_MODE=mode)
    assert answer["code"] == code
    log = (tmp_path / "log").read_text()
    assert log.count("no daemon at") == 1
    assert str(tmp_path / "attach.sock") in log
    assert stderr.count("\n") == (mode == "closed")


def test_without_a_slice_nothing_happens(tell: Run, tmp_path: Path) -> None:
    answer, stderr = tell("init", VGPU_SOCKET="", LEDGER_DEVICES="3")
    assert (answer["code"], answer["seen"], stderr) == (0, [0, 1, 2], "")
    assert not (tmp_path / "log").exists()


# ---- refusals and nonsense ----


def _refuse(status: int, text: str) -> Script:
    def script(daemon: FakeDaemon, sock: socket.socket, _raw: bytes) -> None:
        sock.send(bytes(ffi.buffer(daemon.reply(status, text))))
        sock.close()

    return script


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (lib.VG_ATTACH_DENIED, NOT_PERMITTED),
        (lib.VG_ATTACH_NO_SLICE, NOT_PERMITTED),
        (lib.VG_ATTACH_BAD_VERSION, MISMATCH),
        (lib.VG_ATTACH_FULL, OUT_OF_MEMORY),
    ],
)
def test_a_refusal_says_why_in_one_line(tell: Run, tmp_path: Path, status: int, code: int) -> None:
    with _daemon(tmp_path) as daemon:
        daemon.script = [_refuse(status, "slice train: the reason")] * 3
        answer, stderr = tell("init")
    assert answer["code"] == code
    assert stderr.count("\n") == 1
    assert "slice train: the reason" in stderr


@pytest.mark.parametrize(
    ("what", "code", "line"),
    [
        (
            "threads",
            NO_THREAD,
            "the process cannot join its slice: no thread can be made: raise the limit on processes (ulimit -u, "
            "pids.max)",
        ),
        (
            "descriptors",
            NOT_PERMITTED,
            "the mode is closed and the daemon was not reached: this process has no file descriptor left: raise the "
            "limit on them (ulimit -n)",
        ),
    ],
)
def test_what_the_process_misses_is_named(tell: Run, tmp_path: Path, what: str, code: int, line: str) -> None:
    with _daemon(tmp_path):
        answer, stderr = tell(what, tenant=TENANT.with_name("start_tenant.py"), VGPU_MODE="closed")
    assert stderr == f"vgpu: CUDA cannot start: {line}\n"
    assert answer == {"code": code, "later": 0}


def _spoil(change: Callable[[Any], Any]) -> Script:
    def script(daemon: FakeDaemon, sock: socket.socket, _raw: bytes) -> None:
        reply = daemon.reply()
        spoiled = change(reply)
        sock.send(bytes(ffi.buffer(reply)) if spoiled is None else spoiled)
        sock.close()

    return script


def _field(name: str, value: int) -> Script:
    return _spoil(lambda reply: setattr(reply, name, value))


def _wrong_files(sizes: list[int], count: int) -> Script:
    """A good answer with files that are too short, or too few of them."""

    def script(daemon: FakeDaemon, sock: socket.socket, _raw: bytes) -> None:
        with memfd(sizes[0]) as control, memfd(sizes[1]) as report:
            bell = os.eventfd(0)
            socket.send_fds(sock, [bytes(ffi.buffer(daemon.reply()))], [control, report, bell][:count])
            os.close(bell)
        sock.close()

    return script


def _close(_daemon: FakeDaemon, sock: socket.socket, _raw: bytes) -> None:
    sock.close()


NONSENSE: dict[str, Script] = {
    "one byte": _spoil(lambda _reply: b"x"),
    "cut off": _spoil(lambda reply: bytes(ffi.buffer(reply))[:-1]),
    "too long": _spoil(lambda reply: bytes(ffi.buffer(reply)) + b"x"),
    "zeros": _spoil(lambda reply: bytes(ffi.sizeof(reply[0]))),
    "magic": _field("magic", 7),
    "bytes": _field("bytes", 7),
    "no devices": _field("device_count", 0),
    "too many devices": _field("device_count", 4000000000),
    "status": _field("status", 77),
    "no files": _field("status", 0),
    "one file": _wrong_files([8192, 8192], 1),
    "no doorbell": _wrong_files([8192, 8192], 2),
    "short control": _wrong_files([4096, 8192], 3),
    "short report": _wrong_files([8192, 100], 3),
    "empty control": _wrong_files([8192, 8192], 3),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_not_believed(tell: Run, tmp_path: Path, name: str) -> None:
    """The program runs as without a daemon, is not hurt, and attaches when the daemon answers correctly."""
    with _daemon(tmp_path) as daemon:
        daemon.script = [NONSENSE[name]]
        answer, _ = tell("init")
    assert answer["code"] == 0
    assert answer["seen"] == [0]
    assert "no daemon at" in (tmp_path / "log").read_text() or "refused" in (tmp_path / "log").read_text()


def test_a_program_waits_for_a_daemon_that_restarts(settings: dict[str, str], tmp_path: Path) -> None:
    """A step of a Slurm job, or a program of `vgpu run`: it must not see, or use, the whole device meanwhile."""
    tries = threading.Event()

    def kill(daemon: FakeDaemon, sock: socket.socket, raw: bytes) -> None:
        _close(daemon, sock, raw)
        tries.set()

    daemon = _daemon(tmp_path)
    daemon.script = [kill]
    daemon.start()
    command, env = [sys.executable, str(TENANT), "init"], {**os.environ, **settings}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as starts:
        assert tries.wait(60)
        daemon.stop()  # as by SIGKILL: its socket is still there
        daemon.start()
        out, _ = starts.communicate(timeout=60)
    assert json.loads(out)["totals"] == [1 << 30]
    assert not (tmp_path / "log").exists()
    daemon.stop()


def test_a_process_waits_for_a_daemon_once(tell: Run, tmp_path: Path) -> None:
    """One that asks in many threads, or again and again, would seem to hang: 3 s for each."""
    daemon = _daemon(tmp_path)
    daemon.start()
    daemon.stop()
    begin = time.monotonic()
    one, _ = tell("init_together", "1", VGPU_MODE="closed")
    once = time.monotonic() - begin
    begin = time.monotonic()
    many, _ = tell("init_together", "8", VGPU_MODE="closed")
    assert set(one["codes"]) == set(many["codes"]) == {NOT_PERMITTED}
    assert time.monotonic() - begin < 4 * once


@pytest.mark.parametrize("hangs_s", [0, 3.5])
def test_a_daemon_that_dies_while_a_program_attaches_is_waited_for(tell: Run, tmp_path: Path, hangs_s: float) -> None:
    """For as long whether it hangs before or not: what counts is when it has gone."""

    def die(daemon: FakeDaemon, sock: socket.socket, raw: bytes) -> None:
        time.sleep(hangs_s)
        _close(daemon, sock, raw)

    with _daemon(tmp_path) as daemon:
        daemon.script = [die]
        answer, _ = tell("init")
    assert answer["totals"] == [1 << 30]
    assert not (tmp_path / "log").exists()


def test_another_abi_is_a_mismatch(tell: Run, tmp_path: Path) -> None:
    with _daemon(tmp_path) as daemon:
        daemon.script = [_spoil(lambda _reply: struct.pack("<3I", lib.VG_ABI_MAGIC, lib.VG_ABI_VERSION + 1, 12))] * 2
        answer, stderr = tell("init")
    assert answer["code"] == MISMATCH
    assert stderr.count("\n") == 1


# ---- a daemon that comes, goes and comes back ----


@pytest.fixture
def holder(settings: dict[str, str]) -> Any:
    """A tenant that lives on and follows orders; ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def order(process: subprocess.Popen[str], words: str | None = None) -> Any:
        assert process.stdin and process.stdout
        if words:
            process.stdin.write(words + "\n")
            process.stdin.flush()
        return json.loads(process.stdout.readline())

    def start(size: int, **environment: str) -> Callable[[str], Any]:
        process = subprocess.Popen(
            [sys.executable, str(TENANT), "hold", str(size)],
            env={**os.environ, **settings, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert order(process)["code"] == 0
        return lambda words: order(process, words)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_attaches_late_with_what_it_holds(holder: Any, tmp_path: Path) -> None:
    ask = holder(100 * MIB)
    assert ask(f"a {4000 * MIB}")["code"] == 0  # no limit is known yet
    assert ask("f")["code"] == 0
    with _daemon(tmp_path) as daemon:
        assert wait_until(lambda: bool(daemon.processes))
        attached = daemon.processes[0]
        assert attached.held[driver_uuid(0)] == 100 * MIB
        assert wait_until(lambda: int(attached.report(0).used_bytes) == 400 * MIB)
        assert ask("i")["info"] == [624 * MIB, 1024 * MIB]
        assert wait_until(lambda: int(attached.control(0).granted_bytes) >= 400 * MIB)  # the daemon knows of all of it
        assert ask(f"a {625 * MIB}")["code"] == 2
        assert ask(f"a {624 * MIB}")["code"] == 0


def _lives(daemon: FakeDaemon, count: int) -> bool:
    return len(daemon.processes) == count


def test_the_mode_that_counts_is_the_daemons_last_word(holder: Any, tmp_path: Path) -> None:
    with _daemon(tmp_path) as daemon:
        holder(100 * MIB)
        assert wait_until(lambda: bool(daemon.processes))
        daemon.processes[0].pages.header.mode = lib.VG_MODE_OPEN  # the site's configuration has been reloaded
    log = tmp_path / "log"
    assert wait_until(lambda: log.exists() and "continuing in mode open" in log.read_text())


def _helper_sleeps(pid: int) -> int:
    """How often the helper thread of a process has gone to sleep so far; -1 before it has its name."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text() == "vgpu-helper\n":
            words = (task / "status").read_text().split()
            return int(words[words.index("voluntary_ctxt_switches:") + 1])
    return -1


def _sleeps_on(pid: int) -> bool:
    """Nothing wakes the helper thread for a quarter of a second; a busy machine lets it sleep longer."""
    before = _helper_sleeps(pid)
    time.sleep(0.25)
    return before == _helper_sleeps(pid) >= 0


def test_an_idle_process_costs_next_to_nothing(holder: Any, tmp_path: Path) -> None:
    with _daemon(tmp_path):
        pid = holder(100 * MIB)("p")["pid"]
        assert wait_until(lambda: _sleeps_on(pid))


def test_comes_back_again_and_again(holder: Any, tmp_path: Path) -> None:
    daemon = _daemon(tmp_path)
    daemon.start()
    ask = holder(100 * MIB)
    for life in range(2, 5):
        daemon.stop()
        assert ask("f")["code"] == 0
        assert ask(f"a {100 * MIB}")["code"] == 0
        daemon.script = [NONSENSE["cut off"], _close, _refuse(lib.VG_ATTACH_DENIED, "not yet")]
        daemon.start()
        assert wait_until(partial(_lives, daemon, life))
        assert wait_until(lambda: int(daemon.processes[-1].report(0).used_bytes) == 400 * MIB)
        assert daemon.requests[-1].resume == lib.VG_ATTACH_RESUME
    assert wait_until(lambda: ask(f"a {624 * MIB}")["code"] == 0)
    assert ask(f"a {2 * MIB}")["code"] == 2
    daemon.stop()


def test_a_daemon_that_dies_in_the_middle_of_the_attach(holder: Any, tmp_path: Path) -> None:
    daemon = _daemon(tmp_path)
    daemon.script = [_close]
    daemon.start()
    ask = holder(10 * MIB)
    assert wait_until(lambda: len(daemon.processes) == 1)
    assert wait_until(lambda: int(daemon.processes[0].report(0).used_bytes) == 310 * MIB)
    assert ask("f")["code"] == 0
    daemon.stop()


# ---- children ----


@pytest.mark.parametrize(
    ("kind", "child", "processes"),
    [
        ("fork first", 0, 2),
        ("spawn", 0, 2),
        ("subprocess", 0, 2),
        ("daemonise", 0, 2),
    ],
)
def test_children_attach_for_themselves(tell: Run, tmp_path: Path, kind: str, child: int, processes: int) -> None:
    with _daemon(tmp_path) as daemon:
        answer, stderr = tell("forks", kind)
        assert answer["child"] == child, stderr
        assert answer["parent"] == 0
        assert wait_until(lambda: len(daemon.processes) == processes)
        assert all(request.resume == lib.VG_ATTACH_FRESH for request in daemon.requests)


def test_a_child_of_an_attached_process_does_not_touch_its_ledger(tell: Run, tmp_path: Path) -> None:
    """The driver itself would refuse such a child; what matters is that the parent's account stays its own."""
    with _daemon(tmp_path) as daemon:
        answer, _ = tell("forks", "fork after")
        assert answer["parent"] == 0
        assert len(daemon.processes) == 2  # the child attached for itself
        assert int(daemon.processes[0].report(0).used_bytes) == 320 * MIB


def test_forks_amid_allocations_hang_no_process(tell: Run, tmp_path: Path) -> None:
    with _daemon(tmp_path) as daemon:
        answer, _ = tell("fork_storm", "60")
        assert answer == {"codes": [0], "ends": [0]}
        assert int(daemon.processes[0].report(0).used_bytes) == CONTEXT
        assert len(daemon.processes) == 1 + 15  # every fourth child was a CUDA program of its own


def test_threads_that_start_together_attach_once(tell: Run, tmp_path: Path) -> None:
    with _daemon(tmp_path) as daemon:
        answer, _ = tell("init_together", "16")
        assert answer["codes"] == [0] * 16
        assert len(daemon.processes) == 1
        assert int(daemon.processes[0].report(0).used_bytes) == CONTEXT + 16 // 2 * 2 * MIB


def test_a_program_that_closes_what_it_does_not_know(tell: Run, tmp_path: Path) -> None:
    with _daemon(tmp_path) as daemon:
        answer, _ = tell("close_all")
        assert answer["stranger"] == ""  # nothing of ours was written into the file that took the number
        assert answer["codes"] == [0, 0]
        assert len(daemon.processes) == 2


def test_a_program_that_closes_its_socket_keeps_what_it_has(holder: Any, tmp_path: Path) -> None:
    """Else it could shake its accounts off at any time. The daemon's end is seen all the same: by its heartbeats."""
    daemon = _daemon(tmp_path)
    with daemon:
        ask = holder(100 * MIB)
        assert wait_until(partial(_lives, daemon, 1))
        assert ask("c")["closed"] == 1
        for _ in range(30):  # the helper looks whenever something begins
            assert ask(f"a {10 * MIB}")["code"] == 0 and ask("f")["code"] == 0
            time.sleep(0.05)
        assert ask(f"a {625 * MIB}")["code"] == 2  # and is held to its limit
        assert _lives(daemon, 1) and len(daemon.requests) == 1
    assert ask(f"a {10 * MIB}")["code"] == 0
    daemon.start()
    assert wait_until(partial(_lives, daemon, 2))
    assert daemon.requests[-1].resume == lib.VG_ATTACH_RESUME
