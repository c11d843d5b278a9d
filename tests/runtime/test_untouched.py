"""What the low-level runtime gets must be what the engine gave: descriptors, environment, signals, directory, process.

The list of descriptors is an allow-list: whatever is open in the low-level runtime and was not handed down is ours, and
a container would inherit it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.conftest import CONFIG, LOW_LEVEL_STATUS, PLAIN_CONFIG, Front
from tests.runtime.fake_daemon import FakeDaemon, reply

#: how the creation goes -> config.json, and the daemon's answer
WAYS = {"plain": (PLAIN_CONFIG, b""), "pass": (CONFIG, reply("pass")), "config": (CONFIG, reply("config", b"{}"))}


@pytest.fixture(params=list(WAYS))
def daemon(request: pytest.FixtureRequest, front: Front) -> FakeDaemon:
    """The daemon that answers in one of the ways; config.json is written."""
    config, answer = WAYS[request.param]
    front.write(config)
    return FakeDaemon(front.socket, answer)


def in_python(front: Front, statements: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs `create` from a Python process of its own that first does something to itself."""
    words = [str(front.path), "create", "--bundle", str(front.bundle), "c1"]
    program = f"import os, signal, ctypes\n{statements}\nos.execv({words[0]!r}, {words!r})"
    command = [sys.executable, "-IS", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


def test_descriptors(front: Front, daemon: FakeDaemon, tmp_path: Path) -> None:
    handed = {}
    for number in (3, 7, 100):
        path = tmp_path / str(number)
        path.touch()
        handed[number] = str(path)
    opened = f"[(os.open(path, os.O_RDONLY), number) for number, path in {handed}.items()]"
    before = f"os.closerange(3, 300)\nnull = [os.open('/', 0) for _ in range(200)]\nlow = {opened}\n"
    before += "for fd, number in low: os.dup2(fd, number)"
    with daemon:
        done = in_python(front, before)
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    seen = front.take_notes()
    assert seen and seen.fds.keys() == {0, 1, 2, *handed}
    assert {number: seen.fds[number] for number in handed} == handed


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_descriptors_stay_closed(front: Front, daemon: FakeDaemon, closed: tuple[int, ...]) -> None:
    with daemon:
        done = in_python(front, f"os.closerange(3, 200)\nfor number in {closed}: os.close(number)")
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    seen = front.take_notes()
    assert seen and seen.fds.keys() == {0, 1, 2} - set(closed)


def test_environment(front: Front, daemon: FakeDaemon) -> None:
    env = {"LISTEN_FDS": "1", "_OCI_STARTPIPE": "5", "PATH": "/nowhere", "EMPTY": "", "VGPU_SOCKET": "/x", "A": "b=c"}
    with daemon:
        done = front.create(env=env)
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    seen = front.take_notes()
    assert seen and sorted(seen.env) == sorted(f"{key}={value}" for key, value in env.items())


def test_empty_environment(front: Front, daemon: FakeDaemon) -> None:
    with daemon:
        assert front.create(env={}).returncode == LOW_LEVEL_STATUS
    seen = front.take_notes()
    assert seen and seen.env == []


def signal_bits(*numbers: signal.Signals) -> int:
    """As /proc/PID/status writes a set of signals."""
    return sum(1 << (number - 1) for number in numbers)


def inherited_ignored() -> int:
    """What the program that started the tests has ignored, and every program below with it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigIgn:")).split()[1], 16)


def test_signals_umask_and_directory(front: Front, daemon: FakeDaemon) -> None:
    before = [
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL); signal.signal(signal.SIGXFSZ, signal.SIG_DFL)",
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR2])",
        "os.umask(0o027); os.chdir('/usr')",
        f"ctypes.CDLL(None).prctl(1, {int(signal.SIGKILL)}, 0, 0, 0)",
    ]
    with daemon:
        done = in_python(front, "\n".join(before))
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    seen = front.take_notes()
    assert seen and seen.facts["pdeathsig"] == str(int(signal.SIGKILL))
    assert (int(seen.facts["Umask"], 8), seen.facts["cwd"]) == (0o027, "/usr")
    assert int(seen.facts["SigBlk"], 16) == signal_bits(signal.SIGUSR2)
    ours = signal_bits(signal.SIGHUP) | inherited_ignored() & ~signal_bits(signal.SIGPIPE, signal.SIGXFSZ)
    assert int(seen.facts["SigIgn"], 16) == ours
    assert int(seen.facts["SigCgt"], 16) == 0


def test_hostile_environment_changes_nothing(front: Front) -> None:
    """Another socket or runtime by environment would be another's daemon deciding about root's containers."""
    front.write()
    env = {"PATH": str(front.folder), "VGPU_SOCKET": "/x", "VGPU_HOST": "unix:///x", "HOME": "/x", "TMPDIR": "/x"}
    with FakeDaemon(front.socket, reply("pass")) as daemon:
        assert front.create(env=env).returncode == LOW_LEVEL_STATUS
    assert len(daemon.requests) == 1


def test_works_while_signals_come(front: Front) -> None:
    """EINTR: a program that waits and is interrupted continues to wait (SIGCONT and SIGWINCH end none)."""
    front.write()
    sent = []

    def slow(request: object) -> bytes:
        pid = request.peer_pid  # type: ignore[attr-defined]
        for number in [signal.SIGSTOP, signal.SIGCONT, signal.SIGWINCH] * 20:
            os.kill(pid, number)
            sent.append(number)
        return reply("config", b"{}")

    with FakeDaemon(front.socket, slow):
        assert front.create().returncode == LOW_LEVEL_STATUS
    assert len(sent) == 60
    assert (front.bundle / "config.json").read_bytes() == b"{}"


def test_killed_while_waiting_leaves_nothing(front: Front) -> None:
    """containerd's shim kills its children when it dies (PDEATHSIG); the daemon sees the connection end."""
    front.write()

    def kill(request: object) -> bytes:
        os.kill(request.peer_pid, signal.SIGKILL)  # type: ignore[attr-defined]
        return reply("config", b"{}")

    with FakeDaemon(front.socket, kill):
        assert front.create().returncode == -signal.SIGKILL
    assert [path.name for path in front.bundle.iterdir()] == ["config.json"]
    assert (front.bundle / "config.json").read_bytes() == CONFIG


def test_a_closed_stderr_does_not_kill_before_the_log_is_written(front: Front) -> None:
    front.write()
    read_end, write_end = os.pipe()
    os.close(read_end)
    log = front.folder / "log.json"
    reset: Callable[[], object] = lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # noqa: E731
    with FakeDaemon(front.socket, reply("refused", b"no capacity")):
        words = [str(front.path), "--log", str(log), "create", "--bundle", str(front.bundle), "c1"]
        done = subprocess.run(words, stderr=write_end, preexec_fn=reset, check=False, timeout=60)
    os.close(write_end)
    assert done.returncode == 1
    assert "no capacity" in log.read_text()
