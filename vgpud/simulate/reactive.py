"""Online profiling, which prediction is compared with: each job first runs on a reserved device, alone, for a minute.

What it uses is known then, and it continues elsewhere, packed by that. Profiles are taken one after the other, so in a
burst jobs wait for theirs; what a job does meanwhile is not lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpud.core.colocate.usage import FIRST_LOOK_NS
from vgpud.simulate.engine import Costs
from vgpud.simulate.interference import utilisation_milli
from vgpud.simulate.trace import TraceJob


@dataclass(frozen=True, slots=True)
class Profiled:
    """`rest`: jobs as they leave the reserved device, measured. `index`: which of the trace each of these is."""

    rest: tuple[TraceJob, ...]
    index: tuple[int, ...]
    ended_ns: tuple[int, ...]  # of all jobs of the trace: -1, or when it ended before its profile did


def profile(trace: Sequence[TraceJob], costs: Costs) -> Profiled:
    """In the order of submission."""
    free_ns = 0
    rest: list[TraceJob] = []
    index: list[int] = []
    ended: list[int] = []
    for number, job in enumerate(trace):
        runs_ns = min(FIRST_LOOK_NS, job.duration_ns)
        until_ns = max(free_ns, job.submitted_ns) + costs.start_ns + runs_ns
        ended.append(until_ns if runs_ns == job.duration_ns else -1)
        if ended[-1] < 0:
            until_ns += costs.suspend_ns
            rest.append(_add_measurements(replace(job, submitted_ns=until_ns, duration_ns=job.duration_ns - runs_ns)))
            index.append(number)
        free_ns = until_ns
    return Profiled(tuple(rest), tuple(index), tuple(ended))


def _add_measurements(job: TraceJob) -> TraceJob:
    ask = replace(job.spec.ask, utilisation_milli=utilisation_milli(job))
    return replace(job, spec=replace(job.spec, ask=ask, duration_ns=job.duration_ns))
