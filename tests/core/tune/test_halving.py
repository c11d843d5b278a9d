"""Successive halving: what runs for how long, and that what is best is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.tune.choice import choose
from vgpud.core.tune.halving import MILESTONES, REDUCTION, Halving, Phase, make_milestones
from vgpud.core.tune.model import Candidate, Work, make_candidates

GPUS = (100, 250, 500, 1000)
RATE = st.floats(0.1, 1e6)


def run_all(halving: Halving, rate_of: Callable[[Candidate, int], float | None], at_once: int = 1) -> list[int]:
    """Runs everything; None: it fails. Returns the milestones that were looked at, one entry for each."""
    looks: list[int] = []
    running: list[tuple[Candidate, int]] = []
    while True:
        while len(running) < at_once and (started := halving.take_next()):
            running.append(started)
        if not running:
            return looks
        candidate, milestone = running.pop(0)
        rate = rate_of(candidate, milestone)
        looks.append(milestone)
        if rate is None:
            halving.drop(candidate, "failed")
        elif halving.reach(candidate, milestone, rate):
            running.append((candidate, milestone + 1))


def test_milestones_are_each_four_times_the_one_before() -> None:
    assert make_milestones(64) == (4, 16, 64)


@given(st.lists(RATE, min_size=1, max_size=40, unique=True), st.integers(1, 5), st.booleans())
def test_the_best_is_found_and_measured_in_full(rates: list[float], at_once: int, has_deadline: bool) -> None:
    candidates = make_candidates(GPUS, ["batch"], {"batch": range(1, 11)})[: len(rates)]
    rate_of = dict(zip(candidates, rates, strict=False))
    work = Work(samples=1000, deadline_s=1000 / sorted(rate_of.values())[len(rate_of) // 2]) if has_deadline else Work()
    halving = Halving(candidates, work)
    run_all(halving, lambda candidate, _: rate_of[candidate], at_once)
    best = halving.find_best()
    assert best and best.is_complete
    found, wanted = choose([(best.candidate, best.rate or 0)], work), choose(list(rate_of.items()), work)
    assert found and wanted and work.rank(*found) == work.rank(*wanted)


@given(st.permutations(range(1, 25)), st.integers(1, 4))
def test_few_run_to_the_end(order: list[int], at_once: int) -> None:
    candidates = make_candidates((1000,), ["batch"], {"batch": range(1, 25)})
    halving = Halving(candidates, Work())
    looks = run_all(halving, lambda candidate, _: float(order[(candidate.value("batch") or 0) - 1]), at_once)
    assert looks.count(0) == 24
    # in the worst order, each better than those before, all of them reach the last but one
    assert looks.count(MILESTONES - 1) == 1
    full = REDUCTION ** (MILESTONES - 1)
    cost = (looks.count(0) + looks.count(1) * (REDUCTION - 1)) / full + 1
    assert cost / 24 <= 0.25 + 1 / 24


def test_what_is_worse_than_those_before_ends_at_once() -> None:
    candidates = make_candidates((1000,), ["batch"], {"batch": range(1, 13)})
    halving = Halving(candidates, Work())
    looks = run_all(halving, lambda candidate, _: float(candidate.value("batch") or 0))  # large ones come first
    assert looks == [0, 1] + [0] * 11 + [2]


def test_the_last_one_that_is_best_of_all_continues_to_the_end() -> None:
    candidates = make_candidates((1000,), ["batch"], {"batch": range(1, 5)})
    halving = Halving(candidates, Work())
    looks = run_all(halving, lambda candidate, _: 1.0 / (candidate.value("batch") or 1))  # small ones come last
    assert looks == [0, 1] * 3 + [0, 1, 2]


def test_a_single_candidate_runs_once() -> None:
    assert run_all(Halving(make_candidates((1000,), ["batch"], {}), Work()), lambda *_: 1.0) == [0, 1, 2]


def test_one_that_is_late_in_becoming_best_is_measured_in_full() -> None:
    first, second = make_candidates((1000,), ["batch"], {"batch": (1, 2)})
    halving = Halving((first, second), Work())
    rates = {(first, 0): 5.0, (first, 1): 5.0, (first, 2): 1.0, (second, 0): 4.0, (second, 2): 4.5}  # by milestone
    run_all(halving, lambda candidate, milestone: rates[candidate, milestone])
    best = halving.find_best()
    assert best and (best.candidate, best.rates) == (second, {0: 4.0, 2: 4.5})


@given(st.lists(st.one_of(st.none(), RATE), min_size=1, max_size=20))
def test_failures_rule_out_alone_what_has_failed(rates: list[float | None]) -> None:
    candidates = make_candidates(GPUS, ["batch"], {"batch": range(1, 6)})[: len(rates)]
    rate_of = dict(zip(candidates, rates, strict=False))
    halving = Halving(candidates, Work())
    run_all(halving, lambda candidate, _: rate_of[candidate])
    assert {one for one, trial in halving.trials.items() if trial.phase is Phase.OUT} == {
        one for one, rate in rate_of.items() if rate is None
    }
    assert (halving.find_best() is None) == all(rate is None for rate in rate_of.values())


@pytest.mark.parametrize(
    ("by_gpus", "not_run"), [(True, {(250, 8), (250, 16)}), (False, {(250, 8), (250, 16), (500, 8), (500, 16)})]
)
def test_one_out_of_memory_rules_out_those_that_need_more(by_gpus: bool, not_run: set[tuple[int, int]]) -> None:
    candidates = make_candidates((250, 500), ["batch"], {"batch": (4, 8, 16)})
    halving = Halving(candidates, Work(), memory_by_gpus=by_gpus)
    small = Candidate(250, "batch", (("batch", 8),))
    halving.trials[small].phase = Phase.RUNNING
    halving.drop_out_of_memory(small, "out of memory")
    out = {(one.gpus_milli, one.value("batch")) for one, t in halving.trials.items() if t.phase is Phase.OUT}
    assert out == not_run


def test_other_workers_may_have_enough_memory() -> None:
    candidates = make_candidates((250,), ["batch"], {"batch": (4, 8), "workers": (0, 2)})
    halving = Halving(candidates, Work())
    halving.drop_out_of_memory(Candidate(250, "batch", (("batch", 4), ("workers", 2))), "out of memory")
    left = {one.values for one, trial in halving.trials.items() if trial.phase is Phase.WAITING}
    assert left == {(("batch", 4), ("workers", 0)), (("batch", 8), ("workers", 0))}


def test_what_was_measured_counts_when_the_time_is_over() -> None:
    candidates = make_candidates((1000,), ["batch"], {"batch": (1, 2, 3)})
    halving = Halving(candidates, Work())
    first, second = (halving.take_next() or (candidates[0], 0) for _ in range(2))
    assert halving.reach(first[0], 0, 3.0)
    halving.stop()
    phases = [halving.trials[one].phase for one in candidates]
    assert phases == [Phase.MEASURED, Phase.OUT, Phase.OUT]
    best = halving.find_best()
    assert best and not best.is_complete and "time was over" in halving.trials[second[0]].why_out


def test_a_run_that_ends_by_itself_is_complete() -> None:
    (only,) = make_candidates((1000,), ["batch"], {})
    halving = Halving((only,), Work())
    halving.take_next()
    halving.end(only, 7.0)
    assert halving.take_next() is None
    best = halving.find_best()
    assert best and best.is_complete and best.rate == 7.0
