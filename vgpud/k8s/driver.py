"""The driver: the core's events come from kubelet, the API server and vgpud, its commands go there."""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from lightkube import AsyncClient

from vgpud.k8s.core import events as ev
from vgpud.k8s.core.machine import State, step
from vgpud.k8s.core.status import SINCE
from vgpud.k8s.shell.api_server import ApiServer
from vgpud.k8s.shell.health_files import HealthFiles
from vgpud.k8s.shell.kubelet import Calls, Health, Paths, Registration, Sockets
from vgpud.k8s.shell.node_daemon import NodeDaemon
from vgpud.k8s.shell.node_lock import HELD, NodeLock
from vgpud.k8s.tasks import Tasks

log = logging.getLogger("vgpud.k8s")

TICK_S = 1.0
#: for a vgpud that is replaced: with the claim's reading before it, less than kubelet waits for the answer
WAIT_S = 28.0
#: for the driver that is replaced to end, after which two releases are installed
REPLACED_S = 600.0


class Driver:
    """One node's driver. connect: makes a client of the API server; lock: of the driver that publishes; on_failure:
    called with the reason when it cannot continue."""

    def __init__(
        self,
        state: State,
        connect: Callable[[], AsyncClient],
        channel: grpc.aio.Channel,
        paths: Paths,
        lock: NodeLock,
        health: HealthFiles,
        on_failure: Callable[[str], None],
    ) -> None:
        self._state = state
        self._paths, self._lock, self._files, self._ended = paths, lock, health, on_failure
        self._api = ApiServer(connect, state.node)
        self._daemon = NodeDaemon(channel, WAIT_S)
        self._calls = Calls(self.post)
        self._health = Health(state.node)
        registration = Registration(paths.endpoint, lambda: self.post(ev.Registered()), self._handle_refusal)
        self._sockets = Sockets(paths, self._calls, self._health, registration)
        self._tasks = Tasks(on_failure)

    async def start(self) -> None:
        """Registers with kubelet; a claim waits a while for vgpud. Raises OSError."""
        watches = (self._daemon.watch(self.post), self._daemon.watch_pods(self.post), self._api.watch_pool(self.post))
        for work in (*watches, self._ticks(), self._lead()):
            self._tasks.spawn(work)
        await self._sockets.start()

    async def stop(self) -> None:
        await self._sockets.stop()
        await self._tasks.stop()
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
                self._tasks.ask(self._api.read_claim(command.ref), lambda why: ev.ClaimRead(uid, error=why), self.post)
            case ev.MakeSlice():
                uid = command.requested_claim.uid
                self._tasks.ask(
                    self._daemon.make_slice(command.requested_claim),
                    lambda why: ev.SliceMade(uid, error=why),
                    self.post,
                )
            case ev.EndSlice():
                uid = command.uid
                self._tasks.ask(self._daemon.end_slice(uid), lambda why: ev.SliceEnded(uid, error=why), self.post)
            case ev.Publish():
                self._tasks.ask(self._api.publish(command.changes), lambda why: ev.Published(error=why), self.post)
            case ev.WriteStatus():
                uid, devices = command.ref.uid, add_condition_times(command.devices, _now())
                self._tasks.ask(
                    self._api.write_status(command.ref, devices), lambda why: ev.StatusWritten(uid, why), self.post
                )
            case ev.ReportPublication():
                self._tasks.ask(self._daemon.report_publication(command.publication), ev.PublicationReported, self.post)
            case ev.Health():
                self._health.set(command.devices)
            case ev.Report():
                self._tasks.spawn(self._api.write_event(command, _now(parts="microseconds")))
            case ev.Log():
                log.info("%s", command.text)

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.post(ev.Tick())
            if self._paths.are_there:
                self._files.write(self._state.is_ready)

    async def _lead(self) -> None:
        """Publishes as soon as no other driver does."""
        until_s = time.monotonic() + REPLACED_S
        while not self._lock.take():
            if time.monotonic() > until_s:
                self._ended(f"{HELD}: it has {self._lock.directory}")
                return
            await asyncio.sleep(TICK_S)
        self._paths.remove_dead()
        self.post(ev.Leads())

    def _handle_refusal(self, why: str) -> None:
        self._ended(f"kubelet refuses the driver: {why}")


def add_condition_times(devices: Sequence[dict[str, Any]], now: str) -> list[dict[str, Any]]:
    """Conditions that have no time yet begin now."""
    return [one | {"conditions": [{SINCE: now} | condition for condition in one["conditions"]]} for one in devices]


def _now(parts: str = "seconds") -> str:
    """The time as the API writes it: of conditions in seconds, of Events in microseconds."""
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    return f"{now.isoformat(timespec=parts)}Z"
