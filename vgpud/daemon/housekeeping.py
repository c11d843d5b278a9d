"""What the daemon does again and again: samples, repairs of what was removed, and chores."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from vgpud.api.server import Server
from vgpud.attach.server import Tenants
from vgpud.containers.server import Containers
from vgpud.core import events as ev
from vgpud.daemon.cdi import DeviceFiles
from vgpud.daemon.slices.counters import Readings
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.reclaims import ReclaimWatch
from vgpud.devices.arbiters import Arbiters
from vgpud.host.directories import RuntimeDirectory
from vgpud.host.upkeep import PeriodicTasks

log = logging.getLogger("vgpud")

SAMPLE_S = 0.1
HOUSEKEEPING_S = 1.0
#: how often our CDI files are looked at: the driver may have been updated, or /var/run/cdi emptied
DEVICE_FILES_S = 5.0


class Housekeeping:
    """`chores`: what is done beside the repairs, in this order: (what it is, how it is done)."""

    def __init__(
        self,
        directory: RuntimeDirectory,
        tenants: Tenants,
        api: Server,
        containers: Containers,
        files: DeviceFiles,
        events: EventRecorder,
        arbiters: Arbiters,
        readings: Readings,
        reclaims: ReclaimWatch,
    ) -> None:
        self.chores: list[tuple[str, Callable[[], Any]]] = []
        self._directory = directory
        self._tenants = tenants
        self._api = api
        self._containers = containers
        self._files = files
        self._events = events
        self._arbiters = arbiters
        self._readings = readings
        self._reclaims = reclaims
        self._upkeep = PeriodicTasks(events.note)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._every(SAMPLE_S, self._sample)),
            asyncio.create_task(self._every(HOUSEKEEPING_S, self._do_all)),
            asyncio.create_task(self._every(DEVICE_FILES_S, self._files.refresh)),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _every(self, period_s: float, work: Callable[[], Any]) -> None:
        while True:
            try:
                result = work()
                if asyncio.iscoroutine(result):
                    await result
            except Exception:
                log.exception("housekeeping failed; continuing")
            await asyncio.sleep(period_s)

    def _sample(self) -> None:
        busy = {uuid: now.utilization_ratio or 0.0 for uuid, now in self._readings.devices.items()}
        self._arbiters.sample(time.monotonic_ns(), busy)
        self._reclaims.look()

    async def _do_all(self) -> None:
        await self._repair("the runtime directory", self._directory.repair)
        await self._upkeep.do("looking at the attach sockets", self._repair_attach_sockets)
        await self._repair("the API's socket", self._api.repair)
        await self._repair("the runtime's socket", self._containers.repair)
        for what, work in self.chores:
            await self._upkeep.do(what, work)

    async def _repair_attach_sockets(self) -> None:
        for name in self._tenants.find_lost_sockets():
            whose = f"of slice {name}" if name else "that containers share"
            await self._repair(f"the attach socket {whose}", partial(self._tenants.reopen, name), name)

    async def _repair(self, what: str, work: Callable[[], Any], slice_name: str = "") -> None:
        """`work` says whether anything was missing."""

        async def repair() -> None:
            made = work()
            if await made if inspect.isawaitable(made) else made:
                self._events.note(ev.Log("socket.repaired", f"{what} was removed and is back", slice_name))

        await self._upkeep.do(what, repair)
