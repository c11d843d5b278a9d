"""The driver: the core's events come from kubelet, the API server and vgpud, its commands go there."""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import grpc
from lightkube import AsyncClient

from vgpud.k8s.core import events as ev
from vgpud.k8s.core.machine import State, step
from vgpud.k8s.core.status import SINCE
from vgpud.k8s.shell.api_server import ApiServer
from vgpud.k8s.shell.kubelet import Calls, Health, Sockets
from vgpud.k8s.shell.node_daemon import NodeDaemon

log = logging.getLogger("vgpud.k8s")

TICK_S = 1.0


class Driver:
    """One node's driver. registry, plugins: kubelet's directories; refused: called when kubelet will not have us."""

    def __init__(
        self,
        state: State,
        client: AsyncClient,
        channel: grpc.aio.Channel,
        registry: Path,
        plugins: Path,
        refused: Callable[[str], None],
    ) -> None:
        self._state = state
        self._api = ApiServer(client, state.node)
        self._daemon = NodeDaemon(channel)
        self._calls = Calls(self.post)
        self._health = Health(state.node)
        self._sockets = Sockets(registry, plugins, self._calls, self._health, refused)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Registers with kubelet once vgpud has been seen. Raises OSError."""
        self._spawn(self._daemon.watch(self.post))
        self._spawn(self._daemon.watch_pods(self.post))
        self._spawn(self._api.watch_pool(self.post))
        self._spawn(self._ticks())
        await self._sockets.start()

    async def stop(self) -> None:
        await self._sockets.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
                self._ask(self._api.read_claim(command.ref))
            case ev.MakeSlice():
                self._ask(self._daemon.make_slice(command.asked))
            case ev.EndSlice():
                self._ask(self._daemon.end_slice(command.uid))
            case ev.Publish():
                self._ask(self._api.publish(command.changes))
            case ev.WriteStatus():
                self._ask(self._api.write_status(command.ref, dated(command.devices, _now())))
            case ev.Health():
                self._health.set(command.devices)
            case ev.Log():
                log.info("%s", command.text)

    def _ask(self, call: Coroutine[Any, Any, ev.Event]) -> None:
        """The answer of a call is an event."""

        async def ask() -> None:
            self.post(await call)

        self._spawn(ask())

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.post(ev.Tick())

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("the driver failed", exc_info=error)


def dated(devices: Sequence[dict[str, Any]], now: str) -> list[dict[str, Any]]:
    """Conditions that have no time yet begin now."""
    return [one | {"conditions": [{SINCE: now} | condition for condition in one["conditions"]]} for one in devices]


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
