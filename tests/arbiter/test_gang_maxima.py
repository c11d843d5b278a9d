"""A gang's maximum holds on each of its devices, whatever the others have to do; model and core at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from models.arbiter.model import MS
from tests.arbiter.gang_world import GangWorld, Launch, Thread, Wait

US = 1000
SECOND = 1000 * MS
QUANTUM_NS = 7 * MS
LEADER, FOLLOWER = 0, 1


def saved_and_queued(maximum: int, *lengths_ns: int) -> int:
    """What a device may compute beyond its maximum: what a bucket saves, and what is queued when a gate closes, the
    bound and the kernels that just did not reach it."""
    return 15 * MS * maximum // 1000 + 2 * MS + sum(lengths_ns) + MS // 2


def busy(device: int, length_ns: int) -> Thread:
    while True:
        yield Launch(device, length_ns)


def now_and_then(device: int, length_ns: int, pause_ns: int) -> Thread:
    while True:
        yield Launch(device, length_ns)
        yield Wait(device, pause_ns)


def in_turns(first_ns: int, second_ns: int) -> Thread:
    """A producer and a consumer."""
    while True:
        yield Launch(LEADER, first_ns)
        yield Wait(LEADER)
        yield Launch(FOLLOWER, second_ns)
        yield Wait(FOLLOWER)


def meeting(device: int, own_ns: int) -> Thread:
    number = 0
    while True:
        number += 1
        yield Launch(device, own_ns)
        yield Launch(device, 100 * US, number)


def phases(own_ns: int) -> Thread:
    while True:
        for device in (LEADER, FOLLOWER):
            for _ in range(100):
                yield Launch(device, own_ns)
            yield Wait(None)


PROGRAMS: dict[str, Callable[[], list[Thread]]] = {
    "only on the follower": lambda: [busy(FOLLOWER, MS)],
    "only on the leader": lambda: [busy(LEADER, MS)],
    "now and then on the leader": lambda: [busy(FOLLOWER, MS), now_and_then(LEADER, 200 * US, 10 * MS)],
    "now and then on the follower": lambda: [busy(LEADER, MS), now_and_then(FOLLOWER, 200 * US, 10 * MS)],
    "producer, longer consumer": lambda: [in_turns(200 * US, MS)],
    "longer producer, consumer": lambda: [in_turns(MS, 200 * US)],
    "phases": lambda: [phases(MS)],
    "busy on both": lambda: [busy(LEADER, 500 * US), busy(FOLLOWER, 500 * US)],
    "meeting": lambda: [meeting(LEADER, 500 * US), meeting(FOLLOWER, 500 * US)],
    "meeting, one later": lambda: [meeting(LEADER, 200 * US), meeting(FOLLOWER, MS)],
}


@pytest.mark.parametrize("maximum", [100, 250, 500])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_maximum_holds_on_both_devices(program: str, maximum: int) -> None:
    world = GangWorld(maximum, *PROGRAMS[program]())
    world.run(2 * SECOND)
    assert max(world.beyond_ns) <= saved_and_queued(maximum, MS), [ns / MS for ns in world.beyond_ns]
    assert max(world.share(LEADER), world.share(FOLLOWER)) > 0.85 * maximum / 1000
    assert world.closed_ns <= QUANTUM_NS
    assert world.steps < 2 * 2 * SECOND // (MS // 4)
