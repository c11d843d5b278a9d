"""Asks the driver what its devices do, in a thread of its own: a driver that hangs must not stop the loop, nor its end.

What it finds is shown to users as it is (Readings), and decided on by a listener on the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from vgpud.core import events as ev
from vgpud.core.devices.enforce import LOG
from vgpud.core.devices.strangers import Running, Strangers
from vgpud.core.model import ANYONE
from vgpud.core.observed import Reading, Seen
from vgpud.daemon.process_pids import AttachedProcesses
from vgpud.daemon.slices.counters import Readings
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices import enforcement
from vgpud.devices.nvml import Devices
from vgpud.host import processes

log = logging.getLogger("vgpud")

#: how often the driver is asked what its devices do
READ_S = 0.5
#: with every second reading, the processes that use them
LOOK_EVERY = 2
#: with every how many readings, whether something has a whole device: that looks at every process of the machine
HOLDERS_EVERY = 10
#: different faults of a device that are counted: more than drivers have had so far
XIDS_MAX = 256


def call_on(loop: asyncio.AbstractEventLoop, work: Callable[..., None], *arguments: object) -> None:
    """From another thread; nothing once the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(work, *arguments)


class Listener(Protocol):
    """Called on the loop."""

    def note_faults(self, faults: Sequence[tuple[str, int]]) -> None:
        """(device, XID) of each."""
        ...

    def look(self, running: Running, unattached_processes: Strangers) -> None: ...


class DeviceReader:
    """`holders`: what has a whole device, by device; `lost_devices`: those that are not there now, and why."""

    def __init__(
        self,
        machine: SliceMachine,
        events: EventRecorder,
        devices: Devices,
        attached_processes: AttachedProcesses,
        readings: Readings,
        listener: Listener,
    ) -> None:
        self.holders: dict[str, str] = {}
        self.lost_devices: dict[str, str] = {}
        self._machine = machine
        self._events = events
        self._devices = devices
        self._attached = attached_processes
        self._readings = readings
        self._listener = listener
        self._xids: dict[str, dict[int, int]] = {}  # by device: how often each fault, the latest last
        self._seen: dict[int, Seen] = {}  # strangers, so that each is looked up once
        self._newcomers: frozenset[str] = frozenset()  # devices that have come since the start
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="nvml", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Ends the thread, and then the driver's library; leaves both where the driver hangs."""
        self._stopping.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, 1.0)
        if not self._thread.is_alive():
            self._devices.close()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _read(self) -> None:
        self._devices.watch_faults()
        for turn in itertools.count():
            try:
                self._read_devices()
                if turn % HOLDERS_EVERY == 0:
                    self.read_holders()
                if turn % LOOK_EVERY == 0:
                    self._read_processes()
            except Exception:  # a process that could end this thread would never be seen again
                log.exception("a reading of the devices failed; continuing")
            if self._stopping.wait(READ_S):
                return

    def _read_devices(self) -> None:
        self.lost_devices = self._devices.find_lost_devices()
        none = Reading(None, None)
        known = self._machine.state.devices
        if faults := self._devices.faults():
            self._count(faults)
            call_on(self._loop, self._listener.note_faults, faults)
        found = {uuid: none if uuid in self.lost_devices else self._devices.read(uuid) for uuid in known}
        self._readings.devices = {
            uuid: replace(now, xids=tuple(self._xids.get(uuid, {}).items())) for uuid, now in found.items()
        }

    def _count(self, faults: Sequence[tuple[str, int]]) -> None:
        for uuid, xid in faults:
            counts = self._xids.setdefault(uuid, {})
            if xid in counts or len(counts) < XIDS_MAX:
                counts[xid] = counts.pop(xid, 0) + 1

    def read_holders(self) -> None:
        found = {uuid: self._devices.holder(uuid) for uuid in self._machine.state.devices}
        self.holders = {uuid: holder.what for uuid, holder in found.items() if holder}
        newcomers = self._devices.newcomers()
        for key in newcomers.keys() - self._newcomers:
            text = f"{newcomers[key]} has come since the start of vgpud and is not shared"
            text += ": restart vgpud, programs continue"
            call_on(self._loop, self._events.note, ev.Log("device.new", text, owner_uid=ANYONE))
        self._newcomers = frozenset(newcomers)

    def _read_processes(self) -> None:
        there = [uuid for uuid in self._machine.state.devices if uuid not in self.lost_devices]
        running = {u: users for u in there if (users := self._devices.running(u)) is not None}
        strangers = {pid for users in running.values() for pid in users} - self._attached.by_pid().keys()
        self._seen = {pid: self._see(pid) for pid in strangers}
        call_on(self._loop, self._listener.look, running, self._seen)

    def _see(self, pid: int) -> Seen:
        """What a stranger is. Read once where the policy only logs it; else also whether it is stopped, each time."""
        known = self._seen.get(pid)
        if known is None or known.start_ticks != processes.start_time(pid):
            return enforcement.see(pid)
        return (
            known
            if self._machine.state.policy.on_stranger == LOG
            else replace(known, is_stopped=enforcement.is_stopped(pid))
        )
