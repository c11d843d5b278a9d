"""How many elements of each array run at once (--array=0-99%4).

`squeue --array` does not show it, nor does plain squeue for certain (elements that wait one by one make it forget), so
scontrol is asked for each array.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vgpud.cluster.core.model import Phase, SlurmJob

#: arrays that are asked for in one look
ASKED_MAX = 50
#: how often: its user may change it (scontrol update ArrayTaskThrottle=N)
EVERY_S = 60.0
#: so long after a question that was not answered the elements of an array count as if they had no limit
WAIT_S = 60.0


@dataclass(slots=True)
class _Array:
    asked_s: float = 0.0
    failed_s: float | None = None  # when it was first asked for without result
    limit: int | None = None  # 0 = none, or Slurm does not say; None: it has not answered yet


class Limits:
    """Of the arrays that are there. What was said last holds while an array is there."""

    def __init__(self) -> None:
        self._arrays: dict[int, _Array] = {}

    def due(self, jobs: Sequence[SlurmJob], now_s: float) -> list[int]:
        """Which arrays are to be asked for in this look: those of all users in turn, so that a user with many keeps no
        others waiting; of each user first those not asked for longest."""
        there = {job.number[0] for job in jobs if "_" in job.key}
        users = {job.number[0]: job.uid for job in jobs if "_" in job.key and job.phase is Phase.WAITS}
        self._arrays = {array: self._arrays.get(array) or _Array() for array in sorted(there)}
        asked_s = {array: self._arrays[array].asked_s for array in sorted(users)}
        last_s, turns, before = dict[int, float](), dict[int, int](), Counter[int]()
        for array in sorted(asked_s, key=lambda array: asked_s[array]):
            user = users[array]
            last_s[user] = asked_s[array]
            if self._arrays[array].limit is None or now_s - asked_s[array] >= EVERY_S:
                turns[array] = before[user]
                before[user] += 1
        return sorted(turns, key=lambda array: (turns[array], last_s[users[array]], asked_s[array]))[:ASKED_MAX]

    def ask(self, array: int, now_s: float, say: Callable[[], int | None]) -> None:
        """`say`: what Slurm says, None = nothing of a limit. It may raise: then the array is asked for again."""
        one = self._arrays[array]
        one.asked_s = now_s
        try:
            said = say()
        except Exception:
            one.failed_s = now_s if one.failed_s is None else one.failed_s
            raise
        one.limit = one.limit or 0 if said is None else said

    def of(self, job: SlurmJob, now_s: float) -> SlurmJob:
        """The job with the limit of its array."""
        one = self._arrays.get(job.number[0]) if "_" in job.key else None
        if one is None:
            return job
        late = one.failed_s is not None and one.asked_s - one.failed_s >= WAIT_S
        limit = 0 if one.limit is None and (late or job.phase is not Phase.WAITS) else one.limit
        return job if limit == job.array_limit else replace(job, array_limit=limit)
