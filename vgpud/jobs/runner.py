"""Shell of running jobs: starts a supervisor (vgpu-job) for each attempt, tells it to stop, and learns how it ended.

Of an elastic job each worker has one, since workers come and go while the attempt lasts.

A supervisor outlives the daemon and needs nothing of it; what is known of an attempt is in its directory, so a daemon
that is restarted finds every one of them: running, ended, or never begun. Where systemd offers a socket for it, systemd
starts the supervisor, in a unit of its own and without the daemon's sandbox; else it is our child.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from vgpud import paths
from vgpud.errors import DeniedError, VgpudError
from vgpud.host import private_files, processes
from vgpud.host.boot import boot_id
from vgpud.jobs import container_mounts
from vgpud.jobs.image import OF_MEMBERS, REFUSAL, VOLUMES, Engine, client_environment, containers
from vgpud.jobs.leftovers import end_leftovers
from vgpud.jobs.messages import (
    Attempt,
    Key,
    Refused,
    Result,
    Started,
    WireError,
    attempt_key,
    attempt_name,
    instructions,
    parse_answer,
    parse_begun,
    parse_result,
)
from vgpud.jobs.terminal import Terminal, join

T = TypeVar("T")

log = logging.getLogger("vgpud.jobs")

#: a supervisor that has not answered by then hangs: a disk that does, most likely
ANSWER_S = 20.0
_ANSWER_BYTES_MAX = 8192
#: of a file of an attempt: the names of 1,024 containers fit
STATE_BYTES_MAX = 4 << 20
#: of the sentence why a container was not started
REFUSAL_CHARACTERS_MAX = 2000
#: how often a supervisor is looked at for which there is no descriptor
LOOK_S = 1.0
#: bounds of the processes and threads of a member; the data loaders of a large node have thousands
PIDS_MAX = (1024, 32_768)
#: for what runs and is not known any more
STRAY_GRACE_S = 5.0
#: exit code of an attempt whose end is unknown: as of a command that was killed
LOST_CODE = 137
SANDBOXED = "the daemon's service has a sandbox, in which no job can run: run `vgpu setup systemd` and"
SANDBOXED += " systemctl restart vgpud, which start vgpu-job.socket"
#: the result of an attempt whose place was taken before it could begin
GIVEN_UP = "exit_code 126\nsignal 0\ncpu_ns 0\nram_peak_bytes 0\nbegan_wall_ns 0\nended_wall_ns 0\nwhy it never began\n"


class Backend(Protocol):
    """What the shell reports to."""

    def job_ended(self, job_id: int, attempt: int, result: Result) -> None:
        """All processes of the attempt have gone. Called once for each that was started or adopted as running."""

    def worker_ended(self, job_id: int, attempt: int, worker: int, result: Result) -> None:
        """The same of one worker of an elastic job."""


class Found(Enum):
    """What became of an attempt that has no result."""

    RUNS = "runs"  # or its supervisor was killed: its end is reported when all of it has gone
    NEVER_BEGAN = "never began"
    GIVEN_UP = "given up"  # and never begins: no supervisor has answered


class StartError(VgpudError):
    """Nothing of the attempt runs. `may_retry`: it may go well later."""

    def __init__(self, message: str, may_retry: bool) -> None:
        super().__init__(message)
        self.may_retry = may_retry


@dataclass(eq=False, slots=True)
class _Watched:
    """A supervisor that lives."""

    key: Key
    pid: int
    start: int
    pidfd: int = -1
    stray: bool = False  # its end is not reported


class Jobs:
    """All attempts that run. `directory` is private to the daemon; `activation_socket`: systemd's, if there is one.

    `engine`: of jobs in containers; None: there is none here.
    """

    def __init__(
        self, directory: Path, backend: Backend, activation_socket: Path | None = None, engine: Engine | None = None
    ) -> None:
        self._directory = directory
        self._engine = engine
        self._backend = backend
        self._activated = activation_socket
        self._program = paths.lib_dir() / "vgpu-job"
        self._pids_max = _pids_max()
        self._sandboxed = _is_sandboxed_service()
        self._watched: dict[Key, _Watched] = {}
        self._children: set[int] = set()  # that are not watched yet, or never will be: those that refused
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()

    @property
    def running(self) -> list[Key]:
        return list(self._watched)

    def close(self) -> None:
        """Ends the watch; jobs keep running."""
        for watched in list(self._watched.values()):
            self._forget(watched)
        for task in self._tasks:
            task.cancel()

    # ---- starting ----

    async def start(self, attempt: Attempt) -> Started:
        """Begins an attempt, or finds that it has begun already: none is begun twice. Raises StartError."""
        if self._sandboxed and not (self._activated and self._activated.exists()):
            raise StartError(SANDBOXED, may_retry=True)
        attempt = replace(attempt, pids_max=attempt.pids_max or self._pids_max)
        self._make_directory()
        try:
            if attempt.image:
                attempt = await self._in_containers(attempt)
            words = instructions(attempt, str(self._directory))
        except WireError as error:
            raise StartError(str(error), may_retry=False) from error
        try:
            answer = parse_answer(await asyncio.wait_for(self._ask(words), ANSWER_S))
        except asyncio.TimeoutError:
            return await self._settle(attempt.key, f"vgpu-job did not answer within {ANSWER_S:.0f} s: see the disk")
        except OSError as error:
            return await self._settle(attempt.key, f"cannot start {self._program}: {error.strerror or error}")
        if isinstance(answer, Refused):
            raise StartError(answer.why, answer.may_retry)
        return self._watch(attempt.key, answer or await self._find_supervisor(attempt.key))

    def _make_directory(self) -> None:
        """Again, where the daemon started on a disk that was full or read-only. Raises StartError."""
        if self._directory.exists():
            return
        try:
            paths.make_private_dir(self._directory)
        except VgpudError as error:
            raise StartError(str(error), may_retry=True) from error

    async def _in_containers(self, attempt: Attempt) -> Attempt:
        """Raises WireError, StartError."""
        if self._engine is None:
            raise StartError(
                "no container engine is installed here, or not the one that vgpud.toml names: leave --image out",
                may_retry=False,
            )
        made, files = containers(attempt, self._engine, self._directory)

        def write() -> None:
            for path, text in files.items():
                path.parent.mkdir(mode=0o700, exist_ok=True)
                private_files.write(path, text)

        try:
            await asyncio.to_thread(write)
        except (OSError, UnicodeEncodeError) as error:
            raise StartError(f"cannot write the container's variables: {error}", may_retry=True) from error
        return made

    async def _find_supervisor(self, key: Key) -> Started:
        begun = await asyncio.to_thread(self._read, key, "begun", parse_begun)
        if begun is None:
            raise StartError(f"attempt {attempt_name(*key)} was begun and given up before", may_retry=True)
        return Started(begun.pid, begun.start, begun.note)

    async def _settle(self, key: Key, problem: str) -> Started:
        """No answer came, which does not say that nothing runs: we take the attempt's place before its supervisor
        can, or see that it has. Raises StartError."""
        if await asyncio.to_thread(self._take_place, key):
            raise StartError(problem, may_retry=True)
        return self._watch(key, await self._find_supervisor(key))

    def _take_place(self, key: Key) -> bool:
        """Whether the attempt had not begun, and can no more: as in shim/job/attempt.c, the first one gets it."""
        made = self._directory / f".{attempt_name(*key)}.given-up"
        try:
            made.mkdir(mode=0o700, exist_ok=True)
            private_files.write(made / "result", GIVEN_UP)
            made.rename(self._path(key))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                log.error("%s: %s", made, error)
            return error.errno not in (errno.ENOTEMPTY, errno.EEXIST)  # no supervisor can make its directory either
        return True

    async def _ask(self, words: bytes) -> bytes:
        with self._supervisor() as sock:
            await self._loop.sock_sendall(sock, words)
            sock.shutdown(socket.SHUT_WR)
            answer = bytearray()
            try:
                while part := await self._loop.sock_recv(sock, _ANSWER_BYTES_MAX):
                    answer += part
            except ConnectionResetError:  # it has ended without listening to all of it
                if not answer:
                    raise
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
        self._reap()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), fd) for fd in (0, 1)]
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_RDWR, 0))
        with theirs:
            try:
                pid = os.posix_spawn(self._program, [self._program.name], {}, file_actions=actions, setsigmask=())
            except OSError:
                ours.close()
                raise
        self._children.add(pid)
        return ours

    def _reap(self) -> None:
        """Supervisors that have begun nothing and ended."""
        for pid in list(self._children):
            with contextlib.suppress(ChildProcessError):
                if not os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            self._children.discard(pid)

    # ---- watching ----

    def _watch(self, key: Key, process: Started) -> Started:
        if key in self._watched:
            return process
        self._children.discard(process.pid)
        watched = self._watched[key] = _Watched(key, process.pid, process.start)
        self._look(watched)
        return process

    def _look(self, supervisor: _Watched) -> None:
        if self._watched.get(supervisor.key) is not supervisor:
            return
        supervisor.pidfd = processes.open_process(supervisor.pid, supervisor.start)
        if supervisor.pidfd >= 0:
            self._loop.add_reader(supervisor.pidfd, self._supervisor_ended, supervisor)
        elif _lives(supervisor.pid, supervisor.start):  # we have no descriptor left: that is no reason to end a job
            self._loop.call_later(LOOK_S, self._look, supervisor)
        else:
            self._loop.call_soon(self._supervisor_ended, supervisor)

    def _forget(self, supervisor: _Watched) -> None:
        self._watched.pop(supervisor.key, None)
        if supervisor.pidfd >= 0:
            self._loop.remove_reader(supervisor.pidfd)
            os.close(supervisor.pidfd)
            supervisor.pidfd = -1

    def _supervisor_ended(self, supervisor: _Watched) -> None:
        if supervisor.pidfd >= 0:
            self._loop.remove_reader(supervisor.pidfd)
        with contextlib.suppress(ChildProcessError):  # a former daemon's, or systemd's
            os.waitpid(supervisor.pid, os.WNOHANG)
        if self._watched.get(supervisor.key) is supervisor:
            self._spawn(self._tell_end(supervisor))

    async def _tell_end(self, supervisor: _Watched) -> None:
        result = await asyncio.to_thread(self._result_of, supervisor.key)
        if self._watched.get(supervisor.key) is not supervisor:
            return
        self._forget(supervisor)
        if supervisor.stray:
            await self.forget(*supervisor.key)
            return
        job_id, attempt, *worker = supervisor.key
        if worker:
            self._backend.worker_ended(job_id, attempt, worker[0], result)
        else:
            self._backend.job_ended(job_id, attempt, result)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- stopping ----

    async def stop(self, job_id: int, attempt: int, grace_s: float, worker: int = -1) -> bool:
        """SIGTERM to all of it and SIGKILL after the grace. Whether it runs; its end is reported as any other."""
        watched = self._watched.get(attempt_key(job_id, attempt, worker))
        if watched is None:
            return False
        await asyncio.to_thread(self._write_stop, watched.key, int(grace_s * 1000))
        _send(watched, signal.SIGTERM)
        return True

    def signal(self, key: Key) -> None:
        """Attempt.signal to the processes of this attempt; nothing, if it does not run."""
        if watched := self._watched.get(key):
            _send(watched, signal.SIGUSR1)

    def _write_stop(self, key: Key, grace_ms: int) -> None:
        path = self._path(key)
        made = path / ".stop"
        with contextlib.suppress(OSError):  # a full disk: the supervisor takes the job's own grace
            private_files.write(made, f"grace_ms {grace_ms}\n")
            made.rename(path / "stop")

    # ---- what is there ----

    def _path(self, key: Key) -> Path:
        return self._directory / attempt_name(*key)

    def read_cgroup(self, key: Key) -> str:
        """The directory of an attempt's cgroup, "" while it has none. In a thread."""
        begun = self._read(key, "begun", parse_begun)
        return begun.cgroup if begun else ""

    def _read(self, key: Key, name: str, parse: Callable[[str], T]) -> T | None:
        """None: it is not there, or nothing that can be read."""
        path = self._path(key) / name
        try:
            with path.open("rb") as file:
                return parse(file.read(STATE_BYTES_MAX).decode("utf-8", "replace"))
        except FileNotFoundError:
            return None
        except (OSError, WireError) as error:
            log.error("%s: %s", path, error)
            return None

    def _result_of(self, key: Key) -> Result:
        """Of an attempt whose supervisor has ended. In a thread."""
        result = self._read(key, "result", parse_result)
        if result:
            return replace(result, why=result.why or self._read_refusal(key))
        begun = self._read(key, "begun", parse_begun)
        if begun and begun.boot == boot_id():
            client = client_environment(self._engine, self._directory) if self._engine else {}
            end_leftovers(attempt_name(*key), begun, client)
            why = "its supervisor was killed, and what was left of it was ended"
        else:
            why = "the machine was restarted while it ran"
        return Result(
            LOST_CODE,
            why=why,
            is_lost=True,
            began_wall_ns=begun.began_wall_ns if begun else 0,
            ended_wall_ns=time.time_ns(),
        )

    def _read_refusal(self, key: Key) -> str:
        """Why the client of one of its containers did not start it (container_client.py); "" if it did."""
        for path in sorted(self._directory.glob(f"{attempt_name(*key)}.*{REFUSAL}")):
            with contextlib.suppress(OSError):
                return path.read_text("utf-8", "replace")[:REFUSAL_CHARACTERS_MAX]
        return ""

    async def adopt(self, attempt_keys: Iterable[Key]) -> dict[Key, Found | Result]:
        """What became of the attempts that were running for the former daemon; before anything is started, once.

        Those that run are watched. What the daemon does not know is ended: it had begun when its daemon was killed, and
        the store is of before. Call note_boot() when what has ended is on the disk. Raises DeniedError where the
        directory cannot be ours.
        """
        try:
            paths.make_private_dir(self._directory)
        except DeniedError:
            raise
        except VgpudError as error:  # full, or read-only: nothing can have begun there
            log.error("no job can be started: %s", error)
        keys = set(attempt_keys)
        await asyncio.to_thread(self._drop_variables, keys)
        same_boot = self._boot_before() == boot_id()
        if not keys:
            await self.note_boot()
        found = {key: await self._adopt(key, same_boot) for key in sorted(keys)}
        for key in await asyncio.to_thread(self._strays, keys):
            log.error("attempt %s is not known any more: it is ended", attempt_name(*key))
            if await self._adopt(key, same_boot) is Found.RUNS:
                self._watched[key].stray = True
                await self.stop(key[0], key[1], STRAY_GRACE_S, *key[2:])
            else:
                await self.forget(*key)
        return found

    async def _adopt(self, key: Key, same_boot: bool) -> Found | Result:
        result = await asyncio.to_thread(self._read, key, "result", parse_result)
        begun = await asyncio.to_thread(self._read, key, "begun", parse_begun)
        if result:  # its supervisor, if it still lives, has nothing left to do but to go
            return replace(result, why=result.why or self._read_refusal(key)) if begun else Found.GIVEN_UP
        if begun is not None and begun.boot == boot_id():
            self._watch(key, Started(begun.pid, begun.start, begun.note))
            return Found.RUNS
        if begun is None and same_boot and not self._path(key).exists():
            return Found.NEVER_BEGAN
        return await asyncio.to_thread(self._result_of, key)

    def _boot_before(self) -> str:
        with contextlib.suppress(OSError):
            return (self._directory / ".boot").read_text("utf-8", "replace")
        return ""

    async def note_boot(self) -> None:
        """The machine runs since then: else a directory may have been lost with power, and its attempt is not begun
        again. Not before those attempts' ends are kept: a daemon that is killed meanwhile would begin them."""
        boot = boot_id()

        def write() -> None:
            with open(self._directory / ".boot", "w", opener=private_files.opener) as file:
                file.write(boot)
                file.flush()
                os.fsync(file.fileno())

        try:
            if self._boot_before() != boot:
                await asyncio.to_thread(write)
        except OSError as error:  # a full disk: the next daemon begins nothing again that it does not find
            log.error("%s: %s", self._directory / ".boot", error.strerror)

    def _files_of_members(self, pattern: str) -> list[Path]:
        """What the containers of attempts have there, beside their attempts' directories."""
        return [path for suffix in OF_MEMBERS for path in self._directory.glob(f"{pattern}{suffix}")]

    def _drop_variables(self, attempt_keys: set[Key]) -> None:
        """Files of members of unknown attempts, with environments: their daemon was killed before they began."""
        for file in self._files_of_members("*"):
            key = tuple(int(part) for part in file.name.split(".")[:-2] if part.isdecimal())
            if key not in attempt_keys:
                _remove(file)

    def _strays(self, attempt_keys: set[Key]) -> list[Key]:
        if not self._directory.exists():
            return []
        names = (entry.name.split(".") for entry in self._directory.iterdir())
        found = [tuple(map(int, n)) for n in names if len(n) in (2, 3) and all(part.isdecimal() for part in n)]
        return sorted(set(found) - attempt_keys)

    def terminal(self, key: Key) -> Terminal | None:
        """Joins the terminal of an attempt; None: it is not there, not yet or not any more."""
        return join(self._path(key))

    async def forget(self, job_id: int, attempt: int, worker: int = -1) -> None:
        """Removes the directory of an attempt whose result the store has."""
        path = self._path(attempt_key(job_id, attempt, worker))

        def remove() -> None:
            for file in self._files_of_members(f"{path.name}.*"):
                _remove(file)
            shutil.rmtree(path, ignore_errors=True)

        await asyncio.to_thread(remove)


def _is_sandboxed_service() -> bool:
    """Whether systemd has put us into a sandbox, which our children would be in as well, and for good."""
    if "INVOCATION_ID" not in os.environ:
        return False
    with contextlib.suppress(OSError):
        return "\nNoNewPrivs:\t1\n" in Path("/proc/self/status").read_text()
    return False


def _pids_max() -> int:
    """Default limit of processes and threads of each member: a fork bomb leaves the others theirs."""
    try:
        most = int(Path("/proc/sys/kernel/threads-max").read_text())
    except (OSError, ValueError):
        return PIDS_MAX[0]
    return min(max(most // 4, PIDS_MAX[0]), PIDS_MAX[1])


def _send(supervisor: _Watched, number: int) -> None:
    """A signal to a supervisor."""
    with contextlib.suppress(ProcessLookupError):
        if supervisor.pidfd >= 0:
            signal.pidfd_send_signal(supervisor.pidfd, number)
        elif _lives(supervisor.pid, supervisor.start):
            os.kill(supervisor.pid, number)


def _remove(path: Path) -> None:
    """A file, or a directory with what is in it; not what users' directories are bound to."""
    with contextlib.suppress(OSError):
        if path.suffix == VOLUMES:
            container_mounts.release(str(path))
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _lives(pid: int, start: int) -> bool:
    return processes.start_time(pid) == start and processes.runs(pid)
