"""The queue's two services: jobs (their owner's and admins') and queues. What they ask for is checked in api_job_views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vgpud.core.model import Denied
from vgpud.core.queue.model import Job, QueueSpec
from vgpud.jobfacts import Facts, QueueNow, Submission, UsageRow


class Desk(Protocol):
    """What the daemon does for these services. Called on the loop; what is not `async` must not wait.

    What changes something answers when it is on the disk.
    """

    node: str

    def observe(self, method: str, code: str, seconds: float) -> None: ...

    def queue_for(self, name: str, uid: int, gids: Sequence[int]) -> str | Denied:
        """The queue of that name if the user may use it, or his default queue for ""."""
        ...

    async def submit_job(self, submission: Submission) -> Sequence[int] | Denied:
        """All of the array or nothing; machine.check() is made here."""
        ...

    async def job(self, job_id: int) -> Job | None: ...
    async def jobs(self, after: int, count: int, ended: bool, uid: int | None, queue: str) -> Sequence[Job]:
        """In the order of job_id, at most `count` with a greater one; `ended`: also those; uid None, queue "": any."""
        ...

    def facts(self, job: Job) -> Facts: ...
    async def array_of(self, job_id: int) -> Sequence[int]:
        """The jobs of the array that begins with this one which have not ended; none when it begins none."""
        ...

    async def cancel_jobs(self, job_ids: Sequence[int], why: str) -> Denied | None:
        """Those that have ended meanwhile are left out; one that had ended before is a refusal."""
        ...

    async def hold_job(self, job_id: int) -> Denied | None: ...
    async def release_job(self, job_id: int) -> Denied | None: ...
    async def requeue_job(self, job_id: int) -> Denied | None: ...

    def jobs_changed(self, after: int) -> tuple[int, Sequence[int]]:
        """The number of the last change of any job, and the jobs that have changed since number `after`."""
        ...

    async def wait_job_change(self, after: int, timeout_s: float) -> None:
        """Until there is a change with a number above `after`."""
        ...

    def queues(self) -> Sequence[QueueSpec]: ...
    def queue_now(self, name: str) -> QueueNow: ...
    async def set_queue(self, spec: QueueSpec, members: Sequence[str]) -> Denied | None:
        """Makes or changes it. Its numbers, policy and placement have been checked; the tree as a whole has not."""
        ...

    async def delete_queue(self, name: str) -> Denied | None:
        """Refused while jobs, slices or queues are in it, and for the default queue."""
        ...

    async def usage(self, since_ns: int, until_ns: int, by: str, uid: int | None) -> Sequence[UsageRow]:
        """`by` job, user or queue; since 0, until NEVER_NS: everything kept; uid None: everybody's."""
        ...
