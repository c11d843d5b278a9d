"""The worker groups of all elastic jobs that have workers: at most one a job, of the job's present attempt."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from vgpud.core.elastic.live_group import LiveGroup
from vgpud.core.elastic.worker_group import WorkerGroup, difference, has_workers, new_group
from vgpud.core.jobs.model import Job
from vgpud.core.queue import group_record
from vgpud.daemon.jobs.slices import JobSlices

log = logging.getLogger("vgpud")


class LiveGroups:
    """`saved_groups`: by job, as the former daemon saved them."""

    def __init__(self, saved_groups: Mapping[int, str]) -> None:
        self._groups: dict[int, LiveGroup] = {}
        self._saved: dict[int, WorkerGroup] = {}  # of the former daemon, until they are asked for
        for job_id, text in saved_groups.items():
            try:
                self._saved[job_id] = group_record.parse(text)
            except ValueError as error:
                log.error("the workers of job %d cannot be read, and are started again: %s", job_id, error)

    def of_job(self, job: Job) -> LiveGroup | None:
        """Of the job's present attempt."""
        saved = self._saved.get(job.job_id)
        if saved and saved.attempt == job.attempt:
            self._groups[job.job_id] = LiveGroup(job, self._saved.pop(job.job_id))
        return self.of_attempt(job.job_id, job.attempt)

    def of_attempt(self, job_id: int, attempt: int) -> LiveGroup | None:
        group = self._groups.get(job_id)
        return group if group and group.record.attempt == attempt else None

    def of_id(self, job_id: int) -> LiveGroup | None:
        """Whatever its attempt."""
        return self._groups.get(job_id)

    def has(self, group: LiveGroup) -> bool:
        """Whether it is still its job's."""
        return self._groups.get(group.job.job_id) is group

    def make(self, job: Job) -> LiveGroup:
        """A new one; none of its workers has begun."""
        group = self._groups[job.job_id] = LiveGroup(job, new_group(job))
        return group

    def forget(self, job_id: int) -> bool:
        """Whether there was one, live or saved."""
        saved = self._saved.pop(job_id, None)
        group = self._groups.pop(job_id, None)
        return bool(saved or group)

    def numbers(self, job: Job) -> Sequence[int] | None:
        """Of the job's workers; None: it has no such."""
        if not has_workers(job):
            return None
        group = self.of_job(job)
        return [worker.number for worker in group.record.workers] if group else ()

    def find_borrowed_slices(self) -> set[str]:
        """Slices of workers that the queue does not count for their job, or not yet."""
        borrowed: set[str] = set()
        for job_id, group in self._groups.items():
            counted = max(group.job.placement, group.job.resizing, key=len)
            uncounted, _ = difference(group.record.workers, counted)
            borrowed.update(JobSlices.of_worker(job_id, worker.number) for worker in uncounted)
        return borrowed
