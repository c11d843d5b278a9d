"""One queue over all nodes beside a queue on each of them, for the same jobs: fractions, models of GPUs, gangs.

Without a queue over all nodes, a job is sent to one as it comes, waits there and is packed there: in turn, or to the
node where it would end first (apart.py). So only jobs that fit one node are in these rows, on both sides. Over all
nodes, too, such a job has all its GPUs on one, as `sbatch --gres=gpu:8` asks for; beside it the same jobs as gangs that
may be on several.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.cluster import apart
from benchmarks.cluster.models import (
    ALIKE,
    JOBS_MAX,
    LESS_PERCENT_MIN,
    LOADS,
    MIXED,
    OVERLOAD,
    SEED,
    TRACES,
    Speeds,
    dense,
    draw_jobs,
)
from benchmarks.scheduling.openb_runs import PODS
from benchmarks.scheduling.policies import TIRESIAS
from benchmarks.scheduling.traces import PHILLY, PHILLY_B, Trace, load
from benchmarks.table import Figure, at_least
from vgpud.core.jobs.model import SECOND_NS, Ask, Node
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate import clusters, readers, results, scenario
from vgpud.simulate.machines import models_of
from vgpud.simulate.trace import TraceJob

#: nodes of the kind that openb has most of
NODES, GPUS, CPU_MILLI, RAM_MIB = 8, 8, 96_000, 393_216
#: of all GPU time, while jobs come
LOAD = 0.8
#: what runs for longer is no batch job
LONGEST_NS = 86_400 * SECOND_NS
#: of openb's pods every one of so many
EVERY = 3
POLICIES = ("fifo", TIRESIAS)
IN_TURN, ENDS_FIRST = "a queue on each node, in turn", "a queue on each node, where it ends first"
MEAN = "average completion time, h"


def pods() -> list[TraceJob]:
    """openb's pods with GPUs that ended within a day: what they asked for of GPUs, CPU and RAM."""
    found = [job for job in readers.read(PODS) if job.spec.width_milli and 0 < job.duration_ns <= LONGEST_NS]
    return found[::EVERY]


def with_fractions(trace: Trace, asks: Sequence[Ask]) -> list[TraceJob]:
    """The trace's jobs of one GPU ask for what pods of at most one ask for, drawn; the others have all on one node."""
    draw = random.Random(SEED)
    small = [ask for ask in asks if ask.width_milli <= MILLI_PER_DEVICE]

    def one(job: TraceJob) -> TraceJob:
        return (
            replace(job, spec=replace(job.spec, ask=draw.choice(small))) if job.spec.members == 1 else to_whole_job(job)
        )

    return [one(job) for job in load(trace) if job.spec.members <= GPUS and job.duration_ns][:JOBS_MAX]


def to_whole_job(job: TraceJob) -> TraceJob:
    """A gang of one GPU each as a job that has them all on one node."""
    ask = replace(job.spec.ask, spec=Spec(job.spec.width_milli))
    return replace(job, spec=replace(job.spec, ask=ask, members=1))


def fractions(raw: dict[str, Any]) -> Iterator[Figure]:
    """Fractions of GPUs: FGD and best fit over all nodes, and on each."""
    nodes = [clusters.make_node(f"n{at}", at, GPUS, "", CPU_MILLI, RAM_MIB * readers.MIB) for at in range(NODES)]
    of_pods = pods()
    asks = [job.spec.ask for job in of_pods]
    traces = {"openb": of_pods} | {trace.name: with_fractions(trace, asks) for trace in (PHILLY, PHILLY_B)}
    raw["runs"] = []
    for name, policy in itertools.product(traces, POLICIES):
        jobs = dense(traces[name], NODES * GPUS, LOAD)
        case = f"{name}, {len(jobs):,} jobs on {NODES}x{GPUS}, load {LOAD:g}, {policy}"
        found = _pack(jobs, nodes, policy)
        for way, one in found.items():
            raw["runs"].append({"trace": name, "policy": policy, "way": way, **one.as_json()})
            yield Figure("fractions", case, f"{way}: {MEAN}", one.jct_s.mean / 3600)
            yield Figure("fractions", case, f"{way}: fragmented, % of GPU time", 100 * one.fragmentation)
            yield Figure("fractions", case, f"{way}: idle while jobs wait, % of GPU time", 100 * one.idle_while_waiting)
            yield Figure("fractions", case, f"{way}: utilisation, %", 100 * one.utilisation)
        yield from _compare_times("fractions", case, found, "fgd", f"{IN_TURN}, fgd", f"{ENDS_FIRST}, fgd", "best-fit")


def _pack(jobs: Sequence[TraceJob], nodes: Sequence[Node], policy: str) -> dict[str, results.Figures]:
    best_fit, fgd = scenario.Scenario(policy, "best-fit"), scenario.Scenario(policy, "fgd")
    return {
        f"{IN_TURN}, fgd": results.figures(apart.run(apart.in_turn(jobs, nodes), nodes, fgd)),
        f"{ENDS_FIRST}, fgd": results.figures(apart.run(apart.ends_first(jobs, nodes), nodes, fgd)),
        "best-fit": results.figures(scenario.run(jobs, nodes, best_fit)),
        "fgd": results.figures(scenario.run(jobs, nodes, fgd)),
    }


def one_queue(raw: dict[str, Any]) -> Iterator[Figure]:
    """Whole GPUs, by models of GPUs and of jobs."""
    raw["runs"] = []
    for cluster, part, placement in ((MIXED, LOADS[-1], "throughput(20)"), (ALIKE, OVERLOAD, "tiresias")):
        nodes = clusters.parse(cluster)
        for trace in TRACES:
            jobs = draw_jobs(trace, sum(len(node.devices) for node in nodes), part, GPUS)
            case = f"{trace.name} on {cluster}, {len(jobs)} jobs of up to {GPUS} GPUs, load {part:g}"
            found = _queue_jobs(jobs, nodes, placement)
            for way, one in found.items():
                raw["runs"].append({"trace": trace.name, "cluster": cluster, "way": way, **one.as_json()})
                yield Figure("one_queue", case, f"{way}: {MEAN}", one.jct_s.mean / 3600)
            best, *others = reversed(found)
            yield from _compare_times("one_queue", case, found, best, *reversed(others))


def _queue_jobs(jobs: Sequence[TraceJob], nodes: Sequence[Node], placement: str) -> dict[str, results.Figures]:
    """On one node of one model there is nothing that these placements could choose: best fit stands for all."""
    machines = Speeds(models_of(nodes))
    alone = scenario.Scenario(TIRESIAS, "best-fit", machines=machines)
    chosen = replace(alone, placement=placement)
    on_one = [to_whole_job(job) for job in jobs]
    return {
        IN_TURN: results.figures(apart.run(apart.in_turn(on_one, nodes), nodes, alone)),
        ENDS_FIRST: results.figures(apart.run(apart.ends_first(on_one, nodes, machines), nodes, alone)),
        "best-fit, on several nodes": results.figures(scenario.run(jobs, nodes, alone)),
        f"{placement}, on several nodes": results.figures(scenario.run(jobs, nodes, chosen)),
        f"{placement}, on one node": results.figures(scenario.run(on_one, nodes, chosen)),
    }


def _compare_times(row: str, case: str, figures: dict[str, results.Figures], way: str, *than: str) -> Iterator[Figure]:
    """How much less the average completion time is; the first of the others is what it has to beat."""
    for other in than:
        less = 100 * (1 - figures[way].jct_s.mean / figures[other].jct_s.mean)
        goal = at_least(LESS_PERCENT_MIN) if other == than[0] else None
        yield Figure(row, case, f"{way}: less than {other}, %", less, goal)
