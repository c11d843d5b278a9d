"""What the live row of elastic jobs makes of its workers' lines."""

from __future__ import annotations

from typing import Any

from benchmarks.predict import live


def line(worker: int, step: int, workers: int, idle_s: float = 0.0, loss: float = 1.0) -> dict[str, Any]:
    return {"worker": worker, "step": step, "workers": workers, "idle_s": idle_s, "loss": loss, "rank": worker}


LINES = [
    line(0, 0, 1),
    line(0, 1, 1),
    line(0, 2, 3, 0.5),
    line(1, 2, 3),
    line(2, 2, 3),
    line(0, 3, 2, 0.6),
    line(1, 3, 2, 0.3),
]


def test_changes_and_the_longest_time_without_a_step() -> None:
    assert live.changes(LINES) == [(1, 0), (3, 2), (2, 3)]
    found = list(live.idle(LINES))
    assert [what for what, _ in found] == ["1 -> 3", "3 -> 2"]
    assert [round(idle_s, 6) for _, idle_s in found] == [0.5, 0.3], "newcomers count nothing"


def test_a_step_that_is_missing_is_no_equal_curve() -> None:
    wanted = dict.fromkeys(range(4), 1.0)
    assert live.worst_difference(LINES, wanted) == 0.0
    assert live.worst_difference([*LINES, line(0, 3, 2, loss=1.25)], wanted) == 0.25
    assert live.worst_difference(LINES[:-2], wanted) == 1.0
