"""Shortest remaining time (SRTF) or service (SRSF, GPUs x time) first: optimal when durations are known.

Schrage, "A proof of the optimality of the shortest remaining processing time discipline" (Operations Research 1968); in
service: the oracle that Tiresias (NSDI 2019) compares itself with. Durations are users' estimates. Jobs without one
come last, and so do those that have outlasted theirs.
"""

from __future__ import annotations

from vgpud.core.jobs.model import NEVER_NS, Job
from vgpud.core.policy.base import Key, Plain


class ShortestRemaining(Plain):
    def __init__(self, name: str, *, by_width: bool) -> None:
        self.name = name
        self.by_width = by_width
        self.drifts = True

    def key(self, job: Job, now_ns: int) -> Key:
        left_ns = job.spec.duration_ns - job.executed_at(now_ns)
        if not job.spec.duration_ns or left_ns < 0:
            return (1, NEVER_NS, job.submitted_ns)
        return (0, left_ns * job.spec.least_width_milli if self.by_width else left_ns, job.submitted_ns)
