"""What is looked at once more before a program is stopped: it may be another one by now."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from vgpud.attach.server import Greeting, Tenants
from vgpud.core.devices.enforce import EXCESS, KILL, STRANGER, Act
from vgpud.core.devices.strangers import Findings
from vgpud.core.events import Answer, Log, ProcessAttached
from vgpud.core.model import Denied, Process, Reason, Share, State
from vgpud.core.observed import Reading
from vgpud.daemon import device_reader, process_pids
from vgpud.daemon.attach_backend import AttachBackend
from vgpud.daemon.device_reader import DeviceReader
from vgpud.daemon.enforcer import Enforcer
from vgpud.daemon.monitor import UsageMonitor
from vgpud.daemon.process_pids import AttachedProcesses
from vgpud.daemon.slices.counters import Readings
from vgpud.host import processes as host_processes

UUID, PID = "GPU-0", os.getpid()
STARTED = host_processes.start_time(PID)


def process(slice_name: str, *, holder: bool = False) -> Process:
    return Process(1, slice_name, PID, 0, "p", 0, is_resumed=False, holder=holder)


class World:
    """What the parts that watch the devices work on. Make it on a loop."""

    def __init__(
        self, processes: list[Process] | None = None, running: dict[int, int] | None = None, dead: bool = False
    ) -> None:
        known = {p.process_id: p for p in processes or []}
        self.machine: Any = SimpleNamespace(state=State(processes=known))
        tenants: Any = SimpleNamespace(dead=lambda: list(known) if dead else [])
        self.devices: Any = SimpleNamespace(
            running=lambda _uuid: running,
            knows_pids=True,
            newcomers=dict,
            watch_faults=lambda: None,
            close=lambda: None,
        )
        self.log: list[Log] = []
        self.events: Any = SimpleNamespace(note=self.log.append)
        self.processes = AttachedProcesses(self.machine, tenants)
        self.readings = Readings()

    def enforcer(self) -> Enforcer:
        return Enforcer(self.devices, self.processes, self.events)

    def reader(self, listener: Any = None) -> DeviceReader:
        return DeviceReader(self.machine, self.events, self.devices, self.processes, self.readings, listener)

    def monitor(self) -> UsageMonitor:
        none: Any = None
        return UsageMonitor(self.machine, none, self.events, none, none, self.devices, self.processes, self.readings)


def is_still(
    cause: str,
    slice_name: str,
    processes: list[Process],
    running: dict[int, int] | None,
    *,
    start_ticks: int = STARTED,
    dead: bool = False,
) -> bool:
    async def ask() -> bool:
        enforcer = World(processes, running, dead).enforcer()
        return enforcer._is_still(Act(KILL, cause, PID, slice_name, UUID, True, start_ticks))

    return asyncio.run(ask())


def test_a_stranger_that_has_attached_meanwhile_is_none() -> None:
    assert is_still(STRANGER, "", [], {PID: 1})
    assert is_still(STRANGER, "", [process("a", holder=True)], {PID: 1})
    assert not is_still(STRANGER, "", [process("a")], {PID: 1})
    assert not is_still(STRANGER, "", [], {PID + 1: 1})
    assert not is_still(STRANGER, "", [], None), "the driver does not say"


def test_a_program_that_closed_its_connection_is_a_stranger_unless_it_soon_comes_back() -> None:
    now_ns = time.monotonic_ns()
    after_ns = int(process_pids.RETURN_S * 1e9)
    assert not is_still(STRANGER, "", [replace(process("a"), disconnected_ns=now_ns)], {PID: 1})
    assert is_still(STRANGER, "", [replace(process("a"), disconnected_ns=max(1, now_ns - after_ns - 1))], {PID: 1})


def test_who_has_a_strangers_pid_is_another_one() -> None:
    assert not is_still(STRANGER, "", [], {PID: 1}, start_ticks=STARTED - 1)


def test_who_is_attached_is_listed_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([process("a")])
    known, made = world.machine.state.processes, world.processes
    before = made.by_pid()
    assert before == {PID: [process("a")]} and made.by_pid() is before
    known[2] = replace(process("a"), process_id=2)
    assert [life.process_id for life in made.by_pid()[PID]] == [1, 2]
    known[2] = replace(known[2], disconnected_ns=time.monotonic_ns())
    assert [life.disconnected_ns > 0 for life in made.by_pid()[PID]] == [False, True]
    monkeypatch.setattr(process_pids, "RETURN_S", 0.0)
    assert [life.process_id for life in made.by_pid()[PID]] == [1]


def test_who_has_ended_is_known() -> None:
    made: Any = SimpleNamespace(_peers={n: SimpleNamespace(process_id=n, dead=n == 2) for n in (1, 2)})
    assert Tenants.dead(made) == [2]


def test_a_program_that_has_ended_has_no_pid_that_is_in_use() -> None:
    """Its child holds its socket, and this process has its pid."""
    assert not is_still(EXCESS, "a", [process("a")], {PID: 1}, dead=True)
    assert is_still(STRANGER, "", [process("a")], {PID: 1}, dead=True)


def test_who_has_the_pid_of_a_program_in_excess_is_of_another_slice() -> None:
    assert is_still(EXCESS, "a", [process("a")], {PID: 1})
    assert not is_still(EXCESS, "a", [process("b")], {PID: 1})
    assert not is_still(EXCESS, "a", [], {PID: 1})


def test_a_reading_that_goes_wrong_does_not_end_the_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_reader, "READ_S", 0.01)

    async def read() -> None:
        made, asked = World().reader(), threading.Semaphore(0)

        def fail() -> None:
            asked.release()
            raise ValueError("x")

        made._read_devices = fail  # type: ignore[method-assign]
        made.start()
        for _ in range(3):
            assert await asyncio.to_thread(asked.acquire, timeout=10)
        await made.stop()

    asyncio.run(read())


def test_pids_that_mean_nothing_are_said() -> None:
    async def collect_log_kinds(knows_pids: bool) -> list[str]:
        world = World()
        world.devices.knows_pids = knows_pids
        made = world.monitor()
        made._reader._thread = threading.Thread(target=list)
        made.start()
        return [entry.kind for entry in world.log]

    assert (asyncio.run(collect_log_kinds(True)), asyncio.run(collect_log_kinds(False))) == ([], ["device.unwatched"])


def test_a_device_that_has_come_is_said_once() -> None:
    async def collect_log_lines() -> list[str]:
        world = World()
        made = world.reader()
        for seen in ({}, {"a": "GPU a"}, {"a": "GPU a"}, {"a": "GPU a", "b": "GPU b"}, {}, {"a": "GPU a"}):
            world.devices.newcomers = lambda seen=seen: seen
            made.read_holders()
        await asyncio.sleep(0)
        return [f"{entry.kind}: {entry.message}" for entry in world.log]

    why = "has come since the start of vgpud and is not shared: restart vgpud, programs continue"
    assert asyncio.run(collect_log_lines()) == [f"device.new: GPU {name} {why}" for name in ("a", "b", "a")]


def test_nothing_is_looked_at_after_the_end() -> None:
    async def look() -> None:
        made, looks = World().monitor(), []
        made._watch.look = lambda *_: looks.append(1) or Findings()  # type: ignore[method-assign, func-returns-value]
        made.look({}, {})
        made._reader._stopping.set()
        made.look({}, {})
        assert looks == [1]

    asyncio.run(look())


def test_what_takes_long_is_not_begun_again() -> None:
    async def collect_pids() -> list[int]:
        made, go_on, pids = World().enforcer(), threading.Event(), []

        def carry_out(act: Act) -> None:
            pids.append(act.pid)
            go_on.wait()

        made._carry_out = carry_out  # type: ignore[method-assign]
        for pid in (1, 1, 2):
            made.begin(Act(KILL, STRANGER, pid, "", UUID, first=True))
        go_on.set()
        while made._acting:
            await asyncio.sleep(0.01)
        made.begin(Act(KILL, STRANGER, 1, "", UUID, first=False))
        while made._acting:
            await asyncio.sleep(0.01)
        return pids

    assert sorted(asyncio.run(collect_pids())) == [1, 1, 2]


def test_a_driver_that_hangs_delays_no_other() -> None:
    """As many as you like may wait for it: the disk is waited for in other threads."""

    async def others_go_on(begin: Callable[[threading.Event], Awaitable[Callable[[], bool]]]) -> None:
        answers = threading.Event()
        try:
            is_over = await begin(answers)
            await asyncio.wait_for(asyncio.to_thread(int), 10)
        finally:
            answers.set()
        while not is_over():
            await asyncio.sleep(0.01)

    async def act(answers: threading.Event) -> Callable[[], bool]:
        made = World().enforcer()
        made._carry_out = lambda _act: answers.wait()  # type: ignore[assignment, method-assign]
        for pid in range(64):
            made.begin(Act(KILL, STRANGER, pid, "", UUID, first=True))
        return lambda: not made._acting

    async def leave(answers: threading.Event) -> Callable[[], bool]:
        gone: list[object] = []
        devices: Any = SimpleNamespace(lists=lambda _pid: not answers.wait())
        known: Any = {UUID: SimpleNamespace(is_simulated=False)}
        state = State(devices=known, processes={n: replace(process("a"), process_id=n) for n in range(64)})
        machine: Any = SimpleNamespace(state=state, run=gone.append)
        none: Any = None
        backend = AttachBackend(machine, none, none, none, devices, none)
        for n in range(64):
            backend.note_process_end(n)
        await asyncio.sleep(0)
        return lambda: len(gone) == 64

    for begin in (act, leave):
        asyncio.run(others_go_on(begin))


def test_what_a_program_holds_is_of_its_slices_device() -> None:
    """The 16 bytes of a UUID do not say whether it is a GPU's or a MIG instance's; another device may have the same."""
    raw = bytes(range(16))
    gpu, instance = (f"{kind}-{uuid.UUID(bytes=raw)}" for kind in ("GPU", "MIG"))
    asked: list[ProcessAttached] = []

    def run(event: ProcessAttached) -> list[Answer]:
        asked.append(event)
        return [Answer(Denied(Reason.NOT_FOUND, "enough"))]

    made: Any = SimpleNamespace(name="a", serial=3, shares=(Share(instance, 100, 100, 4096, 4096),))
    known: Any = {one: SimpleNamespace() for one in (gpu, instance)}
    machine: Any = SimpleNamespace(state=State(devices=known, slices={"a": made}), run=run)
    stats = SimpleNamespace(mem_held_bytes=0, mem_unattributed_bytes=0)
    arbiters: Any = SimpleNamespace(slice_stats=lambda _serial, _device: stats)
    none: Any = None
    greeting = Greeting("a", 1, PID, 0, "", "", "p", is_resumed=True, held=((raw, 512),), serial=3)
    AttachBackend(machine, none, none, arbiters, none, none).attach(greeting)
    assert [event.held for event in asked] == [((instance, 512),)]


def test_faults_are_counted_by_device_the_latest_last() -> None:
    async def count() -> None:
        world, noted = World(), []
        rounds = [[(UUID, 31), (UUID, 79), ("GPU-1", 13)], [(UUID, 31)], []]
        world.machine.state.devices.update({UUID: SimpleNamespace(), "GPU-1": SimpleNamespace()})
        world.devices = SimpleNamespace(
            find_lost_devices=dict,
            faults=lambda: rounds.pop(0),
            read=lambda uuid: Reading(1, 0.5, 41, 312_000, 700_000),
        )
        made = world.reader(SimpleNamespace(note_faults=noted.append))
        for _ in range(3):
            made._read_devices()
        await asyncio.sleep(0)
        assert len(noted) == 2
        assert world.readings.devices[UUID] == Reading(1, 0.5, 41, 312_000, 700_000, xids=((79, 1), (31, 2)))
        assert world.readings.devices["GPU-1"].xids == ((13, 1),)
        made._count([(UUID, xid) for xid in range(1000, 2000)])
        assert len(made._xids[UUID]) == device_reader.XIDS_MAX, "a driver cannot make the table grow for ever"

    asyncio.run(count())
