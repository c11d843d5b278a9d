"""The part of the composition root that notifies users of their jobs: programs that run as them, with a deadline.

Made by JobController. Each runs under a supervisor of its own, outside the daemon's cgroup, as a job's attempt does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from vgpud.core.jobs.model import Job
from vgpud.jobs.messages import Attempt, Result
from vgpud.jobs.notices import NoticeError, attempts_of, post_of
from vgpud.jobs.runner import Jobs, StartError

#: a program that takes longer is ended
DEADLINE_S = 30.0
#: programs of all users that run at once, and that may wait for these; further ones are left out
RUNNING_MAX, WAITING_MAX = 64, 1000
#: of one user: slow ones wait for each other, and not others for them
USER_RUNNING_MAX, USER_WAITING_MAX = 4, 100


class Port(Protocol):
    """What is needed of the controller."""

    def note(self, kind: str, job: Job, text: str) -> None: ...


class _User:
    """The programs of one user that have not ended."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(USER_RUNNING_MAX)
        self.waiting = 0


class Notifier:
    """runner.Backend of the programs that notify."""

    def __init__(self, port: Port, directory: Path, activation_socket: Path) -> None:
        self._port = port
        self._runner = Jobs(directory, self, activation_socket)
        self._ends: dict[tuple[int, int], asyncio.Future[Result]] = {}
        self._free = asyncio.Semaphore(RUNNING_MAX)
        self._waiting = 0
        self._users: dict[int, _User] = {}  # with programs that have not ended, by uid
        # numbers of a former daemon's are not used again: its programs may still be ending
        self._next = time.time_ns() // 1_000_000

    async def begin(self) -> None:
        """Ends what a former daemon left."""
        await self._runner.adopt([])

    def close(self) -> None:
        self._runner.close()

    async def notify(self, job: Job, event: str) -> None:
        """Runs the programs that the user asked for, to their ends. `job`: as it was at the event."""
        try:
            attempts = attempts_of(job, event, self._next)
        except NoticeError as error:
            self._port.note("job.notify_failed", job, str(error))
            return
        self._next += len(attempts)
        post = post_of(job, event)
        runs = [self._run_program(attempt) for attempt in attempts] + ([self._post_webhook(*post)] if post else [])
        user = self._users.get(job.spec.uid) or _User()
        for waiting, most in ((self._waiting, WAITING_MAX), (user.waiting, USER_WAITING_MAX)):
            if waiting + len(runs) > most:
                for run in runs:
                    run.close()
                self._port.note("job.notify_failed", job, f"{most} notifications wait already: this one was left out")
                return
        if not runs:
            return
        self._users[job.spec.uid] = user
        self._waiting += len(runs)  # now: others ask before these have begun
        user.waiting += len(runs)
        await asyncio.gather(*(self._run(job, user, run) for run in runs))

    async def _run(self, job: Job, user: _User, run: Coroutine[Any, Any, str]) -> None:
        try:
            async with user.free, self._free:
                problem = await run
        finally:
            self._waiting -= 1
            user.waiting -= 1
            if not user.waiting:
                self._users.pop(job.spec.uid, None)
        if problem:
            self._port.note("job.notify_failed", job, problem)

    async def _run_program(self, attempt: Attempt) -> str:
        """Runs it to its end; what went wrong, "" for nothing."""
        key = attempt.job_id, attempt.number
        done = self._ends[key] = asyncio.get_running_loop().create_future()
        program = attempt.members[0].argv[0]
        try:
            await self._runner.start(attempt)
            try:
                result = await asyncio.wait_for(asyncio.shield(done), DEADLINE_S)
            except asyncio.TimeoutError:
                await self._runner.stop(*key, attempt.grace_ms / 1000)
                await done
                await self._runner.forget(*key)
                return f"{program} was ended after {DEADLINE_S:.0f} s"
        except StartError as error:
            return f"{program} could not be started: {error}"
        finally:
            del self._ends[key]
        await self._runner.forget(*key)
        return f"{program} ended with exit code {result.exit_code}" if result.exit_code else ""

    @staticmethod
    async def _post_webhook(words: Sequence[str], environment: Mapping[str, str]) -> str:
        """Posts to a webhook; what went wrong, "" for nothing."""
        null = asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *words, env=environment, cwd="/", stdin=null, stdout=null, stderr=null, start_new_session=True
            )
        except OSError as error:
            return f"the webhook's program could not be started: {error.strerror}"
        try:
            code = await asyncio.wait_for(process.wait(), DEADLINE_S)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
            return f"the webhook did not answer within {DEADLINE_S:.0f} s"
        return "the webhook could not be reached, or refused it" if code else ""

    # ---- runner.Backend ----

    def job_ended(self, job_id: int, attempt: int, result: Result) -> None:
        done = self._ends.get((job_id, attempt))
        if done is not None and not done.done():
            done.set_result(result)

    def worker_ended(self, job_id: int, attempt: int, worker: int, result: Result) -> None:
        """No notification has workers."""
