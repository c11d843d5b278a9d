"""The arbiter's decisions under a fake clock: shares, caps, borrowing, debt, early release, overlap."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .arbiter_model import MS, NEVER, OVERLAP, Tenant, World

SECOND = 1000 * MS


def run(tenants: list[Tenant], seconds: int = 6, **params: int) -> World:
    world = World(tenants, **params)
    world.run(seconds * SECOND)
    return world


@pytest.mark.parametrize("minima", [(250, 750), (500, 500), (100, 900), (125,) * 8])
def test_saturating_tenants_get_their_fractions(minima: tuple[int, ...]) -> None:
    world = run([Tenant(i, m, m) for i, m in enumerate(minima)])
    for i, wanted in enumerate(minima):
        assert world.worst_second(i, wanted / 1000, SECOND) < 0.01
    assert sum(world.shares(2 * SECOND, 6 * SECOND)) > 0.99


def test_kernels_of_very_different_length_do_not_move_the_shares() -> None:
    world = run([Tenant(1, 500, 1000), Tenant(2, 300, 300, 2 * MS), Tenant(3, 200, 1000, 40 * MS)])
    for i, wanted in enumerate((0.5, 0.3, 0.2)):
        assert world.worst_second(i, wanted, SECOND) < 0.02


def test_a_tenant_kept_waiting_by_long_kernels_catches_up_under_its_cap() -> None:
    world = run([Tenant(1, 750, 750), Tenant(2, 250, 250, 40 * MS)])
    assert world.worst_second(0, 0.75, SECOND) < 0.02
    assert sum(world.shares(2 * SECOND, 6 * SECOND)) > 0.98


@pytest.mark.parametrize("cap", [100, 300, 500])
def test_a_cap_holds_on_an_idle_device(cap: int) -> None:
    world = run([Tenant(1, cap, cap), Tenant(2, 1000 - cap, 1000 - cap, begin_ns=NEVER - 1)])
    assert world.worst_second(0, cap / 1000, SECOND) < 0.01


def test_what_others_leave_idle_is_borrowed_and_given_back() -> None:
    tenants = [Tenant(1, 250, 1000), Tenant(2, 750, 1000, begin_ns=3 * SECOND, end_ns=6 * SECOND)]
    world = run(tenants, 8)
    assert world.shares(1 * SECOND, 3 * SECOND)[0] > 0.99
    assert world.shares(3 * SECOND + 50 * MS, 6 * SECOND) == pytest.approx([0.25, 0.75], abs=0.02)
    assert world.shares(6 * SECOND + 50 * MS, 8 * SECOND)[0] > 0.98


def test_borrowed_time_is_not_debt_of_the_guarantee() -> None:
    tenants = [Tenant(1, 500, 1000), Tenant(2, 500, 1000, begin_ns=2 * SECOND)]
    world = run(tenants, 3)
    assert world.shares(2 * SECOND, 2 * SECOND + 100 * MS)[0] > 0.3  # not starved for what it borrowed before


def test_a_launch_bound_tenant_keeps_the_device_over_its_short_pauses_while_it_is_owed() -> None:
    """0.75 of a device: bursts of 4 ms and pauses of 1 ms use 0.8 of it alone, and 0.6 in the time that is theirs."""
    launch_bound = {"burst_ns": 4 * MS, "pause_ns": 1 * MS}
    alone = run([Tenant(1, 750, 750, **launch_bound)], 4).shares(SECOND, 4 * SECOND)[0]
    beside = run([Tenant(1, 750, 750, **launch_bound), Tenant(2, 250, 1000)], 6).shares(2 * SECOND, 6 * SECOND)
    impatient = run([Tenant(1, 750, 750, **launch_bound), Tenant(2, 250, 1000)], 6, patience_ns=0)
    assert alone > 0.7
    assert beside[0] > 0.55 and beside[1] > 0.23
    assert impatient.shares(2 * SECOND, 6 * SECOND)[0] < 0.4  # what it would get otherwise


def test_an_idle_holder_pays_nothing_for_a_waiter_over_its_cap_and_the_timer_lies_ahead() -> None:
    """Kernels of 200 ms at a cap of 0.3 leave long debts: all the while their owner waits, and nobody keeps it."""
    world = World([Tenant(1, 250, 1000, burst_ns=MS, pause_ns=150 * MS), Tenant(2, 300, 300, 200 * MS)])
    while world.now_ns < 2 * SECOND:
        now_ns = world.now_ns
        world.run(now_ns + world.tick_ns)
        assert world.deadline_ns > now_ns  # else the arbiter's thread would spin
    mine = world.row(world.tenants[0]).stats.charged_ns
    assert mine < 2 * world.tenants[0].got_ns


def test_what_was_borrowed_from_a_free_device_is_no_debt_to_those_who_come_later() -> None:
    early, late = Tenant(1, 0, 1000, end_ns=4 * SECOND), Tenant(2, 0, 1000, begin_ns=4 * SECOND + 200 * MS)
    world = World([early, late])
    world.run(4 * SECOND + 100 * MS)
    early.attached = False  # its program has ended; the next one in the slice starts later
    world.run(5 * SECOND)
    early.attached, early.end_ns = True, NEVER
    world.run(7 * SECOND)
    assert world.shares(5 * SECOND, 7 * SECOND) == pytest.approx([0.5, 0.5], abs=0.05)


def test_time_in_which_the_arbiter_stood_still_is_charged_to_nobody() -> None:
    """Its process was stopped for ten seconds; the tenants followed their timetables meanwhile."""
    world = run([Tenant(1, 500, 1000), Tenant(2, 500, 1000)], 1)
    world.now_ns += 10 * SECOND
    for tenant in world.tenants:
        tenant.trace += [tenant.got_ns] * 1000
    world.run(13 * SECOND)
    assert world.shares(11 * SECOND, 12 * SECOND) == pytest.approx([0.5, 0.5], abs=0.05)


def test_excess_goes_by_weight() -> None:
    world = run([Tenant(1, 100, 1000, weight=100), Tenant(2, 100, 1000, weight=300)])
    first, second = world.shares(2 * SECOND, 6 * SECOND)
    assert (second - 0.1) / (first - 0.1) == pytest.approx(3, rel=0.1)


def test_a_kernel_of_a_second_becomes_overlap_and_debt() -> None:
    tenants = [Tenant(1, 500, 1000), Tenant(2, 500, 1000, kernel_ns=1000 * MS)]
    world = run(tenants, 20)
    assert world.shares(2 * SECOND, 20 * SECOND) == pytest.approx([0.5, 0.5], abs=0.03)
    assert world.row(tenants[1]).stats.overruns > 0


def test_nobody_waits_longer_for_a_drain_than_bound_and_overrun() -> None:
    tenants = [Tenant(1, 500, 500, kernel_ns=10 * SECOND, end_ns=MS), Tenant(2, 500, 500, begin_ns=2 * MS)]
    world = World(tenants)
    world.run(20 * MS)
    opened = [at for at, ident, state in world.log if ident == 2 and state != 0]
    assert opened and opened[0] <= 10 * MS + 2 * MS + 2 * MS + 2 * world.tick_ns  # quantum, bound, overrun
    assert world.row(tenants[0]).state == OVERLAP


def test_a_stopped_tenant_costs_the_others_next_to_nothing() -> None:
    tenants = [Tenant(1, 500, 1000), Tenant(2, 500, 500)]
    world = run(tenants, 2)
    tenants[0].stopped = True
    world.run(5 * SECOND)
    assert world.shares(3 * SECOND, 5 * SECOND) == pytest.approx([0, 0.5], abs=0.01)  # nor may the other exceed its cap
    tenants[0].stopped = False
    world.run(8 * SECOND)
    assert world.shares(7 * SECOND, 8 * SECOND) == pytest.approx([0.5, 0.5], abs=0.02)


def test_work_that_waits_for_its_own_thread_is_let_in_now_and_then() -> None:
    """A stream waits for a word that a thread at the gate would write: endless work, and no bucket left."""
    stuck, other = Tenant(1, 500, 500, kernel_ns=1000 * SECOND), Tenant(2, 500, 500)
    world = run([stuck, other], 4)
    opened = [at for at, ident, state in world.log if ident == 1 and state != 0 and at > 2 * SECOND]
    assert len(opened) >= 5
    assert max(b - a for a, b in pairwise(opened)) < 200 * MS


def test_alone_with_max_of_the_whole_device_the_gate_is_solo_until_a_second_tenant_attaches() -> None:
    world = run([Tenant(1, 500, 1000)], 1)
    assert world.tenants[0].word & 3 == 2
    second = Tenant(2, 500, 1000, begin_ns=NEVER - 1)
    world.tenants.append(second)
    world.set(second)
    world.run(2 * SECOND)
    assert world.tenants[0].word & 3 == 1


def test_epochs_grow_with_every_change_of_a_gate() -> None:
    world = World([Tenant(1, 500, 500), Tenant(2, 500, 500)])
    words: list[int] = []
    for step in range(1, 200):
        world.run(step * MS)
        words.append(world.tenants[0].word >> 2)
    assert words == sorted(words) and words[-1] > 10


def test_minimum_and_maximum_can_be_changed_while_running() -> None:
    world = run([Tenant(1, 250, 250), Tenant(2, 750, 750)], 3)
    for tenant, milli in zip(world.tenants, (600, 400), strict=True):
        tenant.min_milli = tenant.max_milli = milli
        world.set(tenant)
    world.run(6 * SECOND)
    assert world.shares(4 * SECOND, 6 * SECOND) == pytest.approx([0.6, 0.4], abs=0.01)


def test_a_removed_slice_leaves_its_time_to_the_others() -> None:
    world = run([Tenant(1, 250, 1000), Tenant(2, 750, 750)], 3)
    world.lib.vg_core_remove(world.core, 2)
    world.tenants.pop()
    world.run(5 * SECOND)
    assert world.shares(4 * SECOND, 5 * SECOND)[0] > 0.99


def test_same_input_same_trace() -> None:
    worlds = [run([Tenant(1, 250, 500), Tenant(2, 500, 1000, 3 * MS)], 2) for _ in range(2)]
    assert worlds[0].log == worlds[1].log


def test_coast_timetable_gives_minima_and_never_more_than_maxima() -> None:
    world = run([Tenant(1, 250, 250), Tenant(2, 500, 1000)], 1)
    slots = world.ffi.new("struct vg_coast_slot[8]")
    spans = []
    for tenant in world.tenants:
        assert world.lib.vg_core_coast_slots(world.core, tenant.ident, slots, 8) == 1
        spans.append((slots[0].begin_us, slots[0].end_us))
    assert spans == [(0, 5000), (5000, 20000)]


def test_table_full_is_refused() -> None:
    world = World([Tenant(i, 0, 1000) for i in range(128)])
    params = world.ffi.new("struct vg_slice_params *", {"max_milli": 1000})
    assert world.lib.vg_core_set(world.core, 999, params) == world.ffi.NULL


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(50, 500), st.integers(0, 500), st.integers(1, 40)), min_size=1, max_size=5).filter(
        lambda rows: sum(minimum for minimum, _, _ in rows) <= 1000
    )
)
def test_guarantees_and_caps_hold_for_any_mix(rows: list[tuple[int, int, int]]) -> None:
    tenants = [
        Tenant(i, minimum, min(1000, minimum + extra), kernel * 100_000)
        for i, (minimum, extra, kernel) in enumerate(rows)
    ]
    world = run(tenants, 4)
    shares = world.shares(SECOND, 4 * SECOND)
    for tenant, share in zip(tenants, shares, strict=True):
        assert share > tenant.min_milli / 1000 - 0.03
        assert share < tenant.max_milli / 1000 + 0.03
    wanted = min(1.0, sum(t.max_milli for t in tenants) / 1000)
    assert sum(shares) > wanted - 0.06
