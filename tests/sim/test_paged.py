"""Managed memory that does not all fit the device: kernels wait for what is not there, and for nothing while all fits.

Times are those of the device's own account, which a busy host does not change."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.daemon.node import wait_until
from vgpud.simdevice import state_page
from vgpud.simdevice.process import SimulatedDevice

from .conftest import MakeDevice, Running

MIB = 1 << 20
BLOCK = 2 * MIB
#: of a piece: two blocks
PIECE_MIB = 4
KERNEL_NS, FAULT_NS, BYTES_PER_US = 1_000_000, 50_000, 2 * MIB // 100
MOVE_NS = BLOCK * 1000 // BYTES_PER_US
DEVICE_MIB, CONTEXT_MIB = 128, 8
#: the server has written everything that long after its last work
WRITTEN_S = 0.1

Start = Callable[..., Running]


@pytest.fixture
def sim_device(device: MakeDevice) -> SimulatedDevice:
    return device(
        memory_bytes=DEVICE_MIB * MIB,
        context_bytes=CONTEXT_MIB * MIB,
        link_bytes_per_us=BYTES_PER_US,
        managed_fault_ns=FAULT_NS,
        switch_us=0,
    )


def page(device: SimulatedDevice) -> state_page.PageDevice:
    return state_page.read(device.directory / state_page.PAGE_NAME).devices[0]


def use_all(device: SimulatedDevice, program: Running) -> int:
    """SM time of a kernel for each of its pieces."""
    before = page(device).busy_ns
    program.go()
    count = program.line()["kernels"]
    time.sleep(WRITTEN_S)
    assert page(device).busy_ns >= before + count * KERNEL_NS
    return page(device).busy_ns - before


def send(program: Running, letter: str) -> None:
    assert program.process.stdin
    program.process.stdin.write(letter.encode())
    program.process.stdin.flush()


def test_nothing_waits_while_all_fits(sim_device: SimulatedDevice, start: Start) -> None:
    program = start(sim_device, "paged", 30, PIECE_MIB)
    assert program.line()["pieces"] == 30
    assert page(sim_device).used_bytes == (30 * PIECE_MIB + CONTEXT_MIB) * MIB, "charged as other memory"
    assert [use_all(sim_device, program) for _ in range(2)] == [30 * KERNEL_NS] * 2


def test_kernels_wait_for_what_is_not_there_and_for_what_has_to_leave(
    sim_device: SimulatedDevice, start: Start
) -> None:
    program = start(sim_device, "paged", 60, PIECE_MIB)
    assert program.line()["pieces"] == 60, "twice as much as there is"
    assert page(sim_device).used_bytes == DEVICE_MIB * MIB
    use_all(sim_device, program)
    wait_ns = 2 * (FAULT_NS + 2 * MOVE_NS)
    assert use_all(sim_device, program) == 60 * (KERNEL_NS + wait_ns), "each piece left before it was used again"
    assert page(sim_device).used_bytes == DEVICE_MIB * MIB


def test_two_programs_have_the_device_in_turn_block_by_block(sim_device: SimulatedDevice, start: Start) -> None:
    first, second = (start(sim_device, "paged", 20, PIECE_MIB) for _ in range(2))
    assert [program.line()["pieces"] for program in (first, second)] == [20, 20]
    use_all(sim_device, first)
    assert use_all(sim_device, second) > 20 * KERNEL_NS
    assert use_all(sim_device, second) == 20 * KERNEL_NS, "all of it is there now"
    assert use_all(sim_device, first) > 20 * KERNEL_NS
    held = page(sim_device).process_used_bytes
    assert sum(held.values()) == page(sim_device).used_bytes <= DEVICE_MIB * MIB
    assert second.end() == 0
    wait_until(lambda: second.process.pid not in page(sim_device).process_used_bytes, "its memory")
    use_all(sim_device, first)
    assert use_all(sim_device, first) == 20 * KERNEL_NS, "it fits again"


def test_managed_memory_makes_room_for_other_memory(sim_device: SimulatedDevice, start: Start) -> None:
    program = start(sim_device, "paged", 40, PIECE_MIB)
    program.line()
    send(program, "m")
    assert program.line()["code"] == 0
    assert page(sim_device).used_bytes == DEVICE_MIB * MIB
    for freed in range(1, 41):
        send(program, "f")
        assert program.line()["freed"] == freed
    assert page(sim_device).used_bytes == (PIECE_MIB + CONTEXT_MIB) * MIB, "nothing of it is left"
