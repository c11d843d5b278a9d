"""Work that waits in its stream costs nothing and delays no slice, and an idle device keeps no gate closed for it.
The arbiter is the reference model and the C core at once."""

from __future__ import annotations

import random

import pytest

from models.arbiter.model import SliceParams, State
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import MS, SECOND, US, Load
from tests.arbiter.waiting_world import QUANTUM_NS, WaitingLoad, WaitingWorld, waiting_tenant


@pytest.mark.parametrize("maximum", [100, 250, 500])
def test_a_slice_that_waits_computes_as_without_a_maximum(maximum: int) -> None:
    """2 ms of kernels behind 30 ms of something else: less than a tenth of the device."""
    load = WaitingLoad(MS, 2, gap_ns=US, wait_ns=30 * MS)
    tenant = waiting_tenant(1, maximum, maximum, load)
    world = WaitingWorld([tenant])
    world.run(3 * SECOND)
    alone = 2 / 32
    # A small bucket holds less than a burst, which waits in the middle until it has filled again.
    assert tenant.share(SECOND, 3 * SECOND) > 0.85 * min(alone, maximum / 1000)
    charged = world.arbiter.slices[0].charged_ns / 3 / SECOND if world.arbiter else 0
    assert charged == pytest.approx(tenant.share(0, 3 * SECOND), abs=0.01)


@pytest.mark.parametrize("processes", [2, 3, 4])
@pytest.mark.parametrize("maximum", [100, 500])
def test_processes_that_wait_for_each_other_compute_their_maximum(processes: int, maximum: int) -> None:
    ring = [WaitingLoad(MS, 1, gap_ns=US, ring=True) for _ in range(processes)]
    tenant = waiting_tenant(1, maximum, maximum, *ring)
    world = WaitingWorld([tenant])
    world.run(3 * SECOND)
    assert tenant.share(SECOND, 3 * SECOND) > 0.9 * maximum / 1000
    assert world.closed_ns.get(1, 0) <= QUANTUM_NS


def test_what_runs_behind_a_closed_gate_overlaps_and_is_charged() -> None:
    """Its gate has closed for a neighbour while its work waited."""
    waits = waiting_tenant(1, 500, 1000, WaitingLoad(5 * MS, 2, gap_ns=US, wait_ns=20 * MS))
    world = WaitingWorld([waits, waiting_tenant(2, 500, 1000, Load())])
    states = set()
    for ms in range(500, 1500):
        world.run(ms * MS)
        assert world.arbiter
        states.add(world.arbiter.slices[0].state)
    assert world.arbiter.slices[0].charged_ns / world.now_ns == pytest.approx(waits.share(0, world.now_ns), abs=0.03)
    assert states <= {State.SHUT, State.OPEN, State.DRAINING, State.OVERLAP}


@pytest.mark.parametrize("seed", range(12))
def test_an_idle_device_keeps_no_gate_closed_beyond_a_quantum(seed: int) -> None:
    """Random programs whose work waits for a time and for each other, alone and beside others (DESIGN D18)."""
    draw = random.Random(seed)
    tenants = []
    for ident in (1,):
        ring = draw.random() < 0.5
        loads = [
            WaitingLoad(
                draw.choice([100, 500, 1000, 5000]) * US,
                draw.choice([1, 1, 2, 4]),
                gap_ns=draw.choice([1, 100, 2000]) * US,
                wait_ns=draw.choice([0, 1, 5, 30]) * MS,
                ring=ring,
            )
            for _ in range(draw.choice([2, 3]) if ring else draw.choice([1, 2]))
        ]
        maximum = draw.choice([100, 250, 500])
        tenants.append(waiting_tenant(ident, maximum, maximum, *loads))
    world = WaitingWorld(tenants)
    world.run(SECOND)
    for t in tenants:
        assert world.closed_ns.get(t.ident, 0) <= QUANTUM_NS, f"slice {t.ident}: {world.closed_ns[t.ident] / MS:.1f} ms"


def charge_bursts(counted_ahead_steps: int) -> int:
    """What a mostly idle slice is charged for 10 of each 100 ms. Its page counts time as running until it is known that
    nothing ran, and says so: its time then falls back for so many steps of 2 ms."""
    pair = Pair()
    s = pair.set(1, SliceParams(min_milli=250, max_milli=250))
    s.attached = True
    for step in range(1, 200):
        runs, falls_back = step % 50 < 5, 5 <= step % 50 < 5 + counted_ahead_steps
        s.outstanding = runs or falls_back
        s.running = int(s.outstanding)
        s.counted_ahead = falls_back
        s.busy_total_ns += 2 * MS * runs
        s.done_total_ns += 2 * MS * runs
        s.active_total_ns += 2 * MS * s.outstanding
        pair.step(2 * MS * step)
    assert not s.saturating
    return s.charged_ns


def test_a_slice_pays_once_for_time_that_was_counted_ahead() -> None:
    """But for half of the step in which work was outstanding last: four bursts, each with one of 2 ms."""
    assert charge_bursts(10) - charge_bursts(0) <= 4 * MS


def charge_late_reports(seed: int) -> tuple[int, int]:
    """(what a slice that is alone is charged, what it computed) in two seconds of bursts and pauses. Its page counts a
    burst for up to 15 ms too long, which it takes off the next ones, and completed work up to 15 ms late."""
    draw = random.Random(seed)
    pair = Pair()
    s = pair.set(1, SliceParams(min_milli=500, max_milli=500))
    s.attached = True
    computed_ns = excess_ns = now_ns = 0
    due: list[tuple[int, int]] = []

    def step(runs: bool, counts: bool) -> None:
        nonlocal computed_ns, excess_ns, now_ns
        now_ns += MS
        counted_ahead = runs and excess_ns > 0
        s.counted_ahead = counted_ahead
        s.busy_total_ns += MS * (counts and not counted_ahead)
        excess_ns += MS * ((counts and not runs) - counted_ahead)
        computed_ns += MS * runs
        if runs:
            due.append((now_ns + draw.randrange(15) * MS, MS))
        s.done_total_ns += sum(ns for at_ns, ns in due if at_ns == now_ns)
        s.outstanding = counts
        s.running = int(counts)
        s.active_total_ns += MS * counts
        pair.step(now_ns)

    while now_ns < 2 * SECOND:
        for _ in range(draw.choice([1, 3, 10, 25])):
            step(runs=True, counts=True)
        for _ in range(draw.choice([0, 0, 5, 15]) - excess_ns // MS):
            step(runs=False, counts=True)
        for _ in range(draw.choice([5, 20, 60])):
            step(runs=False, counts=False)
    for _ in range(60):
        step(runs=False, counts=False)
    return s.charged_ns, computed_ns


@pytest.mark.parametrize("seed", range(20))
def test_late_reports_of_a_slice_that_is_alone_are_charged_once_and_in_full(seed: int) -> None:
    """Within what was counted of the last burst."""
    charged_ns, computed_ns = charge_late_reports(seed)
    assert abs(charged_ns - computed_ns) <= 15 * MS
