"""The link between host and device: all that crosses it shares its rate, in each direction for itself.

Shares and times come from the device's log of links, in its own time: a busy host changes nothing in them.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

import pytest

from vgpud.simdevice.link_log import FROM_DEVICE, TO_DEVICE, LinkUse, link_share
from vgpud.simdevice.process import SimulatedDevice

from .conftest import MakeDevice, MakeProgram, Running

MIB = 1 << 20
COPY = 1 * MIB
#: slow, so that a host that moves the bytes is faster than the link
BYTES_PER_US = 100
COPY_NS = COPY * 1000 // BYTES_PER_US
PAGEABLE_PART = 0.4
#: the server has written everything that long after its last work
WRITTEN_S = 0.1

Start = Callable[..., Running]


@pytest.fixture
def sim_device(device: MakeDevice) -> SimulatedDevice:
    return device(link_bytes_per_us=BYTES_PER_US, memory_bytes=1024 * MIB, context_bytes=64 * MIB)


def run_all(*programs: Running) -> list[dict[str, int]]:
    for program in programs:
        assert program.line() == {"ready": program.process.pid}
    for program in programs:
        program.go()
    return [program.line() for program in programs]


def uses_of(device: SimulatedDevice, program: Running, direction: int, since_ns: int) -> list[LinkUse]:
    """What a program has used, when all of it is written."""
    program.end()
    time.sleep(WRITTEN_S)
    uses = [use for use in device.link_log() if use.pid == program.process.pid and use.direction == direction]
    return [use for use in uses if use.begin_ns >= since_ns]


def both_at_work(*answers: dict[str, int]) -> tuple[int, int]:
    """The time in which all of them had copies on the way, without its edges."""
    begin_ns = max(answer["begin_ns"] for answer in answers) + COPY_NS
    end_ns = min(answer["end_ns"] for answer in answers) - COPY_NS
    assert end_ns > begin_ns + 5 * COPY_NS
    return begin_ns, end_ns


def test_a_copy_alone_has_the_whole_link_and_every_byte_is_logged(sim_device: SimulatedDevice, start: Start) -> None:
    program = start(sim_device, "link_copies", "to", "pinned", COPY, 20, 1)
    (answer,) = run_all(program)
    uses = uses_of(sim_device, program, TO_DEVICE, answer["begin_ns"])
    assert sum(use.bytes for use in uses) == 20 * COPY
    used_ns = sum(use.link_ns for use in uses)
    assert used_ns == pytest.approx(20 * COPY_NS, rel=0.01)
    assert sum(use.end_ns - use.begin_ns for use in uses) == pytest.approx(used_ns, rel=0.01)


def test_copies_of_two_processes_divide_the_link(sim_device: SimulatedDevice, start: Start) -> None:
    """Whatever the number of streams."""
    one = start(sim_device, "link_copies", "to", "pinned", COPY, 40, 1)
    other = start(sim_device, "link_copies", "to", "pinned", COPY, 40, 8)
    span = both_at_work(*run_all(one, other))
    one.end()
    other.end()
    time.sleep(WRITTEN_S)
    log = sim_device.link_log()
    for program in (one, other):
        assert link_share(log, program.process.pid, TO_DEVICE, *span) == pytest.approx(0.5, abs=0.02)


def test_the_directions_do_not_slow_each_other(sim_device: SimulatedDevice, start: Start) -> None:
    one = start(sim_device, "link_copies", "to", "pinned", COPY, 30, 1)
    other = start(sim_device, "link_copies", "from", "pinned", COPY, 30, 1)
    span = both_at_work(*run_all(one, other))
    one.end()
    other.end()
    time.sleep(WRITTEN_S)
    log = sim_device.link_log()
    assert link_share(log, one.process.pid, TO_DEVICE, *span) == pytest.approx(1, abs=0.02)
    assert link_share(log, other.process.pid, FROM_DEVICE, *span) == pytest.approx(1, abs=0.02)


def test_pageable_memory_has_a_rate_of_its_own(sim_device: SimulatedDevice, start: Start) -> None:
    slow = start(sim_device, "link_copies", "to", "pageable", COPY, 30, 1)
    (answer,) = run_all(slow)
    uses = uses_of(sim_device, slow, TO_DEVICE, answer["begin_ns"])
    lasted_ns = sum(use.end_ns - use.begin_ns for use in uses)
    assert sum(use.link_ns for use in uses) / lasted_ns == pytest.approx(PAGEABLE_PART, abs=0.01)


def test_what_pageable_memory_leaves_is_for_others(sim_device: SimulatedDevice, start: Start) -> None:
    slow = start(sim_device, "link_copies", "to", "pageable", COPY, 30, 1)
    fast = start(sim_device, "link_copies", "to", "pinned", COPY, 45, 1)
    span = both_at_work(*run_all(slow, fast))
    slow.end()
    fast.end()
    time.sleep(WRITTEN_S)
    log = sim_device.link_log()
    assert link_share(log, slow.process.pid, TO_DEVICE, *span) == pytest.approx(PAGEABLE_PART, abs=0.02)
    assert link_share(log, fast.process.pid, TO_DEVICE, *span) == pytest.approx(1 - PAGEABLE_PART, abs=0.02)


def test_a_killed_process_leaves_the_link(sim_device: SimulatedDevice, start: Start) -> None:
    victim = start(sim_device, "link_copies", "to", "pinned", 8 * MIB, 100, 1)
    other = start(sim_device, "link_copies", "to", "pinned", COPY, 100, 1)
    for program in (victim, other):
        assert program.line() == {"ready": program.process.pid}
    victim.go()
    time.sleep(30 * COPY_NS / 1e9)  # its bytes take the host some time
    other.go()
    time.sleep(20 * COPY_NS / 1e9)
    victim.process.kill()
    victim.process.wait()
    killed_ns = time.monotonic_ns()
    answer = other.line()
    other.end()
    time.sleep(WRITTEN_S)
    log, pid = sim_device.link_log(), other.process.pid
    assert link_share(log, pid, TO_DEVICE, killed_ns + 2 * COPY_NS, answer["end_ns"] - COPY_NS) > 0.95
    beside = [use for use in log if use.pid == pid and answer["begin_ns"] < use.begin_ns and use.end_ns < killed_ns]
    assert sum(use.link_ns for use in beside) / sum(use.end_ns - use.begin_ns for use in beside) < 0.8


def test_a_checkpoint_moves_beside_copies(sim_device: SimulatedDevice, start: Start, program: MakeProgram) -> None:
    """It takes the time that it takes on a link that another one uses as well."""
    target = start(sim_device, "checkpoint_target")
    assert target.line() == {"same": 1}
    neighbour = start(sim_device, "link_copies", "from", "pinned", COPY, 600, 1)
    assert neighbour.line() == {"ready": neighbour.process.pid}

    def control(*words: str) -> None:
        command = [str(program("checkpoint")), str(target.process.pid), *words]
        done = subprocess.run(command, env=sim_device.environment(), capture_output=True, text=True, check=True)
        assert [json.loads(line)[0] for line in done.stdout.splitlines()] == [0] * len(words)

    since_ns = time.monotonic_ns()
    control("lock")
    neighbour.go()
    time.sleep(10 * COPY_NS / 1e9)
    control("save")
    neighbour.process.kill()
    control("restore", "unlock")
    time.sleep(WRITTEN_S)
    parts = {}
    for direction in (FROM_DEVICE, TO_DEVICE):
        moves = [u for u in sim_device.link_log() if u.pid == target.process.pid and u.begin_ns >= since_ns]
        moves = [use for use in moves if use.direction == direction]
        parts[direction] = sum(use.link_ns for use in moves) / sum(use.end_ns - use.begin_ns for use in moves)
    assert parts[FROM_DEVICE] == pytest.approx(0.5, abs=0.03)
    assert parts[TO_DEVICE] == pytest.approx(1, abs=0.03)
    target.go()
    assert target.line() == {"same": 1}
