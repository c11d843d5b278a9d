"""What happens in the pauses of slices that nearly always want: work that cannot be taken back would be let in each
time, however much its owner has used."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from models.arbiter.device import Device
from models.arbiter.lags import lag_of
from models.arbiter.model import Slice, SliceParams
from models.arbiter.slot import join_slot, leave_slot
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import MS, SECOND, US, Load, Tenant, World, tenant
from tests.examples import combine_axes


def pausing(burst_ms: int, pause_us: int) -> Tenant:
    """Kernels of .2 ms, three quarters of the device."""
    return tenant(1, 750, 1000, Load(200 * US, 5 * burst_ms, gap_ns=pause_us * US))


def shares(seconds: int, *tenants: Tenant) -> list[float]:
    world = World(list(tenants), Pair())
    world.run(seconds * SECOND)
    return [t.share(2 * SECOND, world.now_ns) for t in tenants]


ENTITLED_PPM = (500_000, 300_000, 200_000)
#: nothing is known of a kernel that is the first of its kind
NEW: dict[str, Any] = {"forecast_max_ns": MS}


@pytest.mark.parametrize(
    ("pauses", "kernel"), combine_axes([(20, 300), (100, 2000), (8, 1000), (200, 10_000)], ["known", "new"])
)
def test_pauses_let_no_kernels_of_a_second_in_beyond_what_their_owner_is_due(
    pauses: tuple[int, int], kernel: str
) -> None:
    burst_ms, pause_us = pauses
    more = NEW if kernel == "new" else {}
    first, second = shares(18, pausing(burst_ms, pause_us), tenant(2, 250, 1000, Load(SECOND, 1, **more)))
    assert second <= 0.28  # half of a kernel more or less in 16 s
    assert first >= 0.66


@pytest.mark.parametrize(("burst_ms", "pause_us"), [(20, 300), (8, 1000)])
def test_nor_kernels_of_40_ms(burst_ms: int, pause_us: int) -> None:
    first, second = shares(6, pausing(burst_ms, pause_us), tenant(2, 250, 1000, Load(40 * MS, 1)))
    assert second <= 0.26
    assert first >= 0.67


@pytest.mark.parametrize(("burst", "kernel_ms", "pause_us"), [(1, 20, 700), (1, 20, 300), (2, 10, 500)])
def test_nor_the_graphs_of_a_trainer(burst: int, kernel_ms: int, pause_us: int) -> None:
    """A step of 20 ms in one piece or two, and a pause before the next one; as much beside a saturating borrower."""
    steps = Load(kernel_ms * MS, burst, gap_ns=pause_us * US)
    for neighbour in (steps, Load(kernel_ms * MS, burst)):
        first, second = shares(6, tenant(1, 750, 750, steps), tenant(2, 250, 1000, neighbour))
        assert second <= 0.26
        assert first >= 0.72


@pytest.mark.parametrize(("pause_ms", "share_min"), [(3, 0.74), (10, 0.74), (30, 0.73)])
def test_a_trainer_that_waits_for_the_device_now_and_then_loses_nothing_by_it(pause_ms: int, share_min: float) -> None:
    """Steps of 20 ms without a break, and now and then a pause after which it is no saturating slice for a while: in
    the pause its neighbour gets a step in, which is a debt, and neither the debt nor the deficit is dropped."""
    first, second = (Load(20 * MS, 1, active_ns=ms * MS, idle_ns=pause_ms * MS) for ms in (1300, 1410))
    had = shares(10, tenant(1, 750, 750, first), tenant(2, 250, 1000, second))
    assert had[0] >= share_min
    assert had[1] >= 0.245


@pytest.mark.parametrize("maximum", [250, 1000])
@pytest.mark.parametrize("pause_ms", [3, 8])
def test_who_prepares_the_next_step_behind_a_closed_gate_takes_no_pause(pause_ms: int, maximum: int) -> None:
    """A step is longer than a lease, so the gate closes in the middle of it. A slice that counted as pausing would be
    free, and the hardware would divide the device between the two."""
    trainer = tenant(1, 250, maximum, Load(10 * MS, 2, gap_ns=pause_ms * MS))
    world = World([trainer, tenant(2, 750, 750)], Pair())
    world.run(5 * SECOND)
    for t, wanted in zip(world.tenants, (0.25, 0.75), strict=True):
        assert world.worst_second(t, wanted, 2 * SECOND) < 0.015
    assert world.total(2 * SECOND, 5 * SECOND) > 0.99


def test_a_change_of_class_moves_no_lag() -> None:
    device = Device(slices=[Slice(i, SliceParams(ppm // 1000, 1000)) for i, ppm in enumerate(ENTITLED_PPM)])
    device.floor_ns, device.slot_lag_ns = SECOND, 7 * MS
    for s, ahead_ms in zip(device.slices, (30, 0, 12), strict=True):
        s.entitlement_ppm, s.saturating = ENTITLED_PPM[s.ident], True
        s.virtual_ns = device.floor_ns + ahead_ms * MS
    before_ns = [lag_of(device, s) for s in device.slices]
    assert sum(before_ns) == pytest.approx(device.slot_lag_ns, abs=US)
    for change in (leave_slot, partial(join_slot, now_ns=SECOND)):
        change(device, device.slices[0])
        assert [lag_of(device, s) for s in device.slices] == pytest.approx(before_ns, abs=10 * US)


def test_a_slice_admitted_while_another_pauses_frees_memory_when_that_one_is_back() -> None:
    first, second = shares(4, pausing(20, 300), tenant(2, 250, 1000))
    assert first >= 0.73
    assert second >= 0.24


@pytest.mark.parametrize(("minimum", "maximum"), [(250, 250), (250, 1000)])
@pytest.mark.parametrize("neighbour", [Load(), Load(50 * US, 100, gap_ns=100 * US)], ids=["saturating", "pausing"])
def test_short_pauses_cost_a_slice_little_of_its_minimum(neighbour: Load, minimum: int, maximum: int) -> None:
    """5 ms of work and .1 ms of pause: a neighbour is let in each time, for one short lease and its drain."""
    pauses = tenant(1, 750, 750, Load(50 * US, 100, gap_ns=100 * US))
    first, second = shares(4, pauses, tenant(2, minimum, maximum, neighbour))
    assert first >= 0.695
    assert second >= 0.24


def test_a_pause_is_no_time_that_is_saved_up() -> None:
    """Half of its entitlement is all that this one wants; its page says that it never pauses."""
    says = Load(20 * US, 50, gap_ns=MS, lie=lambda name, true_ns: 2**62 if name == "active" else true_ns)
    first, second = shares(4, tenant(1, 400, 1000, says), tenant(2, 600, 1000))
    assert 0.15 <= first <= 0.4
    assert second >= 0.65


def test_who_is_gone_delays_no_other() -> None:
    """However much the one that stays has used."""
    goes = tenant(1, 750, 1000, Load(end_ns=4 * SECOND))
    stays = tenant(2, 250, 1000, Load(SECOND, 1))
    world = World([goes, stays], Pair())
    world.run(8 * SECOND)
    assert stays.share(4100 * MS, 8 * SECOND) >= 0.98
