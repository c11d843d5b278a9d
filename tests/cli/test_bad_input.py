"""Bad input: one line that names the value and the fix, the documented exit code, and nothing half-created."""

from __future__ import annotations

import grp
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

USAGE, UNREACHABLE, NOT_FOUND, DENIED, NO_CAPACITY, CONFLICT = 2, 3, 4, 5, 6, 8

BAD_AMOUNTS = [
    (("--gpus", "0"), "0 GPUs", USAGE),
    (("--gpus", "-1"), "-1", USAGE),
    (("--gpus", "0.0001"), "0.0001", USAGE),
    (("--gpus", "abc"), "abc", USAGE),
    (("--gpus", "1e9999"), "1e9999", USAGE),
    (("--gpus", "nan"), "nan", USAGE),
    (("--gpus", "2.5"), "2.5", USAGE),
    (("--gpus", "0.5", "--min", "0.8", "--max", "0.3"), "0.8", USAGE),
    (("--gpus", ".5", "--min", ".8"), "--min 0.8 is more than --gpus 0.5, which is the maximum, too", USAGE),
    (("--gpus", "0.5", "--min", "abc"), "abc", USAGE),
    (("--gpus", "0.5", "--mem", "999G"), str(999 << 30), USAGE),
    (("--gpus", "0.5", "--mem", "0"), "0", USAGE),
    (("--gpus", "0.5", "--mem", "8Q"), "8Q", USAGE),
    (("--gpus", "0.5", "--mem", "8"), "8 has no unit, and would be bytes: write 8G", USAGE),
    (("--gpus", "0.5", "--mem", "8G", "--mem-max", "9G"), "--mem", USAGE),
    (("--gpus", "0.5", "--class", "fast"), "fast", USAGE),
    (("--gpus", "0.5", "--weight", "-1"), "-1", USAGE),
    (("--gpus", "0.5", "--priority", "1001"), "1001", USAGE),
    (("--gpus", "0.5", "--spread", "0"), "0", USAGE),
    (("--gpus", "0.5", "--max", "default"), "default", USAGE),
    ((), "--gpus", USAGE),
]


def one_line(text: str) -> str:
    assert text.startswith("vgpu: "), text
    assert text.count("\n") == 1, text
    return text


@pytest.mark.parametrize(("args", "message", "code"), BAD_AMOUNTS)
def test_bad_amounts_of_a_slice(vgpu: Any, daemon: Any, args: tuple[str, ...], message: str, code: int) -> None:
    result = vgpu("slice", "create", "a", *args, host=daemon.host)
    assert result.code == code, result
    assert message in one_line(result.stderr)
    assert result.stdout == ""
    assert daemon.slices == {}


def test_a_slice_without_a_name_is_none(vgpu: Any, daemon: Any) -> None:
    result = vgpu("slice", "create", "", "--gpus", "0.5", host=daemon.host)
    assert result.code == USAGE and "the name is empty" in one_line(result.stderr)
    assert daemon.slices == {}


@pytest.mark.parametrize(("args", "message", "code"), BAD_AMOUNTS)
def test_bad_amounts_of_a_run_are_125(vgpu: Any, daemon: Any, args: tuple[str, ...], message: str, code: int) -> None:
    result = vgpu("run", *args, "--", "true", host=daemon.host)
    assert result.code == 125, result
    assert message in one_line(result.stderr)
    assert daemon.slices == {}


def test_set_refuses_min_over_max_and_nothing_changes(vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "a", "--gpus", "0.5", host=daemon.host)
    before = daemon.slices["a"].SerializeToString()
    for args in (
        ("--min", "0.9", "--max", "0.1"),
        ("--gpus", "2.5", "--min", "3", "--max", "1"),
        ("--gpus", "default"),
        ("--class", "fast"),
        ("--weight", "-1"),
        ("--priority", "most"),
        ("--mem", "default", "--mem-max", "1G"),
        (),
    ):
        result = vgpu("slice", "set", "a", *args, host=daemon.host)
        assert result.code == USAGE
        one_line(result.stderr)
    assert daemon.slices["a"].SerializeToString() == before


@pytest.mark.parametrize("command", ["show", "rm", "set"])
def test_unknown_slice(vgpu: Any, daemon: Any, command: str) -> None:
    more = ("--max", "1") if command == "set" else ()
    result = vgpu("slice", command, "nobody", *more, host=daemon.host)
    assert result.code == NOT_FOUND
    assert "nobody" in one_line(result.stderr)
    assert "vgpu slice ls" in result.stderr


def test_unknown_slice_of_run_is_125(vgpu: Any, daemon: Any) -> None:
    result = vgpu("run", "--slice", "nobody", "--", "true", host=daemon.host)
    assert result.code == 125
    assert "nobody" in one_line(result.stderr)


def test_minima_that_are_not_left_are_no_capacity(vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "a", "--gpus", "0.7", host=daemon.host)
    result = vgpu("slice", "create", "b", "--gpus", "0.4", host=daemon.host)
    assert result.code == NO_CAPACITY
    assert "ask for less" in one_line(result.stderr)
    assert set(daemon.slices) == {"a"}


def test_a_name_that_is_taken_is_a_conflict(vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "a", "--gpus", "0.2", host=daemon.host)
    result = vgpu("slice", "create", "a", "--gpus", "0.3", host=daemon.host)
    assert result.code == CONFLICT
    assert "choose another name" in one_line(result.stderr)


DAEMON_COMMANDS = [
    ("ps",),
    ("status",),
    ("top",),
    ("gpu", "ls"),
    ("slice", "ls"),
    ("slice", "create", "a", "--gpus", "0.5"),
    ("events",),
]


@pytest.mark.parametrize("command", DAEMON_COMMANDS)
def test_daemon_not_running(vgpu: Any, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "vgpud.sock"
    result = vgpu(*command, host=f"unix://{path}")
    assert result.code == UNREACHABLE
    line = one_line(result.stderr)
    assert "vgpud serve" in line
    assert str(path) in line
    assert result.stdout == ""


def test_run_without_a_daemon_starts_nothing(vgpu: Any, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    result = vgpu("run", "--gpus", "0.5", "--", "touch", str(mark), host=f"unix://{tmp_path}/vgpud.sock")
    assert result.code == 125
    assert "vgpud serve" in one_line(result.stderr)
    assert not mark.exists()


def test_socket_of_a_dead_daemon(vgpu: Any, tmp_path: Path) -> None:
    path = tmp_path / "vgpud.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    result = vgpu("ps", host=str(path))
    assert result.code == UNREACHABLE
    assert f"no process listens on {path}" in one_line(result.stderr)
    path.unlink()
    path.write_text("")
    result = vgpu("ps", host=str(path))
    assert result.code == UNREACHABLE
    assert f"not a socket: {path}" in one_line(result.stderr)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
@pytest.mark.parametrize(("mode", "message"), [(0o600, "to set `group` in"), (0o660, "added to group tty")])
def test_socket_without_permission(daemon: Any, tmp_path: Path, mode: int, message: str) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder) != "/":
            folder.chmod(folder.stat().st_mode | 0o111)
    os.chown(daemon.socket, 0, grp.getgrnam("tty").gr_gid)
    daemon.socket.chmod(mode)
    imports = (
        "import os, grp, pwd; import vgpud.cli.common.client, vgpud.cli.slices.slice; from vgpud.cli.main import main"
    )
    become_other_user = f"{imports}; os.setgroups([]); os.setgid(65534); os.setuid(65534); main()"
    command = [sys.executable, "-c", become_other_user, "--host", daemon.host, "slice", "create", "a", "--gpus", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == DENIED, done
    assert str(daemon.socket) in one_line(done.stderr)
    assert message in done.stderr
    assert daemon.slices == {}


@pytest.mark.parametrize("host", ["vgpud.sock", "unix:relative", "http://a:1", "host", "host:port", "unix://"])
def test_a_host_that_names_nothing(vgpu: Any, host: str) -> None:
    result = vgpu("ps", host=host)
    assert result.code == USAGE
    assert host in one_line(result.stderr)


@pytest.mark.parametrize(
    "command", [("nonsense",), ("ps", "--nonsense"), ("-o", "xml", "ps"), ("--timeout", "0", "ps"), ("slice", "show")]
)
def test_wrong_use_is_2_in_one_line(vgpu: Any, command: tuple[str, ...]) -> None:
    result = vgpu(*command)
    assert result.code == USAGE
    assert "--help" in one_line(result.stderr)


@pytest.mark.parametrize("owner", ["nobody-of-that-name", "-2", str(1 << 70), "9" * 5000])
def test_no_such_user_as_owner(vgpu: Any, daemon: Any, owner: str) -> None:
    result = vgpu("slice", "create", "a", "--gpus", "0.5", "--owner", owner, host=daemon.host)
    assert result.code == USAGE
    assert owner in one_line(result.stderr)
    assert daemon.slices == {}


@pytest.mark.parametrize("option", ["--weight", "--priority"])
@pytest.mark.parametrize("value", ["-1", "abc", str(1 << 40)])
def test_weights_and_priorities_that_cannot_be(vgpu: Any, daemon: Any, option: str, value: str) -> None:
    result = vgpu("slice", "create", "a", "--gpus", "0.5", option, value, host=daemon.host)
    assert result.code == USAGE
    assert value in one_line(result.stderr)
    assert daemon.slices == {}


@pytest.mark.parametrize("command", [("slice", "show"), ("slice", "rm"), ("ps", "--slice")])
def test_a_name_that_is_no_text(vgpu: Any, daemon: Any, command: tuple[str, ...]) -> None:
    result = vgpu(*command, os.fsdecode(b"caf\xe9"), host=daemon.host)
    assert result.code == USAGE
    assert "xe9" in one_line(result.stderr)


@pytest.mark.parametrize(
    "command",
    [
        ("slice", "create", "a{}", "--gpus", "0.5"),
        ("slice", "create", "a", "--gpus", "0.5", "--queue", "{}"),
        ("gpu", "drain", "0", "--reason", "{}"),
        ("gpu", "drain", "{}", "--reason", "cabling"),
        ("submit", "--gpus", "0.5", "--name", "{}", "--", "true"),
        ("submit", "--gpus", "0.5", "--directory", "/{}", "--", "true"),
        ("submit", "--gpus", "0.5", "--log", "/{}", "--", "true"),
        ("submit", "--gpus", "0.5", "--queue", "{}", "--", "true"),
        ("submit", "--gpus", "0.5", "--notify-url", "https://x/{}", "--", "true"),
        ("queue", "set", "{}", "--guarantee", "1"),
        ("reserve", "create", "--gpus", "1", "--for", "1h", "--name", "{}"),
    ],
)
def test_a_text_that_is_no_utf_8(vgpu: Any, daemon: Any, command: tuple[str, ...]) -> None:
    """Nor is it our error."""
    result = vgpu(*(word.format(os.fsdecode(b"caf\xe9")) for word in command), host=daemon.host)
    assert result.code == USAGE, result
    assert "report it" not in one_line(result.stderr)


def test_a_working_directory_that_is_no_utf_8(
    vgpu: Any, daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(here)
    monkeypatch.chdir(os.fsdecode(here))
    result = vgpu("submit", "--gpus", "0.5", "--", "true", host=daemon.host)
    assert result.code == USAGE, result
    assert "caf\\udce9' is not UTF-8, and cannot be sent: choose another name or directory" in one_line(result.stderr)
