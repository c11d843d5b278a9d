"""The row "colocation-limits": limits of sharing a device, chosen on other cases than those that they are judged on.

`colocate(P,N)`: together up to P % of a device by what jobs use alone, and up to N jobs. Leave one out: for each case
the limits are those that do best on all others. Makespans relative to slots decide, by their geometric mean; of those
within 1 % of the best the one with the shortest average completion time is taken. Cases have the first 600 jobs, on as
many GPUs and at the same load as the row `colocation`. Runs are kept (kept_runs.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import harness
from benchmarks.predict import colocation
from benchmarks.predict.colocation import ERROR, Case, Result
from benchmarks.predict.colocation_draw import MEANS
from benchmarks.scheduling import kept_runs
from benchmarks.scheduling.kept_runs import KeptRuns
from benchmarks.table import Figure
from vgpud.core.placement.colocate import DEFAULT_JOBS, DEFAULT_PERCENT

ROW = "colocation-limits"
COUNT = 600
#: not `other_day` with Gavel's pairs: it meets one that never ran together, which stands still for years then
CASES = (
    *(Case(jobs=jobs, mean=mean, count=COUNT) for jobs in ("day", "other_day") for mean in MEANS),
    Case(truth="v100", count=COUNT),
)
RULES = tuple(f"colocate({limits})" for limits in ("120,2", "160,2", "120,3", "140,3", "160,3", "160,4"))
SLOTS = "slots"
PRODUCT = f"colocate({DEFAULT_PERCENT},{DEFAULT_JOBS})"
MARGIN = 1.01


@dataclass(frozen=True)
class Task:
    """A case under a rule, or with a GPU for each job."""

    case: Case
    rule: str

    def __str__(self) -> str:
        return f"{self.case}; {self.rule}"


def run(task: Task) -> dict[str, float]:
    """The Result."""
    is_shared = task.rule != SLOTS
    found = colocation.shared(task.case, ERROR, task.rule) if is_shared else colocation.slots(task.case, "fifo")
    return asdict(found)


class Limits:
    """All runs of the row."""

    def __init__(self) -> None:
        self._runs = KeptRuns(harness.BUILD / f"colocation-{kept_runs.digest_sources()}.jsonl")
        self._runs.measure(run, [Task(case, rule) for rule in (SLOTS, *RULES) for case in CASES])

    def result(self, case: Case, rule: str) -> Result:
        return Result(**self._runs[Task(case, rule)])  # type: ignore[arg-type]

    def over_slots(self, rule: str, cases: Sequence[Case]) -> tuple[float, float]:
        """Makespan and average completion time, geometric means over the cases."""
        pairs = [(self.result(case, rule), self.result(case, SLOTS)) for case in cases]
        spans = [one.makespan_h / base.makespan_h for one, base in pairs]
        times = [one.jct_h / base.jct_h for one, base in pairs]
        return statistics.geometric_mean(spans), statistics.geometric_mean(times)

    def choose(self, cases: Sequence[Case]) -> str:
        """The limits that do best on these."""
        scores = {rule: self.over_slots(rule, cases) for rule in RULES}
        most = MARGIN * min(span for span, _ in scores.values())
        return min((rule for rule in RULES if scores[rule][0] <= most), key=lambda rule: scores[rule][1])


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """The chosen limits on the case that was left out, beside the product's; then each of the limits on all cases."""
    limits = Limits()
    chosen = {case: limits.choose([other for other in CASES if other is not case]) for case in CASES}
    raw["chosen"] = {str(case): rule for case, rule in chosen.items()}
    raw["chosen on all"] = limits.choose(CASES)
    for case in CASES:
        base = limits.result(case, SLOTS)
        for name, rule in (("chosen on the others", chosen[case]), (f"the product, {PRODUCT}", PRODUCT)):
            one = limits.result(case, rule)
            raw.setdefault(str(case), {})[rule] = asdict(one)
            yield Figure(ROW, f"{case}", f"{name}: makespan, % shorter than slots", one.shorter(base))
            yield Figure(ROW, f"{case}", f"{name}: utilisation, % above slots", 100 * (one.busy / base.busy - 1))
            yield Figure(ROW, f"{case}", f"{name}: average completion time, % below slots", _percent_below(one, base))
    spans = [limits.result(case, chosen[case]).makespan_h / limits.result(case, SLOTS).makespan_h for case in CASES]
    mean = 100 * (1 - statistics.geometric_mean(spans))
    yield Figure(ROW, "all, chosen on the others", "makespan, % shorter than slots, geometric mean", mean)
    for rule in RULES:
        span, time = limits.over_slots(rule, CASES)
        yield Figure(ROW, f"all, {rule}", "makespan, % shorter than slots, geometric mean", 100 * (1 - span))
        yield Figure(ROW, f"all, {rule}", "average completion time, % below slots, geometric mean", 100 * (1 - time))
    yield Figure(ROW, "all", f"the product's limits do best (1 = yes; else {raw['chosen on all']})", _is_best(raw))


def _is_best(raw: dict[str, Any]) -> int:
    return int(raw["chosen on all"] == PRODUCT)


def _percent_below(one: Result, base: Result) -> float:
    return 100 * (1 - one.jct_h / base.jct_h)
