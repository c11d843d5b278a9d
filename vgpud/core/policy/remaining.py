"""Shortest remaining time (SRTF) or service (SRSF, GPUs x time) first: optimal when durations are known.

Schrage, "A proof of the optimality of the shortest remaining processing time discipline" (Operations Research 1968); in
service: the oracle that Tiresias (NSDI 2019) compares itself with. Durations are users' estimates. Jobs without one
come last.

A job that outlasts its duration is expected to need another half of the time that it has run, and so whenever it
outlasts that: one that was a little wrong has little left and ends soon, one that was very wrong goes further and
further back.

Only progress counts, not the time that starting and resuming a job takes (Job.progress_at). Of a running job that time
is subtracted from what it still needs: whoever stops it pays it again.
"""

from __future__ import annotations

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job
from vgpud.core.policy.base import Key, Plain


class ShortestRemaining(Plain):
    drifts = True

    def __init__(self, name: str, *, by_width: bool) -> None:
        self.name = name
        self.by_width = by_width

    def key(self, job: Job, now_ns: int) -> Key:
        if not job.spec.duration_ns:
            return (1, NEVER_NS, job.submitted_ns)
        left_ns = _remaining_ns(job, now_ns)
        if job.makes_progress:
            left_ns -= max(0, job.working_since_ns - job.started_ns)
        return (0, left_ns * self._width(job), job.submitted_ns)

    def pace(self, job: Job) -> int:
        return self._width(job) if job.spec.duration_ns and job.makes_progress else 0

    def changes_at(self, job: Job, now_ns: int) -> int:
        """Of a running job: when it has outlasted what it is expected to need."""
        if not job.makes_progress or not job.spec.duration_ns:
            return NEVER_NS
        return now_ns + _remaining_ns(job, now_ns) + 1

    def _width(self, job: Job) -> int:
        return job.spec.least_width_milli if self.by_width else 1


def _remaining_ns(job: Job, now_ns: int) -> int:
    done_ns = job.progress_at(now_ns)
    expected_ns = job.spec.duration_ns
    while expected_ns < done_ns:
        expected_ns += max(expected_ns // 2, SECOND_NS)
    return expected_ns - done_ns
