"""The part of the composition root that asks the driver: readings for display, and processes outside slices.

Made by Daemon. Reads in a thread of its own, for a driver that hangs must not stop the loop, nor its end; decides on
the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from vgpud.core import events as ev
from vgpud.core.devices.enforce import EXCESS, LOG, Act
from vgpud.core.devices.faults import fault_drain, fault_entry
from vgpud.core.devices.strangers import Running, Strangers, Watch, attached_by_pid
from vgpud.core.model import ANYONE, Process, State, Taken
from vgpud.core.observed import Credit, Reading, Seen
from vgpud.core.units import format_bytes
from vgpud.devices import enforcement
from vgpud.devices.arbiters import Arbiters
from vgpud.devices.nvml import Devices
from vgpud.host import processes

log = logging.getLogger("vgpud")

#: how often the driver is asked what its devices do
READ_S = 0.5
#: with every second reading, the processes that use them
LOOK_EVERY = 2
#: with every how many readings, whether something has a whole device: that looks at every process of the machine
HOLDERS_EVERY = 10
#: a program that closed its connection attaches again by itself in about a second; one that has not after this time is
#: treated as a program without a slice
RETURN_S = 30.0
#: different faults of a device that are counted: more than drivers have had so far
XIDS_MAX = 256
#: threads that act on programs: each asks the driver once more before
ACTORS = 4


class Host(Protocol):
    """What the monitor needs of the daemon."""

    state: State

    def run(self, event: ev.Event) -> list[ev.Command]: ...
    def note(self, entry: ev.Log) -> None: ...
    def note_bounded(self, key: str, entry: ev.Log) -> None: ...
    def devices_taken(self, taken_devices: tuple[Taken, ...]) -> None: ...
    def device_faulted(self, device_uuid: str, xid: int) -> None: ...
    def charge(self, slice_name: str, device: str, unattributed_bytes: int) -> None: ...
    def dead(self) -> list[int]: ...


class UsageMonitor:
    """The readings of now, and what was found past the ledger."""

    def __init__(self, host: Host, devices: Devices, arbiters: Arbiters) -> None:
        self.readings: dict[str, Reading] = {}
        self.process_charges: dict[tuple[str, int], int] = {}  # see strangers.Findings
        self._host = host
        self._devices = devices
        self._arbiters = arbiters
        self._watch = Watch()
        self._charged: dict[tuple[str, str], int] = {}
        self._xids: dict[str, dict[int, int]] = {}  # by device: how often each fault, the latest last
        self._seen: dict[int, Seen] = {}  # strangers, so that each is looked up once
        #: argument and result of _attached_processes(): lists made each time keep the garbage collector busy
        self._attachments: tuple[tuple[list[Process], set[int]], dict[int, list[Process]]] = ([], set()), {}
        self._holders: dict[str, str] = {}  # of whole devices
        self._newcomers: frozenset[str] = frozenset()  # devices that have come since the start
        self._lost: dict[str, str] = {}  # devices that are not there now, and why
        self._acting: set[tuple[str, int]] = set()  # (device, pid) that is being acted on: one action at a time
        self._actors = ThreadPoolExecutor(ACTORS, "enforce")  # of our own, as a driver may hang
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="nvml", daemon=True)

    def start(self) -> None:
        if not self._devices.knows_pids:
            text = "vgpud is not in the host's pid namespace, so the driver's pids mean nothing to it: programs that"
            text += " use devices outside their slices are neither detected, charged nor stopped; run it there"
            text += " (docker run --pid=host)"
            self._host.note(ev.Log("device.unwatched", text))
        self._read_holders()  # before anything is placed
        self._take({})
        self._thread.start()

    async def stop(self) -> None:
        """Ends the thread, and then the driver's library; leaves both where the driver hangs."""
        self._stopping.set()
        self._actors.shutdown(wait=False, cancel_futures=True)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, 1.0)
        if not self._thread.is_alive():
            self._devices.close()

    def _attached_processes(self) -> dict[int, list[Process]]:
        """By pid. One that has ended is kept while a child holds its socket, as the driver may then still list it. One
        that closed its connection is a stranger unless it soon attaches again."""
        by_id = self._host.state.processes
        known = list(by_id.values())
        dead = [process for process_id in self._host.dead() if (process := by_id.get(process_id))]
        lost = {process.process_id for process in dead if processes.runs(process.pid)}
        since_ns = time.monotonic_ns() - int(RETURN_S * 1e9)
        lost |= {p.process_id for p in known if 0 < p.disconnected_ns < since_ns}
        made_of, made = self._attachments
        if made_of != (known, lost):
            made = attached_by_pid(known, lost)
            self._attachments = (known, lost), made
        return made

    # ---- the ledger (strangers.Ledger) ----

    def of_life(self, process_id: int, device_uuid: str) -> Credit:
        return self._arbiters.credit(process_id, device_uuid)

    def of_slice(self, slice_name: str, device_uuid: str) -> int:
        made = self._host.state.slices.get(slice_name)
        return self._arbiters.in_ledger(made.serial, device_uuid) if made else 0

    # ---- readings ----

    def _is_still(self, act: Act) -> bool:
        """Whether the driver lists it and it is attached, or is not, as when that was decided: it may have attached
        since, or another program have its pid."""
        if act.pid not in (self._devices.running(act.device_uuid) or ()):
            return False
        lives = self._attached_processes().get(act.pid, ())
        if act.cause == EXCESS:
            return any(life.slice_name == act.slice_name for life in lives)
        return not lives and processes.start_time(act.pid) == act.start_ticks

    def _read(self) -> None:
        self._devices.watch_faults()
        for turn in itertools.count():
            try:
                self._read_devices()
                if turn % HOLDERS_EVERY == 0:
                    self._read_holders()
                if turn % LOOK_EVERY == 0:
                    self._read_processes()
            except Exception:  # a process that could end this thread would never be seen again
                log.exception("a reading of the devices failed; continuing")
            if self._stopping.wait(READ_S):
                return

    def _read_devices(self) -> None:
        self._lost = self._devices.find_lost_devices()
        none = Reading(None, None)
        known = self._host.state.devices
        if faults := self._devices.faults():
            self._count(faults)
            self._on_loop(self._note_faults, faults)
        found = {uuid: none if uuid in self._lost else self._devices.read(uuid) for uuid in known}
        self.readings = {
            uuid: replace(now, xids=tuple(self._xids.get(uuid, {}).items())) for uuid, now in found.items()
        }

    def _count(self, faults: Sequence[tuple[str, int]]) -> None:
        for uuid, xid in faults:
            counts = self._xids.setdefault(uuid, {})
            if xid in counts or len(counts) < XIDS_MAX:
                counts[xid] = counts.pop(xid, 0) + 1

    def _read_holders(self) -> None:
        found = {uuid: self._devices.holder(uuid) for uuid in self._host.state.devices}
        self._holders = {uuid: holder.what for uuid, holder in found.items() if holder}
        newcomers = self._devices.newcomers()
        for key in newcomers.keys() - self._newcomers:
            text = f"{newcomers[key]} has come since the start of vgpud and is not shared"
            text += ": restart vgpud, programs continue"
            self._on_loop(self._host.note, ev.Log("device.new", text, owner_uid=ANYONE))
        self._newcomers = frozenset(newcomers)

    def _read_processes(self) -> None:
        there = [uuid for uuid in self._host.state.devices if uuid not in self._lost]
        running = {u: users for u in there if (users := self._devices.running(u)) is not None}
        strangers = {pid for users in running.values() for pid in users} - self._attached_processes().keys()
        self._seen = {pid: self._see(pid) for pid in strangers}
        self._on_loop(self._look, running, self._seen)

    def _see(self, pid: int) -> Seen:
        """What a stranger is. Read once where the policy only logs it; else also whether it is stopped, each time."""
        known = self._seen.get(pid)
        if known is None or known.start_ticks != processes.start_time(pid):
            return enforcement.see(pid)
        return (
            known
            if self._host.state.policy.on_stranger == LOG
            else replace(known, is_stopped=enforcement.is_stopped(pid))
        )

    def _on_loop(self, work: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended before us
            self._loop.call_soon_threadsafe(work, *arguments)

    def _note_faults(self, faults: Sequence[tuple[str, int]]) -> None:
        for uuid, xid in faults:
            self._host.note_bounded(f"xid {uuid}", fault_entry(self._host.state, uuid, xid))
            drain = fault_drain(uuid, xid)
            if drain and uuid in self._host.state.devices:
                self._host.run(drain)
            self._host.device_faulted(uuid, xid)

    def _look(self, running: Running, unattached_processes: Strangers) -> None:
        if self._stopping.is_set():  # the arbiters may have ended
            return
        found = self._watch.look(self._host.state, running, self._attached_processes(), self, unattached_processes)
        for entry in found.log:
            self._host.note(entry)
        for key in {*self._charged, *found.charges}:
            if self._charged.get(key) != found.charges.get(key):
                self._host.charge(*key, found.charges.get(key, 0))
        self._charged, self.process_charges = found.charges, found.process_charges
        self._take(found.foreign)
        for act in found.acts:
            self._begin(act)

    def _take(self, foreign: Mapping[str, tuple[int, int]]) -> None:
        """What others have of the devices is not offered."""
        taken: list[Taken] = []
        for uuid in self._host.state.devices:
            count, size = foreign.get(uuid, (0, 0))
            if uuid in self._lost:
                taken.append(Taken(uuid, self._lost[uuid], is_lost=True))
            elif uuid in self._holders:
                taken.append(Taken(uuid, self._holders[uuid], is_whole_device=True, memory_bytes=size))
            elif count:
                programs = "a program" if count == 1 else f"{count} programs"
                text = f"{programs} outside slices ({format_bytes(size)})"
                taken.append(Taken(uuid, text, is_whole_device=False, memory_bytes=size))
        if taken != list(self._host.state.taken_devices.values()):
            self._host.devices_taken(tuple(taken))

    def _begin(self, act: Act) -> None:
        """Not while the same is being done: with a slow driver, what each reading asks for would pile up."""
        key = act.device_uuid, act.pid
        if key not in self._acting:
            self._acting.add(key)
            done = self._loop.run_in_executor(self._actors, self._carry_out, act)
            done.add_done_callback(lambda _: self._acting.discard(key))

    def _carry_out(self, act: Act) -> None:
        said = enforcement.carry_out(act, lambda: self._is_still(act), self._attached_processes())
        if said and act.first:
            kind = f"{act.cause}.{act.verb}"
            self._on_loop(self._host.note_bounded, kind, ev.Log(kind, said, act.slice_name, act.device_uuid))
