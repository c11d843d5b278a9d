"""Least attained service: the job that got least goes first, so that short jobs end soon without being declared.

Two-dimensional (2D-LAS): Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI 2019).
Service is GPUs x time, so that half a device counts half. In time only (LAS): the same without the GPUs, Nuyens and
Wierman, "The Foreground-Background queue: a survey" (Performance Evaluation 2008).

Discretised, as in Tiresias: a job falls to the next level when its service reaches a threshold; within a level running
jobs go first, by when they started, so that equals do not preempt each other, then those longest in the level.

`narrow`: within a level jobs with fewer GPUs go first; in the first level only among waiting jobs, since most end
there soon, in the others among all. How long equally old jobs have left is alike, so the narrow ones cost less
per job done: Smith, "Various optimizers for single-stage production" (Naval Research Logistics Quarterly 1956), with
GPUs x time left in the place of time. With levels in time, las(3250,7200,narrow), it does better than 2D-LAS on all of
the published traces; the benchmark says by how much, and how much of that is chance.

Starvation: a job that has waited `promote` times as long as it has run goes back to the first level and counts from
nothing (Tiresias' PROMOTEKNOB). As published that thrashes: a promoted job soon falls again and, its counter small, is
soon promoted again. Here it keeps the first level until it has run for as long again as before, and for a `quantum` at
least; so a job is promoted no more often than its time can be doubled, however long it waits. And what it has run is
all, not what it has run since the last promotion.
"""

from __future__ import annotations

from fractions import Fraction

from vgpud.core.jobs.model import GPU_SECOND, NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.policy.base import Key, Plain

WAITING = (JobState.PENDING, JobState.SUSPENDED)


class Las(Plain):
    """Levels. `thresholds` rise, in GPU-seconds (2D) or seconds; `promote` = 0: no job is promoted."""

    def __init__(
        self,
        name: str,
        *,
        by_width: bool,
        thresholds: tuple[Fraction, ...],
        narrow: bool,
        promote: Fraction,
        quantum_s: Fraction,
    ) -> None:
        self.name = name
        self.by_width = by_width
        unit = GPU_SECOND if by_width else SECOND_NS
        self.thresholds = [int(t * unit) for t in thresholds]
        self.narrow = narrow
        self.promote = promote
        self.quantum_ns = int(quantum_s * SECOND_NS)

    def key(self, job: Job, now_ns: int) -> Key:
        running = job.state is JobState.RUNNING
        width = job.spec.least_width_milli if self.narrow and (job.level or not running) else 0
        if running:
            return (job.level, width, 0, job.started_ns)
        return (job.level, width, 1, max(job.level_since_ns, job.submitted_ns))

    def changes_at(self, job: Job, now_ns: int) -> int:
        if job.state is JobState.RUNNING:
            return self._falls_at(job, now_ns)
        return self._promoted_at(job) if job.state in WAITING else NEVER_NS

    def touch(self, job: Job, now_ns: int) -> None:
        if job.state in WAITING and now_ns >= self._promoted_at(job):
            job.promoted_executed_ns = job.executed_ns
            job.promoted_attained = job.attained
        level = self._level(job, now_ns)
        if level != job.level:
            job.level = level
            job.level_since_ns = now_ns

    def _count_service(self, job: Job, now_ns: int) -> int:
        if self.by_width:
            return job.attained_at(now_ns) - job.promoted_attained
        return job.executed_at(now_ns) - job.promoted_executed_ns

    def _kept_ns(self, job: Job, now_ns: int) -> int:
        """How much longer a promoted job stays in the first level whatever it attains."""
        if not job.promoted_executed_ns:
            return 0
        until_ns = job.promoted_executed_ns + max(job.promoted_executed_ns, self.quantum_ns)
        return max(0, until_ns - job.executed_at(now_ns))

    def _level(self, job: Job, now_ns: int) -> int:
        if self._kept_ns(job, now_ns):
            return 0
        served = self._count_service(job, now_ns)
        return sum(1 for threshold in self.thresholds if served >= threshold)

    def _falls_at(self, job: Job, now_ns: int) -> int:
        """Of a running job: when it reaches its next threshold."""
        kept = self._kept_ns(job, now_ns)
        rate = job.width_milli if self.by_width else 1
        served = self._count_service(job, now_ns)
        level = sum(1 for threshold in self.thresholds if served + kept * rate >= threshold)
        if kept and level:
            return now_ns + kept
        if level == len(self.thresholds):
            return NEVER_NS
        return now_ns - (served - self.thresholds[level]) // max(rate, 1) if rate else NEVER_NS

    def _promoted_at(self, job: Job) -> int:
        """Of a waiting job: when it has waited for too long, compared with what it has run."""
        if not self.promote or not job.level:
            return NEVER_NS
        return job.waiting_since_ns + int(self.promote * max(job.executed_ns, self.quantum_ns))


class ContinuousLas(Plain):
    """Without levels: the job that has attained least goes first. Service is measured once in `every_s` of running
    time.

    `keep`: between equals running jobs go first; else only the order of submission counts.
    """

    def __init__(self, name: str, *, by_width: bool, every_s: Fraction, keep: bool) -> None:
        self.name = name
        self.by_width = by_width
        self.every_ns = int(every_s * SECOND_NS)
        self.keep = keep

    def key(self, job: Job, now_ns: int) -> Key:
        waits = self.keep and job.state is not JobState.RUNNING
        return (job.level, int(waits), job.submitted_ns)

    def changes_at(self, job: Job, now_ns: int) -> int:
        return job.level_since_ns + self.every_ns if job.state is JobState.RUNNING else NEVER_NS

    def touch(self, job: Job, now_ns: int) -> None:
        """The level is the service as it was looked at last."""
        job.level = job.attained_at(now_ns) if self.by_width else job.executed_at(now_ns)
        job.level_since_ns = now_ns
