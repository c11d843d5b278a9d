"""The row "colocation-optimum": small instances of the row `colocation`, beside the best of all schedules.

Seven jobs come at once to two GPUs. The search is exact: whenever jobs come or end it tries every way to start some of
those that wait, or none, on devices with enough memory, up to four jobs on one; no job is stopped or moved. How much
jobs slow each other down is the interference model's, which the search knows, as it knows all durations. A branch is
left where it cannot end before the best schedule so far: the longest job alone, and the most work that devices do
together, take longer. Starts cost nothing here.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.predict import colocation
from benchmarks.predict.colocation import ERROR, GIB, RULE, Case
from benchmarks.predict.colocation_draw import DEVICE_GIB
from benchmarks.predict.colocation_limits import RULES
from benchmarks.table import Figure
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate import clusters, scenario
from vgpud.simulate.interference import FULL, SUMMED, Summed
from vgpud.simulate.sharing_monitor import SharingMonitor
from vgpud.simulate.trace import TraceJob

ROW = "colocation-optimum"
JOBS, DEVICES, MOST = 7, 2, 4
INSTANCES = 12
#: states that are looked at: an instance that needs more is left out, and counted
STATES_MAX = 600_000
#: work that is left of a job that has ended, in parts of the whole
_DONE = 1e-9
#: a device's useful work is at most so much of its time: the best of the table, which holds beyond its end
USEFUL_MAX = max(most / slower for most, slower in SUMMED)

#: jobs on a device, each with the time that it would still take alone
Device = tuple[tuple[int, float], ...]


class TooLargeError(Exception):
    """The instance needs more states."""


class Search:
    """The least makespan of these jobs, in ns."""

    def __init__(self, jobs: Sequence[TraceJob], best_ns: float) -> None:
        """`best_ns`: of a schedule that is known."""
        self._jobs, self._truth = jobs, Summed()
        self._bytes = [job.spec.ask.spec.mem_min_bytes or 0 for job in jobs]
        self._speeds: dict[tuple[int, ...], list[float]] = {}
        self.best_ns = best_ns
        self.states = 0

    def run(self) -> float:
        """Raises TooLargeError."""
        self._visit(0.0, ((),) * DEVICES, tuple(range(len(self._jobs))))
        return self.best_ns

    def _visit(self, now_ns: float, devices: tuple[Device, ...], waiting: tuple[int, ...]) -> None:
        self.states += 1
        if self.states > STATES_MAX:
            raise TooLargeError
        if not waiting and not any(devices):
            self.best_ns = min(self.best_ns, now_ns)
            return
        if now_ns + self._least_ns(devices, waiting) >= self.best_ns:
            return
        for started, left in self._starts(devices, waiting):
            if any(started):
                self._visit(*self._advance(now_ns, started), left)

    def _least_ns(self, devices: tuple[Device, ...], waiting: tuple[int, ...]) -> float:
        """No schedule takes less from here on."""
        left = [*(one for device in devices for one in device), *((i, self._jobs[i].duration_ns) for i in waiting)]
        useful = sum(left_ns * self._jobs[i].utilisation_milli for i, left_ns in left) / MILLI_PER_DEVICE
        return max(max(left_ns for _, left_ns in left), useful / (DEVICES * USEFUL_MAX))

    def _starts(
        self, devices: tuple[Device, ...], waiting: tuple[int, ...]
    ) -> Iterator[tuple[tuple[Device, ...], tuple[int, ...]]]:
        """Every way to start some: those that wait on are last."""
        if not waiting:
            yield devices, ()
            return
        job, *rest = waiting
        tried = set()
        for number, device in enumerate(devices):
            used = sum(self._bytes[other] for other, _ in device) + self._bytes[job]
            if device in tried or len(device) >= MOST or used > DEVICE_GIB * GIB:
                continue
            tried.add(device)
            more = (*device, (job, float(self._jobs[job].duration_ns)))
            yield from self._starts((*devices[:number], more, *devices[number + 1 :]), tuple(rest))
        for started, left in self._starts(devices, tuple(rest)):
            yield started, (job, *left)

    def _speeds_on(self, device: Device) -> list[float]:
        there = tuple(job for job, _ in device)
        if there not in self._speeds:
            jobs = [self._jobs[job] for job in there]
            others = [[*jobs[:at], *jobs[at + 1 :]] for at in range(len(jobs))]
            speeds = [self._truth.speed(job, beside) / FULL for job, beside in zip(jobs, others, strict=True)]
            self._speeds[there] = speeds
        return self._speeds[there]

    def _advance(self, now_ns: float, devices: tuple[Device, ...]) -> tuple[float, tuple[Device, ...]]:
        """To the next end of a job."""
        speeds = [self._speeds_on(device) for device in devices]
        takes_ns = min(
            left_ns / speed
            for device, of_device in zip(devices, speeds, strict=True)
            for (_, left_ns), speed in zip(device, of_device, strict=True)
        )
        after = []
        for device, of_device in zip(devices, speeds, strict=True):
            left = [(job, left_ns - takes_ns * speed) for (job, left_ns), speed in zip(device, of_device, strict=True)]
            after.append(tuple(one for one in left if one[1] > _DONE * self._jobs[one[0]].duration_ns))
        return now_ns + takes_ns, tuple(after)


def draw(seed: int) -> list[TraceJob]:
    """Jobs of the drawn data that come at once: the same seed, the same instance."""
    jobs = random.Random(seed).sample(colocation.trace(Case(), ERROR), JOBS)
    return [replace(job, submitted_ns=0) for job in jobs]


def ours_ns(jobs: Sequence[TraceJob], rule: str) -> int:
    """The makespan under a rule, by predictions and then by what is measured."""
    asked = scenario.Scenario("fifo", rule, interference=Summed())
    outcome = scenario.run(jobs, clusters.parse(f"1x{DEVICES}"), asked, monitor=SharingMonitor())
    return max(job.ended_ns for _, job in outcome.jobs)


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """Makespans over the optimum's."""
    over: dict[str, list[float]] = {rule: [] for rule in ("slots", *RULES)}
    unsolved = 0
    for seed in range(INSTANCES):
        jobs = draw(seed)
        found = {"slots": slots_ns(jobs), **{rule: ours_ns(jobs, rule) for rule in RULES}}
        search = Search(jobs, min(found.values()))
        try:
            best_ns = search.run()
        except TooLargeError:
            unsolved += 1
            continue
        raw[f"instance {seed}"] = {"optimum": best_ns, "states": search.states, **found}
        for name, span_ns in found.items():
            over[name].append(span_ns / best_ns)
    case = f"{JOBS} jobs at once on {DEVICES} GPUs, {INSTANCES - unsolved} instances"
    yield Figure(ROW, case, "instances that were not solved", unsolved)
    for name, ratios in over.items():
        yield Figure(ROW, case, f"{name}: makespan over the optimum, geometric mean", statistics.geometric_mean(ratios))
        yield Figure(ROW, case, f"{name}: the same, worst", max(ratios))
    product = sum(ratio < 1.0005 for ratio in over[RULE])
    yield Figure(ROW, case, f"{RULE}: instances with the optimum", product)


def slots_ns(jobs: Sequence[TraceJob]) -> int:
    """A GPU is one job's."""
    outcome = scenario.run(jobs, clusters.parse(f"1x{DEVICES}"), scenario.Scenario("fifo"))
    return max(job.ended_ns for _, job in outcome.jobs)
