"""Arrays of which only so many jobs run at once: which of their jobs wait for capacity, and which for the others. Pure.

A job has a slot from the moment at which it waits for capacity until it no longer waits or runs: it ends, is held, or
waits for its next try.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vgpud.core.jobs.model import Job


@dataclass(slots=True)
class Slots:
    """Of one array."""

    limit: int
    holders: set[int] = field(default_factory=set)
    waiting: dict[int, None] = field(default_factory=dict)  # jobs without a slot, in the order in which they came


class Arrays:
    """Of all arrays that have a limit."""

    def __init__(self) -> None:
        self._slots: dict[int, Slots] = {}
        self._changed: dict[int, None] = {}  # arrays with a job that may have left its slot

    def enter(self, job: Job) -> bool:
        """Whether the job may wait for capacity; else it waits for a slot."""
        if not job.spec.array_limit:
            return True
        slots = self._slots.setdefault(job.spec.array, Slots(job.spec.array_limit))
        slots.limit = job.spec.array_limit  # it may have been changed
        if job.job_id not in slots.holders:
            if len(slots.holders) >= slots.limit:
                slots.waiting[job.job_id] = None
                return False
            slots.holders.add(job.job_id)
        slots.waiting.pop(job.job_id, None)
        return True

    def note_change(self, job: Job) -> None:
        """The job may have left its slot, or does not wait for one any more."""
        if job.spec.array_limit:
            self._changed[job.spec.array] = None

    def waits(self, job: Job) -> bool:
        """Whether the job waits for a slot."""
        slots = self._slots.get(job.spec.array) if job.spec.array_limit else None
        return slots is not None and job.job_id in slots.waiting

    def free(self, keeps: Callable[[int], bool], waits: Callable[[int], bool]) -> list[int]:
        """Jobs that may take the slots that others have left. `keeps`: whether a job with a slot waits for capacity or
        runs; `waits`: whether one without still waits for one."""
        found: list[int] = []
        for array in self._changed:
            slots = self._slots.get(array)
            if slots is None:
                continue
            slots.holders = {job_id for job_id in slots.holders if keeps(job_id)}
            free = slots.limit - len(slots.holders)
            for job_id in list(slots.waiting):
                if free <= 0:
                    break
                del slots.waiting[job_id]
                if waits(job_id):
                    found.append(job_id)
                    free -= 1
            if not slots.holders and not slots.waiting and not found:
                del self._slots[array]
        self._changed.clear()
        return found
