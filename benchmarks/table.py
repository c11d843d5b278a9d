"""Measured figures beside their goals: what every benchmark prints, and what its result keeps of each figure.

A figure belongs to a row (what ran) and a case of it; its name ends with its unit, as in `p99, ms`. Benchmarks of a
few figures print each with judge(); those of many rows show all as one Markdown table. Pure, except for judge().
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

MET, MISSED = "met", "missed"
_COMPARISONS = {"<": operator.lt, "<=": operator.le, ">=": operator.ge, ">": operator.gt}


# ---- goals ----


class Goal(Protocol):
    """What a figure is to be. A value that is not a number (nothing was measured) meets no goal."""

    def is_met_by(self, value: float) -> bool: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Bound:
    """A bound from one side."""

    sign: str
    bound: float

    def is_met_by(self, value: float) -> bool:
        return bool(_COMPARISONS[self.sign](value, self.bound))

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}"


def at_most(bound: float) -> Bound:
    return Bound("<=", bound)


def at_least(bound: float) -> Bound:
    return Bound(">=", bound)


def below_bound(bound: float) -> Bound:
    return Bound("<", bound)


def above_bound(bound: float) -> Bound:
    return Bound(">", bound)


@dataclass(frozen=True)
class Near:
    """A figure that is known: the value, how far from it is still the same, and both in words."""

    target: float
    tolerance: float
    text: str

    def is_met_by(self, value: float) -> bool:
        return abs(value - self.target) <= self.tolerance

    def __str__(self) -> str:
        return self.text


def near(target: float, tolerance: float) -> Near:
    return Near(target, tolerance, f"{target:g} +- {tolerance:g}")


def near_percent(target: float, percent: float) -> Near:
    """Within so many percent of it."""
    return Near(target, target * percent / 100, f"{target:g} +- {percent:g} %")


def equal_to(target: float) -> Near:
    return Near(target, 0, f"= {target:g}")


def equal_to_decimals(target: float, decimals: int) -> Near:
    """As it is written with so many decimals."""
    return Near(target, 0.5 * 10**-decimals + 1e-9, f"{target:g} exactly")


#: of a figure that is 0 or 1
YES = Near(1, 0, "1 = yes")


# ---- figures ----


@dataclass(frozen=True)
class Figure:
    """One figure of one case of a row. A value that is None or not a number was not measured: its goal is missed.

    Benchmarks that measure more than one value of a figure have subclasses with these values.
    """

    row: str
    case: str
    what: str
    value: float | None
    goal: Goal | None = None

    HEADER: ClassVar[tuple[str, ...]] = ("row", "case", "figure", "value", "goal", "")

    @property
    def verdict(self) -> str:
        """MET, MISSED, or a subclass' word for why it is not judged; empty without a goal."""
        if self.goal is None:
            return ""
        return MET if self.value is not None and self.goal.is_met_by(self.value) else MISSED

    @property
    def is_missed(self) -> bool:
        return self.verdict == MISSED

    @property
    def is_judged(self) -> bool:
        return self.verdict in (MET, MISSED)

    def values(self) -> dict[str, float | None]:
        """What was measured, as the results file keeps it."""
        return {"value": self.value}

    def value_cells(self) -> tuple[str, ...]:
        """What was measured, as the table shows it: between the figure's name and its goal."""
        return (format_number(self.value),)

    def as_json(self) -> dict[str, Any]:
        """The figure as the results file keeps it."""
        return {
            "case": self.case,
            "what": self.what,
            **self.values(),
            "goal": None if self.goal is None else str(self.goal),
            "met": not self.is_missed if self.is_judged else None,
        }

    def cells(self) -> tuple[str, ...]:
        """The figure as a line of the table."""
        verdict = f"**{MISSED}**" if self.is_missed else self.verdict
        goal = "" if self.goal is None else str(self.goal)
        return (self.row, self.case, self.what, *self.value_cells(), goal, verdict)


def format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4f}".rstrip("0").rstrip(".")


def by_row(figures: Iterable[Figure]) -> dict[str, list[dict[str, Any]]]:
    """The figures for the results file, by row."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        rows.setdefault(figure.row, []).append(figure.as_json())
    return rows


def goals_of(figures: Iterable[Figure]) -> dict[str, str]:
    """The goals for the results file, by figure."""
    return {f"{one.row} {one.case}: {one.what}": str(one.goal) for one in figures if one.goal}


def count_met(figures: Sequence[Figure]) -> str:
    """How many goals were met, in words."""
    judged = [figure for figure in figures if figure.is_judged]
    others = sum(figure.goal is not None for figure in figures) - len(judged)
    counts = f"{sum(not figure.is_missed for figure in judged)} of {len(judged)} goals met"
    return f"{counts}, {others} not judged" if others else counts


# ---- what is printed ----


def format_line(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def format_table(header: Sequence[str], rows: Iterable[Iterable[str]] = ()) -> str:
    """A Markdown table."""
    return "\n".join([format_line(header), "|" + " --- |" * len(header), *map(format_line, rows)])


def format_figures(figures: Sequence[Figure]) -> str:
    """The whole table of figures, which are all of one class."""
    return format_table(figures[0].HEADER, (figure.cells() for figure in figures))


def judge(what: str, value: float, goal: Goal) -> bool:
    """Prints a figure beside its goal. Returns whether the goal is met."""
    is_met = goal.is_met_by(value)
    print(f"  {what:<58} {value:>12,.3f}   goal {goal!s:<10} {MET if is_met else MISSED.upper()}", flush=True)
    return is_met
