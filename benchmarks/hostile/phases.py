"""Figures of paired phases: the same neighbours beside an honest attacker and beside an attacking one. Pure.

Phases alternate: honest, attacking, honest, ... Shares and pauses come from the device's own log, latencies from the
benchmark's own calls. Values: shares 0..1, times in the unit that the figure's name says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.sharing.measure import share, window_shares
from vgpud.simdevice.busy_log import SECOND_NS, Span

#: a break in a tenant's device time that is shorter is the time between two launches, not another tenant's turn
PAUSE_MIN_NS = 50_000
NAN = float("nan")
MET, NOISE, MISSED = "met", "noise", "missed"
GOAL_PERCENT = 5.0


@dataclass(frozen=True)
class Phase:
    """[begin_ns, end_ns) on CLOCK_MONOTONIC, without the time in which the attack begins or ends."""

    attacking: bool
    begin_ns: int
    end_ns: int
    stolen: float = 0.0  # of the processors' time, that a virtual machine's host had

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / SECOND_NS

    def __contains__(self, time_ns: int) -> bool:
        return self.begin_ns <= time_ns < self.end_ns


@dataclass(frozen=True)
class Figure:
    """One figure of a case on one kind of host.

    goal_percent: how far the attack may move it to its owner's harm; at_most: a bound on its value, attack or not.
    """

    case: str
    host: str  # quiet or busy
    what: str
    honest: float
    attacked: float
    moved_percent: float
    spread_percent: float  # of the honest phases among themselves: a smaller movement says nothing
    more_is_worse: bool = False
    goal_percent: float | None = None
    at_most: float | None = None

    @property
    def judged(self) -> bool:
        return self.goal_percent is not None or self.at_most is not None

    @property
    def missed(self) -> bool:
        """A figure that is not a number meets no goal."""
        return self.verdict == MISSED

    @property
    def verdict(self) -> str:
        """Noise: it moved further than the goal allows, but no further than the honest phases lie apart."""
        if not self.judged:
            return ""
        if self.at_most is not None and not (self.honest <= self.at_most and self.attacked <= self.at_most):
            return MISSED
        harm = self.moved_percent if self.more_is_worse else -self.moved_percent
        if self.goal_percent is None or harm < self.goal_percent:
            return MET
        return NOISE if harm < self.spread_percent else MISSED

    @property
    def goal(self) -> str:
        parts = [] if self.goal_percent is None else [f"{'+' if self.more_is_worse else '-'}{self.goal_percent:g} %"]
        return ", ".join([*parts, *([] if self.at_most is None else [f"<= {self.at_most:g}"])])

    def as_json(self) -> dict[str, Any]:
        """The figure as the results file keeps it; numbers that are none as null."""
        return {
            "what": self.what,
            "honest": finite(self.honest),
            "attacked": finite(self.attacked),
            "moved_percent": finite(self.moved_percent),
            "spread_percent": finite(self.spread_percent),
            "goal": self.goal or None,
            "verdict": self.verdict or None,
        }

    def cells(self) -> tuple[str, ...]:
        """The figure as a line of the table."""
        verdict = f"**{MISSED}**" if self.missed else self.verdict
        moved = "-" if math.isnan(self.moved_percent) else f"{self.moved_percent:+.1f} %"
        spread = "-" if math.isnan(self.spread_percent) else f"{self.spread_percent:.1f} %"
        numbers = [_number(self.honest), _number(self.attacked), moved, spread]
        return (self.case, self.host, self.what, *numbers, self.goal, verdict)


HEADER = ("case", "host", "figure", "honest", "attacked", "moved", "honest spread", "goal", "")


def finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"


def line(cells: Sequence[str]) -> str:
    """A line of the Markdown table."""
    return "| " + " | ".join(cells) + " |"


def markdown(figures: Iterable[Figure]) -> str:
    """The whole table."""
    return "\n".join([line(HEADER), "|" + " --- |" * len(HEADER), *(line(figure.cells()) for figure in figures)])


def percent(before: float, after: float) -> float:
    """By how much `after` is more than `before`; NaN when there is nothing to compare with."""
    return (after - before) / before * 100 if before else NAN


def quantile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least this fraction of all keeps to; NaN without any."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)] if ordered else NAN


def pauses_ms(spans: Sequence[Span], phase: Phase) -> list[float]:
    """How long a tenant was off the device in the phase, each time, also up to the phase's end. Spans by begin."""
    found, at_ns = [], phase.begin_ns
    for span in [*spans, Span(phase.end_ns, phase.end_ns, 0)]:
        pause_ns = min(span.begin_ns, phase.end_ns) - at_ns
        if pause_ns >= PAUSE_MIN_NS:
            found.append(pause_ns / 1e6)
        at_ns = max(at_ns, span.end_ns)
    return found


def worst_second(spans: Sequence[Span], phase: Phase) -> float:
    """The smallest share in any second of the phase; NaN when it is shorter than a second."""
    return min(window_shares(spans, phase.begin_ns, phase.end_ns), default=NAN)


def highest(points: Sequence[tuple[int, float]], phase: Phase) -> float:
    """The largest reading (time_ns, value) of the phase; NaN without any."""
    return max((value for time_ns, value in points if time_ns in phase), default=NAN)


def best_second(spans: Sequence[Span], phase: Phase) -> float:
    """The largest share in any second of the phase; NaN when it is shorter than a second."""
    return max(window_shares(spans, phase.begin_ns, phase.end_ns), default=NAN)


def per_second(points: Sequence[tuple[int, float]], phase: Phase) -> float:
    """How fast a counter (time_ns, value) rose between its readings in the phase; NaN with fewer than two."""
    inside = [point for point in points if point[0] in phase]
    if len(inside) < 2:
        return NAN
    return (inside[-1][1] - inside[0][1]) * SECOND_NS / (inside[-1][0] - inside[0][0])


@dataclass(frozen=True)
class Judge:
    """Makes figures of one case on one kind of host out of its phases."""

    case: str
    host: str
    phases: Sequence[Phase]

    def by_phase(self, what: str, measure: Callable[[Phase], float], **goal: Any) -> Figure:
        """A figure of each phase: medians, and the median of how far each attack moved it from the phase before."""
        values = [measure(phase) for phase in self.phases]
        honest, attacked = (_of(self.phases, values, attacking) for attacking in (False, True))
        moves = [percent(before, after) for before, after in zip(honest, attacked, strict=False)]
        middle = _median(honest), _median(attacked), _median(moves)
        return Figure(self.case, self.host, what, *middle, _spread(honest), **goal)

    def pooled(self, what: str, fraction: float, values_of: Callable[[Phase], Sequence[float]], **goal: Any) -> Figure:
        """A quantile over all honest and over all attacked phases: there are too few values for one of each phase."""
        values = [list(values_of(phase)) for phase in self.phases]
        honest, attacked = (
            quantile([value for some in _of(self.phases, values, attacking) for value in some], fraction)
            for attacking in (False, True)
        )
        spread = _spread([quantile(some, fraction) for some in _of(self.phases, values, False)])
        return Figure(self.case, self.host, what, honest, attacked, percent(honest, attacked), spread, **goal)

    def total(self, what: str, measure: Callable[[Phase], float], **goal: Any) -> Figure:
        """A sum over all honest and over all attacked phases."""
        values = [measure(phase) for phase in self.phases]
        honest, attacked = (float(sum(_of(self.phases, values, attacking))) for attacking in (False, True))
        return Figure(self.case, self.host, what, honest, attacked, NAN, NAN, more_is_worse=True, **goal)

    def share(self, what: str, spans: Sequence[Span], **goal: Any) -> Figure:
        """Of the device, over the whole of each phase."""
        return self.by_phase(what, lambda p: share(spans, p.begin_ns, p.end_ns), **goal)

    def shares(self, name: str, maximum: float, spans: Sequence[Span]) -> list[Figure]:
        """What the attack does to a victim, which must not exceed its maximum either."""
        most = round(maximum * (1 + GOAL_PERCENT / 100), 4)
        return [
            self.share(f"{name}: share", spans, goal_percent=GOAL_PERCENT, at_most=most),
            self.by_phase(f"{name}: worst second", lambda p: worst_second(spans, p)),
            self.by_phase(f"{name}: best second", lambda p: best_second(spans, p)),
            self.pooled(f"{name}: pause p50, ms", 0.50, lambda p: pauses_ms(spans, p), more_is_worse=True),
            self.pooled(
                f"{name}: pause p99, ms",
                0.99,
                lambda p: pauses_ms(spans, p),
                more_is_worse=True,
                goal_percent=GOAL_PERCENT,
            ),
        ]

    def latencies(
        self, name: str, points: Sequence[tuple[int, float]], goal_percent: float = GOAL_PERCENT
    ) -> list[Figure]:
        """What the attack does to a neighbour's calls: points are (time_ns of the call, ms that it took)."""

        def values(phase: Phase) -> list[float]:
            return [ms for time_ns, ms in points if time_ns in phase]

        return [
            self.pooled(f"{name} p50, ms", 0.50, values, more_is_worse=True),
            self.pooled(f"{name} p99, ms", 0.99, values, more_is_worse=True, goal_percent=goal_percent),
        ]

    def rate(self, what: str, points: Sequence[tuple[int, float]], **goal: Any) -> Figure:
        """How fast a counter rises."""
        return self.by_phase(what, lambda p: per_second(points, p), more_is_worse=True, **goal)


def _of(phases: Sequence[Phase], values: Sequence[Any], attacking: bool) -> list[Any]:
    return [value for phase, value in zip(phases, values, strict=True) if phase.attacking is attacking]


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else NAN


def _spread(values: Sequence[float]) -> float:
    """How far values that should be equal lie apart, in percent of their median."""
    known = [value for value in values if not math.isnan(value)]
    return NAN if len(known) < 2 or not median(known) else (max(known) - min(known)) / median(known) * 100
