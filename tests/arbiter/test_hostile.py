"""Pages that claim or boast: what they cost is their owner's share, never a neighbour's. The arbiter is the reference
model and the C core at once."""

from __future__ import annotations

from functools import lru_cache

import pytest

from models.arbiter.model import Slice
from tests.arbiter.hostile_world import CLAIMS, HostileWorld, attacker, boast
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import MS, SECOND, US, Load, Tenant, World, tenant

BEGIN_NS, END_NS = 100 * MS, 400 * MS
#: for shares of leases: one of them more or less is a hundredth of this time
LEASES_END_NS = 1000 * MS
SATURATING = Load(200 * US, 16)
LAUNCH_BOUND = Load(20 * US, 50, gap_ns=MS)


def victims() -> list[Tenant]:
    return [tenant(1, 730, 1000, SATURATING), tenant(2, 250, 1000, SATURATING)]


def run_victims(claim: str, latency: bool) -> HostileWorld:
    """The victims beside a slice of a hundredth with an idle page, or one that claims."""
    pages = {9: CLAIMS[claim]} if claim else {}
    world = HostileWorld([*victims(), attacker(9, latency=latency)], pages)
    world.run(LEASES_END_NS)
    return world


@lru_cache(maxsize=1)
def run_undisturbed() -> HostileWorld:
    return run_victims("", False)


@pytest.mark.parametrize(
    ("claim", "latency"), [*((claim, False) for claim in CLAIMS), ("claim", True), ("toggle", True)]
)
def test_a_page_that_claims_costs_its_neighbours_no_more_than_its_own_share(claim: str, latency: bool) -> None:
    world, idle = run_victims(claim, latency), run_undisturbed()
    had, otherwise = (sum(t.share(BEGIN_NS, LEASES_END_NS) for t in w.tenants[:2]) for w in (world, idle))
    assert had >= 0.96 * otherwise, f"{had:.3f} of the device, {otherwise:.3f} beside an idle page"
    for t, least in zip(world.tenants, (0.73, 0.25), strict=False):
        assert t.share(BEGIN_NS, LEASES_END_NS) >= 0.94 * least
    closes, usual = (sum(w.changes(i, BEGIN_NS, LEASES_END_NS) for i in (1, 2)) for w in (world, idle))
    assert closes <= 2 * usual + 20, f"{closes} closed gates in 0.9 s, {usual} beside an idle page"


def test_a_latency_slice_pays_by_the_clock_for_a_turn_in_which_it_completes_nothing() -> None:
    """What a turn is charged is corrected by what is completed in it, but never to less than half of the time in which
    the gates of all others were shut for it."""
    neighbours = victims()
    world = HostileWorld([*neighbours, attacker(9, 20, 20, latency=True)], {9: CLAIMS["outstanding"]})
    world.run(2 * END_NS)
    had = sum(t.share(END_NS, world.now_ns) for t in neighbours)
    assert had >= 0.95, f"{had:.3f} of the device beside a maximum of .02"


def test_slices_that_are_made_again_and_again_are_not_served_first_with_each() -> None:
    """Each new slice of the latency class claims for 20 ms, and is deleted for the next."""
    world = HostileWorld(victims(), {})
    for ident in range(9, 29):
        made = attacker(ident, latency=True)
        world.pages[ident] = CLAIMS["claim"]
        world.add(made)
        world.run(world.now_ns + 20 * MS)
        world.remove(made)
    had = sum(t.share(BEGIN_NS, world.now_ns) for t in world.tenants)
    assert had >= 0.95, f"{had:.3f} of the device"


def test_work_that_was_not_believed_is_not_taken_off_later_work() -> None:
    """It takes turns and reports eight times its work; then it pauses now and then, and reports the truth."""
    seen_ns = 0

    def page(s: Slice, _step: int, now_ns: int) -> None:
        nonlocal seen_ns
        passed_ns, seen_ns = now_ns - seen_ns, now_ns
        boasts = now_ns < END_NS
        s.running = 8 if boasts else 1
        worked_ns = s.running * passed_ns if boasts or now_ns // MS % 10 < 7 else 0
        s.outstanding = s.noticed = True  # always, so that it is never seen to have nothing left
        s.wants = s.quiet = False
        s.busy_total_ns += worked_ns
        s.active_total_ns += worked_ns or 1
        s.done_total_ns += worked_ns

    world = HostileWorld([tenant(1, 500, 1000, SATURATING), attacker(9, 500)], {9: page})
    world.run(2 * END_NS)
    before_ns = world.row(9).charged_ns
    world.run(3 * END_NS)
    charged = (world.row(9).charged_ns - before_ns) / END_NS
    assert charged >= 0.6, f"charged with {charged:.2f} of the time, told .7"


@pytest.mark.parametrize(("maximum", "latency"), [(20, True), (5, True), (50, False)])
def test_turns_of_small_kernels_take_nothing_of_their_owners_maximum(maximum: int, latency: bool) -> None:
    """An honest slice that launches a small kernel now and then is served as often as it asks for, and what it is said
    to have used is what it had."""
    small = Load(kernel_ns=10 * US, burst=1, period_ns=5 * MS)
    owner = tenant(1, maximum, maximum, small, latency=latency)
    pair = Pair()
    world = World([owner, tenant(2, 500, 1000, SATURATING), tenant(3, 250, 1000, SATURATING)], pair)
    world.run(SECOND)
    done = len(owner.processes[0].latencies_ns)
    assert done >= 190, f"{done} of 200 kernels"
    used, charged_part = owner.share(0, world.now_ns), pair.slices[0].charged_ns / world.now_ns
    assert charged_part <= 1.5 * used, f"told to have used {charged_part:.4f} of the device, had {used:.4f}"


@pytest.mark.parametrize("claim", ["give_up", "toggle", "outstanding"])
def test_words_are_given_to_a_slice_at_a_bounded_rate(claim: str) -> None:
    """Also where no other slice waits for it."""
    world = HostileWorld([tenant(1, 500, 1000, LAUNCH_BOUND), attacker(9)], {9: CLAIMS[claim]})
    world.run(END_NS)
    words = world.row(9).word >> 2
    assert words <= 2 * (10 + END_NS // MS), f"{words} words in {END_NS // MS} ms"


@pytest.mark.parametrize("processes", [1, 8])
def test_all_processes_of_a_slice_complete_no_more_than_a_second_in_a_second(processes: int) -> None:
    world = HostileWorld([tenant(1, 250, 250, SATURATING), attacker(9, 500)], {9: boast(1000, processes)})
    world.run(END_NS)
    charged = world.row(9).charged_ns / END_NS
    assert charged <= 1.05, f"charged with {charged:.2f} of the time"


@pytest.mark.parametrize(
    ("load", "processes", "busy", "latency", "share_max"),
    [
        (SATURATING, 1, 1, False, 0.27),
        (SATURATING, 8, 1, False, 0.27),
        (SATURATING, 1, 1, True, 0.27),
        (SATURATING, 1, 0.8, False, 0.27),
        (LAUNCH_BOUND, 1, 1, True, 0.3),
        (LAUNCH_BOUND, 1, 0.8, False, 0.3),
    ],
)
def test_a_page_that_boasts_moves_no_neighbour_beyond_its_maximum_by_much(
    load: Load, processes: int, busy: float, latency: bool, share_max: float
) -> None:
    page = boast(1, processes, busy)
    world = HostileWorld([tenant(1, 250, 250, load), attacker(9, 500, latency=latency)], {9: page})
    world.run(SECOND // 2)
    had = world.tenants[0].share(BEGIN_NS, world.now_ns)
    assert 0.22 <= had <= share_max, f"{had:.3f} of the device, its maximum is .25"
