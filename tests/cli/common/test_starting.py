"""A command that is typed right after `vgpud serve &` waits for it; one without a daemon does not wait."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud import paths
from vgpud.cli.common import starting
from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.errors import CliError

#: waits for a line on its stdin, then listens and ends when its stdin does; or ends at once
DAEMON = """
import socket, sys
if sys.stdin.readline() == "listen\\n":
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(sys.argv[2])
    sock.listen()
    sys.stdin.read()
"""


class Daemon:
    """A process that looks like one of `vgpud serve`."""

    def __init__(self, path: Path) -> None:
        words = ["vgpud", "-c", DAEMON, "serve", str(path)]
        self._process = subprocess.Popen(words, executable=sys.executable, stdin=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def tell(self, word: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture
def path(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine's daemon would listen here."""
    path = short_dir / "vgpud.sock"
    monkeypatch.setattr(paths, "default_host", lambda: f"unix://{path}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(short_dir))
    return path


@pytest.fixture
def daemon(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """Only this one is seen: other tests start daemons, too."""
    started = Daemon(path)
    real = starting.find_starting_daemon
    monkeypatch.setattr(
        starting, "find_starting_daemon", lambda: started.pid if is_taken_for_daemon(real, started.pid) else 0
    )
    yield started
    started.stop()


def is_taken_for_daemon(real: Callable[[], int], pid: int) -> bool:
    """Whether the process is taken for a daemon that starts."""
    import psutil

    one = psutil.Process
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            psutil, "process_iter", lambda names: [add_info(one(pid), names)] if psutil.pid_exists(pid) else []
        )
        return real() == pid


def add_info(process: Any, names: list[str]) -> Any:
    process.info = process.as_dict(names)
    return process


def test_a_command_waits_for_a_daemon_that_is_starting(
    daemon: Daemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def sleep(pause_s: float) -> None:
        looks.append(pause_s)
        if len(looks) == 3:
            daemon.tell("listen")

    real = starting.time.sleep
    monkeypatch.setattr(starting.time, "sleep", lambda pause_s: (sleep(pause_s), real(pause_s)))
    with Client(Settings()) as client:
        assert client.target == f"unix://{path}"
    assert len(looks) >= 3


def test_a_daemon_that_ends_while_it_starts_is_not_waited_for(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    real = starting.time.sleep
    monkeypatch.setattr(starting.time, "sleep", lambda pause_s: (daemon.stop(), real(pause_s)))
    with pytest.raises(CliError, match="daemon not running: start it with `vgpud serve`"):
        Client(Settings())


def test_the_wait_has_the_end_that_the_user_gave_it(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr(starting.time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(starting.time, "sleep", lambda pause_s: clock_s.__setitem__(0, clock_s[0] + pause_s))
    for timeout_s, waited_s in ((1.0, 1.0), (60.0, starting.STARTS_S)):
        clock_s[0] = 0.0
        assert not starting.wait_for_starting_daemon(lambda: False, timeout_s, lambda text: None)
        assert waited_s <= clock_s[0] < waited_s + 1


def test_only_the_one_that_was_seen_first_is_waited_for(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(starting, "find_starting_daemon", lambda: looks.append(1) or daemon.pid)
    monkeypatch.setattr(starting.time, "sleep", lambda pause_s: daemon.stop())
    assert not starting.wait_for_starting_daemon(lambda: False, 10.0, lambda text: None)
    assert len(looks) == 1, "others may begin to start all the time"


def test_a_daemon_that_was_named_is_not_waited_for(daemon: Daemon, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(pause_s: float) -> None:
        raise AssertionError(pause_s)

    monkeypatch.setattr(starting.time, "sleep", sleep)
    with pytest.raises(CliError, match="daemon not running"):
        Client(Settings(host=f"unix://{path}"))
    monkeypatch.setenv("VGPU_HOST", f"unix://{path}")
    with pytest.raises(CliError, match="daemon not running"):
        Client(Settings())


def test_one_that_was_started_long_ago_is_not_starting(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    assert starting.find_starting_daemon() == daemon.pid
    monkeypatch.setattr(starting, "STARTS_S", -1.0)
    assert starting.find_starting_daemon() == 0


@pytest.mark.parametrize(
    ("words", "serves"),
    [
        ("/usr/bin/vgpud serve", True),
        ("/opt/python3 /opt/bin/vgpud serve --device sim", True),
        ("/opt/python3 -m vgpud.serve serve", True),
        ("/usr/bin/python3 -s /usr/bin/vgpud serve", True),
        ("/opt/python3 -u -m vgpud.serve serve", True),
        ("vgpud serve --config /tmp/other.toml", False),
        ("vgpud serve --runtime-dir=/tmp/other", False),
        ("/opt/python3 /opt/bin/vgpud serve --config /tmp/other.toml", False),
        ("/opt/python3 -m vgpud.serve serve --runtime-dir /tmp/other", False),
        ("/opt/python3 /opt/bin/vgpu serve", False),
        ("/opt/python3", False),
        ("vgpud check-devices", False),
        ("grep vgpud serve", False),
        ("vi serve", False),
    ],
)
def test_which_programs_are_daemons(words: str, serves: bool) -> None:
    assert starting._serves_here(words.split()) == serves


def test_no_one_listens_and_no_one_starts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "find_starting_daemon", lambda: 0)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    assert os.path.exists(path)
    with pytest.raises(CliError, match="no process listens on"):
        Client(Settings())
