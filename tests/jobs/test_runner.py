"""The shell of running jobs: starts, stops, adopts what a killed daemon left, and never runs an attempt twice."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.supervisors import ENVIRONMENT, USER, cgroups_left, end_all, is_alive, wait_until
from vgpud import paths
from vgpud.host import processes
from vgpud.jobs import runner as shell
from vgpud.jobs.messages import Attempt, Member, Result, Started
from vgpud.jobs.runner import Found, Jobs, StartError

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root can run others' jobs")]


class Ends:
    """Backend: the ends that were reported."""

    def __init__(self) -> None:
        self.results: asyncio.Queue[tuple[int, int, Result]] = asyncio.Queue()

    def job_ended(self, job_id: int, attempt: int, result: Result) -> None:
        self.results.put_nowait((job_id, attempt, result))

    async def next(self) -> tuple[int, int, Result]:
        return await asyncio.wait_for(self.results.get(), WAIT_S)


class Place:
    """A state directory, and a home for the user's jobs."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="vgj-"))
        self.folder.chmod(0o711)
        self.jobs = self.folder / "jobs"
        self.home = self.folder / "home"
        self.home.mkdir()
        os.chown(self.home, USER, USER)

    def attempt(self, script: str, job_id: int = 0, **fields: Any) -> Attempt:
        """A shell's script, as the user; job ids are this test run's own, since cgroups are the machine's."""
        member = Member(("sh", "-c", script), ENVIRONMENT, str(self.home / "log"))
        made = Attempt(os.getpid() * 1000 + job_id, 1, USER, USER, (), str(self.home), 0o022, (member,))
        return replace(made, **fields)

    def read(self, name: str) -> str:
        path = self.home / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    end_all(made.jobs)
    shutil.rmtree(made.folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def daemon(
    place: Place, *attempt_ids: tuple[int, int], **options: Any
) -> AsyncIterator[tuple[Jobs, Ends, dict[Any, Any]]]:
    """A daemon's life: it adopts what it knows; its jobs continue after it."""
    ends = Ends()
    jobs = Jobs(place.jobs, ends, **options)
    found = await jobs.adopt(attempt_ids)
    try:
        yield jobs, ends, found
    finally:
        jobs.close()


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test's coroutine."""

    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **options), 4 * WAIT_S))

    return run


async def until(what: str, ready: Callable[[], Any]) -> None:
    await asyncio.to_thread(wait_until, what, ready)


@on_a_loop
async def test_start_and_end(place: Place) -> None:
    async with daemon(place) as (jobs, ends, found):
        assert not found
        attempt = place.attempt("echo said; exit 3")
        started = await jobs.start(attempt)
        assert started.pid > 0 and jobs.running == [attempt.key]
        job_id, number, result = await ends.next()
        assert ((job_id, number), result.exit_code, result.is_lost) == (attempt.key, 3, False)
        assert place.read("log") == "said\n" and not jobs.running
        assert stat.S_IMODE(place.jobs.stat().st_mode) == 0o700
        await jobs.forget(*attempt.key)
        assert [entry.name for entry in place.jobs.iterdir()] == [".boot"]
        with pytest.raises(ProcessLookupError):  # waited for: nothing of it is left, not even a zombie
            os.kill(started.pid, 0)


@on_a_loop
async def test_many_at_once(place: Place) -> None:
    async with daemon(place) as (jobs, ends, _):
        attempts = [place.attempt(f"exit {n}", n) for n in range(40)]
        await asyncio.gather(*(jobs.start(attempt) for attempt in attempts))
        results = [await ends.next() for _ in attempts]
        assert {job_id: result.exit_code for job_id, _, result in results} == {
            a.job_id: n for n, a in enumerate(attempts)
        }
        assert ends.results.empty()


@on_a_loop
async def test_stop(place: Place) -> None:
    async with daemon(place) as (jobs, ends, _):
        attempt = place.attempt("trap '' TERM; echo $$ > pid; (setsid sleep 1000 &) ; while :; do sleep 0.05; done")
        await jobs.start(attempt)
        await until("its pid", lambda: place.read("pid"))
        assert await jobs.stop(*attempt.key, 0.2)
        _, _, result = await ends.next()
        assert (result.exit_code, result.is_stopped) == (137, True)
        assert not is_alive(int(place.read("pid"))) and not cgroups_left(attempt.name)
        assert not await jobs.stop(*attempt.key, 0)


@on_a_loop
async def test_a_signal_reaches_the_programs_that_handle_it(place: Place) -> None:
    """The shell in front waits for its program: the signal would end it."""
    program = "trap 'echo got >> got' USR1; echo $$ > pid; until [ -e go ]; do sleep 0.05; done; exit 7"
    async with daemon(place) as (jobs, ends, _):
        attempt = place.attempt(f"sh -c '{program.replace(chr(39), chr(34))}'; exit $?", signal=signal.SIGUSR1)
        await jobs.start(attempt)
        await until("its pid", lambda: place.read("pid"))
        jobs.signal(attempt.key)
        await until("the signal", lambda: place.read("got"))
        (place.home / "go").touch()
        _, _, result = await ends.next()
        assert (result.exit_code, result.is_stopped, place.read("got")) == (7, False, "got\n")
        jobs.signal(attempt.key)  # it has ended: nothing happens


@on_a_loop
async def test_a_signal_that_no_program_handles_is_for_all_of_them(place: Place) -> None:
    async with daemon(place) as (jobs, ends, _):
        attempt = place.attempt("echo $$ > pid; while :; do sleep 0.05; done", signal=signal.SIGUSR2)
        await jobs.start(attempt)
        await until("its pid", lambda: place.read("pid"))
        jobs.signal(attempt.key)
        _, _, result = await ends.next()
        assert (result.exit_code, result.signal) == (128 + signal.SIGUSR2, signal.SIGUSR2)


@on_a_loop
async def test_a_signal_reaches_the_program_of_a_container(place: Place) -> None:
    """An engine's client in front: unshare makes the pid namespace, whose first process is what the engine reports."""
    inner = place.home / "inner.sh"
    inner.write_text("trap 'echo got >> got' USR1; touch ready; until [ -e go ]; do sleep 0.05; done; exit 7")
    client = (  # it runs as the daemon does, not in the job's directory
        f"cd {place.home}; unshare --pid --fork sh inner.sh & client=$!;"
        ' until first=$(cat /proc/$client/task/$client/children); [ -n "$first" ]; do sleep 0.02; done;'
        " echo $first > first; wait $client"
    )
    async with daemon(place) as (jobs, ends, _):
        attempt = place.attempt(client, signal=signal.SIGUSR1, client=True)
        attempt = replace(attempt, first=("/bin/cat", str(place.home / "first")))
        await jobs.start(attempt)
        await until("its program", lambda: (place.home / "ready").exists() and place.read("first"))
        jobs.signal(attempt.key)
        await until("the signal", lambda: place.read("got"))
        (place.home / "go").touch()
        _, _, result = await ends.next()
        assert (result.exit_code, result.is_stopped, place.read("got")) == (7, False, "got\n")


@on_a_loop
async def test_a_job_without_a_signal_gets_none(place: Place) -> None:
    async with daemon(place) as (jobs, ends, _):
        attempt = place.attempt("trap 'echo got >> got' USR1; echo $$ > pid; until [ -e go ]; do sleep 0.05; done")
        await jobs.start(attempt)
        await until("its pid", lambda: place.read("pid"))
        jobs.signal(attempt.key)
        (place.home / "go").touch()
        _, _, result = await ends.next()
        assert (result.exit_code, place.read("got")) == (0, "")


@on_a_loop
async def test_a_daemon_that_ends_is_outlived(place: Place) -> None:
    """Three jobs over a daemon's restart: one continues, one has ended meanwhile, one never began."""
    long, short = place.attempt("while ! [ -e go ]; do sleep 0.02; done; exit 4", 1), place.attempt("exit 5", 2)
    never = place.attempt("exit 6", 3)
    async with daemon(place) as (jobs, _, _):
        await jobs.start(long)
        await jobs.start(short)
        await until("the short one's end", lambda: (place.jobs / short.name / "result").exists())
    async with daemon(place, long.key, short.key, never.key) as (jobs, ends, found):
        assert found[long.key] is Found.RUNS and found[never.key] is Found.NEVER_BEGAN
        assert isinstance(found[short.key], Result) and found[short.key].exit_code == 5
        (place.home / "go").touch()
        job_id, _, result = await ends.next()
        assert (job_id, result.exit_code) == (long.job_id, 4)
        assert ends.results.empty()  # what adopt() has said is not said again


DAEMON = """
import asyncio, sys
from pathlib import Path
from tests.jobs.test_runner import Ends, Place
from vgpud.jobs.runner import Jobs
async def main():
    place = Place()
    place.folder = Path(sys.argv[1])
    place.jobs, place.home = place.folder / "jobs", place.folder / "home"
    jobs = Jobs(place.jobs, Ends())
    await jobs.adopt([])
    attempt = place.attempt(sys.argv[2])
    print((await jobs.start(attempt)).pid, *attempt.key, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@on_a_loop
async def test_a_daemon_that_is_killed_is_outlived(place: Place) -> None:
    """As another process, with SIGKILL to all of its group and session, as a service manager may."""
    script = "while ! [ -e go ]; do sleep 0.02; done; exit 7"
    words = [sys.executable, "-c", DAEMON, str(place.folder), script]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    pid, job_id, number = map(int, (await asyncio.to_thread(process.stdout.readline)).split())
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert is_alive(pid)
    async with daemon(place, (job_id, number)) as (_, ends, found):
        assert found == {(job_id, number): Found.RUNS}
        (place.home / "go").touch()
        assert (await ends.next())[2].exit_code == 7
        await until("its end, by whoever is its parent now", lambda: not is_alive(pid))


@on_a_loop
async def test_none_begins_twice(place: Place) -> None:
    """A daemon that does not know that it has started an attempt: it gets the one that runs."""
    attempt = place.attempt("echo once >> count; while ! [ -e go ]; do sleep 0.02; done")
    async with daemon(place) as (jobs, _, _):
        first = await jobs.start(attempt)
    async with daemon(place, attempt.key) as (jobs, ends, _):
        second = await jobs.start(attempt)
        assert (second.pid, second.start) == (first.pid, first.start)
        (place.home / "go").touch()
        assert (await ends.next())[2].exit_code == 0
        third = await jobs.start(attempt)  # it has ended: that is reported
        assert third.pid == first.pid
        assert (await ends.next())[2].exit_code == 0
    assert place.read("count") == "once\n"


@on_a_loop
async def test_a_supervisor_that_is_killed(place: Place) -> None:
    """The job has failed, and all of it is ended, also what had left its session."""
    script = "setsid sh -c 'echo $$ >> pids; exec sleep 1000' & echo $$ >> pids; wait"
    async with daemon(place) as (jobs, ends, _):
        attempt = place.attempt(script)
        started = await jobs.start(attempt)
        await until("its pids", lambda: place.read("pids").count("\n") == 2)
        os.kill(started.pid, signal.SIGKILL)
        _, _, result = await ends.next()
        assert (result.exit_code, result.is_lost) == (shell.LOST_CODE, True)
        assert result.why == "its supervisor was killed, and what was left of it was ended"
        assert result.began_wall_ns <= result.ended_wall_ns
        assert not [pid for pid in place.read("pids").split() if is_alive(int(pid))]
        assert not cgroups_left(attempt.name)


@on_a_loop
async def test_who_forks_and_ends_again_and_again_does_not_outlive_its_supervisor(place: Place) -> None:
    """Lists of pids miss it. Its command has ended, and it has two seconds to do so too, when the supervisor is killed;
    should this test fail, it ends by itself long after."""
    code = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "end = time.monotonic() + 150\nwhile time.monotonic() < end:\n"
    code += " if os.fork(): os._exit(0)\n open('alive', 'w').write(str(time.monotonic()))"
    async with daemon(place) as (jobs, ends, _):
        started = await jobs.start(place.attempt(f'python3 -c "{code}"', pids_max=200))
        await until("its begin", lambda: place.read("alive"))
        os.kill(started.pid, signal.SIGKILL)
        assert (await ends.next())[2].is_lost
        last = place.read("alive")
        await asyncio.sleep(0.5)
        assert place.read("alive") == last


@on_a_loop
async def test_a_supervisor_that_is_killed_while_no_daemon_runs(place: Place) -> None:
    attempt = place.attempt("setsid sh -c 'echo $$ >> pids; exec sleep 1000'")
    async with daemon(place) as (jobs, _, _):
        started = await jobs.start(attempt)
        await until("its pid", lambda: place.read("pids"))
        jobs.close()
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)
    async with daemon(place, attempt.key) as (_, ends, found):
        assert found[attempt.key] is Found.RUNS, "what is left of it may hang in a driver: nobody waits for that"
        assert (await ends.next())[2].is_lost
        assert not is_alive(int(place.read("pids")))


@on_a_loop
async def test_without_cgroups_strays_are_known_by_their_environment(place: Place) -> None:
    from vgpud.jobs.leftovers import end_leftovers
    from vgpud.jobs.messages import Begun

    words = ["setsid", "sleep", "1000"]
    ours, others = (subprocess.Popen(words, env={"PATH": os.defpath, "VGPU_JOB": name}) for name in ("7.1", "7.11"))
    try:
        await until("their start", lambda: all(Path(f"/proc/{p.pid}/environ").read_bytes() for p in (ours, others)))
        await asyncio.to_thread(end_leftovers, "7.1", Begun(1, 1, "", 0), {})
        assert ours.wait(WAIT_S) == -signal.SIGKILL and others.poll() is None
    finally:
        others.kill()
        others.wait()


@on_a_loop
async def test_what_the_store_has_forgotten_is_ended(place: Place) -> None:
    """A job that began while the store was lost: nothing else would ever end it."""
    attempt, ended = place.attempt("echo $$ > pid; exec sleep 1000", 1), place.attempt("exit 0", 2)
    async with daemon(place) as (jobs, _, _):
        await jobs.start(attempt)
        await jobs.start(ended)
        await until("its pid", lambda: place.read("pid"))
        await until("the other's end", lambda: (place.jobs / ended.name / "result").exists())
    async with daemon(place) as (_, ends, found):
        assert not found
        await until("its directory's end", lambda: not (place.jobs / attempt.name).exists())
        await until("the other one's", lambda: not (place.jobs / ended.name).exists())
        assert ends.results.empty()
    assert not is_alive(int(place.read("pid")))


@on_a_loop
async def test_machine_was_restarted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ran has gone with the machine, and so may have the directory of what had just begun: neither runs again."""
    attempt, unseen = place.attempt("exec sleep 1000", 1), place.attempt("exit 0", 2)
    async with daemon(place) as (jobs, _, _):
        await jobs.start(attempt)
        monkeypatch.setattr(shell, "boot_id", lambda: "another boot")
    async with daemon(place, attempt.key, unseen.key) as (_, _, found):
        for key in (attempt.key, unseen.key):
            assert found[key].is_lost and found[key].why == "the machine was restarted while it ran"
    # the one before was killed before it had kept that
    async with daemon(place, attempt.key, unseen.key) as (jobs, _, found):
        assert found[unseen.key].is_lost
        await jobs.note_boot()
    async with daemon(place, attempt.key, unseen.key) as (_, _, found):
        assert found[unseen.key] is Found.NEVER_BEGAN
    monkeypatch.undo()
    async with daemon(place):  # ends what continues: it was no restart after all
        await until("its end", lambda: not (place.jobs / attempt.name).exists())


@on_a_loop
async def test_refusals(place: Place) -> None:
    async with daemon(place) as (jobs, ends, _):
        good = place.attempt("true")
        rows = [
            (replace(good, directory="here"), "invalid line in the instructions: cwd=here"),
            (replace(good, members=(Member((), {}),)), "member 0 has no command"),
            (replace(good, limits=(("nofile", 9, 3),)), "limit nofile: 9 is not a soft limit below 3"),
            (replace(good, limits=(("files", 1, 1),)), "unknown limit 'files': write one of as, core,"),
            (replace(good, members=(Member(("a\0b",), {}),)), "arg 'a\\x00b' holds a zero byte"),
            (replace(good, members=(Member(("x" * (17 << 20),), {}),)), "command and environment are"),
        ]
        for attempt, why in rows:
            with pytest.raises(StartError) as refused:
                await jobs.start(attempt)
            assert str(refused.value).startswith(why) and not refused.value.may_retry
        assert not jobs.running and ends.results.empty()
        await jobs.start(good)  # none of them has taken its place
        assert (await ends.next())[2].exit_code == 0


@on_a_loop
async def test_a_supervisor_that_does_not_answer_is_not_run_later(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is given up, so that the next attempt is the only one; it wakes up, and sees that."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nsleep 1; exec {paths.lib_dir()}/vgpu-job\n")
    slow.chmod(0o755)
    attempt = place.attempt("echo ran >> count")
    async with daemon(place) as (jobs, ends, _):
        monkeypatch.setattr(shell, "ANSWER_S", 0.2)
        monkeypatch.setattr(jobs, "_program", slow)
        with pytest.raises(StartError, match="did not answer within") as refused:
            await jobs.start(attempt)
        assert refused.value.may_retry
        monkeypatch.undo()
        await asyncio.sleep(1.5)
        assert not place.read("count")
        await jobs.start(replace(attempt, number=2))
        assert (await ends.next())[1] == 2
    assert place.read("count") == "ran\n"
    async with daemon(place, attempt.key) as (_, _, found):
        assert found[attempt.key] is Found.GIVEN_UP


@on_a_loop
async def test_a_supervisor_whose_answer_is_late_is_adopted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = place.attempt("echo ran >> count")
    async with daemon(place) as (jobs, ends, _):
        ask = jobs._ask

        async def lose_answer(words: bytes) -> bytes:
            await ask(words)
            raise asyncio.TimeoutError

        monkeypatch.setattr(jobs, "_ask", lose_answer)
        assert isinstance(await jobs.start(attempt), Started)
        assert (await ends.next())[2].exit_code == 0
    assert place.read("count") == "ran\n"


@on_a_loop
async def test_who_refuses_is_not_left_as_a_zombie(place: Place) -> None:
    async with daemon(place) as (jobs, _, _):
        for _ in range(3):
            with pytest.raises(StartError):
                await jobs.start(place.attempt("true", umask=-1))
        await until("their ends", lambda: all(not processes.runs(pid) for pid in jobs._children))
        before = set(jobs._children)
        with pytest.raises(StartError):
            await jobs.start(place.attempt("true", umask=-1))
        assert before and not before & jobs._children


@on_a_loop
async def test_a_job_outlives_a_daemon_without_descriptors(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """That there is none for its supervisor does not mean that it has ended."""
    monkeypatch.setattr(shell, "LOOK_S", 0.05)
    none = [errno.EMFILE]

    def pidfd_open(pid: int) -> int:
        if none:
            raise OSError(none.pop(), "Too many open files")
        return opened(pid)

    opened = os.pidfd_open
    async with daemon(place) as (jobs, ends, _):
        monkeypatch.setattr(os, "pidfd_open", pidfd_open)
        attempt = place.attempt("exec sleep 1000")
        await jobs.start(attempt)
        assert await jobs.stop(*attempt.key, 5)
        assert (await ends.next())[2].exit_code == 128 + signal.SIGTERM
    assert not none


@on_a_loop
async def test_no_program(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with daemon(place) as (jobs, _, _):
        monkeypatch.setattr(jobs, "_program", Path("/no/vgpu-job"))
        with pytest.raises(StartError, match="cannot start /no/vgpu-job: No such file or directory"):
            await jobs.start(place.attempt("true"))


@on_a_loop
async def test_start_is_a_matter_of_milliseconds(place: Place) -> None:
    """`vgpu submit` to start is 100 ms in all; the best of ten, as machines that test are busy."""
    async with daemon(place) as (jobs, ends, _):
        took_s = []
        for n in range(10):
            began_s = time.monotonic()
            await jobs.start(place.attempt("true", n))
            took_s.append(time.monotonic() - began_s)
            await ends.next()
        assert min(took_s) < 0.03


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="systemd is not installed")
@on_a_loop
async def test_systemd_starts_supervisors(place: Place) -> None:
    """By the socket of vgpu-job.socket: as many supervisors as connections, none of them our child."""
    path = place.folder / "job.sock"
    words = [
        "systemd-socket-activate",
        "--accept",
        "--inetd",
        "-l",
        str(path),
        str(paths.lib_dir() / "vgpu-job"),
        "--here",
    ]
    manager = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        await until("its socket", path.exists)
        async with daemon(place, activation_socket=path) as (jobs, ends, _):
            attempts = [place.attempt(f"echo {n} >> log; exit {n}", n) for n in range(3)]
            for attempt in attempts:
                started = await jobs.start(attempt)
                with pytest.raises(ChildProcessError):
                    os.waitpid(started.pid, os.WNOHANG)
            codes = {(await ends.next())[2].exit_code for _ in attempts}
            assert codes == {0, 1, 2}
        assert sorted(place.read("log").split()) == ["0", "1", "2"]
    finally:
        manager.terminate()
        manager.wait()


@on_a_loop
async def test_socket_that_no_keeper_serves(place: Place) -> None:
    """A socket file that no process serves: nothing has been said, so it may go well later."""
    path = place.folder / "job.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with daemon(place, activation_socket=path) as (jobs, _, _):
        with pytest.raises(StartError, match="Connection refused") as refused:
            await jobs.start(place.attempt("true"))
        assert refused.value.may_retry


@on_a_loop
async def test_no_job_runs_in_the_daemons_sandbox(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd's rights and mounts of the daemon would be those of its children, for good."""
    monkeypatch.setattr(shell, "_is_sandboxed_service", lambda: True)
    async with daemon(place, activation_socket=place.folder / "job.sock") as (jobs, _, _):
        with pytest.raises(StartError, match=r"vgpu-job\.socket") as refused:
            await jobs.start(place.attempt("true"))
        assert refused.value.may_retry


def test_a_sandboxed_service_is_known() -> None:
    code = "from vgpud.jobs.runner import _is_sandboxed_service as s; print(s())"
    for words, service, found in (
        ((), "1", "False"),
        (("setpriv", "--no-new-privs"), "1", "True"),
        (("setpriv", "--no-new-privs"), "", "False"),
    ):
        env = {k: v for k, v in os.environ.items() if k != "INVOCATION_ID"} | (
            {"INVOCATION_ID": "1"} if service else {}
        )
        done = subprocess.run(
            [*words, sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == found
