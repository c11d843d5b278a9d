"""`vgpu run` against a fake daemon, without the shim: the slice's life, exit codes, signals, terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud.errors import CliError, ExitCode

#: the command line with an environment that preloads nothing
UNHOOKED = (
    "import contextlib; from vgpud.cli import main; from vgpud.client import held_slice; "
    "from vgpud.libraries import environment; "
    "environment.for_slice = lambda before, node, item, simulated: dict(before); "
    "held_slice.Holder = lambda path, program: contextlib.nullcontext(); "
    "main.main()"
)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def run(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`vgpu run --gpus 0.5 ARGS` in this process."""
    from vgpud.client import held_slice
    from vgpud.libraries import environment

    monkeypatch.setattr(environment, "for_slice", lambda before, node, item, simulated: dict(before))
    monkeypatch.setattr(held_slice, "Holder", lambda path, program: contextlib.nullcontext())
    return lambda *args: vgpu("run", "--gpus", "0.5", *args, host=daemon.host)


def test_a_slice_counts_against_the_queue_that_is_named(run: Any, daemon: Any, vgpu: Any) -> None:
    assert run("--queue", "team", "--", "true").code == 0
    assert vgpu("slice", "create", "kept", "--gpus", "0.5", "--queue", "team", host=daemon.host).code == 0
    assert vgpu("alloc", "0.5", "--queue", "team", host=daemon.host).code == 0
    asked = [r.queue for r in daemon.requests if r.DESCRIPTOR.name == "CreateSliceRequest"]
    assert asked == ["team"] * 3
    refused = vgpu("run", "--slice", "kept", "--queue", "team", "--", "true", host=daemon.host)
    assert refused.code == 125 and "--slice joins" in refused.stderr


def hears_hangups() -> None:
    """Under nohup these tests have SIGHUP ignored, and hand that on."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def start(daemon: Any) -> Iterator[Any]:
    """`vgpu run --gpus 0.5 ARGS` as a process of its own; killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def call(*args: str, **popen: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", UNHOOKED, "--host", daemon.host, "run", "--gpus", "0.5", *args]
        popen.setdefault("preexec_fn", hears_hangups)
        process = subprocess.Popen(command, text=True, **popen)
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["no-such-program"], 127),
        (["/no/such/program"], 127),
        (["/etc/passwd"], 126),
        (["/"], 126),
    ],
)
def test_exit_codes(run: Any, daemon: Any, command: list[str], code: int) -> None:
    result = run("-q", "--", *command)
    assert result.code == code, result
    assert daemon.slices == {}
    if code in (126, 127):
        assert command[0] in result.stderr


def test_a_script_without_its_interpreter_is_126(run: Any, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    result = run("-q", "--", str(script))
    assert result.code == 126
    assert "interpreter" in result.stderr


def test_the_slice_is_ephemeral_and_the_callers(run: Any, daemon: Any) -> None:
    assert run("--name", "mine", "--", "true").code == 0
    create, delete = daemon.requests
    assert (create.name, create.ephemeral, create.owner_uid) == ("mine", True, os.getuid())
    assert (delete.name, delete.force) == ("mine", False)


def test_the_resolved_numbers_are_said_on_stderr(run: Any) -> None:
    result = run("--max", "0.8", "--mem", "8G", "--", "echo", "out")
    assert result.stdout == "out\n"
    line = "vgpu: slice run-1 device 0-SIMULATED: SM time min 0.5 max 0.8, memory min 8GiB max 8GiB\n"
    assert result.stderr == line
    assert run("-q", "--", "true").stderr == ""


def test_options_of_the_command_are_its_own(run: Any) -> None:
    assert run("-q", "sh", "-c", "echo $0 $1", "--name", "-q").stdout == "--name -q\n"


def test_joining_leaves_the_slice(vgpu: Any, run: Any, daemon: Any) -> None:
    vgpu("slice", "create", "team", "--gpus", "0.25", host=daemon.host)
    result = vgpu("run", "--slice", "team", "--", "true", host=daemon.host)
    assert result.code == 0
    assert "slice team device 0-SIMULATED" in result.stderr
    assert "team" in daemon.slices


@pytest.mark.parametrize("options", [["--gpus", "0.5"], ["--mem", "1G"], ["--name", "x"]])
def test_joining_takes_no_amounts(vgpu: Any, daemon: Any, options: list[str]) -> None:
    result = vgpu("run", "--slice", "team", *options, "--", "true", host=daemon.host)
    assert result.code == 125
    assert "--slice" in result.stderr


def test_a_slice_that_is_left_in_use_stays(run: Any, daemon: Any) -> None:
    daemon.born_with = 1
    result = run("-q", "--name", "left", "--", "true")
    assert result.code == 0
    assert "ends with its last process" in result.stderr
    assert "left" in daemon.slices


def test_the_end_is_seen_when_another_thread_has_taken_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that was there before the mask may get SIGCHLD, between our look and our wait."""
    from vgpud.cli.common import child_process

    mask = child_process.block_signals()
    try:
        pid = child_process.start_child(["true"], dict(os.environ), mask)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        signal.sigtimedwait({signal.SIGCHLD}, 0)  # taken, as by the other thread
        looks = iter([(0, 0)])  # before it ended
        real = os.waitpid
        monkeypatch.setattr(os, "waitpid", lambda pid, options: next(looks, None) or real(pid, options))
        monkeypatch.setattr(child_process, "LOOK_S", 0.01)
        assert child_process.wait_child(pid) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_being_stopped_for_long_is_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """sigtimedwait() of Python returns rubbish when its time was over while the process was stopped."""
    from vgpud.cli.common import child_process

    mask = child_process.block_signals()
    try:
        pid = child_process.start_child(["sleep", "0.1"], dict(os.environ), mask)
        rubbish = iter([signal.struct_siginfo((437918234, -1, 0, 0, 0, 0, 0))])
        real = signal.sigtimedwait
        monkeypatch.setattr(signal, "sigtimedwait", lambda waited, time_s: next(rubbish, None) or real(waited, time_s))
        assert child_process.wait_child(pid) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_a_failure_before_the_start_leaves_no_slice(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vgpud.errors import DriverError
    from vgpud.libraries import environment

    def no_driver(*_: Any) -> dict[str, str]:
        raise DriverError("no libcuda.so.1: install the driver")

    monkeypatch.setattr(environment, "for_slice", no_driver)
    result = vgpu("run", "--gpus", "0.5", "--", "true", host=daemon.host)
    assert result.code == 125
    assert "install the driver" in result.stderr
    assert daemon.slices == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_signals_sent_to_us_reach_the_command_once(start: Any, daemon: Any, tmp_path: Path, number: int) -> None:
    log = tmp_path / "log"
    trap = f"n=0; trap 'echo got >> {log}; n=1' {int(number)}; echo ready >> {log}; "
    loop = "while [ $n = 0 ]; do sleep 0.02; done; sleep 0.2; exit 5"
    process = start("-q", "--", "bash", "-c", trap + loop)
    wait_until(lambda: log.exists())
    process.send_signal(number)
    assert process.wait(30) == 5
    assert log.read_text().split() == ["ready", "got"]
    assert daemon.slices == {}


def test_a_signal_that_ends_the_command_ends_the_slice(start: Any, daemon: Any) -> None:
    process = start("-q", "--", "sleep", "60")
    wait_until(lambda: bool(daemon.slices))
    time.sleep(0.1)
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    assert daemon.slices == {}


def signal_masks(text: str) -> dict[str, int]:
    """Of /proc/self/status, without the two signals that are glibc's own (its posix_spawn leaves them ignored)."""
    own = ~(0b11 << 31)
    return {name: int(mask, 16) & own for name, mask in (line.split(":\t") for line in text.splitlines())}


def left_ignored() -> int:
    """What a shell has ignored in all that it runs in the background, these tests as well; Python touches neither."""
    ignored = [n for n in (signal.SIGQUIT, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_IGN]
    return sum(1 << (n - 1) for n in ignored)


def test_the_command_gets_signals_as_the_shell_left_them(run: Any) -> None:
    result = run("-q", "--", "sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    assert signal_masks(result.stdout) == {"SigBlk": 0, "SigIgn": left_ignored()}


def test_nohup_stays_nohup(start: Any) -> None:
    ignoring = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    options = {"stdout": subprocess.PIPE, "preexec_fn": ignoring}
    process = start("-q", "--", "sh", "-c", "grep SigIgn /proc/self/status", **options)
    out, _ = process.communicate(timeout=30)
    assert signal_masks(out) == {"SigIgn": 1 << (signal.SIGHUP - 1) | left_ignored()}


def read_until(fd: int, text: bytes) -> bytes:
    data = b""
    while text not in data:
        data += os.read(fd, 1000)
    return data


def test_ctrl_c_of_the_terminal_reaches_the_command_once(daemon: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    loop = "while [ $n = 0 ]; do sleep 0.02; done; sleep 0.3; exit 6"
    script = f"n=0; trap 'echo got >> {log}; n=1' INT; echo ready; {loop}"
    arguments = ["--host", daemon.host, "run", "-q", "--gpus", "0.5", "--", "bash", "-c", script]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", UNHOOKED, *arguments])
    read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 6
    assert log.read_text() == "got\n"
    assert daemon.slices == {}


def test_the_command_reads_the_terminal(daemon: Any) -> None:
    arguments = ["--host", daemon.host, "run", "-q", "--gpus", "0.5", "--", "sh", "-c", "echo ready; read a; echo <$a>"]
    arguments[-1] = 'echo ready; read a; echo "<$a>"; test -t 0 && exit 4'
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", UNHOOKED, *arguments])
    read_until(terminal, b"ready")
    os.write(terminal, b"hello\n")
    read_until(terminal, b"<hello>")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 4


def test_a_daemon_that_has_gone_at_the_end_does_not_change_the_exit_code(
    start: Any, daemon: Any, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    script = f"touch {mark}; while [ -e {mark} ]; do sleep 0.02; done; exit 3"
    process = start("-q", "--", "sh", "-c", script, stderr=subprocess.PIPE)
    wait_until(mark.exists)
    daemon.stop()
    mark.unlink()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 3
    assert err.count("\n") == 1
    assert "a daemon that starts again removes it after its grace_s" in err


def test_a_run_that_is_killed_leaves_its_command(start: Any, daemon: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    process = start("-q", "--", "sh", "-c", f"echo $$ > {mark}; sleep 1; echo done >> {mark}")
    wait_until(lambda: mark.exists() and "\n" in mark.read_text())
    process.kill()
    wait_until(lambda: "done" in mark.read_text())
    assert len(daemon.slices) == 1


def test_ctrl_z_stops_both_and_fg_continues(daemon: Any) -> None:
    """A shell with job control stops and continues `vgpu run` with its command as it does any program."""
    command = 'sh -c "echo pid \\$\\$ ready; read a; exit 4"'
    run_command = f'"$PY" -c "$UNHOOKED" --host {daemon.host} run -q --gpus 0.5 -- {command}'
    environment = os.environ | {"PY": sys.executable, "UNHOOKED": UNHOOKED, "PS1": "", "HISTFILE": ""}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve("/bin/bash", ["bash", "--norc", "--noediting", "-i"], environment)
    os.write(terminal, f"stty -echo; {run_command}\n".encode())
    reader = int(read_until(terminal, b" ready\r\n").split()[-2])
    os.write(terminal, b"\x1a")
    read_until(terminal, b"Stopped")
    # vgpu has stopped; until its command has, too, that would still read the line which is typed next
    wait_until(lambda: Path(f"/proc/{reader}/stat").read_text().rpartition(") ")[2].startswith("T"))
    os.write(terminal, b"echo at-the-$((1+1))-prompt\n")
    read_until(terminal, b"at-the-2-prompt")
    os.write(terminal, b"fg\n")
    time.sleep(0.2)
    os.write(terminal, b"go\n")
    os.write(terminal, b"echo code-$?\n")
    read_until(terminal, b"code-4")
    os.write(terminal, b"exit\n")
    os.waitpid(pid, 0)
    os.close(terminal)
    wait_until(lambda: daemon.slices == {})


def test_a_daemon_that_is_being_started_is_waited_for(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`vgpud serve &` and `vgpu run` may be two lines of one paste."""
    from vgpud.cli.common import client

    refusals = iter([True, True])

    class Starting(client.Client):
        def send(self, call: Any) -> Any:
            if call.method == "GetNode" and next(refusals, False):
                raise CliError("vgpud is not running", ExitCode.UNREACHABLE)
            return super().send(call)

    monkeypatch.setattr(client, "Client", Starting)
    assert run("--", "true").code == 0
    assert next(refusals, None) is None
