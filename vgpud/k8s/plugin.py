"""The device plugin: the core's events come from kubelet and vgpud, its commands go there.

It runs in place of the DRA driver, for clusters that have no ResourceClaims: a node's GPUs are given away by one of the
two.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import grpc

from vgpud.k8s.core import plugin_events as ev
from vgpud.k8s.core.events import (
    EndSlice,
    Log,
    MakeSlice,
    PublicationReported,
    ReportPublication,
    SliceEnded,
    SliceMade,
    Tick,
)
from vgpud.k8s.core.plugin import SECOND_NS, WAIT_NS, State, step
from vgpud.k8s.shell.api_server import ApiServer
from vgpud.k8s.shell.device_plugin import PluginSocket, Service
from vgpud.k8s.shell.health_files import HealthFiles
from vgpud.k8s.shell.node_daemon import NodeDaemon
from vgpud.k8s.tasks import Tasks

log = logging.getLogger("vgpud.k8s")

TICK_S = 1.0
CLEAR_AGAIN_S = 30.0


class DevicePlugin:
    """One node's plugin. kubelet_dir: kubelet's; api: where ResourceSlices of a DRA driver that ran before may be;
    on_failure: called with the reason when it cannot continue."""

    def __init__(
        self,
        state: State,
        channel: grpc.aio.Channel,
        kubelet_dir: Path,
        api: ApiServer | None,
        health: HealthFiles,
        on_failure: Callable[[str], None],
    ) -> None:
        self._state = state
        self._files = health
        self._daemon = NodeDaemon(channel, WAIT_NS / SECOND_NS)
        self._api = api
        self._service = Service(self.post)
        self._socket = PluginSocket(kubelet_dir / "device-plugins", kubelet_dir / "pod-resources", self._service)
        self._tasks = Tasks(on_failure)

    async def start(self) -> None:
        """Registers with kubelet once vgpud has been seen. Raises OSError."""
        await self._socket.serve()
        self._tasks.spawn(self._daemon.watch(self.post))
        self._tasks.spawn(self._ticks())
        if self._api:
            self._tasks.spawn(self._clear_pool(self._api))

    async def stop(self) -> None:
        await self._tasks.stop()
        await self._socket.stop()
        if self._api:
            await self._api.close()

    def post(self, event: ev.Event) -> None:
        """Gives the core an event and carries out what it says."""
        for command in step(self._state, event, time.monotonic_ns()):
            self._execute(command)

    def _execute(self, command: ev.Command) -> None:
        match command:
            case ev.Allocated():
                if command.error:
                    log.warning("%s", command.error)
                self._service.answer(command)
            case ev.ListDevices():
                self._service.set(command.devices)
            case ev.Register():
                socket = command.socket
                self._tasks.ask(self._socket.register(socket), lambda why: ev.Registered(socket, why), self.post)
            case ev.ListPods():
                self._tasks.ask(self._socket.list_pods(), lambda why: ev.PodsListed(None), self.post)
            case MakeSlice():
                uid, made = command.requested_claim.uid, self._daemon.make_slice(command.requested_claim)
                self._tasks.ask(made, lambda why: SliceMade(uid, error=why), self.post)
            case EndSlice():
                uid, ending = command.uid, self._daemon.end_slice(command.uid)
                self._tasks.ask(ending, lambda why: SliceEnded(uid, error=why), self.post)
            case ReportPublication():
                self._tasks.ask(self._daemon.report_publication(command.publication), PublicationReported, self.post)
            case Log():
                log.info("%s", command.text)

    async def _ticks(self) -> None:
        while True:
            seen = self._socket.observe_kubelet()
            self.post(seen)
            self.post(Tick())
            if seen.serving:
                self._files.write(is_ready=True)  # kubelet gets it when vgpud is there
            await asyncio.sleep(TICK_S)

    async def _clear_pool(self, api: ApiServer) -> None:
        """Nothing of this node is published to DRA while kubelet counts its GPUs."""
        while why := await api.clear_pool():
            log.info("the ResourceSlices of this node could not be deleted: %s", why)
            await asyncio.sleep(CLEAR_AGAIN_S)
