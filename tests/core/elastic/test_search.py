"""The autoscaler's search on curves that are known, also with noise: where it settles and how it comes there."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.predict.scaling import CURVES, SLIDES, Curve, optimum, play
from tests.core.elastic.world import Program
from tests.examples import examples
from vgpud.core.elastic import search
from vgpud.core.elastic.heuristics import Efficiency, Outlook, Seen
from vgpud.core.elastic.measures import STEPS_MAX, Mean, Point, across
from vgpud.core.elastic.search import PROBE_STEPS, SETTLE_STEPS, Search

RULE = Efficiency("efficiency(0.1)", Fraction(1, 10))
#: samples that last until the search is over
BATCHES = 6000


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_settles_at_the_optimum_of_its_rule(curve: Curve) -> None:
    assert play(curve, curve.batch * BATCHES).members == optimum(curve, RULE)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_settles_within_one_worker_of_it_with_noise(curve: Curve, seed: int) -> None:
    assert abs(play(curve, curve.batch * BATCHES, noise=0.01, seed=seed).members - optimum(curve, RULE)) <= 1


def test_goes_up_by_four_and_down_by_one() -> None:
    path = play(SLIDES, SLIDES.batch * BATCHES).path
    assert path[:4] == [1, 5, 9, 13]
    top = path.index(max(path))
    assert path[top : top + 3] == [max(path), max(path) - 1, max(path) - 2]


@given(st.lists(st.integers(10_000, 100_000), min_size=12, max_size=12), st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_every_search_ends_soon_within_the_bounds(curve: list[int], least_members: int) -> None:
    """Whatever the curve: each size is asked for rarely, and then it stays."""
    program = Program(least_members, 11, members=least_members)
    program.settle([0, *curve], 11 * 2 * SETTLE_STEPS)
    asked = [target.members for target in program.targets]
    assert all(least_members <= members <= 11 for members in asked)
    assert max(map(asked.count, asked), default=0) <= 4  # to look, to settle, to be sure, and that it stays


def test_a_size_is_not_judged_before_enough_batches() -> None:
    program = Program(1, 8)
    program.step(1_000_000)  # the first step after a change is not counted
    for _ in range(PROBE_STEPS - 1):
        program.step(1_000_000)
    assert program.workers == (0,)
    program.step(1_000_000)
    assert len(program.workers) == 1 + search.SPAWN


def test_settles_only_with_two_hundred_batches_there_and_with_one_more() -> None:
    seen = {k: _mean(rate, PROBE_STEPS) for k, rate in ((1, 100), (2, 200), (3, 300), (4, 310), (5, 315))}
    heuristic = Search(RULE)
    wanted = []
    for _ in range(3):
        target = heuristic.target(Seen(seen, 4, 1, 8))
        wanted.append((target.members, target.steps))
        seen[target.members] = _mean(seen[target.members].rate // 10**6, 200)
    assert wanted == [(4, 200), (3, 200), (3, 0)]


def test_three_steps_in_a_row_must_be_worth_it() -> None:
    """From above: 8 and 7 are no better than 6, which is by luck better than 5, as 5 is not than 4."""
    rates = {1: 100, 2: 200, 3: 300, 4: 400, 5: 401, 6: 480, 7: 480, 8: 480}
    seen = {k: _mean(rate, SETTLE_STEPS) for k, rate in rates.items()}
    assert Search(RULE).target(Seen(seen, 6, 1, 8)).members == 4


def _mean(rate: int, steps: int) -> Mean:
    mean = Mean()
    mean.add(rate * 10**6, steps)
    return mean


def test_noise_that_hides_a_step_is_measured_longer() -> None:
    seen = {1: Mean(), 5: Mean()}
    for index in range(PROBE_STEPS):
        seen[1].add((100 + 90 * (-1) ** index) * 10**6, 1)
        seen[5].add((140 + 130 * (-1) ** index) * 10**6, 1)
    target = Search(RULE).target(Seen(seen, 5, 1, 8))
    assert (target.members, target.steps) == (5, 2 * PROBE_STEPS) and "not sure yet" in target.why


def test_neighbours_make_a_step_clear() -> None:
    flat = [_mean(1000 + k, 50) for k in range(8)]
    for mean in flat:
        mean.add(mean.rate + 40 * 10**6, 50)
        mean.add(mean.rate - 60 * 10**6, 50)
    _, _, alone = across([flat[3]], [flat[4]])
    old, new, wide = across(flat[:4], flat[4:])
    assert wide * 7 < alone and new - old == pytest.approx(10**6, rel=0.01)


def test_what_one_step_hides_its_neighbours_show() -> None:
    """40 to 48 workers, each 15 % noisy: no step is sure by itself, and all of them together are."""
    seen = {k: Mean() for k in range(40, 49)}
    for k, mean in seen.items():
        for index in range(200):
            mean.add((100 * k + 15 * k * (-1) ** index) * 10**6, 1)
    _, _, error = across([seen[44]], [seen[45]])
    assert 2 * error > 100 * 10**6  # of what a worker brings
    step = Search(RULE)._step(Seen(seen, 44, 40, 48), 44, 45)
    assert step.passes and step.clear
    alone = Search(RULE)._step(Seen({k: seen[k] for k in (44, 45)}, 44, 40, 48), 44, 45)
    assert not alone.clear


def test_measurements_are_compacted() -> None:
    mean = Mean()
    for index in range(5000):
        mean.add(1000 + index % 2, 1)
    assert (mean.steps, mean.rate) == (STEPS_MAX, 1000) and mean.values <= STEPS_MAX
    for _ in range(10_000):
        mean.add(3000, 1)
    assert mean.rate == pytest.approx(3000, rel=0.01)  # what is older than a thousand values fades
    assert len(mean.plain()) == 4


def test_the_optimum_is_found_by_the_rule_itself() -> None:
    assert RULE.passes(Point(4, 400), Point(5, 480), Outlook())
    assert optimum(Curve("plateau", lambda k: min(k, 3), 8), RULE) == 3
    assert optimum(Curve("dip at 3", lambda k: 1.9 if k == 3 else float(k), 8), RULE) == 8
