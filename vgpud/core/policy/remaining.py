"""Shortest remaining time (SRTF) or service (SRSF, GPUs x time) first: optimal when durations are known.

Schrage, "A proof of the optimality of the shortest remaining processing time discipline" (Operations Research 1968); in
service: the oracle that Tiresias (NSDI 2019) compares itself with. Durations are users' estimates. Jobs without one
come last.

A job that outlasts its duration is taken to need as long again as it has outlasted it, up to the next power of two: one
that was a little wrong ends soon, as it was to, and one that was very wrong goes further and further back. In steps,
since two such jobs would otherwise preempt each other for ever.
"""

from __future__ import annotations

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.policy.base import Key, Plain


class ShortestRemaining(Plain):
    def __init__(self, name: str, *, by_width: bool) -> None:
        self.name = name
        self.by_width = by_width
        self.drifts = True

    def key(self, job: Job, now_ns: int) -> Key:
        if not job.spec.duration_ns:
            return (1, NEVER_NS, job.submitted_ns)
        left_ns = job.spec.duration_ns - job.executed_at(now_ns)
        if left_ns < 0:
            left_ns = _step_ns(-left_ns)
        return (0, left_ns * job.spec.least_width_milli if self.by_width else left_ns, job.submitted_ns)

    def changes_at(self, job: Job, now_ns: int) -> int:
        """Of a running job: when it may be behind others, having outlasted its duration by so much."""
        if job.state is not JobState.RUNNING or not job.spec.duration_ns:
            return NEVER_NS
        over_ns = job.executed_at(now_ns) - job.spec.duration_ns
        return now_ns - over_ns + (_step_ns(over_ns) if over_ns > 0 else 0) + 1


def _step_ns(over_ns: int) -> int:
    """The next power of two, in seconds, at least one."""
    return SECOND_NS << ((over_ns - 1) // SECOND_NS).bit_length()
