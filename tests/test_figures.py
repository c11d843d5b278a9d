"""README's figures are those of the committed results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.rules.tree import ROOT

Figures = dict[str, Any]


def _shares(figures: Figures) -> list[str]:
    case = figures["25-75"]
    means = [f"{100 * case['share_mean'][tenant]:.1f} %" for tenant in ("a", "b")]
    return [*means, f"{100 * case['sum_of_alone']:.1f} %", f"{case['worst_window']['error_pp']:.1f} points"]


def _launches_of(state: str, figures: Figures) -> list[str]:
    one, two = (figures[f"{state}_{threads}_threads"] for threads in (1, 2))
    return [f"{one:.1f} / {two:.1f}"]


def _starts(figures: Figures) -> list[str]:
    return [f"{figures['alone_difference_ms']:.2f} ms", f"{figures['ratio']:.2f} times"]


def _memory(figures: Figures) -> list[str]:
    is_exact = figures["taken_bytes"] + 2 * figures["context_bytes"] == figures["limit_bytes"]
    return ["exact to the byte" if is_exact else "not exact", f"error {figures['one_granule_more_code']}"]


def _containers(figures: Figures) -> list[str]:
    return [f"{figures['vgpu_added_median_ms']:.0f} ms more than {figures['runc_median_ms']:.0f} ms"]


#: how a row begins -> the committed result, and what it says
ROWS: dict[str, tuple[str, Callable[[Figures], list[str]]]] = {
    "two saturating tenants": ("shares", _shares),
    "launch, slice alone": ("launch_overhead", partial(_launches_of, "solo")),
    "launch, counted": ("launch_overhead", partial(_launches_of, "count")),
    "start of a program": ("start_together", _starts),
    "free memory after a context": ("memory_exact", _memory),
    "`docker run` with half a GPU": ("container_latency", _containers),
}


def _rows() -> list[tuple[str, str]]:
    """(what, result) of README's table."""
    section = (ROOT / "README.md").read_text().split("\n## Measured\n", 1)[1].split("\n## ", 1)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]
    return [(row[0], row[1]) for row in cells[2:]]


def test_each_row_is_known() -> None:
    assert sorted(ROWS) == sorted(start for what, _ in _rows() for start in ROWS if what.startswith(start))


@pytest.mark.parametrize(("what", "result"), _rows())
def test_readme_has_the_committed_figures(what: str, result: str) -> None:
    name, read = next(ROWS[start] for start in ROWS if what.startswith(start))
    figures = json.loads((ROOT / f"benchmarks/results/{name}-sim.json").read_text())["figures"]
    texts = read(figures)
    assert not [text for text in texts if text not in result]
    rest = result
    for text in texts:
        rest = rest.replace(text, "", 1)
    assert not re.search(r"\d", rest), "a figure that no result has"
