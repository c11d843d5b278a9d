"""What slices and processes have used, and what the driver reports of devices, as users are shown it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vgpud.core.model import Process, Slice
from vgpud.core.observed import ProcessStats, Reading, SliceStats
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.arbiters import Arbiters


@dataclass(slots=True)
class Readings:
    """What the driver was last seen to report. Written by the monitor, each table as a whole: read from any thread."""

    devices: dict[str, Reading] = field(default_factory=dict)
    process_charges: dict[tuple[str, int], int] = field(default_factory=dict)  # see strangers.Findings


class Counters:
    """Read from the arbiters, with what the driver counts beyond their ledgers."""

    def __init__(self, machine: SliceMachine, arbiters: Arbiters, readings: Readings) -> None:
        self._machine = machine
        self._arbiters = arbiters
        self._readings = readings

    def reading(self, device_uuid: str) -> Reading:
        return self._readings.devices.get(device_uuid, Reading(None, None))

    def of_slice(self, slice_: Slice) -> Sequence[SliceStats]:
        """One for each of its shares."""
        slices = self._machine.state.slices
        serial = slices[slice_.name].serial if slice_.name in slices else slice_.serial
        return [self._arbiters.slice_stats(serial, share.device_uuid) for share in slice_.shares]

    def of_process(self, process: Process) -> dict[str, ProcessStats]:
        """By device."""
        made = self._machine.state.slices[process.slice_name]
        uuids = [s.device_uuid for s in made.shares]
        now = {uuid: self._arbiters.process_stats(process.process_id, uuid) for uuid in uuids}
        charges = self._readings.process_charges
        beyond = {u: size for u in uuids if (size := charges.get((u, process.process_id)))}
        return now | {u: replace(now[u], mem_unattributed_bytes=size) for u, size in beyond.items()}
