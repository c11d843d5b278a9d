"""What is kept, for how long, and how points are summed up: fake clocks throughout."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from vgpud.core.history.fold import MEMORY_UNIT_BYTES, Folded
from vgpud.core.history.levels import LEVELS, POINTS_MAX, choose, find_old, is_recordable
from vgpud.core.history.points import Measured, Point, Subject, add, join, sample
from vgpud.core.history.unsaved import Unsaved

NOW_S = 1_800_000_000
HOUR_S, DAY_S, YEAR_S = 3600, 86_400, 365 * 86_400


def used(milli: float, mem_bytes: float = 0.0) -> Point:
    return sample(milli, 100, 500, 0, mem_bytes, 0)


def test_levels_reach_an_hour_a_week_and_a_year() -> None:
    assert [level.step_s for level in LEVELS] == [10, 60, 900]
    assert [level.kept_s for level in LEVELS] == [HOUR_S, 7 * DAY_S, YEAR_S]


def test_a_joined_point_has_the_mean_of_all_samples_and_their_maximum() -> None:
    three = join(join(used(100), used(200)), used(600))
    assert (three.samples, three.used_milli, three.used_peak_milli) == (3, pytest.approx(300), 600)
    assert join(None, three) == join(Point(0), three) == join(three, Point(0)) == three


def test_limits_of_a_joined_point_are_the_last_ones() -> None:
    later = sample(0, 200, 700, 0, 0, 9)
    assert join(used(1), later)[3:5] == (200, 700)
    assert join(used(1), later).mem_max_bytes == 9


def test_a_total_has_a_limit_only_if_all_have_one() -> None:
    assert add(used(1), used(2)).max_milli == 1000
    assert add(used(1), sample(1, 0, 0, 0, 0, 0)).max_milli == 0
    assert add(used(100), used(200)).used_peak_milli == 300


@pytest.mark.parametrize(
    ("range_s", "level", "step_s"),
    [
        (HOUR_S, 0, 10),
        (HOUR_S // 2, 0, 10),
        (DAY_S, 1, 60),
        (7 * DAY_S, 1, 360),
        (30 * DAY_S, 2, 1800),
        (YEAR_S, 2, 16200),
    ],
)
def test_an_answer_is_as_fine_as_possible(range_s: int, level: int, step_s: int) -> None:
    assert choose(NOW_S - range_s, NOW_S, 0, NOW_S) == (level, step_s)
    assert range_s / step_s <= POINTS_MAX
    assert choose(NOW_S - range_s - 5, NOW_S - 5, 0, NOW_S)[0] == level, "the request was some seconds under way"


def test_an_hour_of_last_month_comes_from_the_coarsest_level() -> None:
    assert choose(NOW_S - 30 * DAY_S, NOW_S - 30 * DAY_S + HOUR_S, 0, NOW_S) == (2, 900)


def test_a_step_becomes_a_multiple_of_what_is_kept() -> None:
    assert choose(NOW_S - HOUR_S, NOW_S, 25, NOW_S) == (0, 30)
    assert choose(NOW_S - DAY_S, NOW_S, 1, NOW_S) == (1, 60)


def test_the_oldest_chunks_go_when_there_are_too_many() -> None:
    level = LEVELS[0]
    chunks = [(turn, 50 + turn) for turn in range(level.chunks_max + 2)]
    assert find_old(chunks[2:], level) == []
    assert find_old(chunks, level) == [50, 51]


def test_a_clock_that_jumps_ahead_and_back_costs_one_old_chunk_a_jump() -> None:
    level = LEVELS[1]
    past = [(turn, 1000 + turn) for turn in range(level.chunks_max)]
    both = [*past, (500, 9_000_000), (501, 1000 + level.chunks_max)]
    assert find_old(both, level) == [1000, 1001]


def test_chunks_of_a_future_that_was_none_are_forgotten_in_turn() -> None:
    level = LEVELS[0]
    future = [(turn, 9_000_000 + turn) for turn in range(level.chunks_max)]
    present = [(100 + turn, 1000 + turn) for turn in range(3)]
    assert find_old([*future, *present], level) == [9_000_000, 9_000_001, 9_000_002]


def test_times_without_a_place_are_not_recorded() -> None:
    assert is_recordable(0)
    assert is_recordable(NOW_S)
    assert not is_recordable(-1)
    assert not is_recordable(1 << 60)


def test_unsaved_samples_are_in_every_level() -> None:
    unsaved, subject = Unsaved(), Subject("device", "G")
    for n in range(12):
        unsaved.add(NOW_S + 10 * n, [Measured(subject, "0", -1, used(n))])
    points = unsaved.series[subject].points
    assert [points[0, NOW_S // 10 + n].used_milli for n in range(12)] == list(range(12))
    assert points[1, NOW_S // 60 + 1].used_milli == pytest.approx(8.5)
    assert points[2, NOW_S // 900].samples == 12
    assert len(unsaved.take()) == 1
    assert not unsaved.series


def test_a_clock_that_is_set_back_adds_to_what_is_there() -> None:
    unsaved, subject = Unsaved(), Subject("device", "G")
    for at_s, milli in ((NOW_S, 100), (NOW_S + 10, 50), (NOW_S, 300)):
        unsaved.add(at_s, [Measured(subject, "0", -1, used(milli))])
    points = unsaved.series[subject].points
    assert (points[0, NOW_S // 10].used_milli, points[0, NOW_S // 10 + 1].used_milli) == (200, 50)


def test_columns_fold_as_points_do() -> None:
    random, first = Random(1), 5000
    points = {n: used(random.randrange(1000), random.randrange(90) * MEMORY_UNIT_BYTES) for n in range(90) if n % 7}
    rows = [points.get(n, Point(0)) for n in range(90)]
    units = [MEMORY_UNIT_BYTES if name.endswith("_bytes") else 1 for name in Point._fields]
    columns = [array("I", (int(row[n] / units[n]) for row in rows)) for n in range(len(units))]
    by_column, by_point = (Folded(10, 250, (first + 3) * 10, (first + 80) * 10) for _ in range(2))
    by_column.add_columns(first, columns)
    for n, point in points.items():
        by_point.add_point(first + n, point)
    found, expected = by_column.points(), by_point.points()
    assert [begin_s for begin_s, _ in found] == [begin_s for begin_s, _ in expected]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        assert one == pytest.approx(other)


def test_an_answer_has_nothing_outside_its_range() -> None:
    folded = Folded(10, 10, NOW_S, NOW_S + 30)
    for n in range(-5, 10):
        folded.add_point(NOW_S // 10 + n, used(n))
    assert [begin_s - NOW_S for begin_s, _ in folded.points()] == [0, 10, 20, 30]
