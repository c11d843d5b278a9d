"""Decides on what the driver reports: faults, memory beyond the ledgers, programs outside slices, devices taken.

Everything here is on the loop; device_reader.py asks the driver, in a thread, and enforcer.py acts on programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vgpud.core import events as ev
from vgpud.core.devices.faults import fault_drain, fault_entry
from vgpud.core.devices.strangers import Running, Strangers, Watch
from vgpud.core.model import Taken
from vgpud.core.observed import Credit
from vgpud.core.units import format_bytes
from vgpud.daemon.device_reader import DeviceReader
from vgpud.daemon.effects import Effects
from vgpud.daemon.enforcer import Enforcer
from vgpud.daemon.process_pids import AttachedProcesses
from vgpud.daemon.slices.changes import ChangeSignal
from vgpud.daemon.slices.counters import Readings
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.arbiters import Arbiters
from vgpud.devices.nvml import Devices


class UsageMonitor:
    """What was found past the ledger. `on_fault` is called with device and XID of each fault."""

    def __init__(
        self,
        machine: SliceMachine,
        effects: Effects,
        events: EventRecorder,
        changes: ChangeSignal,
        arbiters: Arbiters,
        devices: Devices,
        attached_processes: AttachedProcesses,
        readings: Readings,
    ) -> None:
        self.on_fault: Callable[[str, int], None] = lambda device_uuid, xid: None
        self._machine = machine
        self._effects = effects
        self._events = events
        self._changes = changes
        self._arbiters = arbiters
        self._attached = attached_processes
        self._readings = readings
        self._watch = Watch()
        self._charged: dict[tuple[str, str], int] = {}
        self._knows_pids = devices.knows_pids
        self._reader = DeviceReader(machine, events, devices, attached_processes, readings, self)
        self._enforcer = Enforcer(devices, attached_processes, events)

    def start(self) -> None:
        if not self._knows_pids:
            text = "vgpud is not in the host's pid namespace, so the driver's pids mean nothing to it: programs that"
            text += " use devices outside their slices are neither detected, charged nor stopped; run it there"
            text += " (docker run --pid=host)"
            self._events.note(ev.Log("device.unwatched", text))
        self._reader.read_holders()  # before anything is placed
        self._take({})
        self._reader.start()

    async def stop(self) -> None:
        self._enforcer.close()
        await self._reader.stop()

    # ---- the ledger (strangers.Ledger) ----

    def of_life(self, process_id: int, device_uuid: str) -> Credit:
        return self._arbiters.credit(process_id, device_uuid)

    def of_slice(self, slice_name: str, device_uuid: str) -> int:
        made = self._machine.state.slices.get(slice_name)
        return self._arbiters.in_ledger(made.serial, device_uuid) if made else 0

    # ---- readings (device_reader.Listener) ----

    def note_faults(self, faults: Sequence[tuple[str, int]]) -> None:
        for uuid, xid in faults:
            self._events.note_bounded(f"xid {uuid}", fault_entry(self._machine.state, uuid, xid))
            drain = fault_drain(uuid, xid)
            if drain and uuid in self._machine.state.devices:
                self._machine.run(drain)
            self.on_fault(uuid, xid)

    def look(self, running: Running, unattached_processes: Strangers) -> None:
        if self._reader.is_stopping:  # the arbiters may have ended
            return
        found = self._watch.look(self._machine.state, running, self._attached.by_pid(), self, unattached_processes)
        for entry in found.log:
            self._events.note(entry)
        for key in {*self._charged, *found.charges}:
            if self._charged.get(key) != found.charges.get(key):
                self._charge(*key, found.charges.get(key, 0))
        self._charged, self._readings.process_charges = found.charges, found.process_charges
        self._take(found.foreign)
        for act in found.acts:
            self._enforcer.begin(act)

    def _charge(self, slice_name: str, device_uuid: str, unattributed_bytes: int) -> None:
        """What the driver counts for a slice beyond its ledger is the slice's from now on."""
        made = self._machine.state.slices.get(slice_name)
        if made and made.share(device_uuid):
            self._arbiters.charge(made.serial, device_uuid, unattributed_bytes)
            self._changes.wake()

    def _take(self, foreign: Mapping[str, tuple[int, int]]) -> None:
        """What others than slices have of the devices, as it is seen now, is not offered."""
        taken: list[Taken] = []
        lost, holders = self._reader.lost_devices, self._reader.holders
        for uuid in self._machine.state.devices:
            count, size = foreign.get(uuid, (0, 0))
            if uuid in lost:
                taken.append(Taken(uuid, lost[uuid], is_lost=True))
            elif uuid in holders:
                taken.append(Taken(uuid, holders[uuid], is_whole_device=True, memory_bytes=size))
            elif count:
                programs = "a program" if count == 1 else f"{count} programs"
                text = f"{programs} outside slices ({format_bytes(size)})"
                taken.append(Taken(uuid, text, is_whole_device=False, memory_bytes=size))
        if taken != list(self._machine.state.taken_devices.values()):
            self._machine.run(ev.DevicesTaken(tuple(taken)))
            self._effects.capacity_changed()
