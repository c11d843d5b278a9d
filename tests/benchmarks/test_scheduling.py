"""The scheduling benchmark: its table, its rows on what is quick, and that it judges."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rows
from benchmarks.scheduling import plots, policies, scale, slides, speed, traces
from benchmarks.scheduling.__main__ import BENCH
from benchmarks.scheduling.rows import ROWS
from benchmarks.table import Figure, below_bound, count_met, equal_to_decimals, format_figures, near, near_percent
from vgpud.simulate.scenario import make_policy

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("goal", "good_value", "bad_value", "text"),
    [
        (equal_to_decimals(1556.5, 1), 1556.4833, 1556.56, "1556.5 exactly"),
        (near_percent(83.6, 3), 81.1, 80.9, "83.6 +- 3 %"),
        (near(92.9, 0.3), 93.2, 92.5, "92.9 +- 0.3"),
        (below_bound(3), 2.99, 3.0, "< 3"),
    ],
)
def test_goals(goal: Any, good_value: float, bad_value: float, text: str) -> None:
    assert goal.is_met_by(good_value) and not goal.is_met_by(bad_value) and not goal.is_met_by(math.nan)
    assert str(goal) == text


def test_a_missed_goal_is_shown() -> None:
    figures = [
        Figure("r", "c", "what", 2.5, near_percent(2, 3)),
        Figure("r", "c", "unmeasured", None, near_percent(2, 3)),
    ]
    assert all(figure.is_missed for figure in figures)
    table = format_figures(figures)
    assert "| r | c | what | 2.5 | 2 +- 3 % | **missed** |" in table and "| - | 2 +- 3 % | **missed** |" in table


@pytest.mark.parametrize("row", ["slides", "tiresias", "muri"])
def test_known_figures_are_met(row: str, tmp_path: Path) -> None:
    raw: dict[str, Any] = {}
    figures = list(ROWS[row].figures(raw))
    assert [figure for figure in figures if figure.is_missed] == []
    paths = rows.write(BENCH, figures, {row: raw}, tmp_path)
    assert all(path.stat().st_size > 0 for path in paths)
    assert f"{count_met(figures)}" in (tmp_path / "scheduling-sim.md").read_text()


def test_the_slides_schedule_is_looked_at() -> None:
    """Another policy's schedule is another."""
    assert slides.schedule_of(slides.play("srsf")) != slides.schedule_of(slides.play("2d-las(every=1)"))


def test_all_policies_that_are_compared_exist() -> None:
    for policy in (
        policies.TIRESIAS,
        policies.WITHOUT_DURATIONS,
        *policies.PROMOTING,
        *policies.OTHERS,
        *policies.ORACLES,
    ):
        make_policy(policy)


def test_a_decision_is_measured_under_contention(tmp_path: Path) -> None:
    found = speed.measure(10, 200, policies.TIRESIAS)
    assert 0 < found["median_ms"] <= found["p99_ms"]
    assert speed.exponent((10, 100, 1000), (2, 20, 200)) == pytest.approx(1)
    assert speed.exponent((10, 100, 1000), (5, 5, 5)) == pytest.approx(0)
    plots.decisions(tmp_path / "plot.png", {"decisions": [found, {**found, "jobs": 400}]})
    assert (tmp_path / "plot.png").stat().st_size > 0


def test_traces_are_there() -> None:
    for trace in traces.ALL:
        assert (traces.DATA / trace.file).is_file(), trace.name


def test_a_trace_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "SIZES", (50, 100))
    raw: dict[str, Any] = {}
    figures = list(scale.figures(raw))
    assert [figure.what for figure in figures] == ["s", "GiB", "s", "GiB", "exponent by jobs"]
    assert [run["jobs"] for run in raw["runs"]] == [50, 100] and all(run["peak_gib"] > 0 for run in raw["runs"])
    plots.scale(tmp_path / "scale.png", raw)
    assert (tmp_path / "scale.png").stat().st_size > 0
    first, again = (scale.write_trace(tmp_path / name, 100).read_bytes() for name in ("a.csv", "b.csv"))
    assert first == again and first.count(b"\n") == 101


def test_unknown_rows_are_named() -> None:
    asked = [sys.executable, "-m", "benchmarks.scheduling", "tea"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "tea is no row: choose from slides" in done.stderr
