"""What the daemon sets in the driver behind its own arbitration (DESIGN D17), and what is shown of it."""

from __future__ import annotations

import asyncio
import logging

from vgpud.config import TIME_SLICES, LiveConfig
from vgpud.core import events as ev
from vgpud.core.model import ANYONE
from vgpud.daemon.memory_fence import MemoryFence
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.nvml import Devices
from vgpud.devices.time_slices import TimeSlice, TimeSlices

log = logging.getLogger("vgpud")

#: for which the daemon's end waits for the driver
END_S = 5.0


class DriverSettings:
    """`time_slices`: of the devices that are to have another length than the driver's default one."""

    def __init__(
        self, config: LiveConfig, machine: SliceMachine, devices: Devices, events: EventRecorder, fence: MemoryFence
    ) -> None:
        self.fence = fence
        self.time_slices: list[TimeSlice] = []
        self._config = config.current
        self._machine = machine
        self._events = events
        self._slices = TimeSlices(TIME_SLICES, self._config.state, devices.sim_dir)

    async def start(self) -> None:
        """Gives the devices their time slices; a device that takes none is said in one line."""
        devices = dict(self._machine.state.devices)
        wanted = {uuid: self._config.devices.time_slice_of(device.names) for uuid, device in devices.items()}
        known = frozenset[str]().union(*(device.names for device in devices.values()))
        for name in self._config.devices.named_in_time_slice:
            if name not in known:  # a GPU that is gone keeps the others from nothing
                text = f"devices.time_slice names {name!r}, which is no device here"
                self._events.note(ev.Log("timeslice.refused", text, owner_uid=ANYONE))
        self.time_slices = await asyncio.to_thread(self._slices.apply, devices, wanted)
        for one in self.time_slices:
            name = f"device {devices[one.device_uuid].index}"
            if one.why_not:
                text = f"{name} keeps the driver's default time slice instead of {one.length!r}: {one.why_not}"
                self._events.note(ev.Log("timeslice.refused", text, device_uuid=one.device_uuid, owner_uid=ANYONE))
            else:
                log.info("%s: the driver's time slice is %s", name, one.length)

    async def stop(self) -> None:
        """Undoes the time slices. The memory limits stay, as the slices do."""
        await self.fence.stop()
        try:
            undo = asyncio.to_thread(self._slices.undo, dict(self._machine.state.devices))
            await asyncio.wait_for(undo, END_S)
        except asyncio.TimeoutError:
            log.warning("nvidia-smi takes long to undo the time slices: the next start of vgpud does it again")
        except OSError as error:
            log.warning("the time slices were not undone (%s): the next start of vgpud does it", error)
