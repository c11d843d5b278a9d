"""Shortest remaining service where users misjudge durations, and where starting and suspending jobs takes time.

Over the same order with true durations that costs nothing. Starting a job is not to be avoided, so where it costs, the
order that it is compared with has jobs that take that much longer and are known to.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.scheduling.traces import ALL, Trace, load
from benchmarks.table import Figure, at_most
from vgpud.core.jobs.model import SECOND_NS
from vgpud.simulate import clusters, scenario
from vgpud.simulate.engine import Costs
from vgpud.simulate.results import Figures, figures
from vgpud.simulate.trace import TraceJob

POLICY = "srsf"
#: of the logarithm of the factor by which a duration is wrong, and the goal
SIGMAS = ((0.1, 1.05), (1.0, 1.4))
SEEDS = 3
COST_NS = 60 * SECOND_NS
COSTS_MAX = 1.05
COSTS = Costs(start_ns=COST_NS, suspend_ns=COST_NS, resume_ns=COST_NS, resize_ns=COST_NS)
MEAN = "average completion time over that with true durations"


def row(raw: dict[str, Any]) -> Iterator[Figure]:
    """Each trace: durations that are wrong, of several seeds; true ones, with costs."""
    for trace in ALL:
        case = f"{trace.name} on {trace.cluster}"
        jobs = load(trace)
        true = run(trace, jobs)
        found: dict[str, Any] = {"true": true.as_json()}
        raw[trace.name] = found
        for sigma, most in SIGMAS:
            runs = [run(trace, scenario.misjudge_durations(jobs, sigma, seed)) for seed in range(SEEDS)]
            found[f"sigma {sigma:g}"] = [one.as_json() for one in runs]
            means = [one.jct_s.mean / true.jct_s.mean for one in runs]
            what = f"durations wrong by e^N(0, {sigma:g})"
            yield Figure("estimates", case, f"{what}: {MEAN}, {SEEDS} seeds", statistics.fmean(means), at_most(most))
            yield Figure("estimates", case, f"{what}: the same, largest", max(means))
        costly, longer = run(trace, jobs, COSTS), run(trace, start_longer(jobs))
        found["costs"], found["longer"] = costly.as_json(), longer.as_json()
        what = f"start, suspend, resume of {COST_NS // SECOND_NS} s"
        over = costly.jct_s.mean / longer.jct_s.mean
        yield Figure("estimates", case, f"{what}: {MEAN}, starts included", over, at_most(COSTS_MAX))
        yield Figure("estimates", case, f"{what}: {MEAN}", costly.jct_s.mean / true.jct_s.mean)
        yield Figure("estimates", case, f"{what}: preemptions", costly.preemptions)


def run(trace: Trace, jobs: Sequence[TraceJob], costs: Costs | None = None) -> Figures:
    """The trace with these jobs; GPUs are counted."""
    asked = scenario.Scenario(POLICY, scenario.COUNT, costs=costs or Costs())
    return figures(scenario.run(jobs, clusters.parse(trace.cluster), asked))


def start_longer(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """The same jobs, each as much longer as it takes to start it once."""
    found = []
    for job in jobs:
        duration_ns = job.duration_ns + COSTS.start_ns
        found.append(replace(job, duration_ns=duration_ns, spec=replace(job.spec, duration_ns=duration_ns)))
    return found
