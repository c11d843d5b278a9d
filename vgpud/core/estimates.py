"""Estimated durations of jobs: quantiles over similar jobs that have ended, by the narrowest similarity class
(core/jobs/similarity.py) with enough of them.

A class keeps its last jobs only, and older ones count less. A job that ran out of its time limit says that such jobs
take at least as long (Kaplan and Meier, "Nonparametric estimation from incomplete observations", J. American
Statistical Association 1958). For the high quantile, which must be reliable, so does a job that still runs: of new
classes the short jobs end first. Failed and cancelled jobs are ignored.

One more job than were seen is assumed, with a duration beyond all others: so the next job is below the quantile q with
probability q however few were seen (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005). Where
that is beyond the longest job, twice its duration is taken.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

#: jobs kept of each class, and classes kept (the last used ones)
JOBS_MAX = 32
CLASSES_MAX = 2000
#: a class with fewer jobs is not used; a wider one is asked
ENOUGH = 3
#: running times of jobs are taken into account in steps of this
EVERY_NS = 60_000_000_000
#: the newest so many jobs count twice as much as those before
HALF_JOBS = 16
LOW_PPM, MEDIAN_PPM, HIGH_PPM = 100_000, 500_000, 900_000
_PPM = 1_000_000
#: weight of the newest job
_ONE = 1 << 10


@dataclass(frozen=True, slots=True)
class Estimate:
    """Four of five such jobs take between `low_ns` and `high_ns`; half of them take longer than `median_ns`.

    0 = not known: too many of them ran out of time, or still run.
    """

    class_name: str  # the similarity class that it is computed from
    jobs: int  # jobs that it is computed from
    low_ns: int
    median_ns: int
    high_ns: int
    least_ns: int = 0  # least duration of the longest job that ran out of time or still runs


@dataclass(slots=True)
class _Class:
    #: (ns, whether it ended then: else its time was up), the oldest first
    durations: deque[tuple[int, bool]] = field(default_factory=lambda: deque(maxlen=JOBS_MAX))
    running: dict[int, int] = field(default_factory=dict)  # job -> begin, had it run without interruption
    estimate: Estimate | None = None  # of these
    found_ns: int = -1  # at this time


class Estimates:
    """Learns from jobs that run and end. Bounded; the same jobs in the same order give the same estimates."""

    def __init__(self) -> None:
        self._classes: OrderedDict[str, _Class] = OrderedDict()

    def learn(self, classes: Sequence[str], ran_ns: int, *, has_completed: bool) -> None:
        """A job of these classes ran for `ran_ns`. `has_completed`: it was done; else its time limit was reached."""
        for class_name in classes:
            known = self._class(class_name)
            known.durations.append((ran_ns, has_completed))
            known.estimate = None

    def add_running_job(self, job_id: int, classes: Sequence[str], begun_ns: int) -> None:
        """A job runs. `begun_ns`: when it would have begun, had it run without interruption."""
        for class_name in classes:
            known = self._class(class_name)
            known.running[job_id] = begun_ns
            known.estimate = None

    def remove_running_job(self, job_id: int, classes: Sequence[str]) -> None:
        """A job no longer runs, for whatever reason."""
        for class_name in classes:
            known = self._classes.get(class_name)
            if known is not None and known.running.pop(job_id, None) is not None:
                known.estimate = None

    def _class(self, class_name: str) -> _Class:
        """Used now."""
        known = self._classes.setdefault(class_name, _Class())
        self._classes.move_to_end(class_name)
        while len(self._classes) > CLASSES_MAX:
            self._classes.popitem(last=False)
        return known

    def of(self, classes: Sequence[str], now_ns: int) -> Estimate | None:
        """`classes`: the narrowest first. The same answer for all callers within a minute in which nothing happens."""
        for class_name in classes:
            known = self._classes.get(class_name)
            if known is not None and len(known.durations) >= ENOUGH:
                at_ns = now_ns - now_ns % EVERY_NS
                if known.estimate is None or known.found_ns != at_ns:
                    known.estimate, known.found_ns = _estimate(class_name, known, at_ns), at_ns
                return known.estimate
        return None


def _estimate(class_name: str, job_class: _Class, at_ns: int) -> Estimate:
    newest = islice(reversed(job_class.running.values()), JOBS_MAX)
    running = [(at_ns - begun_ns, False) for begun_ns in newest if begun_ns < at_ns]
    low_ns, median_ns = quantiles(job_class.durations, (LOW_PPM, MEDIAN_PPM))
    (high_ns,) = quantiles(job_class.durations, (HIGH_PPM,), running)
    least_ns = max((ns for ns, ended in (*job_class.durations, *running) if not ended), default=0)
    return Estimate(class_name, len(job_class.durations), low_ns, median_ns, high_ns, least_ns)


def quantiles(
    durations: Collection[tuple[int, bool]], wanted_ppm: Sequence[int], running: Collection[tuple[int, bool]] = ()
) -> list[int]:
    """Quantiles of `durations`: oldest first, each ended or cut off; `wanted_ppm` rises; `running` count as new.

    0 = not known.
    """
    weights = [_ONE >> age // HALF_JOBS for age in reversed(range(len(durations)))] + [_ONE] * len(running)
    known = [*durations, *running]
    order = sorted(range(len(known)), key=lambda at: (known[at][0], not known[at][1]))
    at_risk = sum(weights) + _ONE  # with the one that takes longer than all
    beyond = _PPM << 20  # part of the jobs that take longer, in ppm << 20
    found: list[int] = []
    for at in order:
        ns, ended = known[at]
        if ended:
            beyond = beyond * (at_risk - weights[at]) // at_risk
        at_risk -= weights[at]
        while len(found) < len(wanted_ppm) and beyond <= (_PPM - wanted_ppm[len(found)]) << 20:
            found.append(ns)
    longest_ns, ended = known[order[-1]]
    return found + [2 * longest_ns if ended else 0] * (len(wanted_ppm) - len(found))
