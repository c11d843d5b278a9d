"""Launch-bound tenants beside others, the latency class, priorities, gangs, liars, and changes at any moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from models.arbiter.model import (
    COUNT,
    GANG_FOLLOWER,
    GANG_LEADER,
    SOLO,
    STATE_MASK,
    WATCH_CALLS,
    WATCH_USAGE,
    Params,
    Slice,
    SliceParams,
    State,
)
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import MS, NEVER, SECOND, US, Load, Tenant, World, tenant
from tests.examples import combine_axes


def launch_bound(ident: int, minimum: int, **params: Any) -> Tenant:
    """1 ms of kernels, a wait for them, a pause of 1 ms: half of a device."""
    return tenant(ident, minimum, 1000, Load(20 * US, 50, gap_ns=MS), **params)


def saturating(ident: int, minimum: int, kernel_us: int = 200, **params: Any) -> Tenant:
    return tenant(ident, minimum, 1000, Load(kernel_us * US, max(1, 3200 // kernel_us)), **params)


def run(tenants: list[Tenant], pair: Pair | None, until_ns: int = 3 * SECOND) -> World:
    world = World(tenants, pair)
    world.run(until_ns)
    return world


def shares(world: World, begin_ns: int = SECOND) -> list[float]:
    return [t.share(begin_ns, world.now_ns) for t in world.tenants]


def row(world: World, ident: int) -> Slice:
    assert world.arbiter
    return next(s for s in world.arbiter.slices if s.ident == ident)


def p99_ms(t: Tenant) -> float:
    found = sorted(t.processes[0].latencies_ns)
    return found[int(len(found) * 0.99)] / MS


# ---- launch-bound ----


@pytest.mark.parametrize("count", [2, 3, 4])
def test_launch_bound_tenants_lose_nothing_against_no_arbiter(count: int) -> None:
    hooked, plain = (
        shares(run([launch_bound(i, 1000 // count) for i in range(count)], pair)) for pair in (Pair(), None)
    )
    assert sum(hooked) >= 0.98 * sum(plain)
    assert min(hooked) >= 0.9 * sum(plain) / count


@pytest.mark.parametrize("minimum", [200, 400])
def test_launch_bound_beside_saturating(minimum: int) -> None:
    """Each has nearly the less of its demand and its entitlement."""
    first, second = shares(run([launch_bound(1, minimum), saturating(2, 1000 - minimum)], Pair()))
    assert first >= 0.95 * min(0.5, minimum / 1000)
    assert second >= 0.95 * (1 - minimum / 1000)


def test_a_slice_that_is_right_back_finds_little_in_its_way() -> None:
    """The neighbour's kernels outlast its pauses; the time that it waits for them is not the neighbour's loss."""
    bursts = tenant(1, 600, 1000, Load(20 * US, 25, gap_ns=100 * US))
    first, second = shares(run([bursts, saturating(2, 400)], Pair()))
    assert first >= 0.48
    assert second >= 0.38


def test_trainers() -> None:
    load = Load(100 * US, 50, gap_ns=500 * US)
    world = run([tenant(1, 250, 250, load), tenant(2, 750, 750, load)], Pair(), 4 * SECOND)
    assert shares(world) == pytest.approx([0.25, 0.75], abs=0.03)


def test_a_borrower_frees_capacity_as_soon_as_a_trainer_resumes() -> None:
    """It runs in the trainer's pauses of .2 ms, and its last launch is all that may delay the next step."""
    trainer = Load(100 * US, 20, gap_ns=200 * US)
    first, second = shares(run([tenant(1, 250, 1000, trainer), tenant(2, 750, 750, trainer)], Pair()))
    assert first >= 0.24
    assert second >= 0.69


def test_who_goes_idle_leaves_the_device_at_once() -> None:
    world = run([saturating(1, 250), tenant(2, 750, 1000, Load(active_ns=300 * MS, idle_ns=300 * MS))], Pair())
    idle = [a for (_, a), (b, _) in pairwise(world.tenants[1].spans) if b - a > 250 * MS]
    assert len(idle) >= 3
    for at in idle:
        assert world.tenants[0].share(at + 20 * MS, at + 280 * MS) >= 0.98


# ---- the latency class ----

INFERENCE = Load(200 * US, 20, period_ns=8 * MS)


def test_the_tail_of_a_latency_slice_beside_saturating_training() -> None:
    alone = run([tenant(1, 500, 1000, INFERENCE)], Pair(), SECOND)
    world = run([tenant(1, 500, 1000, INFERENCE, latency=True), saturating(2, 500)], Pair())
    assert p99_ms(world.tenants[0]) <= 1.5 * p99_ms(alone.tenants[0])
    # less than 2 % for two hand-overs and three changes of context a burst
    assert world.tenants[1].share(SECOND, 3 * SECOND) >= 0.46
    plain = run([tenant(1, 500, 1000, INFERENCE), saturating(2, 500)], Pair())
    assert p99_ms(plain.tenants[0]) > 1.5 * p99_ms(alone.tenants[0])  # the class is what does it


def test_beyond_its_guarantee_a_latency_slice_is_as_any_other() -> None:
    world = run([tenant(1, 200, 1000, Load(), latency=True), saturating(2, 800)], Pair())
    assert shares(world) == pytest.approx([0.2, 0.8], abs=0.03)


def test_a_latency_slice_is_served_first_up_to_its_minimum_and_not_in_what_it_borrows() -> None:
    """It borrows, for its neighbour pauses."""
    world = run([tenant(1, 100, 1000, INFERENCE, latency=True), launch_bound(2, 500)], Pair())
    assert shares(world)[0] >= 0.39
    assert shares(world)[1] >= 0.95 * 0.49


@pytest.mark.parametrize("load", [INFERENCE, Load()])
@pytest.mark.parametrize("minimum", [200, 400, 500])
def test_a_latency_slice_on_the_verge_of_its_debt_does_not_keep_the_arbiter_busy(minimum: int, load: Load) -> None:
    """Nor does work of its neighbour that has been preempted a moment before its end."""
    world = run([tenant(1, minimum, 1000, load, latency=True), saturating(2, 1000 - minimum)], Pair(), 2 * SECOND)
    assert world.steps < 2 * 1500
    assert len(world.log) < 2 * 300


def test_beside_a_latency_slice_that_has_all_it_wants_no_slice_gets_into_debt() -> None:
    """It is entitled to a little more than it needs, so that it seems behind in its pauses."""
    world = run(
        [tenant(1, 500, 1000, INFERENCE, latency=True), tenant(2, 250, 1000, Load(200 * US, 45, gap_ns=MS))], Pair()
    )
    assert row(world, 1).free_lag_ns > MS
    assert row(world, 2).free_lag_ns >= -4 * MS
    pair = Pair()
    world = run([tenant(1, 500, 1000, INFERENCE, latency=True), saturating(2, 250)], pair)
    assert row(world, 1).free_lag_ns > MS
    assert pair.slot_lag_ns >= -4 * MS


def active(pair: Pair, ident: int) -> None:
    """It has begun to run."""
    s = next(s for s in pair.slices if s.ident == ident)
    s.attached = s.outstanding = True
    s.running = 1


def test_of_two_latency_slices_the_earlier_deadline_comes_first() -> None:
    """A burst is due in 4 ms of its slice's minimum: 40 ms for a tenth, 8 ms for a half."""
    pair = Pair()
    slow = pair.set(1, SliceParams(100, 1000, latency=True))
    fast = pair.set(2, SliceParams(500, 1000, latency=True))

    def opened_at(now_ns: int) -> tuple[bool, bool]:
        pair.step(now_ns)
        return slow.is_open, fast.is_open

    active(pair, 1)
    assert opened_at(MS) == (True, False)
    active(pair, 2)
    assert opened_at(11 * MS) == (False, True)
    fast.outstanding = False
    assert opened_at(12 * MS) == (True, False)
    active(pair, 2)
    assert opened_at(40 * MS) == (True, False)  # due at 48 ms, and the other one at 41


# ---- priorities ----


def test_borrowed_time_goes_to_the_highest_priority_first_and_guarantees_stay() -> None:
    world = run([saturating(1, 200), saturating(2, 200, priority=5), saturating(3, 200)], Pair())
    assert shares(world) == pytest.approx([0.2, 0.6, 0.2], abs=0.02)


def test_what_the_highest_priority_may_not_have_goes_to_the_next() -> None:
    first = Tenant(2, SliceParams(200, 500, priority=5), [Load()])
    world = run([saturating(1, 200), first, saturating(3, 200, priority=1)], Pair())
    assert shares(world) == pytest.approx([0.2, 0.5, 0.3], abs=0.02)


# ---- changes at any moment ----

MOMENTS: dict[str, Callable[[Slice], bool]] = {
    "waits": lambda s: s.state == State.SHUT and s.wants,
    "holds": lambda s: s.state == State.OPEN and s.saturating and s.outstanding,
    "drains": lambda s: s.state == State.DRAINING,
}
CHANGES: dict[str, tuple[dict[str, int], tuple[float, float]]] = {
    "minimum": ({"min_milli": 600}, (0.75, 0.25)),
    "maximum": ({"max_milli": 250}, (0.25, 0.75)),
    "weight": ({"weight": 300}, (0.7, 0.3)),
    "priority": ({"priority": 1}, (0.9, 0.1)),
    "latency": ({"latency": 1}, (0.5, 0.5)),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_in_force_with_the_next_step(change: str, moment: str) -> None:
    """Two slices with a tenth each, the rest by weight."""
    world = run([saturating(1, 100, weight=100), saturating(2, 100, weight=100)], Pair(), 300 * MS)
    while not MOMENTS[moment](row(world, 1)):
        world.run(world.now_ns + 50 * US)
        assert world.now_ns < SECOND
    changes, wanted = CHANGES[change]
    begin_ns = world.now_ns
    world.change(world.tenants[0], **changes)
    world.run(begin_ns + 1)
    entitled = [row(world, t.ident).entitlement_ppm / 1e6 for t in world.tenants]
    world.run(begin_ns + 450 * MS)
    assert entitled == pytest.approx(wanted, abs=1e-5)
    assert shares(world, begin_ns + 50 * MS) == pytest.approx(wanted, abs=0.04)
    assert row(world, 1).saturating != (change == "latency")


# ---- paused ----


PAUSED: dict[str, Callable[[], Tenant]] = {
    "saturating": lambda: saturating(1, 500),
    "long kernels": lambda: saturating(1, 500, kernel_us=40_000),
    "launch-bound": lambda: launch_bound(1, 500),
    "at its maximum": lambda: tenant(1, 500, 500),
    "latency": lambda: launch_bound(1, 500, latency=True),
    "leader": lambda: saturating(1, 500, gang=GANG_LEADER),
    "priority": lambda: saturating(1, 500, priority=3),
}
BESIDE: dict[str, Callable[[], Tenant]] = {
    "saturating": lambda: saturating(2, 500),
    "launch-bound": lambda: launch_bound(2, 500),
}


@pytest.mark.parametrize(("slice_type", "neighbour"), combine_axes(list(PAUSED), list(BESIDE)))
def test_a_paused_slice_runs_nothing_and_costs_its_neighbour_nothing(slice_type: str, neighbour: str) -> None:
    """Its threads wait at the gate all the time, and are let in at once when it continues."""
    world = World([PAUSED[slice_type](), BESIDE[neighbour]()], Pair())
    first, second = world.tenants
    world.run(SECOND)
    before = first.share(500 * MS, SECOND)
    world.change(first, paused=True)
    world.run(2 * SECOND)
    alone = World([BESIDE[neighbour]()], None)
    alone.run(2 * SECOND)
    assert first.share(SECOND + 100 * MS, 2 * SECOND) == 0
    begin_ns = SECOND + 200 * MS
    assert second.share(begin_ns, 2 * SECOND) >= 0.98 * alone.tenants[0].share(begin_ns, 2 * SECOND)
    steps = world.steps
    world.run(2 * SECOND + 100 * MS)
    assert world.steps - steps < 200, "the arbiter is busy with a slice that must not run"
    world.change(first, paused=False)
    world.run(3 * SECOND + 100 * MS)
    assert first.share(2 * SECOND + 200 * MS, world.now_ns) == pytest.approx(before, abs=0.05)


def test_what_is_made_paused_never_has_an_open_gate() -> None:
    world = World([saturating(1, 500, paused=True)], Pair())
    assert not row(world, 1).is_open
    world.run(SECOND)
    assert world.tenants[0].share(0, SECOND) == 0


def test_a_slice_that_rotates_is_counted_and_watched_also_when_it_is_alone() -> None:
    """So that it is seen to be idle. What it gets is the same."""
    world = World([launch_bound(1, 500, rotates=True)], Pair())
    world.run(SECOND)
    assert row(world, 1).word & STATE_MASK == COUNT
    assert row(world, 1).watch & (WATCH_USAGE | WATCH_CALLS) == WATCH_USAGE | WATCH_CALLS
    once = World([launch_bound(1, 500)], Pair())
    once.run(SECOND)
    assert row(once, 1).word & STATE_MASK == SOLO and not row(once, 1).watch & WATCH_CALLS
    assert shares(world, 0) == pytest.approx(shares(once, 0), abs=0.01)


# ---- gangs ----


def test_a_follower_runs_while_its_leader_does_and_then_at_once() -> None:
    world = World([saturating(1, 500, gang=GANG_FOLLOWER), saturating(2, 500)], Pair())
    follower = row(world, 1)

    def open_at(now_ns: int) -> bool:
        world.run(now_ns)
        return follower.is_open

    follower.gang_turns = follower.gang_go = True
    world.run(300 * MS)
    assert follower.saturating
    follower.gang_go = False
    params = Params()
    for _ in range(10):
        assert not open_at(world.now_ns + 40 * MS)
        assert world.tenants[0].share(world.now_ns - 10 * MS, world.now_ns) == 0
        follower.gang_go = True
        begin_ns = world.now_ns
        assert open_at(begin_ns + params.bound_ns + params.overrun_ns + MS)  # however its turn stands
        assert open_at(begin_ns + 10 * MS)
        follower.gang_go = False
    world.run(world.now_ns + 30 * MS)
    assert row(world, 2).is_open


def test_a_leader_takes_turns_as_any_other() -> None:
    world = run([saturating(1, 500, gang=GANG_LEADER), saturating(2, 500)], Pair(), 2 * SECOND)
    assert shares(world) == pytest.approx([0.5, 0.5], abs=0.02)


# ---- liars ----


def lie_about(what: str, distort: Callable[[int], int]) -> Callable[[str, int], int]:
    return lambda name, true_ns: distort(true_ns) if name == what else true_ns


@pytest.mark.parametrize("load", [Load(20 * US, 50, gap_ns=MS), Load(), Load(200 * US, 40, gap_ns=4 * MS)])
@pytest.mark.parametrize("what", ["busy", "active", "done"])
def test_one_that_reports_too_much_harms_only_itself(what: str, load: Load) -> None:
    liar = Load(load.kernel_ns, load.burst, gap_ns=load.gap_ns, lie=lie_about(what, lambda _: 2**62))
    world = run([tenant(1, 400, 1000, liar), saturating(2, 600)], Pair(), 1500 * MS)
    assert world.tenants[1].share(500 * MS, 1500 * MS) >= 0.58


@pytest.mark.parametrize("load", [Load(20 * US, 50, gap_ns=MS), Load(), Load(200 * US, 40, gap_ns=4 * MS)])
@pytest.mark.parametrize("what", ["busy", "active", "done"])
@pytest.mark.parametrize("distort", [lambda _: 0, lambda true_ns: SECOND - true_ns], ids=["nothing", "backwards"])
def test_who_reports_too_little_stalls_no_other(what: str, load: Load, distort: Callable[[int], int]) -> None:
    liar = Load(load.kernel_ns, load.burst, gap_ns=load.gap_ns, lie=lie_about(what, distort))
    world = run([tenant(1, 400, 1000, liar), saturating(2, 600)], Pair(), 1500 * MS)
    for at_ns in range(500 * MS, 1500 * MS, 100 * MS):
        assert world.tenants[1].share(at_ns, at_ns + 100 * MS) >= 0.35


@pytest.mark.parametrize("load", [Load(20 * US, 50, gap_ns=MS), Load(100 * US, 50, gap_ns=500 * US)])
@pytest.mark.parametrize("part", [23 / 20, 2])
def test_a_neighbours_exaggeration_moves_no_slice_beyond_its_maximum(load: Load, part: float) -> None:
    liar = replace(load, lie=lie_about("done", lambda true_ns: int(true_ns * part)))
    world = run([tenant(1, 200, 200, load), tenant(2, 500, 500, liar)], Pair())
    assert 0.195 <= shares(world)[0] <= 0.205
    assert shares(world)[1] <= 0.505


SHORT_BURSTS, LONG_BURSTS = Load(20 * US, 50, gap_ns=MS), Load(200 * US, 40, gap_ns=4 * MS)
TOO_LITTLE: dict[str, Callable[[str, int], int]] = {
    "nothing completed": lie_about("done", lambda _: 0),
    "half completed": lie_about("done", lambda true_ns: true_ns // 2),
    "never busy": lie_about("busy", lambda _: 0),
    "nothing at all": lambda _name, _true_ns: 0,
}


@pytest.mark.parametrize("load", [SHORT_BURSTS, LONG_BURSTS])
@pytest.mark.parametrize("lie", TOO_LITTLE)
def test_one_that_reports_too_little_gains_little(lie: str, load: Load) -> None:
    """What the neighbour has completed shows what it has not: each of these would get three times its minimum."""
    world = run([tenant(1, 100, 1000, replace(load, lie=TOO_LITTLE[lie])), saturating(2, 900)], Pair(), 2 * SECOND)
    assert shares(world)[0] <= 0.145
    assert shares(world)[1] >= 0.84


@pytest.mark.parametrize("lie", TOO_LITTLE)
def test_one_that_reports_too_little_does_not_make_a_pausing_one_pay(lie: str) -> None:
    liar = tenant(2, 600, 1000, Load(lie=TOO_LITTLE[lie]))
    world = run([tenant(1, 400, 1000, SHORT_BURSTS), liar], Pair(), 2 * SECOND)
    assert shares(world)[0] >= 0.38


def test_very_short_bursts_are_not_charged_for_their_waits() -> None:
    """0.1 ms of work; at its arrival the other one is in the middle of its slice."""
    world = run([tenant(1, 100, 1000, Load(20 * US, 5, gap_ns=100 * US)), saturating(2, 900)], Pair(), 2 * SECOND)
    assert shares(world)[0] >= 0.085


@pytest.mark.parametrize("load", [Load(180 * US, 1, gap_ns=20 * US), SHORT_BURSTS], ids=["each waited for", "bursts"])
def test_what_a_pausing_slice_did_not_take_after_all_counts_as_its_neighbours(load: Load) -> None:
    """While both have work outstanding, half of the time is charged to each until it is known what the first has
    completed."""
    world = run([tenant(1, 100, 100, load), saturating(2, 900)], Pair())
    used = [row(world, ident).charged_ns / world.now_ns for ident in (1, 2)]
    for part, share in zip(used, shares(world, 0), strict=True):
        assert share - 0.02 <= part <= share + 0.04  # context switches


@pytest.mark.parametrize("load", [SHORT_BURSTS, LONG_BURSTS, Load(), Load(40 * MS, 1)])
@pytest.mark.parametrize("lie", ["nothing completed", "half completed"])
def test_alone_a_maximum_holds_to_a_factor_of_two_whatever_is_reported_of_completed_work(lie: str, load: Load) -> None:
    """No other slice can have used the time in which only it had work outstanding. One long kernel is 2 %."""
    world = run([tenant(1, 100, 100, replace(load, lie=TOO_LITTLE[lie]))], Pair())
    assert 0.075 <= shares(world)[0] <= 0.205


@pytest.mark.parametrize("minimum", [100, 500])
def test_a_latency_slice_that_waits_at_its_gate_with_nothing_to_run_keeps_no_slice_from_its_guarantee(
    minimum: int,
) -> None:
    nothing = Load(burst=0, gap_ns=MS, attach_ns=0, begin_ns=NEVER)
    world = World([tenant(1, minimum, 1000, nothing, latency=True), saturating(2, 1000 - minimum)], Pair())
    for at_ns in range(MS, 1500 * MS, MS):
        world.run(at_ns)
        world.tenants[0].processes[0].waiting = True
    assert shares(world, 500 * MS)[1] >= 0.95 * (1 - minimum / 1000)
