"""How long a job will take, by jobs like it that have ended: quantiles of their durations, by the narrowest class of
which enough are known.

A class keeps its last jobs only, and of these the older count less. A job whose time was up says that such jobs take at
least as long (Kaplan and Meier, "Nonparametric estimation from incomplete observations", J. American Statistical
Association 1958), and for the high quantile, which is to be relied upon, so does one that still runs: of new classes
the short ones have ended first. One that failed or was cancelled says nothing. One job more than were seen is reckoned
with, whose duration is beyond all: so the next one is below the quantile q with probability q however few they are
(Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005), and where that is beyond the longest,
twice that is taken.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

#: of each class so many jobs are kept, and of so many classes, the last used ones
JOBS_MAX = 32
CLASSES_MAX = 2000
#: a class with fewer says nothing, and a wider one is asked
ENOUGH = 3
#: how long jobs have run that still run is looked at so often
EVERY_NS = 60_000_000_000
#: the newest so many count twice as much as the others
HALF_JOBS = 16
LOW_PPM, MEDIAN_PPM, HIGH_PPM = 100_000, 500_000, 900_000
_PPM = 1_000_000
#: weight of the newest job
_ONE = 1 << 10


@dataclass(frozen=True, slots=True)
class Estimate:
    """Four of five such jobs take between `low_ns` and `high_ns`, as often longer as shorter than `median_ns`.

    0 = not known: too many of them ran out of time, or still run, to say so.
    """

    kind: str  # the class that it goes by
    jobs: int  # of it, that it goes by
    low_ns: int
    median_ns: int
    high_ns: int
    least_ns: int = 0  # some of them ran out of time, or still run: the longest of these takes at least so long


@dataclass(slots=True)
class _Class:
    #: (ns, whether it ended then: else its time was up), the oldest first
    seen: deque[tuple[int, bool]] = field(default_factory=lambda: deque(maxlen=JOBS_MAX))
    running: dict[int, int] = field(default_factory=dict)  # by job: when it would have begun had it run without a break
    found: Estimate | None = None  # of these
    found_ns: int = -1  # at this time


class Estimates:
    """What has been learnt. Bounded; the same jobs in the same order give the same."""

    def __init__(self) -> None:
        self._classes: OrderedDict[str, _Class] = OrderedDict()

    def learn(self, kinds: Sequence[str], ran_ns: int, *, ended: bool) -> None:
        """A job of these classes ran so long. `ended`: it was done; else its time was up."""
        for kind in kinds:
            known = self._class(kind)
            known.seen.append((ran_ns, ended))
            known.found = None

    def started(self, job_id: int, kinds: Sequence[str], begun_ns: int) -> None:
        """It runs; `begun_ns`: since then, had it run without a break."""
        for kind in kinds:
            known = self._class(kind)
            known.running[job_id] = begun_ns
            known.found = None

    def stopped(self, job_id: int, kinds: Sequence[str]) -> None:
        """It runs no longer, for whatever reason."""
        for kind in kinds:
            known = self._classes.get(kind)
            if known is not None and known.running.pop(job_id, None) is not None:
                known.found = None

    def _class(self, kind: str) -> _Class:
        """Used now."""
        known = self._classes.setdefault(kind, _Class())
        self._classes.move_to_end(kind)
        while len(self._classes) > CLASSES_MAX:
            self._classes.popitem(last=False)
        return known

    def of(self, kinds: Sequence[str], now_ns: int) -> Estimate | None:
        """`kinds`: the narrowest first. The same for all who ask within a minute in which nothing happens."""
        for kind in kinds:
            known = self._classes.get(kind)
            if known is not None and len(known.seen) >= ENOUGH:
                at_ns = now_ns - now_ns % EVERY_NS
                if known.found is None or known.found_ns != at_ns:
                    known.found, known.found_ns = _estimate(kind, known, at_ns), at_ns
                return known.found
        return None


def _estimate(kind: str, known: _Class, at_ns: int) -> Estimate:
    newest = islice(reversed(known.running.values()), JOBS_MAX)
    running = [(at_ns - begun_ns, False) for begun_ns in newest if begun_ns < at_ns]
    low_ns, median_ns = quantiles(known.seen, (LOW_PPM, MEDIAN_PPM))
    (high_ns,) = quantiles(known.seen, (HIGH_PPM,), running)
    least_ns = max((ns for ns, ended in (*known.seen, *running) if not ended), default=0)
    return Estimate(kind, len(known.seen), low_ns, median_ns, high_ns, least_ns)


def quantiles(
    seen: Collection[tuple[int, bool]], wanted_ppm: Sequence[int], running: Collection[tuple[int, bool]] = ()
) -> list[int]:
    """Of durations, oldest first, each ended or cut off; 0 = not known. `wanted_ppm` rises; `running` count as new."""
    weights = [_ONE >> age // HALF_JOBS for age in reversed(range(len(seen)))] + [_ONE] * len(running)
    known = [*seen, *running]
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
