"""The order of new queues, which learns from the queue's jobs, judged on traces that its numbers were not chosen on.

Leave one trace out: for each trace the setting is the one that does best on the others and on two copies of each
(perturbed.py), at two costs of resuming. Average completion times, relative to a Gittins table known beforehand (the
distribution of the very jobs that come), decide by their geometric mean; of those within 1 % of the best the setting
with the fewest preemptions is taken. The trace and copies of it are then run with that setting, at all costs of
resuming: twelve copies, or in the row `learnt-short` two. A trial of 0 is not among the settings: without one the order
can lock up, whatever the traces say.

Runs are kept in build/bench as they end (kept_runs.py): the row continues where it was interrupted, and from
what the short one has run.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from benchmarks import harness
from benchmarks.scheduling import kept_runs, perturbed
from benchmarks.scheduling.kept_runs import KeptRuns
from benchmarks.scheduling.policies import TIRESIAS
from benchmarks.scheduling.traces import ALL, Trace, load
from benchmarks.table import Figure, at_most
from vgpud.core.jobs.model import GPU_SECOND, SECOND_NS
from vgpud.core.policy import registry
from vgpud.core.policy.base import Policy
from vgpud.core.policy.gittins import Gittins
from vgpud.core.policy.learnt_gittins import DEFAULT_TUNING, LearntGittins, Tuning
from vgpud.simulate import clusters, scenario
from vgpud.simulate.engine import Costs
from vgpud.simulate.results import figures
from vgpud.simulate.trace import TraceJob

#: what it costs to resume, in seconds; those at which settings are chosen
RESUME_S = (0, 30, 60, 300)
CHOOSING_S = (0, 60)
#: on which copies, None: the trace itself; and how far from the best a setting with fewer preemptions may be
CHOOSING_SEEDS = (None, 0, 1)
MARGIN = 1.01
#: copies of the short row: those on which settings are chosen, so that hardly anything else is run
FEW_COPIES = 2
#: besides the default: one number changed at a time
SETTINGS = (
    DEFAULT_TUNING,
    *(replace(DEFAULT_TUNING, trial=seconds) for seconds in (600, 1800)),
    *(replace(DEFAULT_TUNING, running_ppm=ppm) for ppm in (500_000, 1_000_000)),
    *(replace(DEFAULT_TUNING, prior_jobs=jobs) for jobs in (3, 20)),
    *(replace(DEFAULT_TUNING, size_jobs=jobs) for jobs in (5, 10, 20)),
    replace(DEFAULT_TUNING, kept_ppm=1_000_000),
)
KNOWN = "Gittins table known beforehand"
KNOWN_MAX, LAS_MAX, PREEMPTIONS_MAX = 1.05, 1.15, 1.35


@dataclass(frozen=True)
class Result:
    """Of one run."""

    mean_s: float
    preemptions: float


@dataclass(frozen=True)
class Case:
    """`seed`: of a perturbed copy; None: the trace itself."""

    trace: Trace
    seed: int | None
    resume_s: int

    def jobs(self) -> Sequence[TraceJob]:
        return load(self.trace) if self.seed is None else perturbed.copy(self.trace, self.seed)


@dataclass(frozen=True)
class Task:
    """A case under the learnt order with this setting, under TIRESIAS, or by the KNOWN table."""

    case: Case
    order: Tuning | str

    def __str__(self) -> str:
        case = self.case
        return f"{case.trace.name} on {case.trace.cluster}, copy {case.seed}, {case.resume_s} s, {self.order}"


class Judgement:
    """A row: so many copies."""

    def __init__(self, name: str, copies: int) -> None:
        self._name, self._copies = name, copies
        self._runs = KeptRuns(harness.BUILD / f"learnt-{kept_runs.digest_sources()}.jsonl")

    def figures(self, raw: dict[str, Any]) -> Iterator[Figure]:
        self._measure(_choosing_cases(ALL), SETTINGS)
        choices = {trace: self._choose([other for other in ALL if other is not trace]) for trace in ALL}
        raw["settings"] = {trace.name: str(tuning) for trace, tuning in choices.items()}
        own = self._choose(ALL)
        raw["setting of the product"] = str(own)
        yield Figure(self._name, "all traces", "settings that do better than the product's", int(own != DEFAULT_TUNING))
        for tuning in SETTINGS:
            over_table, preemptions = self._score(tuning, ALL)
            raw[str(tuning)] = {"over the table": over_table, "preemptions": preemptions}
        for resume_s in RESUME_S:
            yield from self._judge(choices, resume_s, raw)

    def _measure(self, cases: Sequence[Case], tunings: Sequence[Tuning]) -> None:
        orders: tuple[Tuning | str, ...] = (TIRESIAS, KNOWN, *tunings)
        self._runs.measure(play, [Task(case, order) for case in cases for order in orders])

    def _result(self, case: Case, order: Tuning | str) -> Result:
        return Result(**self._runs[Task(case, order)])

    def _choose(self, traces: Sequence[Trace]) -> Tuning:
        """The setting that does best on these."""
        scores = {tuning: self._score(tuning, traces) for tuning in SETTINGS}
        most = MARGIN * min(over_table for over_table, _ in scores.values())
        return min(
            (tuning for tuning, (over_table, _) in scores.items() if over_table <= most), key=lambda one: scores[one][1]
        )

    def _score(self, tuning: Tuning, traces: Sequence[Trace]) -> tuple[float, float]:
        """On these traces and their copies: average completion over that under the table, geometric mean; preemptions
        over those of 2D-LAS."""
        cases = _choosing_cases(traces)
        found, las, table = self._all(cases, tuning), self._all(cases, TIRESIAS), self._all(cases, KNOWN)
        over_table = [one.mean_s / other.mean_s for one, other in zip(found, table, strict=True)]
        return statistics.geometric_mean(over_table), _preemptions(found, las)

    def _all(self, cases: Sequence[Case], order: Tuning | str) -> list[Result]:
        return [self._result(case, order) for case in cases]

    def _judge(self, choices: dict[Trace, Tuning], resume_s: int, raw: dict[str, Any]) -> Iterator[Figure]:
        """At one cost of resuming."""
        name, case_name = self._name, f"resuming costs {resume_s} s"
        by_trace, all_found, all_las, worst = [], [], [], 0.0
        for trace, tuning in choices.items():
            cases = [Case(trace, seed, resume_s) for seed in (None, *range(self._copies))]
            self._measure(cases, [tuning])
            found, las, table = self._all(cases, tuning), self._all(cases, TIRESIAS), self._all(cases, KNOWN)
            over_table = [one.mean_s / other.mean_s for one, other in zip(found, table, strict=True)]
            over_las = [one.mean_s / other.mean_s for one, other in zip(found, las, strict=True)]
            raw[f"{trace.name}, {resume_s} s"] = {"over the table": over_table, "over 2D-LAS": over_las}
            by_trace.append(statistics.geometric_mean(over_table))
            worst = max(worst, *over_las)
            all_found += found
            all_las += las
            yield Figure(name, f"{trace.name}, {case_name}", f"over {KNOWN}", by_trace[-1])
            yield Figure(name, f"{trace.name}, {case_name}", f"over {TIRESIAS}, worst copy", max(over_las))
        mean = statistics.geometric_mean(by_trace)
        yield Figure(name, case_name, f"over {KNOWN}, geometric mean of traces", mean, at_most(KNOWN_MAX))
        yield Figure(name, case_name, f"over {TIRESIAS}, worst copy of any trace", worst, at_most(LAS_MAX))
        times = _preemptions(all_found, all_las)
        yield Figure(name, case_name, f"preemptions, times those of {TIRESIAS}", times, at_most(PREEMPTIONS_MAX))


def row(raw: dict[str, Any]) -> Iterator[Figure]:
    """Twelve copies."""
    yield from Judgement("learnt", perturbed.COPIES).figures(raw)


def short_row(raw: dict[str, Any]) -> Iterator[Figure]:
    """Two copies."""
    yield from Judgement("learnt-short", FEW_COPIES).figures(raw)


def _choosing_cases(traces: Sequence[Trace]) -> list[Case]:
    return [Case(trace, seed, resume_s) for trace in traces for seed in CHOOSING_SEEDS for resume_s in CHOOSING_S]


def _preemptions(results: Iterable[Result], las: Iterable[Result]) -> float:
    """Of all runs together: on some traces 2D-LAS preempts no job."""
    return sum(one.preemptions for one in results) / max(1, sum(one.preemptions for one in las))


def play(task: Task) -> dict[str, float]:
    """The Result of a run. GPUs are counted."""
    case = task.case
    jobs = case.jobs()
    costs = Costs(resume_ns=case.resume_s * SECOND_NS)
    asked = scenario.Scenario(placement=scenario.COUNT, costs=costs)
    make = functools.partial(_make, task.order, jobs)
    found = figures(scenario.run(jobs, clusters.parse(case.trace.cluster), asked, make=make))
    return {"mean_s": found.jct_s.mean, "preemptions": found.preemptions}


def _make(order: Tuning | str, jobs: Sequence[TraceJob], _name: str) -> Policy:
    if isinstance(order, Tuning):
        return LearntGittins("learnt", by_width=True, tuning=order)
    if order != KNOWN:
        return registry.make(order)
    needed = [Fraction(job.duration_ns * job.spec.width_milli, GPU_SECOND) for job in jobs]
    return Gittins(KNOWN, by_width=True, table=needed)
