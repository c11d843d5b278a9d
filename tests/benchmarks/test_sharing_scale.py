"""W9: what counts as a hand-over in the device's log."""

from __future__ import annotations

from benchmarks.sharing.rows_scale import handovers_us
from vgpud.simdevice.busy_log import Span

MS = 1_000_000


def spans(*times: tuple[int, int]) -> list[Span]:
    return [Span(begin, end, 1) for begin, end in times]


def test_the_gap_between_two_tenants_counts_and_none_within_one() -> None:
    log = {"a": spans((0, 4 * MS), (5 * MS, 9 * MS)), "b": spans((9 * MS + 30_000, 19 * MS))}
    assert handovers_us(log) == [30]


def test_an_overlap_is_one_handover_without_a_gap() -> None:
    log = {
        "a": spans((0, 9 * MS), (10 * MS, 11 * MS)),
        "b": spans((9 * MS, 10 * MS), (11 * MS, 20 * MS)),
        "c": spans((20 * MS + 5_000, 30 * MS)),
    }
    assert handovers_us(log) == [0, 5]


def test_gaps_of_one_handover_are_added_up() -> None:
    log = {
        "a": spans((0, 9 * MS), (10 * MS, 11 * MS)),
        "b": spans((9 * MS + 7_000, 10 * MS - 3_000), (11 * MS, 20 * MS)),
    }
    assert handovers_us(log) == [10]


def test_no_slice_hands_over_alone() -> None:
    assert handovers_us({"a": spans((0, MS), (2 * MS, 3 * MS)), "b": []}) == []
