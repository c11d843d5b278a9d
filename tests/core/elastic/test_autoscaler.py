"""The autoscaler as its shell sees it: what it takes, what it ignores, when it searches again, what it keeps."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.elastic.world import Program
from tests.examples import examples
from vgpud.core.elastic import autoscaler
from vgpud.core.elastic.autoscaler import REST_NS, SILENT_NS, TIME_MAX_NS, Autoscaler, nanoseconds
from vgpud.core.jobs.model import SECOND_NS, Elastic

#: flat from 4 workers: it settles there
PLATEAU = [0, 1_000_000, 2_000_000, 3_000_000, *[4_000_000] * 20]
SIZES = 8
#: a search asks for each size at most three times, and says once that it has settled
SEARCH_MAX = 3 * SIZES + 1


def test_targets_come_once_and_say_why() -> None:
    program = Program(1, SIZES)
    first = program.scaler.take_new_target(0)
    assert first and (first.members, first.why) == (1, "what it does with 1 is to be measured first")
    assert program.scaler.take_new_target(0) is None
    assert program.settle(PLATEAU) == 4
    assert program.scaler.take_new_target(program.now_ns) is None
    assert program.scaler.last_request == program.targets[-1]
    assert "brings" in program.targets[-1].why and all("\n" not in target.why for target in program.targets)
    assert program.scaler.rate_milli == pytest.approx(4_000_000_000, rel=0.001)


def test_the_first_report_after_a_change_is_skipped() -> None:
    """It is slow each time, as steps are in which everything is set up; each worker's own counts."""
    program = Program(1, SIZES)
    program.step(PLATEAU[1] // 10)
    assert program.scaler.state()["means"] == []
    program.step(PLATEAU[1])
    assert [mean[:3] for mean in program.scaler.state()["means"]] == [[1, 1, 1]]
    program.change(2)
    program.step(PLATEAU[2] // 10)
    assert len(program.scaler.state()["means"]) == 1
    program.step(PLATEAU[2])
    (size, _, steps, total, _) = program.scaler.state()["means"][1]
    assert (size, steps, total) == (2, 1, PLATEAU[2] * 10**6)


@pytest.mark.parametrize(
    ("worker", "samples", "seconds_ns", "steps"),
    [
        (0, 0, SECOND_NS, 1),
        (0, -5, SECOND_NS, 1),
        (0, 10**300, SECOND_NS, 1),
        (0, 100, 0, 1),
        (0, 100, -1, 1),
        (0, 100, 10**30, 1),
        (0, 100, SECOND_NS, -1),
        (0, 100, SECOND_NS, 10**12),
        (0, 10**12, 1000, 1),
        (0, 1, 7 * 24 * 3600 * SECOND_NS, 1),
        (7, 100, SECOND_NS, 1),
    ],
)
def test_nonsense_is_ignored_with_a_reason(worker: int, samples: int, seconds_ns: int, steps: int) -> None:
    program = Program(1, SIZES)
    program.step(1000)
    program.step(1000)
    before = program.scaler.state()
    said = program.scaler.add_report(worker, samples, seconds_ns, steps, program.now_ns)
    assert said and "\n" not in said and len(said) < 500
    assert program.scaler.state() == before


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1.0, 1e300])
def test_times_from_the_wire(seconds: float) -> None:
    assert nanoseconds(seconds) == -1
    assert nanoseconds(0.25) == SECOND_NS // 4


@pytest.mark.parametrize("factor", [1000, 0.001])
def test_a_jump_is_ignored(factor: float) -> None:
    program = Program(1, SIZES)
    program.settle(PLATEAU)
    for _ in range(50):
        said = program.step(round(PLATEAU[4] * factor))
        assert len(said) == len(program.workers) and "were usual" in said[0]
        for _ in range(5):
            assert program.step(PLATEAU[4]) == []
    assert len(program.workers) == 4 and program.scaler.rate_milli == pytest.approx(4_000_000_000, rel=0.001)


def test_a_jump_that_stays_is_believed() -> None:
    """The first reports were nonsense: after a few more, the later ones are believed."""
    program = Program(1, SIZES)
    for _ in range(3):
        program.step(PLATEAU[1] * 1000)
    refused = [bool(program.step(PLATEAU[1])) for _ in range(9)]
    assert refused == [True] * 7 + [False] * 2
    assert program.settle(PLATEAU) == 4


def test_workers_that_never_report_are_not_waited_for() -> None:
    """Only the first in rank reports, for all."""
    scaler = Autoscaler(Elastic(least_members=2, most_members=SIZES))
    scaler.set_workers((0, 1), 0)
    for second in range(2000):
        scaler.add_report(0, 1000, SECOND_NS, 1, second * SECOND_NS)
    assert scaler.rate_milli == 1_000_000
    target = scaler.take_new_target(0)
    assert target and target.members == 6
    assert SILENT_NS < 60 * SECOND_NS


def test_what_the_queue_gives_instead_is_lived_with() -> None:
    """Five do not fit: the target stands, and is not lost when the job is shrunk and grows again."""
    program = Program(1, SIZES)
    for _ in range(30):
        program.step(PLATEAU[len(program.workers)])
    assert program.workers == (0, 1, 2, 3, 4)
    program.change(2)
    for _ in range(500):
        program.step(PLATEAU[2])
    assert program.scaler.last_request and program.scaler.last_request.members == 5 and len(program.workers) == 2
    program.change(5)
    assert program.settle(PLATEAU) == 4


def test_drift_is_searched_again_but_not_at_once() -> None:
    program = Program(1, SIZES, step_ns=SECOND_NS // 10)
    program.settle(PLATEAU)
    slower = [rate * 7 // 10 for rate in PLATEAU[:3]] + [PLATEAU[2] * 7 // 10] * 20  # and flat from 2
    began_ns = program.now_ns
    assert program.settle(slower, 2000) == 2
    before = len(program.targets)
    assert program.settle(PLATEAU, 2000) == 2  # it has just searched
    assert len(program.targets) == before
    assert program.settle(PLATEAU, 6000) == 4
    assert REST_NS < program.now_ns - began_ns < 2 * REST_NS


def test_a_program_that_never_rests_is_left_where_it_is() -> None:
    """Twice as fast and slow again every five minutes for a day: it searches after ever longer rests."""
    program = Program(1, SIZES)
    for index in range(24 * 3600 // 10):
        program.step(PLATEAU[len(program.workers)] * (1 + index // 30 % 2), 10)
    searches = sum(target.why.endswith("more are tried") for target in program.targets)
    assert 1 < searches <= 2 * _searches(program.now_ns)


def test_ten_percent_are_no_drift() -> None:
    program = Program(1, SIZES)
    program.settle(PLATEAU)
    before = len(program.targets)
    for index in range(5000):
        program.step(PLATEAU[4] * (90 + 20 * (index // 700 % 2)) // 100)
    assert len(program.targets) == before


def _searches(ns: int) -> int:
    """How many there can be in such a time: the first, one at once, and then each after twice the rest."""
    found, rest_ns = 2, REST_NS
    while ns > rest_ns:
        ns, rest_ns, found = ns - rest_ns, 2 * rest_ns, found + 1
    return found


@given(st.lists(st.tuples(st.integers(1, 4_000), st.integers(1, 400)), min_size=1, max_size=40))
@settings(max_examples=examples(60), deadline=None)
def test_it_does_not_oscillate(levels: list[tuple[int, int]]) -> None:
    """A program whose speed jumps about as and for as long as it likes: new targets stay few, and within bounds."""
    program = Program(2, 2 + SIZES - 1)
    for level, times in levels:
        for _ in range(times):
            program.step(level * 1000 * len(program.workers), 5)
    assert all(2 <= target.members <= SIZES + 1 for target in program.targets)
    assert len(program.targets) <= SEARCH_MAX * _searches(program.now_ns)


ANYTHING = st.one_of(st.integers(), st.integers(1, 10_000), st.just(10**300))


@given(st.lists(st.tuples(st.integers(-1, 9), ANYTHING, ANYTHING, ANYTHING, ANYTHING), max_size=150), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_nothing_that_is_reported_breaks_it(reports: list[tuple[int, int, int, int, int]], data: st.DataObject) -> None:
    scaler = Autoscaler(Elastic(least_members=2, most_members=SIZES))
    for second, (worker, samples, seconds_ns, steps, waited_ns) in enumerate(reports):
        if second % 20 == 0:
            scaler.set_workers(tuple(range(data.draw(st.integers(0, SIZES + 2)))), second * SECOND_NS)
        scaler.add_report(worker, samples, seconds_ns, steps, second * SECOND_NS, waited_ns)
        target = scaler.take_new_target(second)
        assert target is None or 2 <= target.members <= SIZES
        scaler.stragglers(second * SECOND_NS)
        json.dumps(scaler.state())


@given(st.integers(0, 900))
@settings(max_examples=examples(25), deadline=None)
def test_a_restart_of_the_shell_changes_nothing(steps: int) -> None:
    """But that the reports under way and the first afterwards are lost."""
    whole = Program(1, SIZES)
    whole.settle(PLATEAU, steps)
    again = Program(1, SIZES)
    again.settle(PLATEAU, steps)
    again.scaler = Autoscaler.from_state(again.elastic, json.loads(json.dumps(again.scaler.state())))
    again.change(len(again.workers))
    assert again.settle(PLATEAU) == whole.settle(PLATEAU) == 4
    assert [target.members for target in again.targets] == [target.members for target in whole.targets]


@pytest.mark.parametrize(
    "change",
    [
        {"heuristic": "fixed(3)"},
        {"means": [[1, 0, 0, 0, 0]]},
        {"means": "x"},
        {"target": ["a", 1, ""]},
        {"wished": [1]},
        {"numbers": [1]},
        {"named_ns": None},
    ],
)
def test_another_state_is_refused(change: dict[str, object]) -> None:
    program = Program(1, SIZES)
    program.settle(PLATEAU, 100)
    with pytest.raises(ValueError, match="not a state of this autoscaler"):
        Autoscaler.from_state(program.elastic, program.scaler.state() | change)
    assert autoscaler.JUMP > 2


def test_workers_that_do_next_to_nothing_are_judged_like_others() -> None:
    scaler = Autoscaler(Elastic(0, 0, 1, 2, "utility(linear,100,0.5,samples=5000000)"))
    now_ns = 0
    for workers, least_ns in (((0,), 500_000 * SECOND_NS), ((0, 1), TIME_MAX_NS)) * 2:
        scaler.set_workers(workers, now_ns)
        for _ in range(10):
            now_ns += SILENT_NS + SECOND_NS
            assert scaler.add_report(workers[-1], 1, least_ns, 200, now_ns) == ""
    assert scaler.last_request is not None
