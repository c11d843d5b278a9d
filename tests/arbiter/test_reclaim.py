"""Memory that is promised to one slice and used by another: who is asked for it, for how long, and what a program gains
that does not answer.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.arbiter.test_memory import GIB, PATIENCE_NS, Table
from tests.examples import examples

GRACE_NS = 10_000_000_000
AGAIN_NS = 60_000_000_000
BORROWER, OWNER = 0, 1


class Promise(Table):
    """A device of 10 GiB. Slice 1 uses 9 of it and is guaranteed 2; then slice 2 is promised 8."""

    def __init__(self, watchers: int = 1, grace_ns: int = GRACE_NS) -> None:
        super().__init__(10 * GIB, [(1, 2 * GIB, 10 * GIB), (2, 0, 10 * GIB)], [1, 2])
        self.table.grace_ns = grace_ns
        self.want(BORROWER, 9 * GIB)
        self.update(BORROWER, used=9 * GIB)
        self.slices[1].min_bytes = 8 * GIB
        self.rows[BORROWER].watchers = watchers

    @property
    def reclaim(self) -> Any:
        return self.slices[0].reclaim

    def give_back(self, size: int, now_ns: int) -> None:
        row = self.rows[BORROWER]
        self.update(BORROWER, now_ns, used=row.used_bytes - size, returned=row.returned_bytes + size)
        self.step(now_ns)


def test_a_borrower_that_watches_is_asked_for_what_is_missing() -> None:
    world = Promise()
    row = world.want(OWNER, 4 * GIB, now_ns=100)
    assert row.want_answered != row.want_seq, "it waits"
    assert world.reclaim.remaining_bytes == 3 * GIB, "1 GiB was free"
    assert world.reclaim.deadline_ns == row.want_deadline_ns == 100 + GRACE_NS
    assert world.rows[BORROWER].pressure
    world.give_back(1 * GIB, 200)
    assert world.reclaim.remaining_bytes == 2 * GIB
    assert row.want_answered != row.want_seq
    world.give_back(2 * GIB, 500)
    assert world.held(OWNER) == 4 * GIB and not row.denied and row.want_deadline_ns == 0
    assert (world.reclaim.remaining_bytes, world.reclaim.end_count, world.reclaim.last_was_late) == (0, 1, False)
    assert (world.reclaim.last_returned_bytes, world.reclaim.last_took_ns) == (3 * GIB, 400)
    assert world.slices[1].shortages == 0


def test_without_a_watcher_nothing_waits() -> None:
    """The want is granted as ever, and the driver says that there is no memory."""
    for world in (Promise(watchers=0), Promise(grace_ns=0)):
        row = world.want(OWNER, 4 * GIB, now_ns=100)
        assert row.want_answered == row.want_seq and world.held(OWNER) == 4 * GIB
        assert world.reclaim.serial == 0
        assert (world.slices[1].shortages, world.slices[1].last_short_bytes) == (1, 3 * GIB)


def test_a_watcher_that_gives_nothing_back_delays_one_want_in_a_minute() -> None:
    world = Promise()
    row = world.want(OWNER, 4 * GIB, now_ns=100)
    assert world.step(200) == 100 + GRACE_NS
    world.step(100 + GRACE_NS)
    assert world.held(OWNER) == 4 * GIB, "as without a watcher"
    assert (world.reclaim.end_count, world.reclaim.last_was_late, world.reclaim.last_returned_bytes) == (1, True, 0)
    world.update(OWNER, returned=4 * GIB)  # the driver has refused it
    later_ns = 100 + GRACE_NS + AGAIN_NS
    row = world.want(OWNER, 4 * GIB, now_ns=later_ns - 1)
    assert row.want_answered == row.want_seq, "not a moment is waited for it again"
    world.update(OWNER, returned=8 * GIB)
    row = world.want(OWNER, 4 * GIB, now_ns=later_ns)
    assert row.want_answered != row.want_seq and world.reclaim.remaining_bytes == 3 * GIB


def test_unused_credit_comes_first() -> None:
    world = Promise()
    world.update(BORROWER, used=5 * GIB)
    world.want(OWNER, 4 * GIB, now_ns=100)
    assert world.rows[BORROWER].pressure and world.reclaim.serial == 0
    world.update(BORROWER, returned=4 * GIB)
    world.step(200)
    assert world.held(OWNER) == 4 * GIB and world.reclaim.serial == 0


def test_unused_credit_that_does_not_come_is_waited_for_as_ever() -> None:
    world = Promise(watchers=0)
    world.update(BORROWER, used=5 * GIB)
    row = world.want(OWNER, 4 * GIB, now_ns=100)
    assert row.want_answered != row.want_seq
    assert world.step(101) == 100 + PATIENCE_NS
    world.step(100 + PATIENCE_NS)
    assert row.want_answered == row.want_seq and world.held(OWNER) == 4 * GIB


def test_beyond_its_minimum_no_other_slice_is_asked() -> None:
    world = Promise()
    world.slices[1].min_bytes = 3 * GIB
    assert world.want(OWNER, 4 * GIB, now_ns=100).denied
    assert world.reclaim.serial == 0


def test_what_an_allocation_needs_is_enough() -> None:
    world = Promise()
    world.rows[OWNER].want_least_bytes = 1 * GIB
    row = world.want(OWNER, 2 * GIB, now_ns=100)
    assert row.want_answered == row.want_seq and world.held(OWNER) == 1 * GIB and world.reclaim.serial == 0


def test_borrowers_are_asked_in_proportion_and_never_below_their_minimum() -> None:
    table = Table(12 * GIB, [(1, 1 * GIB, 12 * GIB), (2, 1 * GIB, 12 * GIB), (3, 0, 12 * GIB)], [1, 2, 3])
    table.table.grace_ns = GRACE_NS
    for index, size in ((0, 7 * GIB), (1, 4 * GIB)):
        table.want(index, size)
        table.update(index, used=size)
        table.rows[index].watchers = 1
    table.slices[2].min_bytes = 10 * GIB
    table.want(2, 4 * GIB, now_ns=100)
    assert [table.slices[i].reclaim.remaining_bytes for i in (0, 1)] == [2 * GIB, 1 * GIB]
    table.want(2, 10 * GIB, now_ns=200)
    assert [table.slices[i].reclaim.remaining_bytes for i in (0, 1)] == [6 * GIB, 3 * GIB]


def test_more_is_asked_for_with_new_time() -> None:
    table = Table(10 * GIB, [(1, 2 * GIB, 10 * GIB), (2, 0, 10 * GIB)], [1, 2, 2])
    table.table.grace_ns = GRACE_NS
    table.want(0, 10 * GIB)
    table.update(0, used=10 * GIB)
    table.rows[0].watchers = 1
    table.slices[1].min_bytes = 8 * GIB
    table.want(1, 2 * GIB, now_ns=100)
    reclaim = table.slices[0].reclaim
    assert (reclaim.serial, reclaim.deadline_ns) == (1, 100 + GRACE_NS)
    table.want(2, 3 * GIB, now_ns=GRACE_NS // 2)
    assert (reclaim.serial, reclaim.remaining_bytes) == (2, 5 * GIB)
    assert (reclaim.begin_ns, reclaim.deadline_ns) == (100, GRACE_NS // 2 + GRACE_NS)


def test_a_want_that_is_gone_ends_the_request() -> None:
    world = Promise()
    world.want(OWNER, 4 * GIB, now_ns=100)
    world.table.row_count = 1  # its process has died
    world.step(200)
    assert (world.reclaim.remaining_bytes, world.reclaim.end_count, world.reclaim.last_was_late) == (0, 1, False)


def test_a_maximum_below_what_is_used_is_asked_for() -> None:
    world = Promise()
    world.slices[1].min_bytes = 0
    world.slices[0].max_bytes = 6 * GIB
    assert world.step(100) == 100 + GRACE_NS
    assert world.reclaim.remaining_bytes == 3 * GIB
    world.give_back(3 * GIB, 300)
    assert (world.reclaim.remaining_bytes, world.reclaim.last_returned_bytes) == (0, 3 * GIB)


def test_requests_are_decided_by_rows_as_of_now() -> None:
    world = Promise()
    world.table.stale = True
    world.want(OWNER, 4 * GIB, now_ns=100)
    assert world.reclaim.serial == 0
    world.table.stale = False
    world.step(100)
    world.table.stale = True
    assert world.step(300) == 300
    assert world.reclaim.remaining_bytes == 3 * GIB


MOVE = st.tuples(
    st.integers(0, 3), st.sampled_from(["want", "give", "use", "watch", "wait", "max", "space"]), st.integers(0, 10)
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(MOVE, max_size=60))
def test_requests_hold_under_any_sequence(moves: list[tuple[int, str, int]]) -> None:
    """No slice is asked for a byte of its minimum, or without a watcher; every want ends within the grace."""
    mib = 1 << 20
    table = Table(20 * mib, [(1, 6 * mib, 20 * mib), (2, 8 * mib, 20 * mib), (3, 6 * mib, 12 * mib)], [1, 1, 2, 3])
    table.table.grace_ns = grace_ns = 100_000_000
    minima = [table.slices[i].min_bytes for i in range(3)]
    now_ns, due_ns = 1, 1
    for index, move, size in moves:
        row = table.rows[index]
        now_ns += 7_000_000
        if move == "want" and row.want_seq == row.want_answered:
            table.update(index, now_ns, want=size * mib, seq=row.want_seq + 1)
        elif move == "give":
            back = min(size * mib, table.held(index))
            used = min(row.used_bytes, table.held(index) - back)
            table.update(index, now_ns, returned=row.returned_bytes + back, used=used)
        elif move == "use":
            table.update(index, now_ns, used=table.held(index))
        elif move == "watch":
            row.watchers = size % 2
        elif move == "wait":
            now_ns += size * grace_ns
        elif move == "max":
            slice_ = table.slices[row.slice]
            slice_.max_bytes = max(slice_.min_bytes, size * 2 * mib)
        elif move == "space":
            table.table.space_bytes = size * 2 * mib
        due_ns = table.step(now_ns)
        assert due_ns > now_ns
        for i in range(3):
            reclaim, used = table.slices[i].reclaim, table.slices[i].used_bytes
            assert reclaim.remaining_bytes <= max(0, used - min(minima[i], table.slices[i].max_bytes))
            assert not reclaim.remaining_bytes or (table.slices[i].watchers and now_ns < reclaim.deadline_ns)
        for other in table.rows:
            if other.want_seq != other.want_answered:
                assert now_ns < other.want_since_ns + grace_ns + 2 * PATIENCE_NS


# ---- space for a slice that is to come back from the host ----

SLEEPER = OWNER


class Lent(Promise):
    """The same device, and slice 2 is away with the 8 GiB that it holds."""

    def __init__(self, watchers: int = 1, grace_ns: int = GRACE_NS) -> None:
        super().__init__(watchers, grace_ns)
        self.slices[1].away = True
        self.want(SLEEPER, 8 * GIB)
        self.update(SLEEPER, used=8 * GIB)

    def make_room(self, size: int, now_ns: int) -> int:
        self.table.space_bytes = size
        return self.step(now_ns)


def test_a_borrower_is_asked_for_the_room_of_one_that_is_to_come_back() -> None:
    world = Lent()
    world.step(50)
    assert world.reclaim.serial == 0, "it is away: nothing is missing"
    assert world.make_room(8 * GIB, 100) == 100 + GRACE_NS
    assert world.reclaim.remaining_bytes == 7 * GIB and world.rows[BORROWER].pressure
    world.give_back(3 * GIB, 200)
    assert (world.reclaim.remaining_bytes, world.reclaim.asked_bytes, world.reclaim.serial) == (4 * GIB, 7 * GIB, 1)
    world.give_back(4 * GIB, 300)
    assert (world.reclaim.remaining_bytes, world.reclaim.end_count, world.reclaim.last_was_late) == (0, 1, False)
    assert not world.rows[BORROWER].pressure


def test_nothing_is_lent_out_of_that_room() -> None:
    world = Lent(watchers=0)
    world.give_back(8 * GIB, 100)
    world.make_room(8 * GIB, 200)
    assert world.want(BORROWER, 2 * GIB, now_ns=300).want_answered, "1 GiB of its minimum, which it had"
    assert world.rows[BORROWER].denied and world.held(BORROWER) == 1 * GIB
    assert not world.want(BORROWER, 1 * GIB, now_ns=400).denied, "its minimum is its own"
    world.make_room(0, 500)
    assert not world.want(BORROWER, 1 * GIB, now_ns=600).denied


def test_unused_credit_is_taken_back_for_it_without_a_watcher() -> None:
    for grace_ns in (GRACE_NS, 0):
        world = Lent(watchers=0, grace_ns=grace_ns)
        world.update(BORROWER, used=1 * GIB)
        world.make_room(8 * GIB, 100)
        assert world.rows[BORROWER].pressure and world.reclaim.serial == 0
        world.update(BORROWER, returned=7 * GIB)
        world.step(200)
        assert not world.rows[BORROWER].pressure


def test_who_keeps_that_room_is_asked_again_after_a_minute_by_itself() -> None:
    world = Lent()
    world.make_room(8 * GIB, 100)
    late_ns = 100 + GRACE_NS
    assert world.step(late_ns) == late_ns + AGAIN_NS
    assert (world.reclaim.remaining_bytes, world.reclaim.last_was_late) == (0, True)
    world.step(late_ns + AGAIN_NS)
    assert world.reclaim.remaining_bytes == 7 * GIB and world.reclaim.serial == 2


def test_no_room_is_judged_by_rows_of_before() -> None:
    world = Lent()
    world.table.stale = True
    assert world.make_room(8 * GIB, 100) == 100 and world.reclaim.serial == 0
