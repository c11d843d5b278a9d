"""Elastic workers' autoscalers in the simulator: the daemon's own, fed with the throughput of a job's curve."""

from __future__ import annotations

from vgpud.core.elastic.autoscaler import Autoscaler
from vgpud.core.elastic.search import PROBE_STEPS
from vgpud.core.jobs.events import Wished
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS
from vgpud.simulate.trace import TraceJob

#: samples of a step, whatever the number of workers
BATCH = 1024
#: a curve's rates are in thousandths
_PARTS = 1000


class Scalers:
    """One for each job whose workers come and go. All of its workers report after the same steps."""

    def __init__(self) -> None:
        self._scalers: dict[int, Autoscaler] = {}
        self._members: dict[int, int] = {}
        self._steps: dict[int, int] = {}  # what is reported next is about so many

    def set_workers(self, job_id: int, job: TraceJob, members: int, now_ns: int) -> bool:
        """So many workers begin to work now. Whether they report what they do."""
        elastic = job.spec.elastic
        if elastic is None or not elastic.most_members or job.scaling is None:
            return False
        scaler = self._scalers.get(job_id) or self._scalers.setdefault(job_id, Autoscaler(elastic))
        self._members[job_id], self._steps[job_id] = members, 0
        scaler.set_workers(tuple(range(members)), now_ns)
        return True

    def report(self, job_id: int, job: TraceJob, now_ns: int) -> tuple[list[Wished], int]:
        """What follows from what they report now, and when they do so next (NEVER_NS: nothing would follow)."""
        scaler, members, steps = self._scalers[job_id], self._members[job_id], self._steps[job_id]
        part, over = divmod(steps * BATCH, members)
        step_ns = max(1, BATCH * _PARTS * SECOND_NS // max(1, job.scaling.rate(members))) if job.scaling else 1
        for worker in range(members) if steps else ():
            scaler.add_report(worker, part + (worker < over), steps * step_ns, steps, now_ns)
        target = scaler.take_new_target(now_ns)
        targets = [Wished(job_id, target.members, target.why)] if target else []
        self._steps[job_id] = PROBE_STEPS if steps else 1  # the first step of a new group is reported by itself
        return targets, now_ns + self._steps[job_id] * step_ns if scaler.measures else NEVER_NS
