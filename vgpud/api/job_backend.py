"""The parts of the daemon that the service of jobs works on, and the calls that join terminals.

Called on the loop; what is not `async` must not wait. What changes something answers when it is on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vgpud.api.environments import EnvironmentList
from vgpud.core.jobs.facts import Fact, Facts, JobFilter, Submission
from vgpud.core.jobs.model import Job, JobSpec
from vgpud.core.jobs.terminal import Heard
from vgpud.core.model import Denied


class JobReader(Protocol):
    """Jobs as they are now, those that have ended included."""

    def owner(self, job_id: int) -> int | None:
        """The owner of a job; None: there is no such job."""
        ...

    async def job(self, job_id: int) -> Job | None: ...
    async def jobs(self, after_job_id: int, count: int, job_filter: JobFilter) -> Sequence[Job]:
        """In the order of job_id, at most `count` with a greater one."""
        ...

    def facts(self, job: Job) -> Facts: ...
    def is_settled(self, job: Job) -> bool:
        """Whether it ended so long ago that nothing shown of it changes any more."""
        ...

    async def explain(self, job: Job, uid: int | None) -> Sequence[Fact]:
        """In reading order. `uid`: the reader, None: an admin."""
        ...

    async def array_of(self, job_id: int) -> Sequence[int]:
        """The jobs of the array that begins with this one which have not ended; none when it begins none."""
        ...


class JobSubmissions(Protocol):
    async def submit_job(self, submission: Submission) -> Sequence[int] | Denied:
        """All of the array or nothing; machine.check() is made here."""
        ...


class JobRequests(Protocol):
    """Changes of jobs that are there."""

    async def cancel_jobs(self, job_ids: Sequence[int], why: str) -> Denied | None:
        """Jobs that have ended meanwhile are left out; one that had ended before is a refusal."""
        ...

    async def hold_job(self, job_id: int) -> Denied | None: ...
    async def release_job(self, job_id: int) -> Denied | None: ...
    async def requeue_job(self, job_id: int) -> Denied | None: ...
    async def use_session(self, job_id: int) -> Denied | None:
        """It is used now, so it is not idle."""
        ...

    async def suspend_job(self, job_id: int) -> Denied | None: ...
    async def resume_job(self, job_id: int) -> Denied | None: ...
    async def change_job(self, job_id: int, spec: JobSpec, *, by_admin: bool) -> Denied | None: ...


class JobChanges(Protocol):
    def since(self, change_number: int) -> tuple[int, Sequence[int]]:
        """The number of the last change of any job, and the jobs that have changed since `change_number`."""
        ...

    async def wait(self, change_number: int, timeout_s: float) -> None:
        """Until there is a change later than `change_number`."""
        ...


class Terminal(Protocol):
    """One that has been joined."""

    async def hear(self) -> Heard: ...
    async def type(self, keys: bytes) -> None: ...
    async def resize(self, rows: int, columns: int) -> None: ...
    def close(self) -> None: ...


class Terminals(Protocol):
    def join_terminal(self, job: Job) -> Terminal | None:
        """The terminal of a job's present attempt; None: it is not there, not yet or not any more."""
        ...


class Notes(Protocol):
    def note(self, kind: str, job: Job, text: str) -> None:
        """As an event of the job."""
        ...


@dataclass(frozen=True)
class JobBackend:
    node: str
    reader: JobReader
    submissions: JobSubmissions
    requests: JobRequests
    changes: JobChanges
    terminals: Terminals
    notes: Notes
    environments: EnvironmentList
