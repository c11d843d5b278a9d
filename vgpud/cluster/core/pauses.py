"""How long jobs that are to start are not released yet, since something of a former run, or a node, is not ready."""

from __future__ import annotations

from collections.abc import Collection

from vgpud.cluster.core.model import SlurmJob
from vgpud.core.jobs.model import SECOND_NS, Job

#: a job that was requeued is released so much later: Slurm's nodes compare seconds, and take a credential of the same
#: second for the one that was revoked; the job would fail
SETTLE_NS = SECOND_NS
#: a job whose start slurmctld may have forgotten is released so much later: by then its node has registered, some
#: seconds after slurmctld's start, and what ran there was ended
FORGOTTEN_NS = 10 * SECOND_NS
#: a start that Slurm could not send to a node at once is sent again after 10 s, if the job runs then: it must not
DEFERRED_NS = 12 * SECOND_NS
#: a job waits for so long for nodes that do not respond; then Slurm may start it there later
SILENT_NS = 10 * SECOND_NS


class Pauses:
    """By key of the job."""

    def __init__(self) -> None:
        self.began_ns = 0  # when this controller did: what was requeued before is not known
        self._until_ns: dict[str, int] = {}
        self._silent_since: dict[str, tuple[int, int]] = {}  # attempt, and when nothing else kept it

    def pause(self, key: str, until_ns: int) -> None:
        self._until_ns[key] = until_ns

    def forget_job(self, key: str) -> None:
        """The job is no longer the queue's."""
        self._until_ns.pop(key, None)
        self._silent_since.pop(key, None)

    def why(self, slurm_job: SlurmJob, job: Job, silent: Collection[str], now_ns: int) -> str:
        """Why a job is not released now; "" = it is. `silent`: nodes that do not respond."""
        if now_ns < self._until_ns.get(slurm_job.key, self.began_ns + SETTLE_NS if slurm_job.restarts else 0):
            return "its former run is being ended"
        attempt, since_ns = self._silent_since.get(slurm_job.key, (-1, 0))
        if attempt != job.attempt:
            since_ns = now_ns
            self._silent_since[slurm_job.key] = job.attempt, since_ns
        waits_for = sorted({place.node for place in job.placement}.intersection(silent))
        return f"{', '.join(waits_for)} must respond first" if waits_for and now_ns - since_ns < SILENT_NS else ""
