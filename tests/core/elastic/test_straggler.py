"""Stragglers: smoothed throughput over the median's below 0.8, named once, rarely, and never the first in rank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.elastic.autoscaler import Autoscaler
from vgpud.core.elastic.straggler import AGAIN_NS, HOUR_NS, PER_HOUR, REPORTS_MIN, Stragglers
from vgpud.core.jobs.model import SECOND_NS, Elastic


def _report_rates(rates: dict[int, int], reports: int = 3 * REPORTS_MIN) -> Stragglers:
    found = Stragglers()
    found.set_workers(tuple(rates))
    for _ in range(reports):
        for worker, rate in rates.items():
            found.add_report(worker, rate)
    return found


def test_the_slow_one_is_named_once() -> None:
    found = _report_rates({4: 100, 7: 100, 5: 60, 6: 100})
    (slow,) = found.due(0)
    assert slow.worker == 5
    assert slow.why.startswith("worker 5 does 60 % of what the median worker does, over 60 reports")
    assert found.due(1) == ()
    assert [one.worker for one in found.due(AGAIN_NS)] == [5]  # still there: its replacement never came


def test_a_little_slow_is_not_too_slow() -> None:
    assert _report_rates({0: 100, 1: 81, 2: 100}).due(0) == ()
    assert _report_rates({0: 100, 1: 79, 2: 100}).due(0) != ()


def test_the_first_in_rank_is_never_one() -> None:
    assert _report_rates({9: 10, 1: 100, 2: 100}).due(0) == ()


def test_no_worker_is_judged_early() -> None:
    rates = {0: 100, 1: 10, 2: 100}
    assert _report_rates(rates, REPORTS_MIN - 1).due(0) == ()
    assert _report_rates(rates, REPORTS_MIN).due(0) != ()


def test_a_pause_is_forgiven() -> None:
    found = _report_rates({0: 100, 1: 100, 2: 100})
    for _ in range(2):
        found.add_report(1, 10)
    assert found.due(0) == ()


def test_the_slowest_goes_first_and_the_next_when_it_has_gone() -> None:
    found = _report_rates({0: 100, 1: 50, 2: 40, 3: 100, 4: 100})
    assert [one.worker for one in found.due(0)] == [2]
    found.set_workers((0, 1, 2, 3, 4, 5))  # its replacement has come
    assert found.due(1) == ()
    found.set_workers((0, 1, 3, 4, 5))
    assert [one.worker for one in found.due(2)] == [1]


def test_replacements_are_not_endless() -> None:
    """Every replacement is slow too: three in an hour, whichever it is."""
    named, worker = 0, 1
    found = Stragglers()
    for second in range(0, 4 * 3600, 60):
        found.set_workers((0, worker, 2_000_000, 3_000_000))
        for _ in range(REPORTS_MIN):
            for one, rate in ((0, 100), (worker, 20), (2_000_000, 100), (3_000_000, 100)):
                found.add_report(one, rate)
        named += len(found.due(second * SECOND_NS))
        worker += 1
    assert named == 4 * PER_HOUR
    assert HOUR_NS == 3600 * SECOND_NS


def test_in_lock_step_the_time_without_waiting_counts() -> None:
    """Synchronous workers all do the same in a second: the one that never waits is the one that the others wait for."""
    scaler = Autoscaler(Elastic(least_members=1, most_members=4))
    scaler.set_workers((0, 1, 2, 3), 0)
    for second in range(1, 60):
        for worker in range(4):
            waited_ns = 0 if worker == 3 else SECOND_NS // 2
            assert scaler.add_report(worker, 100, SECOND_NS, 1, second * SECOND_NS, waited_ns) == ""
    assert [one.worker for one in scaler.stragglers(60 * SECOND_NS)] == [3]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 10**18)), max_size=200))
def test_whatever_is_reported_the_first_stays_and_few_go(reports: list[tuple[int, int]]) -> None:
    found = Stragglers()
    found.set_workers((0, 1, 2, 3))
    named = []
    for second, (worker, rate) in enumerate(reports):
        found.add_report(worker, rate)
        named += found.due(second * SECOND_NS)
    assert len(named) <= PER_HOUR and all(one.worker in (1, 2, 3) for one in named)
