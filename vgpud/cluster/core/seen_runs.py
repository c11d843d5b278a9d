"""Runs of a job and its end, as this controller has seen them: slurmctld that was killed shows some as running."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgpud.cluster.core.model import CANCELLED, SlurmJob

#: what another run of a job, or another user's job of the same number, does not have
Run = tuple[int, int, str]


def _run_of(slurm_job: SlurmJob) -> Run:
    return slurm_job.uid, slurm_job.restarts, slurm_job.start


@dataclass(slots=True)
class Runs:
    """Of one job."""

    _seen: dict[Run, int] = field(default_factory=dict)  # while it is the queue's: when each was first seen
    _last: Run | None = None  # when it has left the queue: the one that ended
    _was_cancelled: bool = False

    def saw(self, slurm_job: SlurmJob, now_ns: int) -> None:
        """It runs."""
        self._seen.setdefault(_run_of(slurm_job), now_ns)

    def seen_ns(self, slurm_job: SlurmJob) -> int:
        """When this run was first seen; -1: never."""
        return self._seen.get(_run_of(slurm_job), -1)

    @property
    def since_ns(self) -> int:
        """When its last run was first seen; -1: none was."""
        return max(self._seen.values(), default=-1)

    def note_end(self, slurm_job: SlurmJob) -> None:
        self._last, self._was_cancelled = _run_of(slurm_job), slurm_job.state == CANCELLED

    def leave_queue(self) -> None:
        """Its end is what is remembered."""
        self._seen.clear()

    def forget_end(self) -> None:
        self._last = None

    def is_over(self, slurm_job: SlurmJob, restarts: int | None) -> bool:
        """Whether a run that Slurm shows has ended or was requeued. `restarts`: of the job, when it was seen last; None
        where it has left the queue. One that is not to be requeued is left to Slurm."""
        if not slurm_job.requeues:
            return False
        if restarts is None:
            return self._last == _run_of(slurm_job)
        return slurm_job.restarts < restarts and _run_of(slurm_job) in self._seen

    def take_cancellation(self) -> bool:
        """Whether the job, which has left the queue, was cancelled; asked once, as Slurm itself misses such a run
        later."""
        self.forget_end()
        return self._was_cancelled
