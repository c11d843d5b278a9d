"""The arbiter's decisions under a fake clock: shares, caps, borrowing, debt, early release, overlap. The arbiter is the
reference model and the C core at once: each test is one of their equality as well."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from models.arbiter.model import CLOSED, COUNT, SOLO, Params, Regime, Slice, SliceParams
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import MS, NEVER, SECOND, US, Load, Tenant, World, tenant


def saturating(ident: int, minimum: int, maximum: int | None = None, kernel_us: int = 200, **load: Any) -> Tenant:
    """Kernels of one length, always some in flight."""
    return tenant(ident, minimum, maximum, Load(kernel_us * US, max(1, 3200 // kernel_us), **load))


def run(tenants: list[Tenant], seconds: float = 3) -> World:
    world = World(tenants, Pair())
    world.run(int(seconds * SECOND))
    return world


def shares(world: World, begin_ns: int, end_ns: int) -> list[float]:
    return [t.share(begin_ns, end_ns) for t in world.tenants]


def row(world: World, ident: int) -> Slice:
    assert world.arbiter
    return next(s for s in world.arbiter.slices if s.ident == ident)


# ---- shares ----


@pytest.mark.parametrize("minima", [(250, 750), (500, 500), (100, 900), (125,) * 8])
def test_saturating_tenants_get_their_fractions(minima: tuple[int, ...]) -> None:
    world = run([saturating(i, m) for i, m in enumerate(minima)])
    for t, wanted in zip(world.tenants, minima, strict=True):
        assert world.worst_second(t, wanted / 1000, SECOND) < 0.015
    assert world.total(SECOND, 3 * SECOND) > 0.985


@pytest.mark.parametrize("count", [4, 5, 8])
def test_seconds_of_equal_tenants_differ_by_less_than_a_lease(count: int) -> None:
    """A second may begin and end anywhere in the cycle of their leases."""
    world = run([saturating(i, 1000 // count, 1000) for i in range(count)], 4)
    assert max(world.worst_second(t, 1 / count, SECOND) for t in world.tenants) < 0.008
    assert world.total(SECOND, 4 * SECOND) > 0.995


def test_kernels_of_very_different_length_do_not_move_the_shares() -> None:
    world = run([saturating(1, 500, 1000), saturating(2, 300, 300, 2000), saturating(3, 200, 1000, 40_000)], 4)
    for t, wanted in zip(world.tenants, (0.5, 0.3, 0.2), strict=True):
        assert world.worst_second(t, wanted, SECOND) < 0.025


def test_long_kernels_that_others_overlap_are_charged_no_time_of_the_others() -> None:
    """Their cost is known only from when they run beside others: it seems half as much again, and neither this slice
    nor the device may lose that time to a maximum."""
    long = saturating(3, 200, 200, 40_000, lie=lambda name, ns: ns * 3 // 2 if name == "done" else ns)
    world = run([saturating(1, 500, 500), saturating(2, 300, 300, 2000), long], 4)
    assert shares(world, SECOND, 4 * SECOND) == pytest.approx([0.5, 0.3, 0.2], abs=0.015)
    assert world.total(SECOND, 4 * SECOND) > 0.975


def test_a_tenant_kept_waiting_by_long_kernels_catches_up_under_its_cap() -> None:
    world = run([saturating(1, 750, 750), saturating(2, 250, 250, 40_000)], 5)
    assert world.worst_second(world.tenants[0], 0.75, 2 * SECOND) < 0.025
    assert world.total(2 * SECOND, 4 * SECOND) > 0.975


def test_a_tenant_with_four_processes_gets_as_much_as_one_with_one() -> None:
    """Its processes have its leases in turns: side by side, changes between their contexts would take 2 % of it."""
    world = run([tenant(1, 500, None, *[Load() for _ in range(4)]), saturating(2, 500)])
    assert shares(world, SECOND, 3 * SECOND) == pytest.approx([0.5, 0.5], abs=0.003)
    assert world.worst_second(world.tenants[0], 0.5, SECOND) < 0.01
    executed = [p.executed_ns for p in world.tenants[0].processes]
    assert max(executed) - min(executed) < 50 * MS


def test_processes_that_leave_gaps_fill_each_others() -> None:
    world = run([tenant(1, 500, None, *[Load(burst=5, gap_ns=MS) for _ in range(4)]), saturating(2, 500)])
    assert shares(world, SECOND, 3 * SECOND) == pytest.approx([0.49, 0.5], abs=0.01)


def test_a_lease_is_extended_by_what_the_holder_has_not_had() -> None:
    """With extensions by a whole lease each would be ahead in turn, and its seconds would vary with that."""
    world = run([saturating(1, 250, 1000), saturating(2, 750, 1000)], 6)
    for t, wanted in zip(world.tenants, (0.25, 0.75), strict=True):
        assert world.worst_second(t, wanted, 2 * SECOND) < 0.012


def test_kernels_of_a_second_become_overlap_and_debt() -> None:
    world = run([saturating(1, 500, 1000), saturating(2, 500, 1000, 1_000_000)], 8)
    assert shares(world, 2 * SECOND, 8 * SECOND) == pytest.approx([0.5, 0.5], abs=0.03)
    assert row(world, 2).overruns > 0


def test_a_slice_that_waits_at_its_gate_for_seconds_is_not_taken_for_idle() -> None:
    """Its page's clock is a part in a million slow. As long as a debt lasts it neither works nor pauses."""
    slow = {"lie": lambda name, ns: ns - ns // 1_000_000 if name == "active" else ns}
    world = World([saturating(1, 250, 1000, 1_000_000, **slow), saturating(2, 750, 1000)], Pair())
    for at_ns in range(2 * SECOND, 10 * SECOND, 50 * MS):
        world.run(at_ns)
        assert row(world, 1).saturating
    assert shares(world, 2 * SECOND, 10 * SECOND) == pytest.approx([0.24, 0.75], abs=0.04)


def test_excess_goes_by_weight() -> None:
    world = run([saturating(1, 100, 1000), tenant(2, 100, 1000, weight=300)])
    first, second = shares(world, SECOND, 3 * SECOND)
    assert (second - 0.1) / (first - 0.1) == pytest.approx(3, rel=0.1)


def test_same_input_same_trace() -> None:
    worlds = [run([saturating(1, 250, 500), saturating(2, 500, 1000, 3000)], 1) for _ in range(2)]
    assert worlds[0].log == worlds[1].log and len(worlds[0].log) > 10


# ---- caps and borrowing ----


@pytest.mark.parametrize("cap", [100, 300, 500])
def test_a_cap_holds_on_an_idle_device(cap: int) -> None:
    world = run([saturating(1, cap), saturating(2, 1000 - cap, attach_ns=0, begin_ns=NEVER)])
    assert world.worst_second(world.tenants[0], cap / 1000, SECOND) < 0.01
    assert row(world, 2).attached


def test_what_could_only_have_been_borrowed_is_not_caught_up_above_the_maximum() -> None:
    """It is kept from its maximum by one that ends: a tenth of a second at most is its own."""
    world = run([saturating(1, 100, 500), saturating(2, 700, 1000, end_ns=2 * SECOND)], 4)
    assert shares(world, SECOND, 2 * SECOND)[0] < 0.35
    assert shares(world, 2 * SECOND, 3 * SECOND)[0] < 0.62
    assert shares(world, 3 * SECOND, 4 * SECOND)[0] == pytest.approx(0.5, abs=0.01)


def test_a_maximum_that_is_lowered_is_in_force_at_once() -> None:
    """Also of one that has been kept from the higher one."""
    world = World([saturating(1, 500, 500), saturating(2, 300, 1000)], Pair())
    world.run(2 * SECOND)
    world.arbiter.set(2, SliceParams(50, 50))
    world.run(3 * SECOND)
    begin_ns = 2 * SECOND + 50 * MS
    assert shares(world, begin_ns, begin_ns + 200 * MS)[1] < 0.1
    assert shares(world, begin_ns, 3 * SECOND)[1] == pytest.approx(0.05, abs=0.02)


def test_what_others_leave_idle_is_borrowed_and_given_back() -> None:
    world = run([saturating(1, 250, 1000), saturating(2, 750, 1000, begin_ns=SECOND, end_ns=2 * SECOND)])
    assert shares(world, 200 * MS, SECOND)[0] > 0.99
    assert shares(world, SECOND + 50 * MS, 2 * SECOND) == pytest.approx([0.25, 0.75], abs=0.02)
    assert shares(world, 2 * SECOND + 50 * MS, 3 * SECOND)[0] > 0.98
    assert row(world, 1).borrowed_ns > SECOND


def test_a_slice_that_is_back_has_half_at_once_and_its_guarantee_soon() -> None:
    """What the other one borrowed before is no debt of its guarantee, either."""
    coming = [Load(active_ns=300 * MS, idle_ns=300 * MS)]
    world = run([saturating(1, 250, 1000), tenant(2, 750, 1000, *coming)])
    begun = [b for (_, a), (b, _) in pairwise(world.tenants[1].spans) if b - a > 250 * MS]
    assert len(begun) >= 3
    for at in begun:
        assert world.tenants[1].share(at, at + 5 * MS) >= 0.37
        assert world.tenants[1].share(at + 50 * MS, at + 250 * MS) == pytest.approx(0.75, abs=0.05)
        assert world.tenants[0].share(at, at + 250 * MS) > 0.2


def test_what_was_borrowed_from_a_free_device_is_no_debt_to_those_who_come_later() -> None:
    early, late = saturating(1, 0, 1000), saturating(2, 0, 1000, begin_ns=1200 * MS)
    world = World([early, late], Pair())
    world.run(1100 * MS)
    world.detach(early.processes[0])  # its program ends; the next one in the slice starts later
    world.run(1500 * MS)
    world.start(early, Load())
    world.run(2500 * MS)
    assert shares(world, 1550 * MS, 2500 * MS) == pytest.approx([0.5, 0.5], abs=0.05)


def test_a_launch_bound_tenant_keeps_its_part_over_its_short_pauses() -> None:
    """Bursts of 4 ms and pauses of 1 ms, in which the other one may have little outstanding while it is ahead."""
    launch_bound = Load(200 * US, 20, gap_ns=MS)
    alone = run([tenant(1, 750, 750, launch_bound)]).tenants[0].share(SECOND, 3 * SECOND)
    beside = shares(run([tenant(1, 750, 750, launch_bound), saturating(2, 250, 1000)]), SECOND, 3 * SECOND)
    assert alone > 0.72
    assert beside[0] > 0.72 and beside[1] > 0.22


def test_an_idle_holder_pays_nothing_for_a_waiter_over_its_cap() -> None:
    """Kernels of 200 ms at a cap of 0.3 leave long debts: their owner waits all the while, for no other slice."""
    world = run([tenant(1, 250, 1000, Load(MS, 1, gap_ns=150 * MS)), saturating(2, 300, 300, 200_000)])
    used_ns = world.tenants[0].share(0, 3 * SECOND) * 3 * SECOND
    assert used_ns / 2 < row(world, 1).charged_ns < 2 * used_ns


def test_time_in_which_the_arbiter_stood_still_is_charged_to_no_slice() -> None:
    """Its process was stopped; the gates stayed as they were meanwhile."""
    world = run([saturating(1, 500, 1000), saturating(2, 500, 1000)], 1)
    charged_ns = [row(world, t.ident).charged_ns for t in world.tenants]
    world.stall(3 * SECOND)
    world.run(4 * SECOND + 100 * MS)
    assert sum(row(world, t.ident).charged_ns for t in world.tenants) - sum(charged_ns) < 200 * MS
    world.run(5 * SECOND)
    assert shares(world, 4 * SECOND + 100 * MS, 5 * SECOND) == pytest.approx([0.5, 0.5], abs=0.03)


# ---- drains, overlap, stopped tenants ----


def open_times(world: World, ident: int, after_ns: int = 0) -> list[int]:
    return [at for at, who, gate in world.log if who == ident and gate != CLOSED and at > after_ns]


def closed(world: World, ident: int, after_ns: int = 0) -> list[int]:
    return [at for at, who, gate in world.log if who == ident and gate == CLOSED and at > after_ns]


def waits_for_drains(world: World, ident: int, of: int) -> list[int]:
    """How long the gate of one has stayed shut after that of another was closed; not what it has waited for a lease."""
    found = []
    for at in closed(world, of, 500 * MS):
        following = [o - at for o in open_times(world, ident, at - 1) if o < at + 40 * MS]
        found += following[:1]
    return found


@pytest.mark.parametrize(("minimum", "most_ms"), [(500, 32), (250, 21.4), (100, 17.8)])
def test_how_long_a_drain_is_waited_for_depends_on_what_the_others_are_due(minimum: int, most_ms: float) -> None:
    world = run([saturating(1, minimum, minimum, 90_000), saturating(2, 1000 - minimum)])
    waits = waits_for_drains(world, 2, 1)
    assert max(waits) == pytest.approx(most_ms * MS, abs=MS // 4)
    assert row(world, 1).overruns > 1


def test_a_drain_of_a_second_is_not_waited_for() -> None:
    """The two overlap in any case; what the one runs alone before is missing from the other's next seconds."""
    world = run([saturating(1, 500, 500, 1_000_000), saturating(2, 500, 500)], 14)
    waits = waits_for_drains(world, 2, 1)
    assert waits and max(waits) < MS
    for t in world.tenants:  # a hundredth is what the changes of context take from each
        starts = range(4 * SECOND, 9 * SECOND + 1, 100 * MS)
        assert max(abs(t.share(at, at + 5 * SECOND) - 0.5) for at in starts) < 0.011


def test_work_that_says_nothing_of_its_end_is_waited_for_no_longer_than_bound_and_overrun() -> None:
    world = run([saturating(1, 500, 500, 60_000, forecast_max_ns=0), saturating(2, 500, 500)])
    params = Params()
    waits = waits_for_drains(world, 2, 1)
    assert max(waits) <= params.bound_ns + params.overrun_ns + MS // 4
    assert sum(wait > params.bound_ns for wait in waits) > 5 and row(world, 1).overruns > 5


def test_kernels_that_are_waited_for_cost_no_slice_a_change_of_context() -> None:
    """40 ms of the one, 40 ms of the other: over 5 s each has half but for part of such a turn."""
    world = run([saturating(1, 500, 500, 40_000), saturating(2, 500, 500)], 8)
    assert world.total(2 * SECOND, 8 * SECOND) > 0.997
    for t in world.tenants:
        starts = range(2 * SECOND, 3 * SECOND + 1, 100 * MS)
        assert max(abs(t.share(at, at + 5 * SECOND) - 0.5) for at in starts) < 0.008
        assert world.worst_second(t, 0.5, 2 * SECOND) < 0.025


def test_a_stopped_tenant_costs_the_others_next_to_nothing() -> None:
    world = run([saturating(1, 500, 1000), saturating(2, 500, 500)], 1)
    stopped = world.tenants[0].processes[0]
    world.stop(stopped)
    world.run(2500 * MS)
    # nor may the other one exceed its cap
    assert shares(world, 1500 * MS, 2500 * MS) == pytest.approx([0, 0.5], abs=0.015)
    world.resume(stopped)
    world.run(4 * SECOND)
    assert shares(world, 3 * SECOND, 4 * SECOND) == pytest.approx([0.5, 0.5], abs=0.02)


def test_work_that_waits_for_its_own_thread_is_let_in_now_and_then() -> None:
    """A stream waits for a word that a thread at the gate would write: endless work, and no bucket left."""
    stuck = tenant(1, 500, 500, Load(1000 * SECOND, 1, forecast_max_ns=MS))
    world = run([stuck, saturating(2, 500, 500)], 4)
    let_in = open_times(world, 1, 2 * SECOND)
    assert len(let_in) >= 5
    assert max(b - a for a, b in pairwise(let_in)) < 200 * MS


def test_what_is_known_to_take_long_by_now_is_let_in_no_more() -> None:
    """Nothing was known of its first kernel when its gate was closed."""
    long = saturating(1, 500, 1000, 3_000_000, forecast_max_ns=MS)
    world = run([long, saturating(2, 500, 1000)], 1)
    let_in = open_times(world, 1, 500 * MS)
    long.loads[0].forecast_max_ns = NEVER
    world.run(3 * SECOND)
    assert len(let_in) >= 5
    assert open_times(world, 1, 1100 * MS) == []


# ---- gates ----


def gate_and_regime(world: World, at_ns: int) -> tuple[int, Regime]:
    """Of the first tenant."""
    world.run(at_ns)
    assert world.arbiter
    return row(world, 1).word & 3, world.arbiter.regime


def test_alone_with_max_of_the_whole_device_the_gate_is_solo_until_a_second_tenant_attaches() -> None:
    world = World([saturating(1, 500, 1000)], Pair())
    assert gate_and_regime(world, 200 * MS) == (SOLO, Regime.SOLO)
    world.add(saturating(2, 500, 1000, attach_ns=300 * MS, begin_ns=NEVER))
    assert gate_and_regime(world, 299 * MS) == (SOLO, Regime.SOLO)
    assert gate_and_regime(world, 301 * MS) == (COUNT, Regime.OPEN)
    world.detach(world.tenants[1].processes[0])
    assert gate_and_regime(world, 400 * MS) == (SOLO, Regime.SOLO)


def test_a_capped_tenant_is_counted_even_alone() -> None:
    assert row(run([saturating(1, 500, 999)], 0.1), 1).word & 3 == COUNT


def test_epochs_grow_with_every_change_of_a_gate() -> None:
    world = World([saturating(1, 500, 500), saturating(2, 500, 500)], Pair())
    epochs: list[int] = []
    for step in range(1, 400):
        world.run(step * MS)
        epochs.append(row(world, 1).word >> 2)
    assert epochs == sorted(epochs) and epochs[-1] > 10
    gates = [gate for _, who, gate in world.log if who == 1]
    assert epochs[-1] - epochs[0] >= len(gates) - 2


def test_regimes() -> None:
    world = World([saturating(1, 500, 1000, begin_ns=100 * MS), saturating(2, 500, 1000, begin_ns=300 * MS)], Pair())
    arbiter = world.arbiter
    assert arbiter
    seen = []
    for at in (50, 250, 600):
        world.run(at * MS)
        seen.append(arbiter.regime)
    assert seen == [Regime.IDLE, Regime.SOLO, Regime.ARBITRATED]
    world = run([tenant(i, 500, 500, Load(20 * US, 50, gap_ns=2 * MS)) for i in (1, 2)], 1)
    assert world.arbiter and world.arbiter.regime == Regime.OPEN


@pytest.mark.parametrize(("busy_us", "regime"), [(200, Regime.THROTTLED), (20, Regime.SOLO)])
def test_a_slice_alone_is_throttled_while_its_maximum_holds_it_back(busy_us: int, regime: Regime) -> None:
    """Its gate opens now and then meanwhile: what is shown does not change with it."""
    world = World([tenant(1, 300, 300, Load(busy_us * US, 50, gap_ns=10 * MS))], Pair())
    assert world.arbiter
    seen = set()
    for at in range(500, 600):
        world.run(at * MS)
        seen.add(world.arbiter.regime)
    assert seen == {regime}


# ---- changes ----


def test_minimum_and_maximum_can_be_changed_while_running() -> None:
    world = run([saturating(1, 250), saturating(2, 750)], 1.5)
    for t, milli in zip(world.tenants, (600, 400), strict=True):
        world.change(t, min_milli=milli, max_milli=milli)
    world.run(3 * SECOND)
    assert shares(world, 1550 * MS, 3 * SECOND) == pytest.approx([0.6, 0.4], abs=0.015)


def test_a_removed_slice_leaves_its_time_to_the_others() -> None:
    world = run([saturating(1, 250, 1000), saturating(2, 750)], 1)
    world.remove(world.tenants[1])
    world.run(2 * SECOND)
    assert shares(world, 1050 * MS, 2 * SECOND)[0] > 0.99


def test_a_slice_in_a_place_that_another_one_had_knows_nothing_of_it() -> None:
    world = run([saturating(1, 500, 500), saturating(2, 500, 500, 40_000)], 1)
    world.remove(world.tenants[1])
    world.add(saturating(3, 500, 500))
    world.run(2 * SECOND)
    assert shares(world, 1050 * MS, 2 * SECOND) == pytest.approx([0.5, 0.5], abs=0.02)


# ---- the table of slices ----


def test_a_full_table_is_refused() -> None:
    pair = Pair()
    for ident in range(128):
        pair.set(ident, SliceParams(0, 1000))
    params = pair.ffi.new("struct vg_slice_params *", {"max_milli": 1000})
    assert pair.lib.vg_core_set(pair.core, 999, params) == pair.ffi.NULL
    pair.remove(77)
    pair.set(999, SliceParams(0, 1000))
    pair.step(2 * MS)
