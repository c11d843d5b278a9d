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
    """What a device may compute beyond its maximum: what a bucket saves, and what is queued when a gate closes: the
    bound, and these kernels, which just did not reach it or for which the other device waits."""
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


#: what the other device waits for: it has launched up to its bound of the shorter steps
CATCHES_UP_NS = {"meeting, one later": 7 * 1100 * US}


@pytest.mark.parametrize("maximum", [100, 500])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_maximum_holds_on_both_devices(program: str, maximum: int) -> None:
    """A follower had none, and of a leader none was left as soon as its gate closed while work was outstanding."""
    world = GangWorld(maximum, *PROGRAMS[program]())
    world.run(SECOND)
    allowed_ns = saved_and_queued(maximum, MS, CATCHES_UP_NS.get(program, 0))
    assert max(world.beyond_ns) <= allowed_ns, [ns / MS for ns in world.beyond_ns]
    most = 0.5 if program == "phases" else 1
    assert max(world.share(LEADER), world.share(FOLLOWER)) > 0.85 * most * maximum / 1000
    assert world.closed_ns <= QUANTUM_NS
    assert world.steps < 2 * SECOND // (MS // 4), "the arbiters spin"


@pytest.mark.parametrize("maximum", [100, 500])
def test_what_a_gang_computes_on_one_device_is_not_saved_up_on_the_other(maximum: int) -> None:
    """Of a leader it was: for the work of the others it counts as active."""
    world = GangWorld(maximum, *[busy(FOLLOWER, MS)])
    world.run(SECOND)
    assert world.parts[LEADER].row.cap_ns <= 15 * MS * maximum // 1000


@pytest.mark.parametrize("maximum", [100, 500])
@pytest.mark.parametrize("knows_names", [True, False])
def test_equal_work_that_meets_has_its_maximum_on_both(knows_names: bool, maximum: int) -> None:
    world = GangWorld(maximum, meeting(LEADER, 500 * US), meeting(FOLLOWER, 500 * US), knows_names=knows_names)
    world.run(SECOND)
    met = min(part.last_meeting for part in world.parts)
    assert met * 600 * US > (0.85 if knows_names else 0.3) * maximum / 1000 * SECOND
    assert max(world.beyond_ns) <= saved_and_queued(maximum, MS)


@pytest.mark.parametrize("knows_names", [True, False])
@pytest.mark.parametrize("spins", [LEADER, FOLLOWER])
def test_what_spins_for_a_launch_at_a_closed_gate_ends(spins: int, knows_names: bool) -> None:
    """Its partner comes later than anything is let through; spinning, it uses up the maximum of its device."""

    def late(device: int) -> Thread:
        for number in range(1, 11):
            yield Wait(device, 30 * MS if device != spins else 0)
            yield Launch(device, 100 * US, number)

    world = GangWorld(100, late(LEADER), late(FOLLOWER), knows_names=knows_names)
    world.run(60 * SECOND)
    assert world.has_ended


def any_threads(draw: random.Random) -> list[Thread]:
    """Kernels on either device and waits for either, some of which meet."""

    def thread(lengths_us: list[int]) -> Thread:
        while True:
            device = draw.choice((LEADER, FOLLOWER))
            for _ in range(draw.choice((1, 2, 10))):
                yield Launch(device, draw.choice(lengths_us) * US)
            if draw.random() < 0.7:
                yield Wait(draw.choice((device, None)), draw.choice((0, 0, 200 * US, 3 * MS)))

    return [thread(draw.sample([50, 100, 200, 500, 1000, 2000], 2)) for _ in range(draw.choice((1, 2, 3)))]


@pytest.mark.parametrize("seed", range(8))
def test_the_maximum_of_random_programs_holds_and_no_idle_device_keeps_a_gate_closed(seed: int) -> None:
    draw = random.Random(seed)
    maximum = draw.choice((100, 250, 500))
    threads = any_threads(draw)
    world = GangWorld(maximum, *threads)
    world.run(SECOND)
    assert max(world.beyond_ns) <= saved_and_queued(maximum, len(threads) * 2 * MS), world.beyond_ns
    assert world.closed_ns <= QUANTUM_NS, f"{world.closed_ns / MS:.1f} ms"
