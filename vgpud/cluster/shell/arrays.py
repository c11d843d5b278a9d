"""How many elements of each array run at once (--array=0-99%4).

`squeue --array` does not show it, nor does plain squeue for certain (elements that wait one by one make it forget), so
scontrol is asked for each array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vgpud.cluster.core.model import Phase, SlurmJob

#: arrays that are asked for in one look
ASKED_MAX = 50
#: how often: its user may change it (scontrol update ArrayTaskThrottle=N)
EVERY_S = 60.0
#: of an array that could not be asked for so long the elements count as if they had no limit
WAIT_S = 60.0


@dataclass(slots=True)
class _Array:
    since_s: float
    asked_s: float = 0.0
    limit: int | None = None  # 0 = none, or Slurm does not say; None: it has not answered yet


class Limits:
    """Of the arrays that are there. What was said last holds while an array is there."""

    def __init__(self) -> None:
        self._arrays: dict[int, _Array] = {}

    def due(self, jobs: Sequence[SlurmJob], now_s: float) -> list[int]:
        """Which arrays are to be asked for in this look: first those that were not for longest."""
        there = {job.number[0] for job in jobs if "_" in job.key}
        waiting = {job.number[0] for job in jobs if "_" in job.key and job.phase is Phase.WAITS}
        self._arrays = {array: self._arrays.get(array) or _Array(now_s) for array in sorted(there)}
        asked = {array: self._arrays[array] for array in sorted(waiting)}
        late = [array for array, one in asked.items() if one.limit is None or now_s - one.asked_s >= EVERY_S]
        return sorted(late, key=lambda array: asked[array].asked_s)[:ASKED_MAX]

    def ask(self, array: int, now_s: float, say: Callable[[], int | None]) -> None:
        """`say`: what Slurm says, None = nothing of a limit. It may raise: then the array is asked for again."""
        one = self._arrays[array]
        one.asked_s = now_s
        said = say()
        one.limit = one.limit or 0 if said is None else said

    def of(self, job: SlurmJob, now_s: float) -> SlurmJob:
        """The job with the limit of its array."""
        one = self._arrays.get(job.number[0]) if "_" in job.key else None
        if one is None:
            return job
        late = job.phase is not Phase.WAITS or now_s - one.since_s >= WAIT_S
        limit = 0 if one.limit is None and late else one.limit
        return job if limit == job.array_limit else replace(job, array_limit=limit)
