"""Who gets how much memory credit: exact limits, minima untouched, unused credit asked back before a refusal."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.arbiter.pair import load
from tests.examples import examples

GIB = 1 << 30
PATIENCE_NS = 20_000_000


class Table:
    """Rows are (slice, granted, returned, used); want() asks as a tenant would and steps once."""

    def __init__(self, total: int, slices: list[tuple[int, int, int]], owners: list[int]) -> None:
        self.ffi, self.lib = load()
        self.slices = self.ffi.new("struct vg_memory_slice[]", len(slices))
        for row, (_, low, high) in zip(self.slices, slices, strict=True):
            row.min_bytes, row.max_bytes = low, high
        places = {ident: place for place, (ident, _, _) in enumerate(slices)}
        self.rows = [self.ffi.new("struct vg_memory_row *", {"slice": places[owner]}) for owner in owners]
        self.pointers = self.ffi.new("struct vg_memory_row *[]", self.rows)
        self.table = self.ffi.new(
            "struct vg_memory_table *",
            {
                "total_bytes": total,
                "slices": self.slices,
                "slice_count": len(slices),
                "rows": self.pointers,
                "row_count": len(owners),
            },
        )

    def update(self, index: int, now_ns: int = 1, **report: int) -> None:
        row = self.rows[index]
        values = {
            "returned": row.returned_bytes,
            "used": row.used_bytes,
            "want": row.want_bytes,
            "seq": row.want_seq,
        } | report
        self.lib.vg_memory_row_update(row, values["returned"], values["used"], values["want"], values["seq"], now_ns)

    def step(self, now_ns: int = 1) -> int:
        return int(self.lib.vg_memory_table_step(self.table, now_ns))

    def want(self, index: int, size: int, now_ns: int = 1) -> Any:
        row = self.rows[index]
        self.update(index, now_ns, want=size, seq=row.want_seq + 1)
        self.step(now_ns)
        return row

    def held(self, index: int) -> int:
        return int(self.rows[index].granted_bytes - self.rows[index].returned_bytes)


def test_exactly_the_limit_is_granted_and_not_a_byte_more() -> None:
    table = Table(10 * GIB, [(1, 4 * GIB, 4 * GIB)], [1])
    table.want(0, 4 * GIB)
    assert table.held(0) == 4 * GIB
    table.update(0, used=4 * GIB)
    assert table.want(0, 1).denied
    assert table.held(0) == 4 * GIB


def test_borrowing_stops_at_what_others_are_guaranteed() -> None:
    table = Table(10 * GIB, [(1, 2 * GIB, 10 * GIB), (2, 5 * GIB, 5 * GIB)], [1, 2])
    assert table.want(0, 6 * GIB).denied
    table.want(0, 5 * GIB)
    assert table.held(0) == 5 * GIB
    table.want(1, 5 * GIB)
    assert table.held(1) == 5 * GIB  # the guarantee was there all the time


def test_what_is_away_leaves_its_memory_to_others_and_comes_back_to_what_they_left() -> None:
    table = Table(10 * GIB, [(1, 4 * GIB, 6 * GIB), (2, 2 * GIB, 10 * GIB)], [1, 2])
    table.want(0, 6 * GIB)
    table.update(0, used=6 * GIB)
    assert table.want(1, 5 * GIB).denied
    table.slices[0].away = True
    table.want(1, 8 * GIB)
    assert table.held(1) == 8 * GIB
    table.update(1, used=8 * GIB)
    table.update(0, returned=2 * GIB, used=3 * GIB)
    assert table.want(0, 2 * GIB).denied and table.held(0) == 4 * GIB, "while it is away it has its minimum"
    assert not table.rows[0].pressure
    table.slices[0].away = False
    table.update(0, returned=4 * GIB, used=2 * GIB)
    table.want(0, 2 * GIB)
    assert table.held(0) == 4 * GIB, "its minimum is its own again"
    table.update(0, used=4 * GIB)
    assert table.want(0, 1 * GIB).denied, "beyond it others have what there is"


def test_unused_credit_of_a_sibling_is_asked_back_before_a_refusal() -> None:
    table = Table(10 * GIB, [(1, 4 * GIB, 4 * GIB)], [1, 1])
    table.want(0, 4 * GIB)
    table.update(0, used=1 * GIB)
    row = table.want(1, 3 * GIB, now_ns=100)
    assert table.held(1) == 0 and not row.denied and table.rows[0].pressure
    table.update(0, returned=3 * GIB)
    table.step(200)
    assert table.held(1) == 3 * GIB and not table.rows[0].pressure


def test_a_sibling_that_does_not_answer_costs_the_patience_and_no_more() -> None:
    table = Table(10 * GIB, [(1, 4 * GIB, 4 * GIB)], [1, 1])
    table.want(0, 4 * GIB)
    row = table.want(1, 1 * GIB, now_ns=100)
    assert table.step(100) == 100 + PATIENCE_NS
    table.step(100 + PATIENCE_NS)
    assert row.denied and row.want_answered == row.want_seq and table.held(1) == 0


def test_reports_that_cannot_be_true_are_cut_to_what_can() -> None:
    table = Table(10 * GIB, [(1, 4 * GIB, 4 * GIB)], [1])
    table.want(0, 2 * GIB)
    table.update(0, returned=3 * GIB, used=9 * GIB)
    assert table.held(0) == 0 and table.rows[0].used_bytes == 0
    table.update(0, returned=1)  # a counter that went back is ignored
    assert table.held(0) == 0


def test_coast_credit_of_all_processes_stays_within_the_guarantee() -> None:
    table = Table(10 * GIB, [(1, 4 * GIB, 6 * GIB)], [1, 1])
    table.want(0, 1 * GIB)
    assert sum(row.coast_bytes for row in table.rows) == 4 * GIB


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), max_size=40))
def test_limits_hold_under_any_sequence(moves: list[tuple[int, int, bool]]) -> None:
    table = Table(10, [(1, 3, 6), (2, 4, 10)], [1, 1, 2, 2])
    now_ns = 1
    for index, size, give_back in moves:
        now_ns += 10_000_000
        if give_back:
            row = table.rows[index]
            table.update(index, now_ns, returned=row.returned_bytes + min(size, table.held(index)))
            table.step(now_ns)
        else:
            table.want(index, size, now_ns)
        first, second = table.held(0) + table.held(1), table.held(2) + table.held(3)
        assert first <= 6 and second <= 10 and first + second <= 10
        assert first + max(second, 4) <= 10 or first <= 3


def test_what_is_past_the_ledger_counts_as_held() -> None:
    """For the slice itself, and for others that would borrow the same memory."""
    table = Table(10 * GIB, [(1, 2 * GIB, 6 * GIB), (2, 0, 10 * GIB)], [1, 2])
    table.slices[0].unattributed_bytes = 5 * GIB
    assert table.want(0, 2 * GIB).denied
    assert not table.want(0, GIB).denied
    assert table.want(1, 5 * GIB, now_ns=1).granted_bytes == 0
    assert table.want(1, 4 * GIB, now_ns=1).granted_bytes == 4 * GIB
