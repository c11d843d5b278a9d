"""vgpu-job with a terminal: whose it is, who holds it, and that it goes with the job; also without cgroups."""

from __future__ import annotations

import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from tests.runtime.supervisors import USER, WAIT_S, Running, World, cgroups_left, is_alive, wait_until
from vgpud.jobs import messages as wire
from vgpud.jobs.leftovers import end_leftovers

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root can run others' jobs")]


def start(world: World, script: str, **fields: object) -> Running:
    running = world.start(world.attempt("sh", "-c", script, terminal=True, **fields))
    assert isinstance(running.answer, wire.Started), running.answer
    return running


def keeper_of(running: Running) -> int:
    """The process that holds the terminal; 0: there is none."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _comm(entry) == "vgpu-terminal" and _parent(entry) == running.process.pid:
            found.append(int(entry.name))
    return found[0] if found else 0


def _comm(entry: Path) -> str:
    try:
        return (entry / "comm").read_text().strip()
    except OSError:
        return ""


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def connect_viewer(running: Running) -> socket.socket:
    """A viewer."""
    viewer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    viewer.settimeout(WAIT_S)
    viewer.connect(str(running.path / "terminal"))
    return viewer


def test_it_is_the_users(world: World) -> None:
    """And the job's controlling terminal, with the input of all three."""
    script = "tty >tty; stat -Lc '%u %a' $(cat tty) >mode; stty size; ps -o tty= -p $$ >controls; exit 3"
    result = start(world, script).wait()
    assert (result.exit_code, result.is_stopped) == (3, False)
    assert world.log() == "24 80\n"
    name = (world.home / "tty").read_text().strip()
    assert name.startswith("/dev/pts/")
    owner, mode = (world.home / "mode").read_text().split()
    assert int(owner) == USER and not int(mode, 8) & 0o006, "others can neither read nor type"
    assert (world.home / "controls").read_text().strip() == name.removeprefix("/dev/")


def test_its_keeper_is_the_users_as_well(world: World) -> None:
    """With none of the daemon's rights or descriptors, and closed to the job."""
    script = "echo $$ >pid; exec sleep 1000"
    running = start(world, script, groups=(USER, 777))
    keeper: int = wait_until("the keeper", lambda: keeper_of(running))
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{keeper}/status").read_text().splitlines())
    assert status["Uid"].split() == status["Gid"].split() == [str(USER)] * 4
    assert sorted(status["Groups"].split()) == sorted([str(USER), "777"])
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert Path(f"/proc/{keeper}/fd").stat().st_uid == 0, "not dumpable: its memory is no business of the job's"
    names = [os.readlink(fd) for fd in Path(f"/proc/{keeper}/fd").iterdir()]
    assert len(names) == 8 and sum(name == "/dev/null" for name in names) == 3, names
    (job,) = world.pids("pid")
    same = [Path(f"/proc/{pid}/cgroup").read_text() for pid in (keeper, job)]
    assert same[0] == same[1]
    there = (running.path / "terminal").stat()
    assert stat.S_ISSOCK(there.st_mode) and there.st_uid == 0
    running.stop(5)
    assert running.wait().exit_code == 143
    assert not is_alive(keeper)


def test_its_log_is_opened_as_the_user(world: World) -> None:
    result = start(world, "true", log=str(world.jobs / "log")).wait()
    assert result.exit_code == 126 and "cannot write the log" in result.why
    assert not (world.jobs / "log").exists()


def test_a_pipe_that_is_not_read_as_its_log(world: World) -> None:
    os.mkfifo(world.home / "pipe", 0o666)
    os.chown(world.home / "pipe", USER, USER)
    result = start(world, "true", log=str(world.home / "pipe")).wait()
    assert result.exit_code == 126 and "cannot write the log" in result.why, "refused, and not waited for"


def test_a_command_that_is_not_there(any_world: World) -> None:
    running = any_world.start(any_world.attempt("no-such-command", terminal=True))
    result = running.wait()
    assert (result.exit_code, result.why) == (127, "command 'no-such-command' not found: check the name and PATH")


def test_a_shell_that_ignores_sigterm_ends_at_once(world: World) -> None:
    """By SIGHUP, long before its grace is over; a program that saves its state at SIGTERM gets no SIGHUP."""
    script = "trap '' TERM; echo $$ >pid; while :; do sleep 0.05; done"
    running = start(world, script)
    world.pids("pid")
    running.stop(600)
    result = running.wait()
    assert (result.is_stopped, result.signal) == (True, signal.SIGHUP)
    running = start(world, "trap 'echo saved; exit 0' TERM; echo $$ >>pid; while :; do sleep 0.05; done")
    world.pids("pid", 2)
    running.stop(600)
    assert running.wait().exit_code == 0
    assert "saved" in world.log()


def interactive(world: World, script: str) -> Running:
    """A shell at its terminal that ignores SIGTERM, in which a script has been started."""
    (world.home / "script").write_text(f"{script}; echo $$ >pid; while :; do sleep 0.05; done\n")
    running = start(world, "exec bash --norc --noprofile -i")
    with connect_viewer(running) as viewer:
        viewer.send(b"Ish script\n")
        world.pids("pid")
    return running


def test_a_shell_is_hung_up_after_what_it_has_started(world: World) -> None:
    """Which a shell hangs up as well: a program that saves its state at SIGTERM is given its grace."""
    running = interactive(world, "trap 'sleep 0.5; echo saved; exit 0' TERM")
    running.stop(600)
    result = running.wait()
    assert "saved" in world.log(), "SIGHUP came first"
    assert result.exit_code == 129, "and then SIGHUP, long before the grace was over"


def test_late_in_the_grace_a_shell_is_hung_up_all_the_same(world: World) -> None:
    """Beside a program that does not end by SIGTERM."""
    running = interactive(world, "trap : TERM")
    running.stop(2)
    assert running.wait().exit_code == 129


def test_a_program_that_leaves_the_terminal_runs_on(any_world: World) -> None:
    """It writes to a file, and to its terminal again later."""
    script = "exec </dev/null >out 2>&1; echo $$ >pid; until test -e go; do sleep 0.05; done; "
    running = start(any_world, script + "echo again >/dev/tty; exit 5", grace_ms=100)
    any_world.pids("pid")
    with connect_viewer(running) as viewer:
        assert viewer.recv(100) == b"A", "its keeper is there"
        (any_world.home / "go").touch()
        assert viewer.recv(100) == b"Oagain\r\n"
    result = running.wait()
    assert (result.exit_code, result.why) == (5, "")


def test_no_process_answers_once_the_keeper_is_gone(world: World) -> None:
    """A viewer that joins is refused, and not left to wait for the supervisor."""
    running = start(world, "trap '' HUP; echo $$ >pid; exec sleep 1000")
    world.pids("pid")
    connect_viewer(running).close()
    keeper: int = wait_until("the keeper", lambda: keeper_of(running))
    os.kill(keeper, signal.SIGKILL)
    wait_until("its end", lambda: not keeper_of(running))
    with pytest.raises(ConnectionRefusedError):
        connect_viewer(running)
    running.stop(5)
    running.wait()


def test_it_goes_with_a_supervisor_that_is_killed(world: World) -> None:
    running = start(world, "echo $$ >pid; exec sleep 1000")
    (job,) = world.pids("pid")
    keeper: int = wait_until("the keeper", lambda: keeper_of(running))
    running.process.kill()
    running.process.wait()
    begun = wire.parse_begun((running.path / "begun").read_text())
    end_leftovers(running.attempt.name, begun, {})
    wait_until("the end of both", lambda: not is_alive(job) and not is_alive(keeper))
    assert not cgroups_left(running.attempt.name)


def test_processes_left_behind_are_ended(any_world: World) -> None:
    """Also those that keep the terminal open."""
    result = start(any_world, "trap '' HUP; sleep 1000 & echo $! >pid; exit 2").wait()
    (left,) = any_world.pids("pid")
    assert result.exit_code == 2 and not is_alive(left)


def test_no_terminal_for_several(world: World) -> None:
    members = tuple(wire.Member(("true",), {}, "") for _ in range(2))
    running = world.start(world.attempt(members=members, terminal=True))
    assert running.answer == wire.Refused("a terminal is for one member, not for 2", may_retry=False)
    running.process.wait()
    world.running.clear()
