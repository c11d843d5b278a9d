"""The benchmark of prediction, co-location and elasticity: its frame and those of its rows that are quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rows
from benchmarks.predict.__main__ import BENCH
from benchmarks.predict.rows import ROWS
from benchmarks.rows import Row
from benchmarks.table import Figure, count_met

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("graph-memory", "s_k", "gpu-time")


@pytest.mark.parametrize("row", QUICK)
def test_goals_of_quick_rows_are_met(row: str, tmp_path: Path) -> None:
    raw: dict[str, Any] = {}
    figures = list(rows.row_figures(BENCH, row, raw))
    assert figures and [figure for figure in figures if figure.is_missed] == []
    assert {figure.row for figure in figures} == {row}
    paths = rows.write(BENCH, figures, {row: raw}, tmp_path)
    assert all(path.stat().st_size > 0 for path in paths)
    page = (tmp_path / "predict-sim.md").read_text()
    assert count_met(figures) in page and ROWS[row].what in page


def test_unknown_rows_are_named() -> None:
    asked = [sys.executable, "-m", "benchmarks.predict", "tea"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "tea is no row: choose from gpumemnet" in done.stderr


def test_a_row_that_fails_has_missed_a_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(raw: dict[str, Any]) -> Any:
        yield Figure("s_k", "c", "what", 1)
        raise OSError("no daemon")

    monkeypatch.setitem(ROWS, "s_k", Row("fails", fails))
    raw: dict[str, Any] = {}
    first, last = rows.row_figures(BENCH, "s_k", raw)
    assert (first.is_missed, last.is_missed, raw) == (False, True, {"failed": "OSError: no daemon"})
