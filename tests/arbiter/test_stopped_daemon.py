"""The arbiter stands still and tenants follow their timetables: a stopped daemon, a frozen cgroup, a debugger.

Time and work of such a gap are left out together. A slice computes at its share as soon as the arbiter continues, and
what it did meanwhile is neither charged later nor makes up for anything.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from models.arbiter.model import STALLED_NS, SliceParams
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import MS, SECOND, US, Load, Tenant, tenant
from tests.arbiter.stopped_world import StoppedWorld
from tests.examples import combine_axes

pytestmark = pytest.mark.slow
BURSTS = Load(20 * US, 25, gap_ns=500 * US)
WINDOW_NS = 100 * MS
BACK_MS = 100
#: how long before a gap shares are measured
USUAL_NS = SECOND

CASES: dict[str, Callable[[], list[Tenant]]] = {
    "cap-100": lambda: [tenant(1, 100, 100)],
    "cap-250": lambda: [tenant(1, 250, 250)],
    "cap-500": lambda: [tenant(1, 500, 500)],
    "cap-500-of-100": lambda: [tenant(1, 100, 500)],
    "free": lambda: [tenant(1, 250, 250, BURSTS)],
    "uncapped": lambda: [tenant(1, 500, 1000)],
    "two-capped": lambda: [tenant(1, 250, 250), tenant(2, 750, 750)],
    "beside-one-that-borrows": lambda: [tenant(1, 250, 250), tenant(2, 250, 1000)],
    "free-beside-slot": lambda: [tenant(1, 250, 250, BURSTS), tenant(2, 500, 1000)],
    "latency": lambda: [tenant(1, 250, 500, BURSTS, latency=True), tenant(2, 250, 1000)],
    "three": lambda: [tenant(1, 100, 100), tenant(2, 300, 300, BURSTS), tenant(3, 500, 1000)],
    "two-processes": lambda: [tenant(1, 300, 300, Load(), Load()), tenant(2, 300, 300)],
}


def back_ms(t: Tenant, from_ns: int, until_ns: int, share: float) -> float:
    """After how many ms a window begins in which the tenant has so much."""
    for at_ns in range(from_ns, until_ns - WINDOW_NS + 1, MS):
        if t.share(at_ns, at_ns + WINDOW_NS) >= share:
            return (at_ns - from_ns) / MS
    return float("inf")


def assert_all_are_back(world: StoppedWorld, usual: list[float], at_ns: int) -> None:
    for t, share in zip(world.tenants, usual, strict=True):
        assert back_ms(t, at_ns, world.now_ns, 0.9 * share) <= BACK_MS, (t.ident, share)
        assert t.share(at_ns, at_ns + SECOND) == pytest.approx(share, abs=0.03), t.ident


@pytest.mark.parametrize(
    ("case", "gap_ms", "leaves_out"),
    combine_axes(list(CASES), [120, 300, 8000, 150, 1000, 60_000, 2000], [True, False, False, True, False]),
)
def test_slices_compute_at_their_shares_when_the_arbiter_continues(case: str, gap_ms: int, leaves_out: bool) -> None:
    world = StoppedWorld(CASES[case](), Pair(), leaves_out=leaves_out)
    world.run(2 * SECOND)
    usual = [t.share(world.now_ns - USUAL_NS, world.now_ns) for t in world.tenants]
    at_ns = world.stand_still(gap_ms * MS)
    world.run(at_ns + 1500 * MS)
    assert_all_are_back(world, usual, at_ns)


@pytest.mark.parametrize("case", ["cap-250", "free", "beside-one-that-borrows"])
@pytest.mark.parametrize("pause_ms", [1, 30, 150, 400])
def test_gaps_one_after_another_add_nothing_up(case: str, pause_ms: int) -> None:
    world = StoppedWorld(CASES[case](), Pair())
    world.run(2 * SECOND)
    usual = [t.share(world.now_ns - USUAL_NS, world.now_ns) for t in world.tenants]
    at_ns = 0
    for _ in range(8):
        at_ns = world.stand_still(400 * MS)
        world.run(at_ns + pause_ms * MS)
    world.run(at_ns + 1500 * MS)
    assert_all_are_back(world, usual, at_ns)


@pytest.mark.parametrize("gap_ms", [50, 90, 99])
def test_a_shorter_time_is_no_gap_and_its_work_counts(gap_ms: int) -> None:
    """A slice that held the device for all of it has so much less afterwards: of the second it has its share."""
    first, second = tenant(1, 250, 250), tenant(2, 750, 750)
    world = StoppedWorld([first, second], Pair())
    world.run(2 * SECOND)
    world.stand_still(gap_ms * MS)
    world.run(4 * SECOND)
    for t in (first, second):
        assert t.share(2 * SECOND, 4 * SECOND) == pytest.approx(t.params.max_milli / 1000, abs=0.02)


def fresh(**params: int | bool) -> Pair:
    """One slice at work for 200 ms, as its page says; half of its time is not reported as work."""
    pair = Pair()
    s = pair.set(1, SliceParams(250, 500, **params))  # type: ignore[arg-type]
    s.attached = True
    work(pair, 200, half=True)
    return pair


def work(pair: Pair, for_ms: int, *, half: bool = False) -> None:
    (s,) = pair.slices
    for _ in range(for_ms):
        s.outstanding, s.running, s.wants, s.quiet = True, 1, False, False
        s.busy_total_ns += MS
        s.active_total_ns += MS
        s.done_total_ns += MS // 2 if half else MS
        pair.step(pair.last_ns + MS)


@pytest.mark.parametrize("latency", [False, True])
@pytest.mark.parametrize("gap_ms", [101, 1000, 60_000])
def test_work_of_a_gap_is_not_charged_to_time_before_it(gap_ms: int, latency: bool) -> None:
    """What its page has not yet reported of the time before must not hide what it did in the gap."""
    pair = fresh(latency=latency)
    (s,) = pair.slices
    cap_ns, charged_ns, late_ns = s.cap_ns, s.charged_ns, s.late_ns
    s.busy_total_ns += gap_ms * MS
    s.done_total_ns += gap_ms * MS
    pair.step(pair.last_ns + gap_ms * MS)
    assert (s.cap_ns, s.charged_ns, s.late_ns) == (cap_ns, charged_ns, late_ns)


def test_the_longest_step_is_charged_in_full_and_a_gap_not_at_all() -> None:
    charged_ns = []
    for passed_ns in (STALLED_NS, STALLED_NS + 1):
        pair = fresh()
        (s,) = pair.slices
        before_ns = s.cap_ns
        s.busy_total_ns += passed_ns
        s.done_total_ns += passed_ns
        pair.step(pair.last_ns + passed_ns)
        charged_ns.append(before_ns - s.cap_ns)
    assert charged_ns[0] > 0 and charged_ns[1] == 0
