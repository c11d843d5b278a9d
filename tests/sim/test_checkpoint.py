"""cuCheckpointProcess*: from one process on another; states, memory, refusals, death."""

from __future__ import annotations

import json
import select
import subprocess
import time
from collections.abc import Callable

import pytest

from vgpud.simdevice import state_page
from vgpud.simdevice.process import SimulatedDevice

from .conftest import MakeDevice, MakeProgram, Running

RUNNING, LOCKED, CHECKPOINTED = 0, 1, 2
OK, INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_STATE, NOT_READY, NOT_SUPPORTED = 0, 1, 2, 401, 600, 801
MIB = 1 << 20
CONTEXT = 64 * MIB
USED = CONTEXT + (48 + 2 + 6) * MIB
BLOCKED_S = 0.3

Start = Callable[..., Running]
Control = Callable[..., list[tuple[int, int]]]


@pytest.fixture
def sim_device(device: MakeDevice) -> SimulatedDevice:
    return device(memory_bytes=1024 * MIB, context_bytes=CONTEXT)


@pytest.fixture
def control(sim_device: SimulatedDevice, program: MakeProgram) -> Control:
    """Runs checkpoint.c; code and value of each word."""

    def do(pid: int, *words: str) -> list[tuple[int, int]]:
        command = [str(program("checkpoint")), str(pid), *words]
        done = subprocess.run(
            command, env=sim_device.environment(), capture_output=True, text=True, timeout=60, check=True
        )
        return [(code, value) for code, value in map(json.loads, done.stdout.splitlines())]

    return do


def codes(answers: list[tuple[int, int]]) -> list[int]:
    return [code for code, _ in answers]


def target_of(start: Start, sim_device: SimulatedDevice, *how: str) -> Running:
    target = start(sim_device, "checkpoint_target", *how)
    assert target.line() == {"same": 1}
    return target


def is_silent(target: Running) -> bool:
    return not select.select([target.process.stdout], [], [], BLOCKED_S)[0]


def used_bytes(sim_device: SimulatedDevice) -> tuple[int, dict[int, int]]:
    device = state_page.read(sim_device.directory / state_page.PAGE_NAME).devices[0]
    return device.used_bytes, device.process_used_bytes


def test_the_whole_way_and_back(sim_device: SimulatedDevice, start: Start, control: Control) -> None:
    target = target_of(start, sim_device)
    pid = target.process.pid
    assert control(pid, "state", "free") == [(OK, RUNNING), (OK, 1024 * MIB - CONTEXT - USED)]
    assert control(pid, "lock", "state", "tid") == [(OK, 0), (OK, LOCKED), (OK, pid)]
    target.go()
    assert is_silent(target), "its calls block"
    assert control(pid, "save", "state", "free") == [(OK, 0), (OK, CHECKPOINTED), (OK, 1024 * MIB - CONTEXT)]
    assert used_bytes(sim_device) == (0, {})
    everything = 1024 * MIB - CONTEXT
    assert codes(control(pid, f"take={everything}", "restore", "state", "give")) == [OK, OUT_OF_MEMORY, OK, OK]
    assert control(pid, "state") == [(OK, CHECKPOINTED)], "without room it stays what it was"
    assert is_silent(target)
    assert control(pid, "restore", "state") == [(OK, 0), (OK, LOCKED)]
    assert used_bytes(sim_device) == (USED, {pid: USED})
    assert is_silent(target)
    assert control(pid, "unlock", "state") == [(OK, 0), (OK, RUNNING)]
    assert target.line() == {"same": 1}
    assert target.end() == 0


def test_what_is_not_of_the_state_is_refused(sim_device: SimulatedDevice, start: Start, control: Control) -> None:
    pid = target_of(start, sim_device).process.pid
    assert codes(control(pid, "save", "restore", "unlock")) == [ILLEGAL_STATE] * 3
    assert codes(control(pid, "lock", "lock", "restore")) == [OK, ILLEGAL_STATE, ILLEGAL_STATE]
    assert codes(control(pid, "save", "save", "lock", "unlock")) == [OK] + [ILLEGAL_STATE] * 3
    assert codes(control(pid, "pair", "restore", "unlock")) == [NOT_SUPPORTED, OK, OK]


def test_who_is_no_process_of_the_device(sim_device: SimulatedDevice, control: Control) -> None:
    words = ("state", "lock", "save", "restore", "unlock", "tid")
    assert codes(control(1 << 22, *words)) == codes(control(0, *words)) == [INVALID_VALUE] * len(words)


@pytest.mark.parametrize("how", ["managed", "ipc"])
def test_managed_memory_and_memory_between_processes_stay(
    sim_device: SimulatedDevice, start: Start, control: Control, how: str
) -> None:
    target = target_of(start, sim_device, how)
    pid = target.process.pid
    assert control(pid, "lock", "save", "state", "unlock") == [(OK, 0), (NOT_SUPPORTED, 0), (OK, LOCKED), (OK, 0)]
    target.go()
    assert target.line() == {"same": 1}


def test_a_lock_that_takes_too_long_is_none(sim_device: SimulatedDevice, start: Start, control: Control) -> None:
    target = target_of(start, sim_device, "waits")
    assert control(target.process.pid, "lock=50", "state") == [(NOT_READY, 0), (OK, RUNNING)]
    target.go()
    assert target.line() == {"same": 1}


def test_who_dies_while_it_locks_leaves_the_other_running(
    sim_device: SimulatedDevice, start: Start, control: Control
) -> None:
    target = target_of(start, sim_device, "waits")
    locker = start(sim_device, "checkpoint", target.process.pid, "state", "lock")
    assert locker.line() == [OK, RUNNING]
    time.sleep(0.1)
    target.go()
    assert is_silent(target)
    locker.process.kill()
    assert target.line() == {"same": 1}


def test_who_is_killed_when_checkpointed_leaves_nothing(
    sim_device: SimulatedDevice, start: Start, control: Control
) -> None:
    target, other = target_of(start, sim_device), target_of(start, sim_device)
    pid = target.process.pid
    assert codes(control(pid, "lock", "save")) == [OK, OK]
    target.process.kill()
    target.process.wait()
    assert control(pid, "restore", "free") == [(INVALID_VALUE, 0), (OK, 1024 * MIB - CONTEXT - USED)]
    assert used_bytes(sim_device) == (USED, {other.process.pid: USED})


def test_a_process_checkpoints_itself(sim_device: SimulatedDevice, start: Start) -> None:
    assert target_of(start, sim_device, "self").end() == 0
