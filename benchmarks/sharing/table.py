"""Figures of the sharing benchmark beside their goals, as JSON and as a Markdown table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.sharing.measure import STOLEN_JUDGED, WorstWindow
from benchmarks.sharing.plain import WAYS

HEADER = ("row", "case", "figure", *WAYS, "stolen", "goal", "")


@dataclass(frozen=True)
class Goal:
    """A bound that a figure is to keep to, from above (at_most) or from below."""

    bound: float
    at_most: bool = True

    def met(self, value: float) -> bool:
        """A figure that is not a number (nothing was measured) meets no goal."""
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.bound:g}"


@dataclass(frozen=True)
class Figure:
    """One figure of one case of a row. Values: None where a condition says nothing or was not run; the goal is ours.

    stolen: which part of the processors' time the host took while our figure was measured, 0..1. Above STOLEN_JUDGED
    the figure is shown and not judged. beyond: a worse value from such a time, and what was stolen then.
    """

    row: str
    case: str
    what: str
    unhooked: float | None
    arbiter: float | None
    goal: Goal | None = None
    fixed: float | None = None
    rate: float | None = None
    stolen: float | None = None
    beyond: tuple[float, float] | None = None

    @property
    def judged(self) -> bool:
        """Whether there is a goal, and the machine had its processors while the figure was measured."""
        return self.goal is not None and (self.stolen or 0.0) <= STOLEN_JUDGED

    @property
    def missed(self) -> bool:
        """Whether it is judged and our arbiter is not known to meet the goal."""
        if self.goal is None or not self.judged:
            return False
        return self.arbiter is None or not self.goal.met(self.arbiter)

    def as_json(self) -> dict[str, Any]:
        """The figure as the results file keeps it."""
        return {
            "case": self.case,
            "what": self.what,
            "unhooked": self.unhooked,
            "arbiter": self.arbiter,
            "fixed": self.fixed,
            "rate": self.rate,
            "goal": None if self.goal is None else str(self.goal),
            "met": not self.missed if self.judged else None,
            "stolen": self.stolen,
            "beyond": self.beyond,
        }

    def cells(self) -> tuple[str, ...]:
        """The figure as a line of the table."""
        verdict = (
            "" if self.goal is None else "not judged" if not self.judged else "**missed**" if self.missed else "met"
        )
        goal = "" if self.goal is None else str(self.goal)
        numbers = map(_number, (self.unhooked, self.arbiter, self.fixed, self.rate))
        return (self.row, self.case, self.what, *numbers, self._theft(), goal, verdict)

    def _theft(self) -> str:
        if self.stolen is None:
            return "-"
        worse = f", {self.beyond[0]:.2f} at {self.beyond[1]:.0%}" if self.beyond else ""
        return f"{self.stolen:.0%}{worse}"


def compared(row: str, case: str, what: str, got: Iterable[float | None], goal: Goal | None = None) -> Figure:
    """A figure of several conditions; got: without a hook, under our arbiter, and in the plain ways if they ran."""
    unhooked, arbiter, *plain = got
    fixed, rate = plain or (None, None)
    return Figure(row, case, what, unhooked, arbiter, goal, fixed, rate)


def with_window(figure: Figure, worst: WorstWindow) -> Figure:
    """The figure with our arbiter's worst window, and what was stolen in it."""
    return replace(figure, arbiter=worst.value, stolen=worst.stolen, beyond=worst.beyond)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


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
