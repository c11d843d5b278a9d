"""A host whose processors are taken away: the arbiter runs late, helper threads notice late, programs launch late.

What one slice had too long because of that is given back to the others, and what was charged without having been
computed is not charged again, all within the second.
"""

from __future__ import annotations

import pytest

from models.arbiter.model import MS
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import US, Load, Tenant, World, tenant

SHORT = Load(10 * US, 320)


def run_with_stalls(tenants: list[Tenant], for_ns: int, times_ns: list[int]) -> World:
    """The arbiter's thread has no processor from each of these times on."""
    world = World(tenants, Pair())
    for at_ns in times_ns:
        world.run(at_ns)
        world.stall(for_ns)
    return world


@pytest.mark.parametrize("late_ms", [5, 12, 30])
@pytest.mark.parametrize("maxima", [(1000, 1000), (300, 700)], ids=["uncapped", "capped"])
@pytest.mark.parametrize("at_ms", [1003, 1007, 1012])
def test_a_late_hand_over_is_given_back_within_the_second(late_ms: int, maxima: tuple[int, int], at_ms: int) -> None:
    """The slice that held the device meanwhile has it so much the less. If neither did, that time is lost to both."""
    first, second = tenant(1, 300, maxima[0]), tenant(2, 700, maxima[1])
    world = run_with_stalls([first, second], late_ms * MS, [at_ms * MS])
    world.run(2000 * MS)
    got, all_ = first.share(1000 * MS, 2000 * MS), world.total(1000 * MS, 2000 * MS)
    assert got / all_ == pytest.approx(0.3, abs=0.011)  # a lease, where the second ends
    assert all_ > 0.996 - late_ms / 1000


@pytest.mark.parametrize("maxima", [(1000, 1000), (250, 750)], ids=["uncapped", "capped"])
def test_an_arbiter_that_is_often_late_shares_as_before(maxima: tuple[int, int]) -> None:
    """8 ms late, 25 times a second: what the hand-overs then take is missing from both in proportion."""
    parts = []
    for times_ns in ([], [ms * MS for ms in range(1003, 3000, 40)]):
        first, second = tenant(1, 250, maxima[0]), tenant(2, 750, maxima[1])
        world = run_with_stalls([first, second], 8 * MS, times_ns)
        world.run(3000 * MS)
        parts.append(first.share(1000 * MS, 3000 * MS) / world.total(1000 * MS, 3000 * MS))
    calm, late = parts
    assert late == pytest.approx(calm, abs=0.0065)


@pytest.mark.parametrize("late_ns", [0, 1 * MS, 3 * MS, 6 * MS])
def test_a_capped_slice_computes_its_cap_although_its_helper_is_late(late_ns: int) -> None:
    """Its work is done long before the helper has a processor to say so: it is charged the device's time."""
    capped = tenant(1, 300, 300, SHORT)
    world = World([capped], Pair(), helper_late_ns=late_ns)
    world.run(3000 * MS)
    got = capped.share(1000 * MS, 3000 * MS)
    assert got == pytest.approx(0.3, abs=0.01)
    (row,) = world.arbiter.slices if world.arbiter else []
    assert row.charged_ns / 3000 / MS == pytest.approx(capped.share(0, 3000 * MS), abs=0.01)


def test_usage_is_no_time_for_which_others_waited() -> None:
    """A slice that launches late keeps the device from its neighbour, and is charged for that; it has not used it."""
    late, prompt = tenant(1, 500, 500, SHORT), tenant(2, 500, 500)
    world = World([late, prompt], Pair(), wake_ns=2 * MS)
    world.run(3000 * MS)
    assert world.arbiter
    for row, t in zip(world.arbiter.slices, (late, prompt), strict=True):
        assert row.charged_ns / 3000 / MS == pytest.approx(t.share(0, 3000 * MS), abs=0.01)
