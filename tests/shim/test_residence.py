"""Programs whose memory leaves the device and comes back, on a simulated device whose driver locks them meanwhile.

The slice is moved by hand, in the order that the daemon keeps: its calls wait, its processes leave the driver, the
driver locks and checkpoints them; then back.
"""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.shim.fake_daemon import MIB, FakeDaemon, FakeDevice, wait_until
from tests.sim.conftest import MakeDevice, MakeProgram, Running, device, program, run, start
from vgpud.simdevice.process import SimulatedDevice

__all__ = ["device", "program", "start"]

CONTEXT = 64 * MIB
UUIDS = [b"SIMULATED-GPU\0\0" + bytes([index]) for index in range(2)]
#: what the calls of tests/sim/away.c do while the slice is away
WAITING = (
    *("launch", "graph", "capture", "alloc", "pool", "host_alloc", "copy", "copy_async", "read_back", "fill"),
    *("synchronize", "stream_synchronize", "event_synchronize", "event_record", "event_create"),
    *("stream_create", "context", "module"),
)
ANSWERED = ("event_query", "stream_query", "memory_info", "attribute", "current")
#: programs of tests/sim that check their results, and no times or what is done within some
PROGRAMS = ("arrays", "batches", "captures", "copies", "graphs", "memory", "states")
#: what cuCheckpointProcess* answers
DONE, NOT_SUPPORTED = 0, 801


def peer_pid(sock: socket.socket) -> int:
    pid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return pid


class Mover:
    """Moves the memory of the one slice of a daemon, whose last program is the one that is locked."""

    def __init__(self, daemon: FakeDaemon, server: SimulatedDevice, checkpoint: Path) -> None:
        self.daemon, self._device, self._checkpoint = daemon, server, checkpoint
        self.pid = 0  # of the program that is locked, or was last
        daemon.rotate(leaves=False)

    def count_waiting(self) -> int:
        return sum(stats.waiting_calls for stats in self.daemon.stats())

    def act(self, *words: str) -> list[int]:
        """What the driver answers, from outside."""
        command = [str(self._checkpoint), str(self.pid), *words]
        done = subprocess.run(command, env=self._device.environment(), capture_output=True, text=True, check=False)
        return [int(line.split(",")[0][1:]) for line in done.stdout.splitlines()]

    def leave(self, seconds: float = 20.0) -> bool:
        """Whether its processes have left the driver. If they have not, it is as before."""
        self.daemon.rotate(leaves=True)
        if wait_until(lambda: not any(stats.processes_in_driver for stats in self.daemon.stats()), seconds):
            return True
        self.daemon.rotate(leaves=False)
        return False

    def move_out(self, seconds: float = 20.0) -> bool:
        """Whether its memory is on the host. If it is not, it is as before."""
        self.pid = peer_pid(self.daemon.processes[-1].sock)
        if not self.leave(seconds):
            return False
        codes = self.act("lock", "save")
        if codes == [DONE, DONE]:
            return True
        if codes:
            assert codes == [DONE, NOT_SUPPORTED]
            assert self.act("unlock") == [DONE]
        self.daemon.rotate(leaves=False)  # without an answer: the program has ended
        return False

    def bring_back(self) -> None:
        assert self.act("restore", "unlock") in ([DONE, DONE], [])
        self.daemon.rotate(leaves=False)


@pytest.fixture
def bench(
    shim: Path, short_dir: Path, device: MakeDevice, program: MakeProgram
) -> Iterator[tuple[Mover, SimulatedDevice, dict[str, str]]]:
    """One device and its slice: (who moves it, the device, the environment of programs in the slice)."""
    made = device(memory_bytes="2G", context_bytes=str(CONTEXT))
    with FakeDaemon(short_dir / "attach.sock", [FakeDevice(UUIDS[0], 1024 * MIB, CONTEXT)]) as fake:
        hooked = {"LD_PRELOAD": str(shim), "VGPU_SOCKET": str(fake.path)}
        hooked["VGPU_DRIVER"] = str(made.lib_dir / "libcuda.so.1")
        yield Mover(fake, made, program("checkpoint")), made, hooked


Bench = tuple[Mover, SimulatedDevice, dict[str, str]]
Start = Callable[..., Running]


def says_something(one: Running, seconds: float) -> bool:
    assert one.process.stdout
    return bool(select.select([one.process.stdout], [], [], seconds)[0])


@pytest.mark.parametrize("call", WAITING)
def test_a_call_that_needs_the_device_waits_until_it_is_back(bench: Bench, start: Start, call: str) -> None:
    mover, made, hooked = bench
    one = start(made, "away", call, **hooked)
    assert "ready" in one.line()
    assert mover.move_out()
    one.go()
    assert wait_until(lambda: mover.count_waiting() == 1)
    assert not says_something(one, 0.2)
    mover.bring_back()
    answer = one.line()
    assert answer["code"] == 0
    assert call != "read_back" or answer["value"] == MIB
    assert wait_until(lambda: mover.count_waiting() == 0)
    one.go()
    assert one.line()["code"] == 0
    assert one.end() == 0


@pytest.mark.parametrize("call", ANSWERED)
def test_a_poll_is_answered_and_brings_nothing_back(bench: Bench, start: Start, call: str) -> None:
    mover, made, hooked = bench
    one = start(made, "away", call, **hooked)
    assert "ready" in one.line()
    one.go()
    before = one.line()
    assert mover.move_out()
    for _ in range(3):
        one.go()
        assert one.line() == before
    assert mover.count_waiting() == 0
    mover.bring_back()
    one.go()
    assert one.line() == before
    assert one.end() == 0


def test_a_program_that_is_killed_while_it_waits_is_counted_no_more(bench: Bench, start: Start) -> None:
    mover, made, hooked = bench
    one = start(made, "away", "launch", **hooked)
    one.line()
    assert mover.move_out()
    one.go()
    assert wait_until(lambda: mover.count_waiting() == 1)
    os.kill(mover.pid, signal.SIGKILL)
    one.process.wait()
    mover.daemon.dead(mover.daemon.processes[0])
    assert mover.count_waiting() == 0


def test_a_stopped_program_is_not_locked(bench: Bench, start: Start) -> None:
    mover, made, hooked = bench
    one = start(made, "away", "launch", **hooked)
    one.line()
    pid = peer_pid(mover.daemon.processes[0].sock)
    os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: all(" T " in (task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()))
    assert not mover.leave(1.0)
    os.kill(pid, signal.SIGCONT)
    one.go()
    assert one.line()["code"] == 0
    assert mover.move_out()
    mover.bring_back()
    assert one.end() == 0


@pytest.mark.parametrize("daemons", [1, 2])
def test_calls_wait_on_while_the_daemon_is_gone(bench: Bench, start: Start, daemons: int) -> None:
    """And a new daemon that knows that the slice is away finds the waiting call again, as does one after it: meanwhile
    nothing of the program may ask the driver, which would block it."""
    mover, made, hooked = bench
    daemon = mover.daemon
    one = start(made, "away", "launch", **hooked)
    one.line()
    assert mover.move_out()
    mover.bring_back()
    assert mover.move_out(), "by another number than the next daemon's first one"
    one.go()
    assert wait_until(lambda: mover.count_waiting() == 1)
    for count in range(daemons):
        daemon.stop()
        assert not says_something(one, 0.5)
        daemon.leaves = True
        daemon.start()
        assert wait_until(lambda found=count + 2: len(daemon.processes) == found and mover.count_waiting() == 1)
        assert not says_something(one, 0.2)
    mover.bring_back()
    assert one.line()["code"] == 0
    assert one.end() == 0


class RandomMoves:
    """Moves the slice at random, until the program ends."""

    def __init__(self, mover: Mover, seed: int) -> None:
        self._mover, self._draw = mover, random.Random(seed)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._move)
        self.moves, self.failure = 0, ""

    def __enter__(self) -> RandomMoves:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        assert not self.failure, self.failure

    def _move(self) -> None:
        while not self._end.wait(self._draw.choice((0.0, 0.001, 0.01, 0.05))):
            try:
                # for a moment: a stream may wait for what the program does next
                if self._mover.daemon.processes and self._mover.move_out(1.0):
                    self.moves += 1
                    if self._draw.random() < 0.7:  # it is brought back by a call, else for no reason
                        wait_until(lambda: self._mover.count_waiting() > 0 or self._end.is_set(), 5.0)
                    self._mover.bring_back()
            except AssertionError as error:
                self.failure = f"after {self.moves} moves: {error}"
                self._mover.daemon.rotate(leaves=False)
                return


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_find_the_same_whenever_they_are_moved(
    shim: Path, short_dir: Path, device: MakeDevice, program: MakeProgram, name: str
) -> None:
    """Those that have no device memory yet, or what the driver does not move, are asked for it all the same."""
    made = device(devices=2, memory_bytes="2G", context_bytes=str(CONTEXT))
    with FakeDaemon(short_dir / "attach.sock", [FakeDevice(uuid, 1024 * MIB, CONTEXT) for uuid in UUIDS]) as fake:
        hooked = {"LD_PRELOAD": str(shim), "VGPU_SOCKET": str(fake.path)}
        hooked["VGPU_DRIVER"] = str(made.lib_dir / "libcuda.so.1")
        with RandomMoves(Mover(fake, made, program("checkpoint")), PROGRAMS.index(name)):
            assert run(program(name), made, **hooked, MAKER_LAST="1") == "ok\n"
        assert fake.processes
