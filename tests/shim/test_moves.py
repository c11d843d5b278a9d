"""Programs that move their memory off the device themselves, where the driver does not: real bytes, on a simulated
device, moved by hand in the order that the daemon keeps, with daemons and programs that end at any step."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples import is_nightly
from tests.shim.fake_daemon import MIB, FakeDaemon, FakeDevice, lib, wait_until
from tests.sim.conftest import MakeDevice, Running, device, program, start
from vgpud.simdevice import state_page
from vgpud.simdevice.process import SimulatedDevice

__all__ = ["device", "program", "start"]

CONTEXT, DEVICE = 16 * MIB, 256 * MIB
UUID = b"SIMULATED-GPU\0\0\0"
MOVES = 200 if is_nightly() else 60
Start = Callable[..., Running]


class Mover:
    """Moves the memory of the one program of a daemon's slice."""

    def __init__(self, daemon: FakeDaemon, server: SimulatedDevice) -> None:
        self.daemon, self.device = daemon, server
        daemon.moves_itself = True
        daemon.rotate(leaves=False)

    @property
    def now(self) -> Any:
        (stats,) = self.daemon.stats()
        return stats

    @property
    def on_device(self) -> int:
        """Bytes that programs have there, by the device."""
        return state_page.read(self.device.directory / state_page.PAGE_NAME).devices[0].used_bytes

    def ask(self, where: int, seconds: float = 60.0) -> int:
        """VG_STAYS_*: what came of it."""
        word = self.daemon.move(where)
        assert wait_until(lambda: self.now.moved_word == word, seconds)
        return int(self.now.stays_reason)

    def leave(self) -> None:
        self.daemon.rotate(leaves=True)
        assert wait_until(lambda: not self.now.processes_in_driver)

    def move_out(self) -> int:
        self.leave()
        reason = self.ask(lib.VG_MOVE_OUT)
        if reason:
            self.daemon.rotate(leaves=False)
        return reason

    def move_in(self) -> int:
        reason = self.ask(lib.VG_MOVE_IN)
        if not reason:
            self.daemon.rotate(leaves=False)
        return reason


Bench = tuple[Mover, dict[str, str]]


@pytest.fixture
def bench(shim: Path, short_dir: Path, device: MakeDevice) -> Iterator[Bench]:
    """(who moves the slice's memory, the environment of programs in it)"""
    made = device(memory_bytes=DEVICE, context_bytes=CONTEXT)
    with FakeDaemon(short_dir / "attach.sock", [FakeDevice(UUID, DEVICE, CONTEXT, DEVICE)]) as fake:
        hooked = {"LD_PRELOAD": str(shim), "VGPU_SOCKET": str(fake.path)}
        hooked["VGPU_DRIVER"] = str(made.lib_dir / "libcuda.so.1")
        yield Mover(fake, made), hooked


def begin(bench: Bench, start: Start, *arguments: str) -> Running:
    mover, hooked = bench
    one = start(mover.device, "movable", *arguments, **hooked)
    one.line()
    return one


def read_until(one: Running, field: str, count: int) -> dict[str, Any]:
    """Its lines until it has done so many more of something."""
    first: dict[str, Any] = one.line()
    said = first
    while said[field] < first[field] + count:
        said = one.line()
    return said


def test_no_byte_changes_in_many_moves(bench: Bench, start: Start) -> None:
    mover, _ = bench
    one = begin(bench, start, "random", "1")
    draw = random.Random(1)
    moved = largest = 0
    for _ in range(MOVES):
        time.sleep(draw.choice((0.0, 0.002, 0.02)))
        assert mover.move_out() == lib.VG_STAYS_NOT
        assert mover.now.moved_state == lib.VG_MOVED_AWAY
        moved += bool(mover.now.movable_bytes)
        largest = max(largest, mover.now.movable_bytes)
        assert mover.now.mem_held_bytes == mover.now.mem_used_bytes
        assert mover.on_device == mover.now.mem_used_bytes - mover.now.movable_bytes
        assert mover.move_in() == lib.VG_STAYS_NOT
        assert mover.now.moved_state == lib.VG_MOVED_HERE
    said = read_until(one, "checks", 50)
    assert not said["wrong"]
    assert moved > MOVES // 2 and largest > 16 * MIB and said["large"] > 20


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("plain", "NOT"),
        ("managed", "MANAGED"),
        ("pool", "POOL"),
        ("array", "ARRAY"),
        ("handle", "HANDLE"),
        ("ipc", "SHARED"),
        ("event", "SHARED"),  # others' work completes it, of which nothing is known here
        ("contexts", "CALLS"),  # more than are asked whether all has completed
        ("retained", "NOT"),  # refused, as for memory of cuMemAlloc: the handle would keep what is freed
        ("range", "SHARED"),
        ("sync", "SHARED"),
    ],
)
def test_a_program_with_what_cannot_be_moved_stays_as_it_is(bench: Bench, start: Start, kind: str, reason: str) -> None:
    mover, _ = bench
    one = begin(bench, start, "has", kind)
    before = mover.on_device
    assert mover.move_out() == getattr(lib, f"VG_STAYS_{reason}")
    if reason == "NOT":
        assert mover.on_device == before - 4 * MIB
        assert mover.move_in() == lib.VG_STAYS_NOT
    assert mover.on_device == before
    one.go()
    assert one.line() == {"wrong": 0}


def test_what_the_driver_says_of_memory_is_the_same_with_and_without(bench: Bench, start: Start) -> None:
    mover, _ = bench
    one = start(mover.device, "movable", "ask", **bench[1])
    said = one.line()
    assert said["used"] == CONTEXT + 4 * MIB
    assert mover.now.movable_bytes == 4 * MIB
    del said["used"]
    assert said == {"offset": 0, "bytes": 3 * MIB, "type": 2, "ordinal": 0}
    assert mover.move_out() == lib.VG_STAYS_NOT
    one.go()
    assert wait_until(lambda: mover.now.waiting_calls == 1)
    assert mover.move_in() == lib.VG_STAYS_NOT
    again = one.line()
    assert again.pop("used") == CONTEXT + 4 * MIB
    assert again == said


def test_memory_ends_with_its_context(bench: Bench, start: Start) -> None:
    mover, _ = bench
    begin(bench, start, "ends")
    assert mover.on_device == CONTEXT and mover.now.movable_bytes == 0 and mover.now.mem_used_bytes == CONTEXT


def test_memory_freed_beside_a_capture_is_freed_at_its_end(bench: Bench, start: Start) -> None:
    """To end it, its context would have to be waited for, which ends captures: another thread's, too."""
    mover, _ = bench
    one = start(mover.device, "movable", "captures", **bench[1])
    assert one.line() == {"before": CONTEXT + 4 * MIB, "after": CONTEXT}
    assert mover.now.movable_bytes == 0


def test_a_program_that_is_within_a_call_is_not_moved(bench: Bench, start: Start) -> None:
    mover, _ = bench
    one = begin(bench, start, "has", "plain")
    assert mover.ask(lib.VG_MOVE_OUT) == lib.VG_STAYS_CALLS  # its calls were not told to wait
    one.go()
    assert one.line() == {"wrong": 0}


def test_memory_that_has_been_given_to_others_meanwhile_is_said_and_nothing_is_lost(bench: Bench, start: Start) -> None:
    mover, hooked = bench
    one = begin(bench, start, "has", "plain")
    assert mover.move_out() == lib.VG_STAYS_NOT
    unhooked = {name: value for name, value in hooked.items() if name == "VGPU_DRIVER"}
    other = start(mover.device, "rotor", str((DEVICE - 2 * CONTEXT - 2 * MIB) // MIB), "0", **unhooked)
    other.line()
    for _ in range(3):
        assert mover.move_in() == lib.VG_STAYS_DEVICE
        assert mover.now.moved_state == lib.VG_MOVED_AWAY
    one.go()
    assert wait_until(lambda: mover.now.waiting_calls == 1)
    other.end()
    assert wait_until(lambda: mover.on_device <= CONTEXT + 2 * MIB)
    assert mover.move_in() == lib.VG_STAYS_NOT
    assert one.line() == {"wrong": 0}


def test_a_program_killed_while_away_leaves_nothing(bench: Bench, start: Start) -> None:
    mover, _ = bench
    one = begin(bench, start, "random", "2")
    read_until(one, "large", 10)
    assert mover.move_out() == lib.VG_STAYS_NOT
    os.kill(one.process.pid, signal.SIGKILL)
    one.process.wait()
    assert wait_until(lambda: mover.on_device == 0)


@pytest.mark.parametrize("step", ["leaving", "asked out", "away", "asked in", "here"])
def test_a_daemon_that_dies_at_any_step_changes_no_byte(bench: Bench, start: Start, step: str) -> None:
    """The next one knows what was saved: that it leaves, is away or comes; the program says where its memory is."""
    mover, _ = bench
    daemon = mover.daemon
    one = begin(bench, start, "random", "3")
    for _ in range(3):
        read_until(one, "checks", 5)
        mover.leave()
        if step == "asked out":
            daemon.move(lib.VG_MOVE_OUT)
        elif step != "leaving":
            assert mover.ask(lib.VG_MOVE_OUT) == lib.VG_STAYS_NOT
        if step == "asked in":
            daemon.move(lib.VG_MOVE_IN)
        elif step == "here":
            assert mover.ask(lib.VG_MOVE_IN) == lib.VG_STAYS_NOT
        attached = len(daemon.processes)
        daemon.stop()
        time.sleep(0.2)
        daemon.start()
        assert wait_until(lambda n=attached: len(daemon.processes) > n and mover.now.moved_state != 0)  # type: ignore[misc]
        assert mover.ask(lib.VG_MOVE_STAY) == lib.VG_STAYS_NOT
        if step in ("leaving", "here"):
            assert mover.now.moved_state == lib.VG_MOVED_HERE
        if step == "away":
            assert mover.now.moved_state == lib.VG_MOVED_AWAY
        assert mover.move_in() == lib.VG_STAYS_NOT
    assert not read_until(one, "checks", 50)["wrong"]


def test_calls_wait_although_the_daemon_does_not_know_that_the_memory_is_away(bench: Bench, start: Start) -> None:
    mover, _ = bench
    one = begin(bench, start, "random", "4")
    read_until(one, "large", 10)
    assert mover.move_out() == lib.VG_STAYS_NOT
    mover.daemon.rotate(leaves=False)
    time.sleep(0.5)
    assert mover.now.moved_state == lib.VG_MOVED_AWAY and one.process.poll() is None
    assert mover.move_in() == lib.VG_STAYS_NOT
    assert not read_until(one, "checks", 50)["wrong"]


@pytest.mark.parametrize(
    ("fault", "direction", "reason"),
    [
        ("cuMemHostAlloc:1=2", "out", "HOST"),
        ("cuMemcpyDtoHAsync_v2:1=719", "out", "COPY"),
        ("cuStreamCreate:1=2", "out", "COPY"),
        ("cuMemUnmap:1=999", "out", "DRIVER"),
        ("cuMemCreate:2=2", "in", "DEVICE"),
        ("cuMemMap:2=1", "in", "DRIVER"),
        ("cuMemSetAccess:2=1", "in", "DRIVER"),
        ("cuMemcpyHtoDAsync_v2:1=719", "in", "COPY"),
    ],
)
def test_a_move_that_fails_in_the_middle_leaves_all_as_it_was(
    bench: Bench, start: Start, fault: str, direction: str, reason: str
) -> None:
    mover, hooked = bench
    one = start(mover.device, "movable", "has", "plain", **hooked, VGPU_SIM_FAIL=fault)
    assert one.line() == {"wrong": 0}
    before = mover.on_device
    said = mover.move_out()
    if direction == "out":
        assert said == getattr(lib, f"VG_STAYS_{reason}")
        assert mover.now.moved_state == lib.VG_MOVED_HERE and mover.on_device == before
    else:
        assert said == lib.VG_STAYS_NOT
        assert mover.move_in() == getattr(lib, f"VG_STAYS_{reason}")
        assert mover.now.moved_state == lib.VG_MOVED_AWAY and mover.on_device == before - 4 * MIB
        assert mover.move_in() == lib.VG_STAYS_NOT
    one.go()
    assert one.line() == {"wrong": 0}
    assert mover.move_out() == lib.VG_STAYS_NOT and mover.move_in() == lib.VG_STAYS_NOT
    one.go()
    assert one.line() == {"wrong": 0}
