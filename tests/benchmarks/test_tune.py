"""The benchmark of `vgpu tune`: how a choice is judged beside a grid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.tune.__main__ import judge_choice
from benchmarks.tune.orders import cost_of
from tests.core.tune.test_record import RECORD, candidate
from vgpud.core.tune.model import Candidate, Work, make_candidates
from vgpud.core.tune.record import Record, Row

HALF, WHOLE = candidate(500, 64), candidate(1000, 64)


def make_record(one: Candidate, rate: float) -> Record:
    return replace(RECORD, rows=(Row(one, rate=rate),), choice=0, gpu_seconds_used=20.0, gpu_seconds_granted=40.0)


@pytest.mark.parametrize(
    ("rates", "work", "choice", "quality"),
    [
        ((50.0, 80.0), Work(), 0, 1.0),
        ((50.0, 80.0), Work(), 1, 0.8),
        ((50.0, 80.0), Work(samples=800, deadline_s=11), 1, 1.0),
        ((50.0, 80.0), Work(samples=800, deadline_s=11), 0, 11 / 16),  # cheaper, and late
    ],
)
def test_a_choice_is_judged_by_the_grids_rates(
    rates: tuple[float, float], work: Work, choice: int, quality: float
) -> None:
    grid = {HALF: make_record(HALF, rates[0]), WHOLE: make_record(WHOLE, rates[1])}
    rows = (Row(HALF, rate=1.0), Row(WHOLE, rate=1.0))
    record = replace(RECORD, rows=rows, choice=choice, work=work, gpu_seconds_used=8.0, gpu_seconds_granted=20.0)
    found = judge_choice(record, grid)
    assert found["quality"] == pytest.approx(quality)
    assert (found["cost"], found["cost_granted"]) == (0.2, 0.25)


def test_the_cost_of_an_order_is_a_part_of_the_grids() -> None:
    candidates = make_candidates((1000,), ["batch"], {"batch": range(1, 17)})
    rates = {one: float(one.value("batch") or 0) for one in candidates}
    best_first, worst = cost_of(candidates, rates, Work()), cost_of(candidates[::-1], rates, Work())
    assert best_first == pytest.approx((16 / 16 + 3 / 16 + 1) / 16)
    assert best_first < worst < 0.33
