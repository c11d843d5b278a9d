"""Runs of jobs and their ends, as this controller has seen them: slurmctld that was killed shows some as running."""

from __future__ import annotations

from collections.abc import Container

from vgpud.cluster.core.model import CANCELLED, SlurmJob

#: what another run of a job, or another user's job of the same number, does not have
Run = tuple[int, int, str]


def _run_of(slurm_job: SlurmJob) -> Run:
    return slurm_job.uid, slurm_job.restarts, slurm_job.start


class Runs:
    """By key of the job."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Run, int]] = {}  # of jobs of the queue: when each was first seen
        self._over: dict[str, tuple[Run, bool]] = {}  # of those that have left it: the last run; whether cancelled

    def saw(self, slurm_job: SlurmJob, now_ns: int) -> None:
        """A job of the queue runs."""
        self._seen.setdefault(slurm_job.key, {}).setdefault(_run_of(slurm_job), now_ns)

    def seen_ns(self, slurm_job: SlurmJob) -> int:
        """When this run was first seen; -1: never."""
        return self._seen.get(slurm_job.key, {}).get(_run_of(slurm_job), -1)

    def since_ns(self, key: str) -> int:
        """When the last run of a job was first seen; -1: none was."""
        return max(self._seen.get(key, {}).values(), default=-1)

    def note_end(self, slurm_job: SlurmJob) -> None:
        self._over[slurm_job.key] = _run_of(slurm_job), slurm_job.state == CANCELLED

    def forget_job(self, key: str) -> None:
        """The job is no longer the queue's."""
        self._seen.pop(key, None)

    def keep(self, keys: Container[str]) -> None:
        """Forgets the ends of jobs that Slurm does not show any more."""
        self._over = {key: over for key, over in self._over.items() if key in keys}

    def is_over(self, slurm_job: SlurmJob, restarts: int | None) -> bool:
        """Whether a run that Slurm shows has ended or was requeued. `restarts`: of the job, when it was seen last; None
        where it has left the queue. One that is not to be requeued is left to Slurm."""
        if not slurm_job.requeues:
            return False
        if restarts is None:
            return slurm_job.key in self._over and self._over[slurm_job.key][0] == _run_of(slurm_job)
        return slurm_job.restarts < restarts and _run_of(slurm_job) in self._seen.get(slurm_job.key, ())

    def was_cancelled(self, key: str) -> bool:
        """Of one that has left the queue; asked once, as Slurm itself misses such a run later."""
        return self._over.pop(key)[1]
