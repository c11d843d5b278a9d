"""The measure of shares itself: sliding windows over busy spans."""

import pytest

from benchmarks.windows import handovers_ns, shares_by_tenant, worst_window
from vgpud.simdevice.busy_log import RECORD, SECOND_NS, Span, busy_steps, mean_share, parse_busy_log, sliding

MS = 1_000_000


def alternating(share_of_first: float, seconds: int) -> list[Span]:
    """Two processes that take turns within each period of 10 ms."""
    spans = []
    for period in range(seconds * 100):
        begin = period * 10 * MS
        switch = begin + int(10 * MS * share_of_first)
        spans += [Span(begin, switch, 1), Span(switch, begin + 10 * MS, 2)]
    return spans


def test_exact_shares_have_no_error() -> None:
    shares = shares_by_tenant(alternating(0.25, 5), {"a": 1, "b": 2}, 0, 5 * SECOND_NS)
    assert len(shares["a"]) == 41
    assert worst_window(shares, {"a": 0.25, "b": 0.75}).error_pp == pytest.approx(0, abs=1e-9)


def test_one_bad_second_is_found_where_it_is() -> None:
    spans = [s for s in alternating(0.25, 5) if not (s.pid == 1 and 2 * SECOND_NS <= s.begin_ns < 3 * SECOND_NS)]
    found = worst_window(shares_by_tenant(spans, {"a": 1, "b": 2}, 0, 5 * SECOND_NS), {"a": 0.25, "b": 0.75})
    assert (found.tenant, found.window_begin_s) == ("a", 2.0)
    assert found.error_pp == pytest.approx(25)


def test_a_long_span_is_split_over_steps_and_clipped() -> None:
    assert busy_steps([Span(50 * MS, 350 * MS, 1)], 100 * MS, 400 * MS) == [100 * MS, 100 * MS, 50 * MS]


def test_an_incomplete_last_step_is_not_counted() -> None:
    assert busy_steps([Span(0, 250 * MS, 1)], 0, 250 * MS) == [100 * MS, 100 * MS]


def test_too_short_a_run_is_an_error_not_a_good_share() -> None:
    assert sliding([1] * 9) == []
    with pytest.raises(ValueError, match="shorter than one second"):
        worst_window({"a": []}, {"a": 0.5})


def test_a_cut_off_record_is_left_out() -> None:
    raw = RECORD.pack(1, 2, 3, 4) + RECORD.pack(5, 6, 7, 8)
    assert parse_busy_log(raw[:-1]) == [Span(1, 2, 3)]


def test_mean_share() -> None:
    assert mean_share(alternating(0.3, 2), 1, 0, 2 * SECOND_NS) == pytest.approx(0.3)


def test_handovers_are_the_gaps_between_different_processes() -> None:
    spans = [Span(0, 10, 1), Span(12, 20, 1), Span(25, 30, 2), Span(30, 40, 1), Span(90, 95, 2)]
    assert handovers_ns(spans, 0, 50) == [0, 5]
