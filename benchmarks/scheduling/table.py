"""Figures of the scheduling benchmark beside their goals, as JSON and as a Markdown table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

HEADER = ("row", "case", "figure", "value", "goal", "")


class Goal(Protocol):
    """What a figure is to be; benchmarks.sharing.table.Goal is a bound from one side."""

    def met(self, value: float) -> bool: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Near:
    """A figure that is known: the value, and how far from it is still the same."""

    wanted: float
    tolerance: float
    shown: str = ""  # how the tolerance is written

    def met(self, value: float) -> bool:
        return abs(value - self.wanted) <= self.tolerance

    def __str__(self) -> str:
        return f"{self.wanted:g} {self.shown or f'+- {self.tolerance:g}'}"


def within(wanted: float, percent: float) -> Near:
    """Within so many percent."""
    return Near(wanted, wanted * percent / 100, f"+- {percent:g} %")


def exactly(wanted: float, digits: int) -> Near:
    """As it is written with so many decimals."""
    return Near(wanted, 0.5 * 10**-digits + 1e-9, "exactly")


@dataclass(frozen=True)
class Figure:
    """One figure of one case of a row. A value that is None or not a number was not measured: its goal is missed."""

    row: str
    case: str
    what: str
    value: float | None
    goal: Goal | None = None

    @property
    def missed(self) -> bool:
        return self.goal is not None and (self.value is None or not self.goal.met(self.value))

    def as_json(self) -> dict[str, Any]:
        """The figure as the results file keeps it."""
        return {
            "case": self.case,
            "what": self.what,
            "value": self.value,
            "goal": None if self.goal is None else str(self.goal),
            "met": None if self.goal is None else not self.missed,
        }

    def cells(self) -> tuple[str, ...]:
        """The figure as a line of the table."""
        verdict = "" if self.goal is None else "**missed**" if self.missed else "met"
        value = "-" if self.value is None else f"{self.value:,.4f}".rstrip("0").rstrip(".")
        return (self.row, self.case, self.what, value, "" if self.goal is None else str(self.goal), verdict)


def line(figure: Figure) -> str:
    """One figure as a line of the Markdown table."""
    return "| " + " | ".join(figure.cells()) + " |"


def markdown(figures: Iterable[Figure]) -> str:
    """The whole table."""
    head = "| " + " | ".join(HEADER) + " |"
    rule = "|" + " --- |" * len(HEADER)
    return "\n".join([head, rule, *(line(figure) for figure in figures)])


def by_row(figures: Iterable[Figure]) -> dict[str, list[dict[str, Any]]]:
    """The figures for the results file, by row."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        rows.setdefault(figure.row, []).append(figure.as_json())
    return rows
