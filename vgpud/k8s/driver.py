"""The driver: the core's events come from kubelet, the API server and vgpud, its commands go there."""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
from lightkube import AsyncClient

from vgpud.k8s.core import events as ev
from vgpud.k8s.core.machine import State, step
from vgpud.k8s.core.model import Asked, Granted
from vgpud.k8s.core.names import DRIVER
from vgpud.k8s.shell.api_server import ApiServer, reason_of
from vgpud.k8s.shell.kubelet import Calls, Health, Sockets
from vgpud.k8s.shell.node_daemon import NodeDaemon

log = logging.getLogger("vgpud.k8s")

TICK_S = 1.0


class Driver:
    """One node's driver. connect: makes a client of the API server; registry, plugins: kubelet's directories; ended:
    called with the reason when it cannot go on."""

    def __init__(
        self,
        state: State,
        connect: Callable[[], AsyncClient],
        channel: grpc.aio.Channel,
        registry: Path,
        plugins: Path,
        ended: Callable[[str], None],
    ) -> None:
        self._state = state
        self._ended = ended
        self._api = ApiServer(connect, state.node)
        self._daemon = NodeDaemon(channel)
        self._calls = Calls(self.post)
        self._health = Health(state.node)
        self._sockets = Sockets(registry, plugins, self._calls, self._health, self._refused)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._granted: dict[str, tuple[Granted, ...]] = {}  # of claims whose status is still to be written

    async def start(self) -> None:
        """Registers with kubelet once vgpud has been seen. Raises OSError."""
        watches = (self._daemon.watch(self.post), self._daemon.watch_pods(self.post), self._api.watch_pool(self.post))
        for for_ever in (*watches, self._ticks()):
            self._spawn(for_ever)
        await self._sockets.start()

    async def stop(self) -> None:
        await self._sockets.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._api.close()

    def post(self, event: ev.Event) -> None:
        """Gives the core an event and carries out what it says."""
        for command in step(self._state, event, time.monotonic_ns()):
            self._execute(command)

    def _execute(self, command: ev.Command) -> None:
        match command:
            case ev.Answer():
                if command.error:
                    log.warning("%s", command.error)
                self._calls.answer(command)
            case ev.ReadClaim():
                uid = command.ref.uid
                self._ask(self._api.read_claim(command.ref), lambda why: ev.ClaimRead(uid, error=why))
            case ev.MakeSlice():
                uid = command.asked.uid
                self._ask(self._make(command.asked), lambda why: ev.SliceMade(uid, error=why))
            case ev.EndSlice():
                uid = command.uid
                self._ask(self._daemon.end_slice(uid), lambda why: ev.SliceEnded(uid, error=why))
            case ev.Publish():
                self._ask(self._api.publish(command.changes), lambda why: ev.Published(error=why))
            case ev.WriteStatus():
                self._spawn(self._write_status(command.asked, command.slice_name))
            case ev.Health():
                self._health.set(command.devices)
            case ev.Log():
                log.info("%s", command.text)

    def _ask(self, call: Coroutine[Any, Any, ev.Event], failed: Callable[[str], ev.Event]) -> None:
        """The answer of a call is an event, also when the call has a fault: the core waits for it, and kubelet's calls
        about the same claim wait behind."""

        async def ask() -> None:
            try:
                answer = await call
            except Exception as error:
                log.exception("the driver has a fault")
                answer = failed(f"the driver has a fault, which its log has: {reason_of(error)}")
            self.post(answer)

        self._spawn(ask())

    async def _make(self, asked: Asked) -> ev.SliceMade:
        made = await self._daemon.make_slice(asked)
        self._granted[asked.uid] = made.granted
        return made

    async def _write_status(self, asked: Asked, slice_name: str) -> None:
        granted = self._granted.pop(asked.uid, ())
        why = await self._api.write_status(asked, status_devices(asked, slice_name, granted, _now()))
        if why:
            log.info("the status of claim %s could not be written: %s", asked, why)

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.post(ev.Tick())

    def _refused(self, why: str) -> None:
        self._ended(f"kubelet refuses the driver: {why}")

    def _broken(self, error: BaseException) -> None:
        """Half a driver is worse than one that is started again: pods run on without it."""
        self._ended(f"the driver has a fault: {reason_of(error)}")

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()):
                log.error("the driver has a fault", exc_info=error)
                self._broken(error)

        task.add_done_callback(done)


def status_devices(asked: Asked, slice_name: str, granted: tuple[Granted, ...], now: str) -> list[dict[str, Any]]:
    """What `kubectl describe resourceclaim` shows: for each result the slice, and the numbers in force."""
    by_uuid = {one.uuid: one for one in granted}
    devices = []
    for result, one in zip(asked.results, asked.granted, strict=True):
        numbers = by_uuid.get(one.uuid, one)
        data = {
            "slice": slice_name,
            "uuid": one.uuid,
            "smMilli": {"min": numbers.min_milli, "max": numbers.max_milli},
            "memoryBytes": {"min": numbers.mem_min_bytes, "max": numbers.mem_max_bytes},
        }
        ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": f"slice {slice_name}"}
        entry: dict[str, Any] = {"driver": DRIVER, "pool": result.pool, "device": result.device, "data": data}
        entry["conditions"] = [ready | {"lastTransitionTime": now}]
        devices.append(entry | ({"shareID": result.share_id} if result.share_id else {}))
    return devices


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
