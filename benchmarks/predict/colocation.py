"""What sharing devices by predicted utilisation brings a queue: 1,500 one-GPU jobs of the Philly traces on 16 GPUs.

Load is the GPU time that all jobs need over what the GPUs have from the first submission to the last; times of
submission are scaled to that. How much jobs slow each other down is the interference model's (the truth),
whatever was predicted. Of each arm: the makespan; utilisation, which is the part of all device time until then in
which a device is busy, as a monitor shows it (the sum of its jobs' true utilisations, at most 100 %); of that what is
useful, the time that the jobs would be busy alone; the average completion time. Such utilisation does not add up: in
the measured pairs two jobs of 60 % get more done together than 100 % of a device, so useful may be the larger of both.

How much shorter the makespan can be at all is bounded by when the last jobs come, and by two jobs on a GPU: at a mean
of 30 %, where hardly any two disturb each other, it is hardly shorter than at 52 %.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from benchmarks.predict.colocation_draw import DATA, DEVICE_GIB, FOLDER, MEANS
from benchmarks.table import Figure, above_bound, at_least
from vgpud.core.colocate.usage import FIRST_LOOK_NS
from vgpud.core.jobs.model import SECOND_NS, Ask, JobSpec
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate import clusters, reactive, scenario
from vgpud.simulate.engine import Costs
from vgpud.simulate.interference import Interference, Summed, gavel
from vgpud.simulate.sharing_monitor import SharingMonitor
from vgpud.simulate.trace import TraceJob

ROW = "colocation"
NODES, GPUS = 2, 16
GIB = 1 << 30
HOUR_NS = 3600 * SECOND_NS
LOAD = 1.3
#: a start, a checkpoint, resuming from it; the same for all arms
COSTS = Costs(start_ns=10 * SECOND_NS, suspend_ns=5 * SECOND_NS, resume_ns=10 * SECOND_NS)
#: memory is asked for in steps of so much
ASKED_GIB = 4
RULE = "colocate(120,2)"
LAS = "2d-las(3250,7200)"
#: of predictions: the paper's error, and one that is far off
ERROR, LARGE_ERROR = 0.155, 0.4


@dataclass(frozen=True)
class Case:
    """Which jobs, and what is true of them."""

    jobs: str = "day"
    mean: int = 52
    load: float = LOAD  # inf: all come at once
    truth: str = "summed"  # or a device of Gavel's table
    median: float = 0.25  # of memory, as part of a device
    count: int = 1500  # the first so many jobs

    def __str__(self) -> str:
        parts = [f"mean utilisation {self.mean} %"]
        parts += [f"load {self.load:g}" if self.load < math.inf else "all at once"] * (self.load != LOAD)
        parts += [f"Gavel's pairs on {self.truth}"] * (self.truth != "summed")
        parts += [f"half of the jobs use {self.median:.0%} of the memory"] * (self.median != Case.median)
        parts += [f"jobs: {self.jobs}"] * (self.jobs != Case.jobs)
        parts += [f"the first {self.count} of them"] * (self.count != Case.count)
        return ", ".join(parts)


@dataclass(frozen=True)
class Drawn:
    """One line of the drawn data."""

    submitted_ns: int
    duration_ns: int
    percents: dict[int, float]  # utilisation alone, by the mean of all
    memory_gib: int
    error: float


@dataclass(frozen=True)
class Result:
    """What one arm made of a case."""

    makespan_h: float
    busy: float
    useful: float
    jct_h: float
    p99_h: float  # when 99 % of the jobs had ended
    parted_pairs: int

    def shorter(self, than: Result) -> float:
        """Its makespan, in percent."""
        return 100 * (1 - self.makespan_h / than.makespan_h)


@functools.cache
def read_draws(jobs: str) -> tuple[Drawn, ...]:
    """The committed data."""
    with (FOLDER / f"{jobs}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Drawn(
                int(row["submitted_s"]) * SECOND_NS,
                int(row["duration_s"]) * SECOND_NS,
                {mean: float(row[f"utilisation_{mean}"]) for mean in MEANS},
                int(row["memory_gib"]),
                float(row["error"]),
            )
            for row in csv.DictReader(file)
        )


@functools.cache
def pairs(device: str) -> tuple[Interference, tuple[str, ...]]:
    """Gavel's table, and its models from the one that slows its neighbours down least."""
    found = gavel(DATA / "gavel" / "simulation_throughputs.json", device)
    return found, found.by_demand()


def truth(case: Case) -> Interference:
    return Summed() if case.truth == "summed" else pairs(case.truth)[0]


def predicted_milli(one: Drawn, mean: int, rmsle: float) -> int:
    """log(1 + percent) is off by a normal error."""
    percent = math.expm1(math.log1p(one.percents[mean]) + rmsle * one.error)
    return round(10 * min(100.0, max(1.0, percent)))


@functools.cache
def trace(case: Case, rmsle: float | None = None) -> tuple[TraceJob, ...]:
    """The jobs of a case. `rmsle`: how good the predictions are; None: there are none.

    The more of a device a job uses, the more demanding it is among Gavel's models.
    """
    data = read_draws(case.jobs)[: case.count]
    work_ns = sum(one.duration_ns for one in data)
    time_scale = work_ns / (GPUS * case.load) / data[-1].submitted_ns
    models = pairs(case.truth)[1] if case.truth != "summed" else ()
    order = sorted(range(len(data)), key=lambda index: data[index].percents[case.mean])
    rank = {index: number for number, index in enumerate(order)}
    found = []
    for index, one in enumerate(data):
        asked = math.ceil(one.memory_gib * case.median / Case.median / ASKED_GIB) * ASKED_GIB
        gib = min(DEVICE_GIB - ASKED_GIB, asked)
        model = models[rank[index] * len(models) // len(data)] if case.truth != "summed" else ""
        known_milli = -1 if rmsle is None else predicted_milli(one, case.mean, rmsle)
        ask = Ask(
            Spec(MILLI_PER_DEVICE, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB), utilisation_milli=known_milli
        )
        spec = JobSpec(ask, duration_ns=one.duration_ns, model=model, kinds=(model,) if model else ())
        used_milli = max(1, round(10 * one.percents[case.mean]))
        found.append(
            TraceJob(round(one.submitted_ns * time_scale), one.duration_ns, spec, utilisation_milli=used_milli)
        )
    return tuple(found)


def slots(case: Case, policy: str) -> Result:
    """A GPU is one job's."""
    jobs = trace(case)
    outcome = scenario.run(jobs, clusters.parse(f"{NODES}x{GPUS // NODES}"), scenario.Scenario(policy, costs=COSTS))
    busy = sum((until_ns - from_ns) * jobs[job_id - 1].utilisation_milli for job_id, from_ns, until_ns in outcome.spans)
    return result(jobs, [job.ended_ns for _, job in outcome.jobs], busy // MILLI_PER_DEVICE, 0)


def shared(case: Case, rmsle: float | None, rule: str = RULE) -> Result:
    """Jobs share GPUs by what is predicted of them, and after a minute by what is measured."""
    jobs = trace(case, rmsle)
    ends_ns, busy_ns, separation_count = play(case, jobs, f"{NODES}x{GPUS // NODES}", rule)
    return result(jobs, ends_ns, busy_ns, separation_count)


def reacting(case: Case) -> Result:
    """One GPU is reserved for profiles of a minute; the others are shared by what these say."""
    jobs = trace(case)
    profiled = reactive.profile(jobs, COSTS)
    later_ns, busy_ns, separation_count = play(case, profiled.rest, f"1x{GPUS // NODES}+1x{GPUS // NODES - 1}", RULE)
    ends_ns = list(profiled.ended_ns)
    for number, at_ns in zip(profiled.index, later_ns, strict=True):
        ends_ns[number] = at_ns
    minutes = (job.utilisation_milli * min(job.duration_ns, FIRST_LOOK_NS) for job in jobs)
    return result(jobs, ends_ns, busy_ns + sum(minutes) // MILLI_PER_DEVICE, separation_count)


def play(case: Case, jobs: Sequence[TraceJob], cluster: str, rule: str) -> tuple[list[int], int, int]:
    """When each ended, for how long devices were busy, how many pairs were separated."""
    monitor = SharingMonitor()
    asked = scenario.Scenario("fifo", rule, costs=COSTS, interference=truth(case))
    outcome = scenario.run(jobs, clusters.parse(cluster), asked, monitor=monitor)
    assert not outcome.refused_jobs, outcome.refused_jobs[0]
    return [job.ended_ns for _, job in outcome.jobs], monitor.busy_ns(), monitor.separation_count


def result(jobs: Sequence[TraceJob], ends_ns: Sequence[int], busy_ns: int, separation_count: int) -> Result:
    makespan_ns = max(ends_ns)
    useful_ns = sum(job.duration_ns * job.utilisation_milli for job in jobs) // MILLI_PER_DEVICE
    return Result(
        makespan_ns / HOUR_NS,
        busy_ns / (GPUS * makespan_ns),
        useful_ns / (GPUS * makespan_ns),
        fmean(end_ns - job.submitted_ns for job, end_ns in zip(jobs, ends_ns, strict=True)) / HOUR_NS,
        sorted(ends_ns)[len(ends_ns) * 99 // 100] / HOUR_NS,
        separation_count,
    )


# ---- figures ----

#: of the paper (HotCloud'20), against slots
SHORTER_PERCENT, MORE_BUSY_PERCENT = 33.5, 61.5
#: the same goal when predictions are far off
SHORTER_WITH_LARGE_ERROR_PERCENT = 20
SLOTS, REACTIVE, PREDICTED = "slots, FIFO", "reactive", f"predicted (RMSLE {ERROR})"
OFF = f"predicted (RMSLE {LARGE_ERROR})"


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """The three means with all arms; then what else it depends on, at the mean of 52 %."""
    for mean in MEANS:
        yield from _arms(raw, Case(mean=mean))
    yield from _rules(raw)
    for load in (0.9, 2.0, math.inf):
        yield from _two(raw, Case(load=load))
    for jobs in ("other_day", "all"):
        yield from _two(raw, Case(jobs=jobs))
    yield from _two(raw, Case(median=0.46))
    yield from _two(raw, Case(truth="v100"))


def _arms(raw: dict[str, Any], case: Case) -> Iterator[Figure]:
    wanted = case == Case()
    base = _keep(raw, case, SLOTS, slots(case, "fifo"))
    found = {
        f"slots, {LAS}": slots(case, LAS),
        REACTIVE: reacting(case),
        PREDICTED: shared(case, ERROR),
        OFF: shared(case, LARGE_ERROR),
    }
    goals = {PREDICTED: SHORTER_PERCENT, OFF: SHORTER_WITH_LARGE_ERROR_PERCENT} if wanted else {}
    yield from _all(case, SLOTS, base)
    for arm, one in found.items():
        yield from _all(case, arm, _keep(raw, case, arm, one))
        goal = at_least(goals[arm]) if arm in goals else None
        yield Figure(ROW, f"{case}", f"{arm}: makespan, % shorter than slots", one.shorter(base), goal)
        goal = at_least(MORE_BUSY_PERCENT) if wanted and arm == PREDICTED else None
        yield Figure(ROW, f"{case}", f"{arm}: utilisation, % above slots", 100 * (one.busy / base.busy - 1), goal)
    than = found[PREDICTED].shorter(found[REACTIVE])
    yield Figure(
        ROW,
        f"{case}",
        f"{PREDICTED}: makespan, % shorter than reactive",
        than,
        above_bound(0) if wanted else None,
    )
    yield _bound(case, base)


def _all(case: Case, arm: str, one: Result) -> Iterator[Figure]:
    yield Figure(ROW, f"{case}", f"{arm}: makespan, h", one.makespan_h)
    yield Figure(ROW, f"{case}", f"{arm}: utilisation, %", 100 * one.busy)
    yield Figure(ROW, f"{case}", f"{arm}: useful, %", 100 * one.useful)
    yield Figure(ROW, f"{case}", f"{arm}: average completion time, h", one.jct_h)


def _bound(case: Case, base: Result) -> Figure:
    """No schedule ends before: some job comes so late, or runs so long."""
    end_h = max(job.submitted_ns + job.duration_ns for job in trace(case)) / HOUR_NS
    what = "the last job alone on a GPU of its own ends, % earlier than slots do: no schedule is shorter"
    return Figure(ROW, f"{case}", what, 100 * (1 - end_h / base.makespan_h))


def _rules(raw: dict[str, Any]) -> Iterator[Figure]:
    """Other limits of the sum, more jobs on a device, no predictions at all."""
    case = Case()
    base = slots(case, "fifo")
    arms = [(f"colocate({percent},2)", ERROR) for percent in (80, 100, 140, 160)]
    arms += [(rule, ERROR) for rule in ("colocate(120,3)", "colocate(140,3)", "colocate(160,4)")]
    for rule, rmsle in (*arms, (RULE, 0.0), (RULE, None)):
        error_text = "no predictions" if rmsle is None else f"RMSLE {rmsle:g}"
        arm = f"{rule}, {error_text}"
        one = _keep(raw, case, arm, shared(case, rmsle, rule))
        yield Figure(ROW, f"{case}", f"{arm}: makespan, % shorter than slots", one.shorter(base))
        yield Figure(ROW, f"{case}", f"{arm}: average completion time, h", one.jct_h)


def _two(raw: dict[str, Any], case: Case) -> Iterator[Figure]:
    """Slots against predictions."""
    base = _keep(raw, case, SLOTS, slots(case, "fifo"))
    one = _keep(raw, case, PREDICTED, shared(case, ERROR))
    yield Figure(ROW, f"{case}", f"{PREDICTED}: makespan, % shorter than slots", one.shorter(base))
    yield Figure(ROW, f"{case}", f"{PREDICTED}: utilisation, % above slots", 100 * (one.busy / base.busy - 1))
    yield Figure(ROW, f"{case}", f"{SLOTS}: average completion time, h", base.jct_h)
    yield Figure(ROW, f"{case}", f"{PREDICTED}: average completion time, h", one.jct_h)
    if case.truth != "summed":
        yield Figure(ROW, f"{case}", f"{PREDICTED}: pairs that lost and were parted", one.parted_pairs)
    yield _bound(case, base)


def _keep(raw: dict[str, Any], case: Case, arm: str, one: Result) -> Result:
    raw.setdefault(str(case), {})[arm] = asdict(one)
    return one
