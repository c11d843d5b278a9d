"""How a refusal reaches the user: the engine's log in its format, one plain line on stderr, exit status 1."""

from __future__ import annotations

import datetime
import json
import os
import re

import pytest

from tests.runtime.conftest import LOW_LEVEL_STATUS, Front
from tests.runtime.fake_daemon import FakeDaemon, reply

AWKWARD = 'VGPU="abc" is no number\\nor: \t\u00e9\u4e2d'
SAID = 'VGPU="abc" is no number\\nor:  \u00e9\u4e2d'


@pytest.fixture
def refusing(front: Front) -> FakeDaemon:
    front.write()
    return FakeDaemon(front.socket, reply("refused", AWKWARD.encode()))


@pytest.mark.parametrize("words", [["--log-format", "json"], ["--log-format=json"], ["-log-format", "json"]])
def test_json_record(front: Front, refusing: FakeDaemon, words: list[str]) -> None:
    """As containerd's shim reads it: a stream of objects, the last one of level error counts, `time` is RFC 3339."""
    log = front.folder / "log.json"
    earlier = '{"level":"warning","msg":"earlier","time":"2026-01-01T00:00:00Z"}\n'
    log.write_text(earlier)
    with refusing:
        done = front.create("--log", str(log), *words)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", SAID + "\n")
    lines = log.read_text().splitlines(keepends=True)
    assert (lines[0], len(lines)) == (earlier, 2)
    record = json.loads(lines[1])
    assert (record.keys(), record["level"], record["msg"]) == ({"level", "msg", "time"}, "error", SAID)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["time"])
    stamp = datetime.datetime.fromisoformat(record["time"].replace("Z", "+00:00"))
    assert abs(datetime.datetime.now(datetime.timezone.utc) - stamp) < datetime.timedelta(minutes=5)


@pytest.mark.parametrize("words", [[], ["--log-format", "text"], ["--log-format=text"]])
def test_text_record(front: Front, refusing: FakeDaemon, words: list[str]) -> None:
    """The format of runc without --log-format: key=value, quoted."""
    log = front.folder / "log"
    with refusing:
        assert front.create(f"--log={log}", *words).returncode == 1
    (line,) = log.read_text().splitlines()
    quoted = SAID.replace("\\", "\\\\").replace('"', '\\"')
    assert re.fullmatch(r'time="\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ" level=error msg="(.*)"', line)
    assert line.endswith(f' level=error msg="{quoted}"')


def test_no_log(front: Front, refusing: FakeDaemon) -> None:
    with refusing:
        done = front.create()
    assert (done.returncode, done.stderr) == (1, SAID + "\n")


@pytest.mark.parametrize("log", ["", "/nowhere/log", "/", "journald:x", "syslog:x", "/dev/full"])
def test_log_that_cannot_be_written(front: Front, refusing: FakeDaemon, log: str) -> None:
    with refusing:
        done = front.create("--log", log, cwd=front.folder)
    assert (done.returncode, done.stderr) == (1, SAID + "\n")
    assert not [name for name in os.listdir(front.folder) if "journald" in name or "syslog" in name]


def test_log_that_is_a_pipe_without_a_reader(front: Front, refusing: FakeDaemon) -> None:
    os.mkfifo(front.folder / "pipe")
    with refusing:
        done = front.create("--log", str(front.folder / "pipe"))
    assert (done.returncode, done.stderr) == (1, SAID + "\n")


def test_crun_names_a_file_by_scheme(front: Front, refusing: FakeDaemon) -> None:
    with refusing:
        assert front.create("--log", f"file:{front.folder}/log", "--log-format=json").returncode == 1
    assert json.loads((front.folder / "log").read_text())["msg"] == SAID


def test_relative_log_counts_from_the_current_directory(front: Front, refusing: FakeDaemon) -> None:
    with refusing:
        assert front.create("--log", "log", cwd=front.folder).returncode == 1
    assert "is no number" in (front.folder / "log").read_text()


def test_no_daemon_is_in_the_log_too(front: Front) -> None:
    """Else docker says that it cannot find the log, and ends with 127."""
    front.write()
    log = front.folder / "log.json"
    assert front.create("--log", str(log), "--log-format", "json").returncode == 1
    message = json.loads(log.read_text())["msg"]
    assert "vgpud is not running" in message
    # moby makes 127 and 126 of these words, and the user looks for a missing command.
    for words in ("no such file or directory", "executable file not found", "permission denied"):
        assert words not in message.lower()


@pytest.mark.parametrize(
    "words", ["no such file or directory", "Executable file not found", "Permission denied", "operation not permitted"]
)
def test_a_refusal_is_not_taken_for_a_missing_command(front: Front, words: str) -> None:
    """moby and podman make 127 and 126 of these words, whatever their source: a disk's error, a value of the user's."""
    front.write()
    log = front.folder / "log.json"
    with FakeDaemon(front.socket, reply("refused", f"[Errno 1] {words}: '/x'".encode())):
        done = front.create("--log", log, "--log-format=json")
    assert done.stderr == json.loads(log.read_text())["msg"] + "\n"
    assert words.lower() not in done.stderr.lower() and "'/x'" in done.stderr


def test_long_text_is_cut_not_lost(front: Front) -> None:
    front.write()
    log = front.folder / "log.json"
    with FakeDaemon(front.socket, reply("refused", b'"\x01\\' * 5000)):
        assert front.create("--log", str(log), "--log-format", "json").returncode == 1
    assert json.loads(log.read_text())["msg"].startswith('" \\')


# ---- its own configuration ----


def test_low_level_runtime_by_name(front: Front) -> None:
    front.configure(f"socket = {front.socket}", "runtime = true")
    assert front.call("state", "c1", env={"PATH": "/nowhere"}).returncode == 0


@pytest.mark.parametrize("name", ["no-such-runtime", "/nowhere/runc", "/etc/hostname", "/"])
def test_low_level_runtime_that_is_not_there(front: Front, name: str) -> None:
    front.configure(f"runtime = {name}")
    log = front.folder / "log.json"
    done = front.call("--log", log, "--log-format=json", "state", "c1")
    assert done.returncode == 1
    assert name in done.stderr
    assert "vgpu-runtime.conf" in done.stderr
    assert json.loads(log.read_text())["msg"] == done.stderr.strip()
    assert "permission denied" not in done.stderr.lower()
    assert "no such file" not in done.stderr.lower()


def test_itself_as_low_level_runtime(front: Front) -> None:
    """It would exec itself for ever."""
    (front.folder / "runc").symlink_to(front.path)
    for name in (front.path, front.folder / "runc"):
        front.configure(f"runtime = {name}")
        done = front.call("state", "c1")
        assert done.returncode == 1
        assert "is vgpu-runtime itself" in done.stderr


def test_defaults_without_a_file(front: Front) -> None:
    os.unlink(f"{front.path}.conf")
    front.write()
    done = front.call("--version")
    if done.returncode == 0:
        assert "run" in done.stdout
    else:
        assert "neither runc nor crun" in done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sokcet = /x", "unknown setting `sokcet`"),
        ("socket", "is not `key = value`"),
        ("socket =", "needs a value"),
        ("socket = run/x", "must be an absolute path"),
        ("runtime = ./runc", "must be a name or an absolute path"),
        ("socket = /" + "x" * 5000, "needs a value of 1 to"),
        ("# x\n" * 20000, "is longer than"),
    ],
)
def test_bad_configuration_stops_requests_only(front: Front, line: str, message: str) -> None:
    """A container that runs must be stoppable whatever the file holds."""
    front.configure(f"socket = {front.socket}", f"runtime = {front.low_level}", "# comment", "", line)
    front.write()
    done = front.create()
    assert (done.returncode, front.take_notes()) == (1, None)
    assert message in done.stderr
    if "longer" not in message:
        assert front.call("kill", "c1", "9").returncode == LOW_LEVEL_STATUS
        assert "line 5" in done.stderr


def test_socket_path_that_is_too_long(front: Front) -> None:
    front.write()
    front.configure(f"socket = /{'x' * 200}", f"runtime = {front.low_level}")
    done = front.create()
    assert done.returncode == 1
    assert "too long" in done.stderr


def test_configuration_lies_beside_the_executable_not_the_link(front: Front) -> None:
    """Engines name /usr/lib/vgpu/current/vgpu-runtime; hooks get that name too, so that they outlive an upgrade."""
    front.write()
    (front.folder / "current").symlink_to(front.folder)
    front.path = front.folder / "current" / "vgpu-runtime"
    with FakeDaemon(front.socket, reply("pass")) as daemon:
        assert front.create().returncode == LOW_LEVEL_STATUS
        assert front.create(executable=str(front.path)).returncode == LOW_LEVEL_STATUS
    assert [asked.header["self"] for asked in daemon.requests] == [str(front.path)] * 2


def test_called_by_a_relative_name(front: Front) -> None:
    """The name for the hooks is absolute all the same."""
    front.write()
    real, front.path = front.path, front.path.relative_to(front.folder)
    with FakeDaemon(front.socket, reply("pass")) as daemon:
        done = front.create(cwd=front.folder, executable=str(real))
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    assert daemon.requests[0].header["self"] == str(real)
