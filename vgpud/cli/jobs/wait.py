"""Waiting for jobs until they have ended, across restarts of the daemon, and following their output."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.common.output import console, dump, remark, say
from vgpud.client import calls
from vgpud.client.logs import open_log
from vgpud.errors import CliError, ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words as enums
from vgpud.view.job_tables import state_words
from vgpud.view.jobs import exit_code, job_view

#: intervals of reconnecting to the daemon, of reading a log, and of asking for its job's state
AWAY_S, READ_S, ASK_S = 0.5, 0.1, 0.5
#: and a job that cannot be watched
POLL_S = 1.0
_CHUNK_BYTES = 1 << 16
#: jobs named in a line of text
_NAMED_MAX = 8


@contextmanager
def leaving(job_ids: Sequence[int], tidy: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Ctrl-C ends this command and prints that the jobs continue. At once: grpc's callbacks can lose exceptions."""

    def leave(*_: object) -> None:
        tidy()
        who = f"job {job_ids[0]} continues" if len(job_ids) == 1 else f"{len(job_ids)} jobs continue"
        named = " ".join(map(str, job_ids[:_NAMED_MAX])) + (" ..." if len(job_ids) > _NAMED_MAX else "")
        sys.stderr.write("\n" if sys.stderr.isatty() else "")
        say(f"{who}: `vgpu job cancel {named}` would end {'it' if len(job_ids) == 1 else 'them'}")
        sys.stderr.flush()
        os._exit(128 + signal.SIGINT)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def changes(settings: Settings, job_ids: Sequence[int]) -> Iterator[pb.Job]:
    """These jobs' present state, and each change, until all have ended; reconnects while the daemon is away."""
    left, seen, away = set(job_ids), False, False
    while left:
        try:
            with Client(settings) as client:
                for job in _watch_jobs(client, sorted(left)):
                    seen, away = True, False
                    yield job
                    if job.state in calls.ENDED:
                        left.discard(job.job_id)
                    if not left:
                        return
        except CliError as error:
            if not seen or error.exit_code != ExitCode.UNREACHABLE:
                raise
            if not away:
                say(f"{error.message}; jobs continue, and so does the waiting")
            away = True
        time.sleep(AWAY_S)


def _watch_jobs(client: Client, job_ids: Sequence[int]) -> Iterator[pb.Job]:
    """These jobs whenever they change; their present state if the user has no watch left."""
    try:
        yield from client.watch_jobs(job_ids)
    except CliError as error:
        if error.exit_code != ExitCode.NO_CAPACITY:
            raise
        for job_id in job_ids:
            yield client.send(calls.job(job_id))
        time.sleep(POLL_S)


def wait_for(settings: Settings, job_ids: Sequence[int], quiet: bool = False) -> int:
    """Waits until these jobs have ended. Returns the greatest of their exit codes."""
    ids = list(dict.fromkeys(job_ids))
    ended: dict[int, pb.Job] = {}
    with Progress(settings, len(ids), quiet) as progress:
        with leaving(ids, progress.stop):
            for job in changes(settings, ids):
                if job.state in calls.ENDED and job.job_id not in ended:
                    ended[job.job_id] = job
                    progress.tell(job)
                progress.show(job, len(ended))
    if settings.output in ("json", "yaml"):
        with Client(settings) as client:
            simulated = client.find_simulated_indices()
        dump(settings, {"jobs": [job_view(ended[job_id], simulated) for job_id in ids]})
    return max(exit_code(job) for job in ended.values())


class Progress:
    """On a terminal: one job's state, or how many of several have ended. Elsewhere: a line for each job that did not
    complete."""

    def __init__(self, settings: Settings, total: int, quiet: bool) -> None:
        self._settings = settings
        self._total = total
        self._quiet = quiet
        self._live = not quiet and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._live:
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()]
            if self._total > 1:
                columns[1:1] = [BarColumn(), MofNCompleteColumn()]
            self._bar = Progress(*columns, console=console(self._settings, stderr=True), transient=True)
            self._task = self._bar.add_task("", total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._live:
            self._bar.stop()

    def tell(self, job: pb.Job) -> None:
        if not self._quiet and job.state != pb.JOB_STATE_COMPLETED:
            line = f"job {job.job_id} ({job.spec.name}) {words(job)}"
            if self._live:
                lines = "\n".join(remark(line, self._bar.console.width))
                self._bar.console.print(lines, markup=False, soft_wrap=True)
            else:
                say(line)

    def show(self, job: pb.Job, ended_count: int) -> None:
        if self._live:
            self._bar.update(self._task, completed=ended_count, description=f"job {job.job_id} {words(job)}")


def words(job: pb.Job) -> str:
    """The job's state and reason."""
    return state_words(enums.JOB_STATE.to_word(job.state), job.reason)


# ---- output ----


class Log:
    """A file that another process writes, from its last lines on; also after it was truncated."""

    def __init__(self, path: Path, lines: int | None) -> None:
        self.path = path
        self._lines = lines
        self._file: BinaryIO | None = None

    def read(self) -> Iterator[bytes]:
        """The bytes that were added; empty while the file does not exist. Raises CliError, ClientError."""
        if self._file is None or self._is_other():
            self._open()
        if self._file is None:
            return
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
        if self._lines is not None:
            yield from deque(self._file, self._lines)
            self._lines = None
        while chunk := self._file.read(_CHUNK_BYTES):
            yield chunk

    def _open(self) -> None:
        try:
            file = open_log(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            code = ExitCode.DENIED if isinstance(error, PermissionError) else ExitCode.OTHER
            raise CliError(f"cannot read {self.path}: {error.strerror}", code) from error
        if self._file:
            self._file.close()
        self._file = file

    def _is_other(self) -> bool:
        assert self._file
        try:
            now, then = os.stat(self.path), os.fstat(self._file.fileno())
        except OSError:
            return False
        return (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino)

    @property
    def is_open(self) -> bool:
        return self._file is not None


def show_log(settings: Settings, job_id: int, follow: bool, lines: int | None, member: int) -> None:
    """Writes a job's output to stdout; `follow`: until the job has ended, also when it is started again."""
    with Client(settings) as client:
        job = client.send(calls.job(job_id))
        if client.remote:
            text = f"the output of job {job_id} is {job.log} on {job.node}, another machine: log in there to read it"
            raise CliError(text, ExitCode.USAGE)
    if member >= max(1, job.spec.members):
        text = f"job {job_id} has no member {member}: members are 0 to {max(1, job.spec.members) - 1}"
        raise CliError(text, ExitCode.NOT_FOUND)
    log = Log(Path(f"{job.log}.{member}" if member else job.log), lines)
    _write(log)
    if not log.is_open:
        say(f"job {job_id} has no output{'' if job.state in calls.ENDED else ' yet'}: it {words(job)}")
    if not follow:
        return
    with leaving([job_id]):
        while job.state not in calls.ENDED:
            next_ns = time.monotonic_ns() + int(ASK_S * 1e9)
            while time.monotonic_ns() < next_ns:
                time.sleep(READ_S)
                _write(log)
            job = _ask(settings, job)
        _write(log)


def _ask(settings: Settings, job: pb.Job) -> pb.Job:
    """The job's state; the previous one while the daemon is away."""
    try:
        with Client(settings) as client:
            return client.send(calls.job(job.job_id))
    except CliError as error:
        if error.exit_code != ExitCode.UNREACHABLE:
            raise
        return job


def _write(log: Log) -> None:
    for chunk in log.read():
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
