"""The traces that are shipped (benchmarks/data), the cluster that each is replayed on, and runs of them."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any

from benchmarks import results
from vgpud.simulate import clusters, readers, scenario
from vgpud.simulate.results import Figures, figures
from vgpud.simulate.trace import TraceJob

DATA = results.ROOT / "benchmarks" / "data"
HOUR_S = 3600


@dataclass(frozen=True)
class Trace:
    """`released_s`: average completion time of the released Tiresias' 2D-LAS, its thresholds 3250 and 7200, there."""

    name: str
    file: str
    cluster: str
    released_s: float | None = None
    sort: bool = False


SIXTY = Trace("60_job", "tiresias/60_job.csv", "2x4", 715.3)
CLUSTER400 = Trace("muri_cluster400", "muri/muri_cluster400_job.csv", "8x8", 81.1 * HOUR_S)
TRACE1 = Trace("muri_trace1", "muri/muri_trace1_job.csv", "8x8", 856 * HOUR_S)
TRACE3 = Trace("muri_trace3", "muri/muri_trace3_job.csv", "8x8", 87.6 * HOUR_S)
#: never run with the released simulator: it is compared with the same policy in ours
PHILLY = Trace("philly_6c71a0", "philly/philly_6c71a0.csv", "8x8", sort=True)
PHILLY_B = Trace("philly_b436b2", "philly/philly_b436b2.csv", "8x8", sort=True)
ALL = (SIXTY, CLUSTER400, TRACE3, TRACE1, PHILLY, PHILLY_B)


@dataclass(frozen=True)
class Run:
    figures: Figures
    wall_s: float
    #: of all jobs, inorder: for plots
    jct_s: tuple[float, ...]

    def as_json(self) -> dict[str, Any]:
        return {**self.figures.as_json(), "wall_s": round(self.wall_s, 3)}


@functools.cache
def load(trace: Trace) -> tuple[TraceJob, ...]:
    return tuple(readers.read(DATA / trace.file, trace.sort))


@functools.cache
def play(trace: Trace, policy: str, placement: str = scenario.COUNT) -> Run:
    """One policy on one trace, made once in a run of the benchmark. GPUs are counted, as the published runs do."""
    jobs, nodes = load(trace), clusters.parse(trace.cluster)
    begin = time.perf_counter()
    outcome = scenario.run(jobs, nodes, scenario.Scenario(policy, placement))
    wall_s = time.perf_counter() - begin
    inorder = sorted((job.ended_ns - job.submitted_ns) / 1e9 for _, job in outcome.jobs)
    return Run(figures(outcome), wall_s, tuple(inorder))
