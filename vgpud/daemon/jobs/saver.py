"""What was decided on jobs and is still to be written: all of it in one transaction, now or when the store can take it.

Made by JobController. What waits for a decision waits here until the store, or the disk, has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from vgpud.core.jobs.facts import Fact
from vgpud.core.jobs.model import Job
from vgpud.core.model import Denied, Reason
from vgpud.daemon.jobs.clock import Clock
from vgpud.daemon.jobs.queues import QueueRegistry
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.errors import StoreBusyError, StoreError, StoreUnwritableError
from vgpud.store.elastic import ElasticStore, Noted
from vgpud.store.flush import while_busy
from vgpud.store.jobs import JobStore, Request, forget_environment

#: notes that wait for a store which cannot be written
NOTES_MAX = 10_000


class JobSaver:
    """`next_id`: of the next job that is submitted; it is written with everything else."""

    def __init__(
        self, store: JobStore, machine: SliceMachine, queues: QueueRegistry, clock: Clock, next_id: int
    ) -> None:
        self.next_id = next_id
        self._store = store
        self._machine = machine
        self._queues = queues
        self._clock = clock
        self._jobs: dict[int, Job] = {}
        self._requests: list[Request] = []
        self._groups: dict[int, str | None] = {}
        self._notes: list[Noted] = []

    @property
    def has_all_jobs(self) -> bool:
        """Whether the store has all decisions on jobs and their worker groups."""
        return not self._jobs and not self._groups

    def add_request(self, request: Request) -> None:
        """A submission that is to be answered from memory when it is repeated."""
        self._requests.append(request)

    def save_group(self, job_id: int, text: str | None) -> None:
        """The worker group of a job as it is now, None: it has ended. On the disk after on_disk()."""
        self._groups[job_id] = text

    def note(self, kind: str, job_id: int, text: str) -> None:
        """In the job's own trail."""
        if len(self._notes) < NOTES_MAX:
            self._notes.append(Noted(job_id, self._clock.now_ns(), kind, text))

    def trail(self, job_id: int) -> list[Fact]:
        """What was noted of a job, oldest first. Raises StoreError."""
        kept = ElasticStore(self._store.database).notes(job_id)
        fresh = [note for note in self._notes if note.job_id == job_id]
        return [Fact(note.at_ns, note.kind, note.text) for note in (*kept, *fresh)]

    def write(self, jobs: Mapping[int, Job] = MappingProxyType({})) -> None:
        """These and all that is not written yet, in one transaction. Raises StoreError: it is kept for later."""
        self._jobs |= jobs
        unsaved = list(self._jobs.values())
        rows = self._queues.unsaved_rows
        self._store.save(unsaved, self._requests, self.next_id, rows, self._groups, self._notes)
        for job in unsaved:
            if job.state.is_final:
                forget_environment(job)
        for written in (self._jobs, self._requests, self._groups, self._notes):
            written.clear()
        self._queues.mark_saved()

    def write_rest(self) -> None:
        """If there is any. Raises StoreError."""
        if self._jobs or self._requests or self._groups or self._notes or self._queues.unsaved_rows:
            self.write()

    def refusal(self) -> Denied | None:
        """Why no job can be queued: earlier decisions cannot be written."""
        try:
            if self._store.database.unwritable:
                raise StoreUnwritableError(self._store.database.unwritable)
            if self._jobs:
                self.write()
        except StoreBusyError:
            return None  # for a moment only
        except StoreError as error:
            return Denied(Reason.UNAVAILABLE, f"nothing was changed: {error}")
        return None

    def find_request(self, uid: int, request_id: str) -> Request | None:
        """The submission with this id, written or still to be written. Raises StoreError."""
        for request in reversed(self._requests):
            if (request.uid, request.request_id) == (uid, request_id):
                return request if request.until_ns else None
        return self._store.requested(uid, request_id, self._clock.now_ns())

    async def on_disk(self, job_ids: Iterable[int]) -> None:
        """Waits until what was decided on these jobs is on the disk. Raises StoreError."""
        await self.wait_until_written(job_ids)
        if denied := await self._machine.wait_until_saved():
            raise StoreError(denied.message)

    async def wait_until_written(self, job_ids: Iterable[int]) -> None:
        """Waits until the store has what was decided on these jobs; the disk may not. Raises StoreError."""
        wanted = set(job_ids)
        if not (wanted.isdisjoint(self._jobs) and wanted.isdisjoint(self._groups)):
            await while_busy(self.write)
