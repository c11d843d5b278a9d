"""How much of a figure is chance: the same trace a little otherwise, several times.

With 400 jobs on a full cluster one order against another moves averages by some percent. So each copy has its jobs come
up to an hour later and take up to a tenth more or less, drawn evenly; the figures are of all copies, and have no goals.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.scheduling.policies import PROMOTING, TIRESIAS, WITHOUT_DURATIONS
from benchmarks.scheduling.traces import CLUSTER400, TRACE3, Trace, load
from benchmarks.table import Figure
from vgpud.core.jobs.model import SECOND_NS
from vgpud.simulate import clusters, scenario
from vgpud.simulate.results import Figures, figures
from vgpud.simulate.trace import TraceJob

COPIES = 12
LATER_NS = 3600 * SECOND_NS
LONGER_PPM = 100_000
PPM = 1_000_000
SRSF = "srsf"


def row(raw: dict[str, Any]) -> Iterator[Figure]:
    """What knows no durations against the oracle and against Tiresias' 2D-LAS; what promotion costs and brings."""
    for trace in (CLUSTER400, TRACE3):
        case = f"{trace.name} on {trace.cluster}, {COPIES} copies"
        means = {
            policy: [run.jct_s.mean for run in runs(trace, policy)] for policy in (SRSF, TIRESIAS, WITHOUT_DURATIONS)
        }
        raw[trace.name] = means
        for policy in (TIRESIAS, WITHOUT_DURATIONS):
            yield from _spread(case, f"{policy} over SRSF", _over(means[policy], means[SRSF]))
        yield from _spread(
            case, f"{WITHOUT_DURATIONS} over {TIRESIAS}", _over(means[WITHOUT_DURATIONS], means[TIRESIAS])
        )
    case = f"{CLUSTER400.name} on {CLUSTER400.cluster}, {COPIES} copies"
    without = runs(CLUSTER400, TIRESIAS)
    for policy in PROMOTING:
        found = runs(CLUSTER400, policy)
        times = _over([run.preemptions for run in found], [run.preemptions for run in without])
        yield from _spread(case, f"{policy}: preemptions, times those without promotion", times)
        waits = _over([run.longest_wait_s for run in found], [run.longest_wait_s for run in without])
        yield from _spread(case, f"{policy}: longest wait, times that without promotion", waits)


def runs(trace: Trace, policy: str) -> list[Figures]:
    """Of each copy."""
    nodes = clusters.parse(trace.cluster)
    asked = scenario.Scenario(policy, scenario.COUNT)
    return [figures(scenario.run(copy(trace, seed), nodes, asked)) for seed in range(COPIES)]


def copy(trace: Trace, seed: int) -> list[TraceJob]:
    """The trace a little otherwise; the same seed, the same copy."""
    draw = random.Random(seed)
    jobs = []
    for job in load(trace):
        duration_ns = job.duration_ns * draw.randint(PPM - LONGER_PPM, PPM + LONGER_PPM) // PPM
        submitted_ns = job.submitted_ns + draw.randint(0, LATER_NS)
        spec = replace(job.spec, duration_ns=duration_ns)
        jobs.append(replace(job, submitted_ns=submitted_ns, duration_ns=duration_ns, spec=spec))
    return sorted(jobs, key=lambda job: job.submitted_ns)


def _over(values: list[Any], others: list[Any]) -> list[float]:
    return [value / other for value, other in zip(values, others, strict=True)]


def _spread(case: str, what: str, values: list[float]) -> Iterator[Figure]:
    yield Figure("perturbed", case, f"{what}, mean", statistics.mean(values))
    yield Figure("perturbed", case, f"{what}, largest", max(values))
