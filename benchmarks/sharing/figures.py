"""Figures of the sharing benchmark: under our arbiter, without a hook, and in plain ways. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.sharing.measure import STOLEN_JUDGED, WorstWindow
from benchmarks.sharing.plain import WAYS
from benchmarks.table import Figure, Goal

NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class SharingFigure(Figure):
    """`value` is our arbiter's, as is the goal. None where another condition says nothing or was not run.

    stolen: which part of the processors' time the host took while our figure was measured, 0..1. Above STOLEN_JUDGED
    the figure is shown and not judged. worse_window: a worse value from such a time, and what was stolen then.
    """

    unhooked_value: float | None = None
    fixed_value: float | None = None
    rate_value: float | None = None
    stolen: float | None = None
    worse_window: tuple[float, float] | None = None

    HEADER = ("row", "case", "figure", *WAYS, "stolen", "goal", "")

    @property
    def verdict(self) -> str:
        """Figures from times in which the machine did not have its processors are not judged."""
        return NOT_JUDGED if self.goal and (self.stolen or 0.0) > STOLEN_JUDGED else super().verdict

    def values(self) -> dict[str, float | None]:
        return {
            "unhooked": self.unhooked_value,
            "arbiter": self.value,
            "fixed": self.fixed_value,
            "rate": self.rate_value,
        }

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "stolen": self.stolen, "beyond": self.worse_window}

    def value_cells(self) -> tuple[str, ...]:
        numbers = ("-" if value is None else f"{value:.2f}" for value in self.values().values())
        return (*numbers, self._stolen_cell())

    def _stolen_cell(self) -> str:
        if self.stolen is None:
            return "-"
        worse = f", {self.worse_window[0]:.2f} at {self.worse_window[1]:.0%}" if self.worse_window else ""
        return f"{self.stolen:.0%}{worse}"


def compare(row: str, case: str, what: str, values: Iterable[float | None], goal: Goal | None = None) -> SharingFigure:
    """A figure of several conditions: without a hook, under our arbiter, and in the plain ways if they ran."""
    unhooked, arbiter, *plain = values
    fixed, rate = plain or (None, None)
    return SharingFigure(row, case, what, arbiter, goal, unhooked, fixed, rate)


def with_window(figure: SharingFigure, window: WorstWindow) -> SharingFigure:
    """The figure with our arbiter's worst window, and what was stolen in it."""
    return replace(figure, value=window.value, stolen=window.stolen, worse_window=window.worse_window)
