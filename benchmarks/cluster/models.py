"""What it is worth to know how fast a job is on which GPU, and what it loses over several nodes.

Speeds are Gavel's measurements (benchmarks/data/gavel, MIT). Traces bring arrivals, sizes and durations; the model of
each job is drawn with a seed from the table, and what a trace lasts is compressed so that the cluster is loaded as the
row says. Both placements see the same jobs in the same order.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.scheduling.policies import TIRESIAS
from benchmarks.scheduling.traces import CLUSTER400, DATA, PHILLY, TRACE3, Trace, load
from benchmarks.table import Figure, at_least
from vgpud.core.devices.rates import relative
from vgpud.core.jobs.model import Node, Placement
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate import clusters, results, scenario
from vgpud.simulate.interference import FULL
from vgpud.simulate.machines import models_of
from vgpud.simulate.trace import TraceJob

TABLE = DATA / "gavel" / "simulation_throughputs.json"
#: as many of each as Gavel's simulations have, in nodes of eight
MIXED = "3x8:k80+2x8:p100+1x8:v100"
ALIKE = "8x8:v100"
GPUS = {"k80", "p100", "v100"}
TRACES = (CLUSTER400, TRACE3, PHILLY)
#: of all GPU time of the cluster, if every job ran where it is fastest. Half of the GPUs are several times slower: 0.4
#: is about 0.8 of what the cluster can do, and 0.7 more than that
LOADS = (0.2, 0.4)
OVERLOAD = 0.7
PLACEMENTS = ("best-fit", "throughput(0)", "throughput(20)")
#: jobs of a trace; the longest traces are cut
JOBS_MAX = 1_000
#: GPUs of a job for which there are measurements; between them those below
SIZES = (1, 2, 4, 8)
SEED = 3
#: how much less the average completion time must at least be, %
LESS_PERCENT_MIN = 10


@dataclass(frozen=True)
class Speeds:
    """simulate.machines.Machines, from Gavel's table."""

    gpu_of: dict[str, str]  # by node

    def speed(self, job: TraceJob, placement: Placement) -> int:
        """The slowest model counts; members on several nodes send over the network."""
        there = {place.node for place in placement}
        gpus = job.spec.width_milli // MILLI_PER_DEVICE
        where = "" if len(there) == 1 else "_unconsolidated"
        slowest = min(rate(job.spec.model, gpus, self.gpu_of[node] + where) for node in there)
        best = max(rate(job.spec.model, gpus, gpu) for gpu in GPUS)
        return max(1, round(FULL * min(1.0, slowest / best)))


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(TABLE.read_text())
    return found


@functools.cache
def rate(model: str, members: int, gpu: str) -> float:
    """Steps a second, for the largest measured size that is no larger; where that failed, that of smaller ones."""
    for size in reversed([size for size in SIZES if size <= members]):
        found = _table()[gpu].get(f"('{model}', {size})", {}).get("null", 0)
        if found > 0:
            return float(found)
    return rate(model, 1, gpu.removesuffix("_unconsolidated")) if gpu.endswith("_unconsolidated") else 0.001


@functools.cache
def known_models() -> tuple[str, ...]:
    """Those that were measured alone on all three GPUs."""
    names = [key.partition("', ")[0].removeprefix("('") for key in _table()["v100"] if key.endswith(", 1)")]
    return tuple(name for name in names if all(rate(name, 1, gpu) > 0.001 for gpu in GPUS))


def draw_jobs(trace: Trace, gpus: int, part: float, gang_most: int = 0) -> list[TraceJob]:
    """The trace with models, their speeds and their loss over several nodes, as dense as the load asks for.

    `gang_most`: GPUs of a job, larger ones are left out; 0 = half of the cluster.
    """
    draw = random.Random(SEED)
    jobs = [job for job in load(trace) if job.spec.members <= (gang_most or gpus // 2)][:JOBS_MAX]
    return [_with_model(job, draw.choice(known_models())) for job in dense(jobs, gpus, part)]


def dense(jobs: Sequence[TraceJob], gpus: int, part: float) -> list[TraceJob]:
    """The jobs come so fast that they ask for this part of the cluster's GPUs while they come; the first at time 0."""
    work = sum(job.duration_ns * job.spec.width_milli for job in jobs)
    length_ns = work / (MILLI_PER_DEVICE * gpus * part)
    first_ns = jobs[0].submitted_ns
    span_ns = jobs[-1].submitted_ns - first_ns
    return [replace(job, submitted_ns=round((job.submitted_ns - first_ns) * length_ns / span_ns)) for job in jobs]


def _with_model(job: TraceJob, model: str) -> TraceJob:
    members = job.spec.members
    rates = relative({gpu: rate(model, members, gpu) for gpu in sorted(GPUS)})
    near, far = rate(model, members, "v100"), rate(model, members, "v100_unconsolidated")
    lost_ppm = max(0, round(1_000_000 * (1 - far / near))) if members > 1 else -1
    spec = replace(job.spec, model=model, skew_ppm=lost_ppm, ask=replace(job.spec.ask, rates=rates))
    return replace(job, spec=spec)


def _run(jobs: Sequence[TraceJob], nodes: Sequence[Node], placement: str, policy: str) -> results.Figures:
    one = scenario.Scenario(policy, placement, machines=Speeds(models_of(nodes)))
    return results.figures(scenario.run(jobs, nodes, one))


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """Average completion times, and how much less by each rule."""
    nodes = clusters.parse(MIXED)
    gpus = sum(len(node.devices) for node in nodes)
    raw["runs"] = []
    for trace in TRACES:
        for part in (*LOADS, OVERLOAD) if trace is CLUSTER400 else LOADS:
            jobs = draw_jobs(trace, gpus, part)
            case = f"{trace.name} on {MIXED}, load {part:g}"
            blind = 0.0
            for placement in PLACEMENTS:
                found = _run(jobs, nodes, placement, TIRESIAS)
                mean_s = found.jct_s.mean
                raw["runs"].append({"trace": trace.name, "load": part, "placement": placement, **found.as_json()})
                yield Figure("models", case, f"{placement}: average completion time, h", mean_s / 3600)
                if placement == PLACEMENTS[0]:
                    blind = mean_s
                    continue
                judged = placement == PLACEMENTS[-1] and part in LOADS
                goal = at_least(LESS_PERCENT_MIN) if judged else None
                yield Figure("models", case, f"{placement}: less than blind, %", 100 * (1 - mean_s / blind), goal)


def consolidation(raw: dict[str, Any]) -> Iterator[Figure]:
    """Gangs that lose more than half by leaving their node wait for no better place: they are only put together."""
    nodes = clusters.parse(ALIKE)
    gpus = sum(len(node.devices) for node in nodes)
    raw["runs"] = []
    for trace in TRACES:
        jobs = draw_jobs(trace, gpus, OVERLOAD)
        case = f"{trace.name} on {ALIKE}, load {OVERLOAD:g}"
        for placement in ("worst-fit", "best-fit", "fgd", "tiresias"):
            found = _run(jobs, nodes, placement, TIRESIAS)
            raw["runs"].append({"trace": trace.name, "placement": placement, **found.as_json()})
            yield Figure("consolidation", case, f"{placement}: average completion time, h", found.jct_s.mean / 3600)
