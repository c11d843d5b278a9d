"""Figures of paired phases: the same neighbours beside an honest attacker and beside an attacking one. Pure.

Phases alternate: honest, attacking, honest, ... Shares and pauses come from the device's own log, latencies from the
benchmark's own calls. Values: shares 0..1, times in the unit that the figure's name says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.sharing.measure import share, window_shares
from benchmarks.table import MET, MISSED, Figure
from vgpud.simdevice.busy_log import SECOND_NS, Span

#: a break in a tenant's device time that is shorter is the time between two launches, not another tenant's turn
PAUSE_MIN_NS = 50_000
NAN = float("nan")
NOISE = "noise"
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
class Harm:
    """How far an attack may move a figure to its owner's harm, and a bound on its value, attack or not."""

    percent: float | None = None
    at_most: float | None = None
    more_is_worse: bool = False

    def is_met_by(self, value: float) -> bool:
        """As far as the value itself says."""
        return self.at_most is None or value <= self.at_most

    def __str__(self) -> str:
        moved = [] if self.percent is None else [f"{'+' if self.more_is_worse else '-'}{self.percent:g} %"]
        return ", ".join([*moved, *([] if self.at_most is None else [f"<= {self.at_most:g}"])])


@dataclass(frozen=True)
class PhaseFigure(Figure):
    """One figure of a case (the row) on one kind of host (its case). `value` is that of the attacking phases."""

    goal: Harm | None = None
    honest: float = NAN
    moved_percent: float = NAN
    spread_percent: float = NAN  # of the honest phases among themselves: a smaller movement says nothing

    HEADER = ("case", "host", "figure", "honest", "attacked", "moved", "honest spread", "goal", "")

    @property
    def verdict(self) -> str:
        """Noise: it moved further than the goal allows, but no further than the honest phases lie apart."""
        goal = self.goal
        if not goal or self.value is None:
            return super().verdict
        if not (goal.is_met_by(self.honest) and goal.is_met_by(self.value)):
            return MISSED
        harm = self.moved_percent if goal.more_is_worse else -self.moved_percent
        if goal.percent is None or harm < goal.percent:
            return MET
        return NOISE if harm < self.spread_percent else MISSED

    def values(self) -> dict[str, float | None]:
        """Numbers that are none as null."""
        numbers = {"honest": self.honest, "attacked": self.value}
        numbers |= {"moved_percent": self.moved_percent, "spread_percent": self.spread_percent}
        return {name: _finite(value) for name, value in numbers.items()}

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "verdict": self.verdict or None}

    def value_cells(self) -> tuple[str, ...]:
        moved = "-" if math.isnan(self.moved_percent) else f"{self.moved_percent:+.1f} %"
        spread = "-" if math.isnan(self.spread_percent) else f"{self.spread_percent:.1f} %"
        return (_number(self.honest), _number(self.value), moved, spread)


def _finite(value: float | None) -> float | None:
    return round(value, 6) if value is not None and math.isfinite(value) else None


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4g}"


def percent(base: float, after: float) -> float:
    """By how much `after` is more than `base`; NaN when there is nothing to compare with."""
    return (after - base) / base * 100 if base else NAN


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

    def by_phase(self, what: str, measure: Callable[[Phase], float], goal: Harm | None = None) -> PhaseFigure:
        """A figure of each phase: medians, and the median of how far each attack moved it from the phase before."""
        values = [measure(phase) for phase in self.phases]
        honest, attacked = (_of(self.phases, values, attacking) for attacking in (False, True))
        moves = [percent(before, after) for before, after in zip(honest, attacked, strict=False)]
        middle = _median(honest), _median(moves), _spread(honest)
        return PhaseFigure(self.case, self.host, what, _median(attacked), goal, *middle)

    def pool(
        self, what: str, fraction: float, values_of: Callable[[Phase], Sequence[float]], goal: Harm | None = None
    ) -> PhaseFigure:
        """A quantile over all honest and over all attacked phases: there are too few values for one of each phase."""
        values = [list(values_of(phase)) for phase in self.phases]
        honest, attacked = (
            quantile([value for some in _of(self.phases, values, attacking) for value in some], fraction)
            for attacking in (False, True)
        )
        spread = _spread([quantile(some, fraction) for some in _of(self.phases, values, False)])
        return PhaseFigure(self.case, self.host, what, attacked, goal, honest, percent(honest, attacked), spread)

    def total(self, what: str, measure: Callable[[Phase], float], goal: Harm | None = None) -> PhaseFigure:
        """A sum over all honest and over all attacked phases."""
        values = [measure(phase) for phase in self.phases]
        honest, attacked = (float(sum(_of(self.phases, values, attacking))) for attacking in (False, True))
        return PhaseFigure(self.case, self.host, what, attacked, goal, honest)

    def share(self, what: str, spans: Sequence[Span], goal: Harm | None = None) -> PhaseFigure:
        """Of the device, over the whole of each phase."""
        return self.by_phase(what, lambda p: share(spans, p.begin_ns, p.end_ns), goal)

    def shares(self, name: str, maximum: float, spans: Sequence[Span]) -> list[PhaseFigure]:
        """What the attack does to a victim, which must not exceed its maximum either."""
        most = round(maximum * (1 + GOAL_PERCENT / 100), 4)
        longer = Harm(GOAL_PERCENT, more_is_worse=True)
        return [
            self.share(f"{name}: share", spans, Harm(GOAL_PERCENT, most)),
            self.by_phase(f"{name}: worst second", lambda p: worst_second(spans, p)),
            self.by_phase(f"{name}: best second", lambda p: best_second(spans, p)),
            self.pool(f"{name}: pause p50, ms", 0.50, lambda p: pauses_ms(spans, p)),
            self.pool(f"{name}: pause p99, ms", 0.99, lambda p: pauses_ms(spans, p), longer),
        ]

    def latencies(
        self, name: str, points: Sequence[tuple[int, float]], goal_percent: float = GOAL_PERCENT
    ) -> list[PhaseFigure]:
        """What the attack does to a neighbour's calls: points are (time_ns of the call, ms that it took)."""

        def values(phase: Phase) -> list[float]:
            return [ms for time_ns, ms in points if time_ns in phase]

        return [
            self.pool(f"{name} p50, ms", 0.50, values),
            self.pool(f"{name} p99, ms", 0.99, values, Harm(goal_percent, more_is_worse=True)),
        ]

    def rate(self, what: str, points: Sequence[tuple[int, float]]) -> PhaseFigure:
        """How fast a counter rises."""
        return self.by_phase(what, lambda p: per_second(points, p))


def _of(phases: Sequence[Phase], values: Sequence[Any], attacking: bool) -> list[Any]:
    return [value for phase, value in zip(phases, values, strict=True) if phase.attacking is attacking]


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else NAN


def _spread(values: Sequence[float]) -> float:
    """How far values that should be equal lie apart, in percent of their median."""
    known = [value for value in values if not math.isnan(value)]
    return NAN if len(known) < 2 or not median(known) else (max(known) - min(known)) / median(known) * 100
