"""The part of the composition root that changes jobs as the API requests it (api.job_backend.JobRequests).

Made by Daemon; the controller decides and carries out what is requested, and its saver saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vgpud.core.jobs.events import Cancelled, Changed, Event, Held, Released, Requeued, Resumed, Suspended, Used
from vgpud.core.jobs.model import JobSpec, UserWait
from vgpud.core.model import Denied, Reason
from vgpud.daemon.jobs.arrays import Arrays
from vgpud.daemon.jobs.controller import JobController
from vgpud.errors import StoreError


class JobRequests:
    """Each is answered when it is on the disk."""

    def __init__(self, jobs: JobController, arrays: Arrays) -> None:
        self._jobs = jobs
        self._arrays = arrays

    async def _request(self, *events: Event) -> Denied | None:
        for event in events:
            denied = self._jobs.machine.refusal(event)
            if denied:
                return self._explain_denial(event, denied)
        self._jobs.process_events(*events)
        return await self._wait_until_saved(event.job_id for event in events if hasattr(event, "job_id"))

    async def _wait_until_saved(self, job_ids: Iterable[int]) -> Denied | None:
        try:
            await self._jobs.saver.on_disk(job_ids)
        except StoreError as error:
            text = f"done, but a restart may lose it, since it could not be saved: {error}"
            return Denied(Reason.UNAVAILABLE, text)
        return None

    def _explain_denial(self, event: Event, denial: Denied) -> Denied:
        """Of a job that only the store remembers: it has ended."""
        job = self._jobs.store.find(getattr(event, "job_id", 0)) if denial.reason is Reason.NOT_FOUND else None
        if job is None:
            return denial
        text = f"job {job.job_id} is {job.state.value}: its environment was deleted when it ended, submit it again"
        return Denied(Reason.PRECONDITION, text)

    async def cancel_jobs(self, job_ids: Sequence[int], why: str) -> Denied | None:
        if len(job_ids) == 1:
            return await self._request(Cancelled(job_ids[0], why))
        await self._arrays.cancel(job_ids, why)
        return await self._wait_until_saved(job_ids)

    async def hold_job(self, job_id: int) -> Denied | None:
        return await self._request(Held(job_id))

    async def release_job(self, job_id: int) -> Denied | None:
        return await self._request(Released(job_id))

    async def requeue_job(self, job_id: int) -> Denied | None:
        return await self._request(Requeued(job_id))

    async def use_session(self, job_id: int) -> Denied | None:
        """It is used now; where it was paused because it was not, it waits for capacity."""
        self._jobs.idleness.use(job_id)
        job = self._jobs.machine.jobs.get(job_id)
        return await self._request(Used(job_id)) if job and job.user_wait is UserWait.USE else None

    async def suspend_job(self, job_id: int) -> Denied | None:
        return await self._request(Suspended(job_id))

    async def resume_job(self, job_id: int) -> Denied | None:
        return await self._request(Resumed(job_id))

    async def change_job(self, job_id: int, spec: JobSpec, *, by_admin: bool) -> Denied | None:
        return await self._request(Changed(job_id, spec, by_admin))
