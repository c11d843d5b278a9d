"""The figures of a real device beside those of the simulated one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.table import format_table

Figures = Mapping[str, Mapping[str, Any]]


def numbers(steps: Figures) -> dict[str, float]:
    """Every number that a qualification found, by `step.figure`."""
    return {
        f"{step}.{name}": float(value)
        for step, found in steps.items()
        for name, value in found["figures"].items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def read_figures(path: Path) -> Figures:
    """The figures of a qualification that is kept; none when there is no such file."""
    figures: Figures = json.loads(path.read_text())["figures"] if path.exists() else {}
    return figures


def compare(simulated_figures: Figures, real_figures: Figures) -> str:
    """A line for each number of either, with the real one over the simulated."""
    columns = numbers(simulated_figures), numbers(real_figures)
    names = [*columns[0], *(name for name in columns[1] if name not in columns[0])]
    rows = []
    for name in names:
        one, other = (column.get(name) for column in columns)
        ratio = f"{other / one:.2f}" if one and other is not None else "-"
        cells = ["-" if value is None else f"{value:,.{0 if abs(value) >= 1000 else 4}f}" for value in (one, other)]
        rows.append((name, *cells, ratio))
    return format_table(("figure", "simulated", "real", "real/sim"), rows)
