"""`vgpu submit --pty` and `vgpu job attach` in a real terminal, with the real daemon and real supervisors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.own_system import own_system
from tests.cli.screen import PROMPT, SHELL, Screen
from tests.command_line import call
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem

BUILT = all((paths.sim_lib_dir() / name).exists() for name in ("vgpu-simd", "libcuda.so.1"))
pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(200),
    pytest.mark.slow,
]
#: the command line as another user, who may not read where it is installed
AS_USER = (
    "import os, grpc_status.rpc_status, vgpud.cli.jobs.attach, vgpud.cli.jobs.submit, vgpud.cli.jobs.job\n"
    "import vgpud.view.job_tables, textwrap, google.rpc.error_details_pb2, rich.progress\n"
    "from vgpud.cli.main import main\n"
    "os.setgroups([4]); os.setgid(65534); os.setuid(65534); main()"
)


@pytest.fixture(scope="module")
def system() -> Iterator[OwnSystem]:
    with own_system({"devices": "1", "memory_bytes": "64G"}, grace_s=10) as made:
        yield made


Words = Callable[..., str]


@pytest.fixture
def words_of(system: OwnSystem) -> Words:
    """What a command prints that needs no terminal."""
    return lambda *words: call(system, *words).stdout


@pytest.fixture
def screens(short_dir: Path, monkeypatch: pytest.MonkeyPatch, system: OwnSystem, words_of: Words) -> Iterator[Any]:
    short_dir.chmod(0o777)
    monkeypatch.chdir(short_dir)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in system.env.items():
        if name.startswith("VGPU_"):
            monkeypatch.setenv(name, value)
    made: list[Screen] = []

    def one(*words: str, user: str = "", **settings: Any) -> Screen:
        start = ("-c", user) if user else ("-m", "vgpud.cli.main")
        made.append(Screen(*start, *words, **settings))
        return made[-1]

    yield one
    for screen in made:
        screen.end()
    for job_id in words_of("job", "ls", "-o", "name").split():
        words_of("job", "cancel", job_id)
        words_of("job", "wait", "-q", job_id)


def new_shell(screens: Any, *options: str, **settings: Any) -> tuple[Screen, str]:
    """A shell at its prompt, and its job's number."""
    screen = screens("submit", "--pty", "--gpus", "0.2", *options, "--", *SHELL, **settings)
    screen.until(PROMPT)
    found = re.search(r"vgpu: job (\d+) is running; Ctrl-\\ d leaves its terminal", screen.text)
    assert found, screen.text
    return screen, found[1]


def test_a_shell_from_its_first_line_to_its_last(screens: Any) -> None:
    screen, job_id = new_shell(screens)
    assert screen.settings()[3] & termios.ECHO == 0
    screen.run("stty size", "30 90")
    screen.resize(12, 60)
    screen.run("until [ \"$(stty size)\" = '12 60' ]; do sleep 0.05; done; echo grown-$((1 + 1))", "grown-2")
    screen.type("sh -c 'echo begun-$((2 + 2)); sleep 1000'\r")
    screen.until(b"begun-4")
    screen.interrupt()
    screen.run("echo still-$((3 + 3))", "still-6")
    screen.type("exit 42\r")
    assert screen.wait() == 42
    assert f"vgpu: job {job_id} (bash) has failed: it ended with exit code 42" in screen.text
    logs = [sys.executable, "-m", "vgpud.cli.main", "job", "logs", job_id]  # it writes past Python's standard output
    assert b"still-6" in subprocess.run(logs, capture_output=True, check=True).stdout
    assert screen.settings()[3] & termios.ECHO, "it is as it was before again"


def test_left_by_keys_and_joined_again(screens: Any, words_of: Words) -> None:
    screen, job_id = new_shell(screens)
    screen.run("here=$$; printf '\\033[?1049h\\033[?25l'; echo first-$((4 * 2))", "first-8")
    screen.type("\x1cd")
    assert screen.wait() == 0
    assert f"left: job {job_id} continues, `vgpu job attach {job_id}` joins it again" in screen.text
    assert screen.output.rpartition(b"\x1b[?1049l")[1] and screen.output.rpartition(b"\x1b[?25h")[1], "as it was"
    assert words_of("job", "ls", "-o", "name").split() == [job_id]
    again = screens("job", "attach", job_id, size=(20, 70))
    again.until(b"first-8")
    again.run("test $here = $$ && stty size", "20 70")
    again.type("exit 0\r")
    assert again.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_cursor_is_back_after_a_signal(screens: Any, number: signal.Signals) -> None:
    """Also while the job waits, where a line shows its state."""
    screen = screens("submit", "--pty", "--hold", "--gpus", "0.2", "--", *SHELL)
    screen.until(b"\x1b[?25l")
    screen.until("is held")
    os.kill(screen.pid, number)
    assert screen.wait() == 128 + number
    assert screen.output.rpartition(b"\x1b[?25l")[2].count(b"\x1b[?25h"), screen.output


def test_a_closed_window_leaves_it_running(screens: Any, words_of: Words) -> None:
    screen, job_id = new_shell(screens)
    screen.run("here=$$", "here")
    screen.close_window()
    assert words_of("job", "ls", "-o", "name").split() == [job_id]
    again = screens("job", "attach", "--detach-keys", "ctrl-a,d", job_id)
    again.run("test $here = $$ && echo same-$((5 * 5))", "same-25")
    again.type("\x01d")
    assert again.wait() == 0


def test_the_daemon_is_restarted_meanwhile(screens: Any, system: OwnSystem) -> None:
    screen, job_id = new_shell(screens)
    screen.run("here=$$; echo before-$((6 * 6))", "before-36")
    assert system.daemon
    system.daemon.stop()
    system.start_daemon()
    screen.until(f"job {job_id} continues")
    screen.until(f"the daemon answers again: this is the terminal of job {job_id}")
    screen.run("test $here = $$ && echo same-$((7 * 7))", "same-49")
    assert screen.output.count(b"before-36") == 1, "what was shown is not shown again"
    screen.type("exit 9\r")
    assert screen.wait() == 9


def test_waiting_and_ctrl_c(screens: Any, words_of: Words) -> None:
    """One line says why it waits; Ctrl-C takes it back."""
    first, _ = new_shell(screens, "--min", "0.9", "--gpus", "0.9")
    second = screens("submit", "--pty", "--gpus", "0.9", "--", "true")
    second.until("pending")
    second.until("no device has 0.9 GPU")
    ids = words_of("job", "ls", "-o", "name").split()
    assert len(ids) == 2
    second.type("\x03")
    assert second.wait() == 130
    assert f"vgpu: job {ids[1]} is cancelled" in second.text
    assert words_of("job", "ls", "-o", "name").split() == ids[:1]
    first.type("exit\r")
    assert first.wait() == 0


def test_joining_a_job_that_waits(screens: Any, words_of: Words) -> None:
    """Ctrl-C ends the waiting and not the job; a closed window does not end it either."""
    first = screens("submit", "--pty", "--hold", "--gpus", "0.2", "--", *SHELL)
    first.until("is held")
    (job_id,) = words_of("job", "ls", "-o", "name").split()
    first.close_window()
    second = screens("job", "attach", job_id)
    second.until("is held")
    second.type("\x03")
    assert second.wait() == 130
    assert f"vgpu: job {job_id} continues: `vgpu job cancel {job_id}` would end it" in second.text
    third = screens("job", "attach", job_id)
    third.until("is held")
    words_of("job", "release", job_id)
    third.run("echo at-last-$((5 * 9))", "at-last-45")
    third.type("exit 5\r")
    assert third.wait() == 5
    ended = screens("job", "attach", job_id)
    assert ended.wait() == 125 and f"job {job_id} has ended (failed): `vgpu job logs {job_id}`" in ended.text


def test_much_output_and_ctrl_c(screens: Any, words_of: Words) -> None:
    screen, job_id = new_shell(screens)
    screen.type("yes ' is printed again and again'\r")
    screen.until(b"again and again", 5000)
    screen.interrupt()
    screen.run("echo and-then-$((4 * 4))", "and-then-16")
    screen.type("yes\r")
    screen.until(b"y\r\ny\r\n")
    screen.type("\x1cd")  # left in the middle of it
    assert screen.wait() == 0
    assert words_of("job", "ls", "-o", "name").split() == [job_id]


def test_ended_from_outside(screens: Any, words_of: Words) -> None:
    """The terminal is as it was, and the job continues."""
    screen, job_id = new_shell(screens)
    raw = screen.settings()
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.wait() == 128 + signal.SIGTERM
    assert f"vgpu: job {job_id} continues" in screen.text
    assert raw[3] & termios.ECHO == 0 and screen.settings()[3] & termios.ECHO
    assert words_of("job", "ls", "-o", "name").split() == [job_id]


def test_another_viewer_takes_over(screens: Any) -> None:
    first, job_id = new_shell(screens)
    second = screens("job", "attach", job_id)
    second.until(PROMPT)
    assert first.wait() == 0
    assert f"has joined the terminal of job {job_id} from elsewhere" in first.text
    second.run("echo mine-$((8 * 8))", "mine-64")


def test_a_short_job(screens: Any) -> None:
    screen = screens("submit", "--pty", "-q", "--gpus", "0.2", "--", "sh", "-c", "echo short-$((9 * 9)); exit 3")
    assert screen.wait() == 3
    assert screen.output.count(b"short-81") == 1 and "vgpu:" not in screen.text


def test_a_command_that_is_not_there(screens: Any) -> None:
    screen = screens("submit", "--pty", "--gpus", "0.2", "--", "no-such-command")
    assert screen.wait() == 127
    assert "command 'no-such-command' not found" in screen.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_other_users_and_admins(screens: Any, words_of: Words) -> None:
    """A foreign user is refused; an admin says so, and is an event that the owner sees."""
    mine, job_id = new_shell(screens)
    other = screens("job", "attach", job_id, user=AS_USER)
    assert other.wait() == 125
    assert f"job {job_id} is another user's" in other.text or f"job {job_id} does not belong" in other.text
    forced = screens("job", "attach", "--as-admin", job_id, user=AS_USER)
    assert forced.wait() == 125
    mine.run("echo untouched-$((2 * 3))", "untouched-6")

    theirs, their_id = new_shell(screens, user=AS_USER)
    refused = screens("job", "attach", their_id)
    assert refused.wait() == 125 and "--as-admin" in refused.text
    admin = screens("job", "attach", "--as-admin", their_id)
    admin.run("id -u", "65534")
    assert theirs.wait() == 0 and f"has joined the terminal of job {their_id}" in theirs.text
    assert "an admin, joins its terminal" in words_of("events", "-o", "json")
    admin.type("exit\r")
    assert admin.wait() == 0


def test_no_terminal(screens: Any) -> None:
    for words in (("submit", "--pty", "--gpus", "0.2", "--", "true"), ("job", "attach", "1")):
        done = subprocess.run(
            [sys.executable, "-m", "vgpud.cli.main", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 125
        assert "stdin is not a terminal" in done.stderr


@pytest.mark.parametrize("option", [("--array", "1-2"), ("--gang", "2"), ("--workers", "1-2")])
def test_refused_together(screens: Any, option: tuple[str, str]) -> None:
    screen = screens("submit", "--pty", "--gpus", "1", *option, "--", "true")
    assert screen.wait() == 125
    assert f"--pty and {option[0]}: a terminal is for one program" in screen.text
