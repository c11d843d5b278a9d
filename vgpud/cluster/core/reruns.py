"""Ends that slurmctld may have mistaken.

A node's answer names the job, not its run. After slurmctld was killed and started again, the report that a run has
ended may end the job's next run, or a job whose requeue was forgotten; and a node refuses a start in the second in
which it ended what slurmctld did not know of. A start on a node that does not respond is sent again some 10 s later:
where the job was requeued and runs elsewhere by then, the node's refusal ends that run ("Killing non-startable batch
job"). The job is FAILED then (or COMPLETED, where its program took SIGTERM for its end). Slurm can requeue it: it runs
once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from vgpud.cluster.core.model import SlurmJob
from vgpud.core.jobs.model import SECOND_NS

COMPLETED, FAILED = "COMPLETED", "FAILED"
#: what nodes still have to say has been said by then: slurmstepd reports an end again after 15 s
REPORTED_NS = 60 * SECOND_NS
#: an end stands where Slurm does not requeue the job in this time
GIVEN_UP_NS = 10 * SECOND_NS
#: of one job: a program that fails by itself on a node that comes and goes does not run for ever
RERUNS_MAX = 5


@dataclass(slots=True)
class Rerun:
    """The last one of a job."""

    doubt_ns: int  # because of what was seen then
    restarts: int  # of the run whose end did not count
    at_ns: int
    count: int


@dataclass(slots=True)
class Reruns:
    """Whether one job runs once more."""

    _last: Rerun | None = None
    _doubt_ns: int = 0
    _requeue_order_ns: int | None = None

    def doubt(self, now_ns: int) -> None:
        """A run was requeued whose start may still be on its way to a node."""
        self._doubt_ns = now_ns

    def note_requeue_order(self, now_ns: int) -> None:
        """Slurm was ordered to requeue the job, for the first time or again."""
        if self._requeue_order_ns is None:
            self._requeue_order_ns = now_ns

    def clear_requeue_order(self) -> None:
        """It was requeued."""
        self._requeue_order_ns = None

    def is_rerun(self, slurm_job: SlurmJob, restarts: int, seen_ns: int, started_ns: int, now_ns: int) -> bool:
        """Whether an end that Slurm shows does not count, and the job is to be requeued.

        `restarts`: of the job, when it was seen last; `seen_ns`: when the run that ended was first seen, -1 = never.
        `started_ns`: when slurmctld was seen to have been started, 0 = never.
        """
        doubt_ns = max(started_ns, self._doubt_ns)
        if not doubt_ns or not slurm_job.requeues or slurm_job.state not in (COMPLETED, FAILED):
            return False
        last = self._last
        if last and last.doubt_ns == doubt_ns:
            return slurm_job.restarts == last.restarts and now_ns - last.at_ns < GIVEN_UP_NS
        ordered_ns = now_ns if self._requeue_order_ns is None else self._requeue_order_ns
        has_forgotten = slurm_job.restarts < restarts or ordered_ns < started_ns
        is_new = seen_ns < 0 or seen_ns >= doubt_ns  # what ran long before has no other run
        if not has_forgotten and not (slurm_job.state == FAILED and is_new and now_ns - doubt_ns < REPORTED_NS):
            return False
        count = last.count + 1 if last else 1
        if count > RERUNS_MAX:
            return False
        self._last = Rerun(doubt_ns, slurm_job.restarts, now_ns, count)
        return True
