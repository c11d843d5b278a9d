"""Gangs in the arbiter of one device, model and core: leaders take turns, followers obey."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.arbiter.model import GANG_FOLLOWER, GANG_LEADER, GANG_NONE, MS, Slice, SliceParams, State
from tests.arbiter.pair import Pair


def halves(pair: Pair, *gangs: int) -> tuple[Slice, ...]:
    made = tuple(pair.set(ident, SliceParams(500, 1000, gang=gang)) for ident, gang in enumerate(gangs))
    for s in made:
        s.attached = True
    return made


def work(pair: Pair, *slices: Slice, begin_ns: int, passed_ns: int, step_ns: int = MS // 2) -> int:
    """Each keeps the device as busy as it may: runs while its gate is open, drains and waits when it is shut."""
    now_ns = begin_ns
    while now_ns < begin_ns + passed_ns:
        for s in slices:
            s.busy_total_ns += step_ns * s.outstanding
            s.done_total_ns += step_ns * s.outstanding
            s.active_total_ns += step_ns
            s.outstanding, s.wants = s.is_open, not s.is_open
            s.running = int(s.is_open)
            s.quiet = s.noticed = not s.is_open
            s.drained_ns = s.close_ns
        now_ns += step_ns
        pair.step(now_ns)
    return now_ns


@pytest.mark.parametrize("latency", [False, True])
def test_gangs_take_turns_from_the_first_moment(latency: bool) -> None:
    """Free ones, of any class, would run side by side, and each wait on one device for what the other has."""
    pair = Pair()
    first, second = halves(pair, GANG_LEADER, GANG_LEADER)
    pair.set(0, replace(first.params, latency=latency))
    pair.step(MS)
    assert first.saturating and second.saturating
    assert [first.is_open, second.is_open].count(True) <= 1


def test_the_next_gang_waits_for_what_drains_on_other_devices() -> None:
    pair = Pair()
    first, second = halves(pair, GANG_LEADER, GANG_LEADER)
    now_ns = work(pair, first, second, begin_ns=MS, passed_ns=5 * MS)
    holder, other = (first, second) if first.is_open else (second, first)
    holder.outstanding, holder.gang_busy, other.wants = True, True, True
    while holder.is_open:
        now_ns += MS
        pair.step(now_ns)
    holder.noticed = True
    pair.step(now_ns + 30 * MS)
    assert not other.is_open  # long after its patience
    holder.gang_busy = False
    pair.step(now_ns + 31 * MS)
    assert other.is_open


def test_a_follower_runs_when_and_only_when_it_is_notified() -> None:
    pair = Pair()
    follower, other = halves(pair, GANG_FOLLOWER, GANG_NONE)
    follower.gang_turns = True
    now_ns = work(pair, follower, other, begin_ns=MS, passed_ns=200 * MS)
    assert follower.state == State.SHUT and other.is_open
    follower.gang_go = True
    now_ns = work(pair, follower, other, begin_ns=now_ns, passed_ns=2 * MS)
    assert follower.is_open and not other.is_open
    follower.gang_go = False
    work(pair, follower, other, begin_ns=now_ns, passed_ns=2 * MS)
    assert not follower.is_open and other.is_open


def test_a_follower_that_always_gets_an_order_to_go_asks_for_a_stop() -> None:
    """Its neighbour on this device has its half, although the leader shares its device with no slice."""
    pair = Pair()
    follower, other = halves(pair, GANG_FOLLOWER, GANG_NONE)
    follower.gang_turns = True
    now_ns = MS
    for _ in range(2000):
        follower.gang_go = not follower.gang_veto
        now_ns = work(pair, follower, other, begin_ns=now_ns, passed_ns=MS)
    assert 0.4 < other.busy_total_ns / (follower.busy_total_ns + other.busy_total_ns) < 0.6


def test_a_leader_stops_when_a_follower_asks_for_it() -> None:
    pair = Pair()
    leader, other = halves(pair, GANG_LEADER, GANG_NONE)
    now_ns = work(pair, leader, other, begin_ns=MS, passed_ns=200 * MS)
    leader.gang_stop = True
    now_ns = work(pair, leader, other, begin_ns=now_ns, passed_ns=30 * MS)
    assert not leader.is_open
    leader.gang_stop = False
    before_ns = leader.busy_total_ns
    work(pair, leader, other, begin_ns=now_ns, passed_ns=30 * MS)
    assert leader.busy_total_ns > before_ns
