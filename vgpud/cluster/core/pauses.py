"""How long a job that is to start is not released yet, since something of a former run, or a node, is not ready."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

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


@dataclass(slots=True)
class Pauses:
    """Of one job."""

    _until_ns: int | None = None
    _attempt: int = -1
    _free_ns: int = 0  # since when nothing but a silent node keeps this attempt

    def pause(self, until_ns: int) -> None:
        self._until_ns = until_ns

    def why(self, slurm_job: SlurmJob, job: Job, silent: Collection[str], began_ns: int, now_ns: int) -> str:
        """Why the job is not released now; "" = it is. `silent`: nodes that do not respond; `began_ns`: when this
        controller did: what was requeued before is not known."""
        until_ns = self._until_ns
        if until_ns is None:
            until_ns = began_ns + SETTLE_NS if slurm_job.restarts else 0
        if now_ns < until_ns:
            return "its former run is being ended"
        if self._attempt != job.attempt:
            self._attempt, self._free_ns = job.attempt, now_ns
        waits_for = sorted({place.node for place in job.placement}.intersection(silent))
        is_late = now_ns - self._free_ns >= SILENT_NS
        return f"{', '.join(waits_for)} must respond first" if waits_for and not is_late else ""
