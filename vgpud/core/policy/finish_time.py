"""Least finish-time fairness: the job that sharing slows down most, compared with running alone, goes first.

Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling" (NSDI 2020). rho = time from submission to the
expected end / time that the job would need alone. As there, capacity is won for a lease, during which it is not
preempted; when the lease ends, the job competes with the others. Themis' auction among the worst-off is left out: what
it trades, throughput at other placements, is not known here.

A job without a duration is assumed to have run half of its time already, and a minute at least.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.policy.base import Key, Plain

PPM = 1_000_000
#: jobs of a lane need equally long alone in so many bits
LANE_BITS = 4
LEAST_NS = 60 * SECOND_NS


class FinishTimeFairness(Plain):
    def __init__(self, name: str, *, lease_s: Fraction) -> None:
        self.name = name
        self.dynamic = self.has_lanes = True
        self._begun: list[Job] = []  # running jobs whose leases began when keys were computed last
        self.lease_ns = max(int(lease_s * SECOND_NS), 1)

    def rho_ppm(self, job: Job, now_ns: int) -> int:
        """If it ran from now on."""
        ran_ns = job.executed_at(now_ns)
        alone_ns = _alone_ns(job, ran_ns)
        return (now_ns - job.submitted_ns + alone_ns - ran_ns) * PPM // alone_ns

    def key(self, job: Job, now_ns: int) -> Key:
        running = job.state is JobState.RUNNING
        if running and job.level_since_ns < now_ns < job.level_since_ns + self.lease_ns:
            return (0, job.level_since_ns, 0)
        return (1, -self.rho_ppm(job, now_ns), 0 if running else 1)

    def update(self, changed_jobs: list[Job], gone_ids: list[int], now_ns: int) -> list[tuple[int, Key]]:
        """Leases: they begin in the one decision in which the job competes, and hold from then on."""
        found = [*self._begun, *(job for job in changed_jobs if job.state is JobState.RUNNING)]
        self._begun = [job for job in found if job.level_since_ns >= now_ns]
        return [(job.job_id, self.key(job, now_ns)) for job in found]

    def lane(self, job: Job) -> tuple[int, Key]:
        """That of jobs that need about as long alone; there, those first that have been waiting longest."""
        alone_ns = _alone_ns(job, job.executed_ns)
        shift = max(0, alone_ns.bit_length() - LANE_BITS)
        return alone_ns >> shift << shift, (job.submitted_ns + job.executed_ns,)

    def bound(self, lane: Hashable, place: Key, key: Key, now_ns: int) -> Key:
        """rho = 1 + time waited / time alone; the latter is no less than its first LANE_BITS bits say."""
        assert isinstance(lane, int)
        waited_ns = now_ns - place[0]
        return (1, -(PPM + waited_ns * PPM // lane) if waited_ns > 0 else -PPM, 1)

    def changes_at(self, job: Job, now_ns: int) -> int:
        return job.level_since_ns + self.lease_ns if job.state is JobState.RUNNING else NEVER_NS

    def touch(self, job: Job, now_ns: int) -> None:
        """A lease begins: with the run, or, if the job keeps its placement in the decision now due, with the end of the
        last lease."""
        job.level_since_ns = now_ns


def _alone_ns(job: Job, ran_ns: int) -> int:
    return max(job.spec.duration_ns, ran_ns) if job.spec.duration_ns else max(2 * ran_ns, LEAST_NS)
