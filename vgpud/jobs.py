"""Shell of running jobs: starts a supervisor (vgpu-job) for each attempt, tells it to stop, and learns how it ended.

A supervisor outlives the daemon and needs nothing of it; what is known of an attempt is in its directory, so a daemon
that starts anew finds every one of them: running, ended, or never begun. Where systemd offers a socket for it, systemd
starts the supervisor, in a unit of its own and without the daemon's sandbox; else it is our child.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from vgpud import paths, peers
from vgpud.errors import VgpudError
from vgpud.jobs_remains import end_remains
from vgpud.jobs_wire import (
    Attempt,
    Begun,
    Result,
    Started,
    WireError,
    attempt_name,
    instructions,
    parse_answer,
    parse_begun,
    parse_result,
)

T = TypeVar("T")
Key = tuple[int, int]  # job id, attempt

log = logging.getLogger("vgpud.jobs")

#: a supervisor that has not answered by then hangs: a disk that does, most likely
ANSWER_S = 20.0
_ANSWER_BYTES_MAX = 8192
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: exit code of an attempt of which nobody knows how it ended: as of a command that was killed
LOST_CODE = 137


class Backend(Protocol):
    """Whom the shell tells."""

    def job_ended(self, job_id: int, attempt: int, result: Result) -> None:
        """All processes of the attempt have gone. Called once for each that was started or adopted as running."""


class Found(Enum):
    """What became of an attempt that has no result."""

    RUNS = "runs"
    NEVER_BEGAN = "never began"


class StartError(VgpudError):
    """Nothing of the attempt runs. `again`: it may go well later."""

    def __init__(self, message: str, again: bool) -> None:
        super().__init__(message)
        self.again = again


@dataclass(eq=False, slots=True)
class _Watched:
    """A supervisor that lives."""

    key: Key
    pidfd: int
    pid: int


class Jobs:
    """All attempts that run. `directory` is private to the daemon; `activated`: systemd's socket, if there is one."""

    def __init__(self, directory: Path, backend: Backend, activated: Path | None = None) -> None:
        self._directory = directory
        self._backend = backend
        self._activated = activated
        self._program = paths.lib_dir() / "vgpu-job"
        self._watched: dict[Key, _Watched] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._directory_is_there = False

    @property
    def running(self) -> list[Key]:
        return list(self._watched)

    def close(self) -> None:
        """Ends the watch; jobs go on."""
        for watched in list(self._watched.values()):
            self._forget(watched)
        for task in self._tasks:
            task.cancel()

    # ---- starting ----

    async def start(self, attempt: Attempt) -> Started:
        """Begins an attempt, or finds that it has begun already: none is begun twice. Raises StartError."""
        try:
            words = instructions(attempt, str(self._directory))
        except WireError as error:
            raise StartError(str(error), again=False) from error
        if not self._directory_is_there:
            paths.make_private_dir(self._directory)
            self._directory_is_there = True
        try:
            answer = parse_answer(await asyncio.wait_for(self._ask(words), ANSWER_S))
        except asyncio.TimeoutError as error:
            raise StartError(f"vgpu-job did not answer within {ANSWER_S:.0f} s: see the disk", again=True) from error
        except OSError as error:
            raise StartError(f"cannot start {self._program}: {error.strerror or error}", again=True) from error
        if isinstance(answer, str):
            raise StartError(answer, again=False)
        started = answer or await self._begun_before(attempt)
        self._watch(attempt.key, started)
        return started

    async def _begun_before(self, attempt: Attempt) -> Started:
        begun = await asyncio.to_thread(self._read, attempt.key, "begun", parse_begun)
        if begun is None:
            raise StartError(f"attempt {attempt.name} has begun, but its directory cannot be read", again=False)
        return Started(begun.pid, begun.start, begun.note)

    async def _ask(self, words: bytes) -> bytes:
        with self._supervisor() as sock:
            await self._loop.sock_sendall(sock, words)
            sock.shutdown(socket.SHUT_WR)
            answer = bytearray()
            while part := await self._loop.sock_recv(sock, _ANSWER_BYTES_MAX):
                answer += part
        return bytes(answer)

    def _supervisor(self) -> socket.socket:
        """A connection to a new supervisor."""
        if self._activated and self._activated.exists():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                sock.connect(str(self._activated))
            except OSError:
                sock.close()
                raise
            return sock
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), fd) for fd in (0, 1)]
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_RDWR, 0))
        with theirs:
            try:
                os.posix_spawn(self._program, [self._program.name], {}, file_actions=actions, setsigmask=())
            except OSError:
                ours.close()
                raise
        return ours

    # ---- watching ----

    def _watch(self, key: Key, started: Started) -> None:
        if key in self._watched:
            return
        pidfd = peers.open_process(started.pid, started.start)
        watched = self._watched[key] = _Watched(key, pidfd, started.pid)
        if pidfd >= 0:
            self._loop.add_reader(pidfd, self._supervisor_ended, watched)
        else:
            self._loop.call_soon(self._supervisor_ended, watched)

    def _forget(self, watched: _Watched) -> None:
        self._watched.pop(watched.key, None)
        if watched.pidfd >= 0:
            self._loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = -1

    def _supervisor_ended(self, watched: _Watched) -> None:
        if watched.pidfd >= 0:
            self._loop.remove_reader(watched.pidfd)
        with contextlib.suppress(ChildProcessError):  # a former daemon's, or systemd's
            os.waitpid(watched.pid, os.WNOHANG)
        if self._watched.get(watched.key) is watched:
            self._spawn(self._tell_end(watched))

    async def _tell_end(self, watched: _Watched) -> None:
        result = await asyncio.to_thread(self._result_of, watched.key)
        if self._watched.get(watched.key) is watched:
            self._forget(watched)
            self._backend.job_ended(*watched.key, result)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- stopping ----

    async def stop(self, job_id: int, attempt: int, grace_s: float) -> bool:
        """SIGTERM to all of it and SIGKILL after the grace. Whether it runs; its end is told as any other."""
        watched = self._watched.get((job_id, attempt))
        if watched is None:
            return False
        await asyncio.to_thread(self._write_stop, watched.key, int(grace_s * 1000))
        if watched.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.pidfd, signal.SIGTERM)
        return True

    def _write_stop(self, key: Key, grace_ms: int) -> None:
        path = self._path(key)
        made = path / ".stop"
        with contextlib.suppress(OSError):  # a full disk: the supervisor takes the job's own grace
            made.write_text(f"grace_ms {grace_ms}\n")
            made.rename(path / "stop")

    # ---- what is there ----

    def _path(self, key: Key) -> Path:
        return self._directory / attempt_name(*key)

    def _read(self, key: Key, name: str, parse: Callable[[str], T]) -> T | None:
        """None: it is not there, or nothing that can be read."""
        path = self._path(key) / name
        try:
            return parse(path.read_text("utf-8", "replace"))
        except FileNotFoundError:
            return None
        except (OSError, WireError) as error:
            log.error("%s: %s", path, error)
            return None

    def _result_of(self, key: Key) -> Result:
        """Of an attempt whose supervisor has ended. In a thread."""
        result = self._read(key, "result", parse_result)
        if result:
            return result
        begun = self._read(key, "begun", parse_begun)
        if begun and begun.boot == _boot_id():
            end_remains(attempt_name(*key), begun)
            why = "its supervisor was killed, and what was left of it was ended"
        else:
            why = "the machine was restarted while it ran"
        return Result(
            LOST_CODE,
            why=why,
            lost=True,
            began_wall_ns=begun.began_wall_ns if begun else 0,
            ended_wall_ns=time.time_ns(),
        )

    async def adopt(self, known: Iterable[Key]) -> dict[Key, Found | Result]:
        """What became of the attempts that were running for the former daemon. Those that run are watched."""
        found: dict[Key, Found | Result] = {}
        for key in known:
            begun = await asyncio.to_thread(self._read, key, "begun", parse_begun)
            if begun is not None and self._lives(begun):
                self._watch(key, Started(begun.pid, begun.start, begun.note))
                found[key] = Found.RUNS
            elif begun is not None or self._path(key).exists():
                found[key] = await asyncio.to_thread(self._result_of, key)
            else:
                found[key] = Found.NEVER_BEGAN
        return found

    def _lives(self, begun: Begun) -> bool:
        return begun.boot == _boot_id() and peers.start_time(begun.pid) == begun.start and peers.runs(begun.pid)

    async def forget(self, job_id: int, attempt: int) -> None:
        """Removes the directory of an attempt whose result the store has."""
        await asyncio.to_thread(shutil.rmtree, self._path((job_id, attempt)), True)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
