"""The part of the composition root that looks at what the driver says: readings for display, and who goes past us.

Made by Daemon. Reads in a thread of its own, for a driver that hangs must not stop the loop, nor its end; decides on
the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from vgpud import enforcing, peers
from vgpud.core import events as ev
from vgpud.core.enforce import EXCESS, Act
from vgpud.core.faults import fault_entry
from vgpud.core.model import Process, State
from vgpud.core.observed import ProcessStats, Reading
from vgpud.core.watch import Running, Strangers, Watch
from vgpud.devices import Devices

log = logging.getLogger("vgpud")

#: how often the driver is asked what its devices do; core/watch.py reports who uses one past us after two of these
READ_S = 0.5


class Host(Protocol):
    """What the lookout needs of the daemon."""

    state: State

    def note(self, entry: ev.Log) -> None: ...
    def note_bounded(self, key: str, entry: ev.Log) -> None: ...
    def charge(self, slice_name: str, device: str, unattributed_bytes: int) -> None: ...


class Lookout:
    """The readings of now, and what was found past the ledger."""

    def __init__(self, host: Host, devices: Devices, ledger: Callable[[int, str], ProcessStats]) -> None:
        self.readings: dict[str, Reading] = {}
        self.beyond: dict[tuple[str, int], int] = {}  # by (device, pid): see watch.Findings
        self._host = host
        self._devices = devices
        self._ledger = ledger
        self._watch = Watch()
        self._charged: dict[tuple[str, str], int] = {}
        self._acting: set[tuple[str, int]] = set()  # (device, pid) that somebody is at; each thing is done once a time
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

    def _attached(self) -> list[Process]:
        return list(self._host.state.processes.values())

    def _is_still(self, act: Act) -> bool:
        """Whether the driver lists it and it is attached, or is not, as when that was decided: it may have attached
        since, or another program have its pid."""
        if act.pid not in (self._devices.running(act.device_uuid) or ()):
            return False
        slices = [p.slice_name for p in self._attached() if p.pid == act.pid and not p.holder]
        return act.slice_name in slices if act.cause == EXCESS else not slices

    def _read(self) -> None:
        self._devices.watch_faults()
        while True:
            try:
                self._read_once()
            except Exception:  # who could make this end would be seen by nobody
                log.exception("a reading of the devices failed; going on")
            if self._stopping.wait(READ_S):
                return

    def _read_once(self) -> None:
        uuids = list(self._host.state.devices)
        self.readings = {uuid: self._devices.read(uuid) for uuid in uuids}
        running = {uuid: users for uuid in uuids if (users := self._devices.running(uuid)) is not None}
        ours = {process.pid for process in self._attached() if not process.holder}
        others = {pid for users in running.values() for pid in users} - ours
        seen = {pid: enforcing.see(pid) for pid in others}
        faults = self._devices.faults()
        with contextlib.suppress(RuntimeError):  # the loop has ended before us
            self._loop.call_soon_threadsafe(self._look, running, seen, faults)

    def _look(self, running: Running, seen: Strangers, faults: list[tuple[str, int]]) -> None:
        state = self._host.state
        for uuid, xid in faults:
            self._host.note_bounded(f"xid {uuid}", fault_entry(state, uuid, xid))
        ledger: dict[str, dict[int, int]] = {uuid: {} for uuid in running}
        for process in state.processes.values():
            for uuid, of_device in ledger.items():
                if process.pid in running[uuid]:
                    used_bytes = self._ledger(process.process_id, uuid).mem_used_bytes
                    of_device[process.pid] = of_device.get(process.pid, 0) + used_bytes
        found = self._watch.look(state, running, ledger, seen)
        for entry in found.log:
            self._host.note(entry)
        for key in {*self._charged, *found.charges}:
            if self._charged.get(key) != found.charges.get(key):
                self._host.charge(*key, found.charges.get(key, 0))
        self._charged, self.beyond = found.charges, found.beyond
        for act in found.acts:
            self._begin(act)

    def _begin(self, act: Act) -> None:
        """Not while the same is being done: a slow driver must not make a queue of what is asked with each reading."""
        key = act.device_uuid, act.pid
        if key not in self._acting:
            self._acting.add(key)
            done = self._loop.run_in_executor(None, self._carry_out, act)
            done.add_done_callback(lambda _: self._acting.discard(key))

    def _carry_out(self, act: Act) -> None:
        attached = {process.pid for process in self._attached()}
        simulated = self._host.state.devices[act.device_uuid].simulated
        if simulated or peers.sees_all_pids():
            said = enforcing.carry_out(act, lambda: self._is_still(act), attached)
        else:
            said = f"pid {act.pid} is left alone: vgpud does not run in the host's pid namespace"
        if said and act.first:
            entry = ev.Log(f"{act.cause}.{act.verb}", said, act.slice_name, act.device_uuid)
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._host.note, entry)
