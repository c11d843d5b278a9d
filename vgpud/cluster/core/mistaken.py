"""Ends that slurmctld, which was killed and started again, may have mistaken.

A node's report that a run has ended names the job, not the run. One that was under way when slurmctld was killed comes
up to some seconds later, and may end the job's next run, or a job whose requeue was forgotten; and a node refuses a
start in the second in which it ended what slurmctld did not know of. The job is FAILED then (or COMPLETED, where the
program took SIGTERM for its end). Slurm can requeue it: it runs once more, for each start of slurmctld at most once.
"""

from __future__ import annotations

from collections.abc import Container

from vgpud.cluster.core.model import Binding, SlurmJob
from vgpud.core.jobs.model import SECOND_NS, Job, JobState

COMPLETED, FAILED = "COMPLETED", "FAILED"
#: slurmstepd reports an end again after 15 s where slurmctld did not answer; in 60 s that has worked
REPORTED_NS = 60 * SECOND_NS
#: an end stands where Slurm does not requeue the job in this time
GIVEN_UP_NS = 10 * SECOND_NS
FOR_GOOD = (JobState.CANCELLED, JobState.TIMED_OUT)


class Mistaken:
    """Which jobs run once more, by key."""

    def __init__(self) -> None:
        self._tried: dict[str, tuple[int, int, int]] = {}  # since which start of slurmctld, restarts then, and when

    def is_rerun(self, shown: SlurmJob, binding: Binding, job: Job, started_ns: int, now_ns: int) -> bool:
        """Whether an end that Slurm shows does not count, and the job is to be requeued. `started_ns`: when slurmctld
        was seen to have been started, 0 = never."""
        if not started_ns or not shown.requeues or shown.state not in (COMPLETED, FAILED):
            return False
        since, restarts, tried_ns = self._tried.get(shown.key, (0, 0, 0))
        if since == started_ns:
            return shown.restarts == restarts and now_ns - tried_ns < GIVEN_UP_NS
        was_stopped = job.stop_to is not None and job.stop_to not in FOR_GOOD and 0 <= binding.told_ns < started_ns
        has_forgotten = was_stopped or shown.restarts < binding.restarts
        if not has_forgotten and (shown.state != FAILED or now_ns - started_ns >= REPORTED_NS):
            return False
        self._tried[shown.key] = started_ns, shown.restarts, now_ns
        return True

    def keep(self, keys: Container[str]) -> None:
        """Forgets jobs that Slurm does not show any more."""
        self._tried = {key: tried for key, tried in self._tried.items() if key in keys}
