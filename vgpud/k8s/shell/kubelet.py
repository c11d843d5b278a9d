"""kubelet's side: the sockets by which it finds and calls the driver.

The order matters: kubelet calls the service's socket as soon as the registration's socket appears, so that one is made
last. A socket file that a former driver left is replaced. Each claim that kubelet asks for is answered, and an answer
comes within kubelet's 45 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc

from vgpud.k8s.core.events import Answer, Called
from vgpud.k8s.core.model import Ref
from vgpud.k8s.core.names import DRIVER
from vgpud.k8s.kubelet_api import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    health_pb2,
    health_pb2_grpc,
    registration_pb2,
    registration_pb2_grpc,
)
from vgpud.k8s.shell.node_lock import remove_dead_sockets
from vgpud.k8s.shell.sockets import listen, make_server

log = logging.getLogger("vgpud.k8s")

#: kubelet gives up after 45 s and asks again
ANSWER_S = 40.0
#: how often the devices' health is sent to kubelet although nothing changed, and after which it is unknown
HEALTH_S, HEALTH_TIMEOUT_S = 20.0, 60
#: for calls under way when the driver ends; kubelet would make them again a minute later
DRAIN_S = 20.0
_NOT_YET = "vgpud's driver did not finish in time: kubelet tries again"


class Calls:
    """Calls that wait for the core's answer. post: gives an event to the core."""

    def __init__(self, post: Callable[[Called], None]) -> None:
        self._post = post
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._next = 1

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def ask(self, ref: Ref, ending: bool) -> Answer:
        call, self._next = self._next, self._next + 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[call] = answer
        try:
            self._post(Called(call, ref, ending))
            return await asyncio.wait_for(answer, ANSWER_S)
        except asyncio.TimeoutError:
            return Answer(call, ref.uid, error=f"claim {ref}: {_NOT_YET}")
        finally:
            self._waiting.pop(call, None)

    def answer(self, reply: Answer) -> None:
        """The core's answer; its caller may have gone meanwhile."""
        waiting = self._waiting.get(reply.call)
        if waiting and not waiting.done():
            waiting.set_result(reply)


class Dra(dra_v1_pb2_grpc.DRAPluginServicer):
    """kubelet's calls about claims."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def _ask(self, claims: Iterable[dra_v1_pb2.Claim], ending: bool) -> Sequence[Answer]:
        refs = [Ref(claim.uid, claim.namespace, claim.name) for claim in claims]
        return await asyncio.gather(*(self._calls.ask(ref, ending) for ref in refs))

    async def NodePrepareResources(
        self, request: dra_v1_pb2.NodePrepareResourcesRequest, context: Any
    ) -> dra_v1_pb2.NodePrepareResourcesResponse:
        response = dra_v1_pb2.NodePrepareResourcesResponse()
        for answer in await self._ask(request.claims, ending=False):
            one = response.claims[answer.uid]
            one.error = answer.error
            names = [result.request for result in answer.results]
            for number, result in enumerate(answer.results):
                first = number == 0
                device = one.devices.add(
                    # a container that names any request of the claim gets the ids, and gets them once
                    request_names=dict.fromkeys(names) if first else [result.request],
                    pool_name=result.pool,
                    device_name=result.device,
                    cdi_device_ids=answer.cdi_devices if first else [],
                )
                if result.share_id:
                    device.share_id = result.share_id
        return response

    async def NodeUnprepareResources(
        self, request: dra_v1_pb2.NodeUnprepareResourcesRequest, context: Any
    ) -> dra_v1_pb2.NodeUnprepareResourcesResponse:
        response = dra_v1_pb2.NodeUnprepareResourcesResponse()
        for answer in await self._ask(request.claims, ending=True):
            response.claims[answer.uid].error = answer.error
        return response


def _wall_s() -> int:
    """kubelet compares a report's time with its own clock."""
    return int(datetime.datetime.now(datetime.timezone.utc).timestamp())


class Health(health_pb2_grpc.DRAResourceHealthServicer):
    """The complete list of devices, at each change and now and then."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._devices: tuple[tuple[str, bool, str], ...] = ()
        self._changed = asyncio.Event()

    def set(self, devices: tuple[tuple[str, bool, str], ...]) -> None:
        self._devices = devices
        self._changed.set()
        self._changed = asyncio.Event()

    async def NodeWatchResources(
        self, request: health_pb2.NodeWatchResourcesRequest, context: Any
    ) -> AsyncIterator[health_pb2.NodeWatchResourcesResponse]:
        while True:
            changed = self._changed
            yield self._list()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), HEALTH_S)

    def _list(self) -> health_pb2.NodeWatchResourcesResponse:
        answer, now_s = health_pb2.NodeWatchResourcesResponse(), _wall_s()
        for name, healthy, message in self._devices:
            answer.devices.add(
                device=health_pb2.DeviceIdentifier(pool_name=self._pool, device_name=name),
                health=health_pb2.HEALTHY if healthy else health_pb2.UNHEALTHY,
                last_updated_time=now_s,
                health_check_timeout_seconds=HEALTH_TIMEOUT_S,
                message=message,
            )
        return answer


class Registration(registration_pb2_grpc.RegistrationServicer):
    """Registers the driver with kubelet. on_registration: called each time that kubelet takes it; on_refusal: called
    with kubelet's reason when it refuses it."""

    def __init__(self, endpoint: Path, on_registration: Callable[[], None], on_refusal: Callable[[str], None]) -> None:
        self._endpoint = endpoint
        self._registered, self._refused = on_registration, on_refusal

    async def GetInfo(self, request: registration_pb2.InfoRequest, context: Any) -> registration_pb2.PluginInfo:
        versions = ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
        return registration_pb2.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=str(self._endpoint), supported_versions=versions
        )

    async def NotifyRegistrationStatus(
        self, request: registration_pb2.RegistrationStatus, context: Any
    ) -> registration_pb2.RegistrationStatusResponse:
        if request.plugin_registered:
            log.info("kubelet has registered %s", DRIVER)
            self._registered()
        else:
            self._refused(request.error or "no reason given")
        return registration_pb2.RegistrationStatusResponse()


class Paths:
    """Where one driver listens. registry: kubelet's directory of registrations; plugins: of drivers' own files;
    instance: sets drivers apart that run side by side while one replaces the other, "" for one that does not."""

    def __init__(self, registry: Path, plugins: Path, instance: str) -> None:
        self._registry, self._own = registry, plugins / DRIVER
        infix = f"-{instance}" if instance else ""
        #: where kubelet calls, and where it looks for the driver
        self.endpoint, self.registration = self._own / f"dra{infix}.sock", registry / f"{DRIVER}{infix}-reg.sock"

    @property
    def are_there(self) -> bool:
        return self.endpoint.exists() and self.registration.exists()

    def remove_dead(self) -> None:
        """The sockets of drivers that were killed."""
        remove_dead_sockets(self.registration, self._registry.glob(f"{DRIVER}-*reg.sock"))
        remove_dead_sockets(self.endpoint, self._own.glob("dra*.sock"))


class Sockets:
    """Both servers."""

    def __init__(self, paths: Paths, calls: Calls, health: Health, registration: Registration) -> None:
        self._paths, self._calls, self._health, self._registration = paths, calls, health, registration
        self._servers: list[grpc.aio.Server] = []

    async def start(self) -> None:
        """Raises OSError where a socket cannot be made."""
        self._paths.endpoint.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        serving = make_server()
        dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(Dra(self._calls), serving)
        health_pb2_grpc.add_DRAResourceHealthServicer_to_server(self._health, serving)
        await self._listen(serving, self._paths.endpoint)
        registering = make_server()
        registration_pb2_grpc.add_RegistrationServicer_to_server(self._registration, registering)
        await self._listen(registering, self._paths.registration)

    async def _listen(self, server: grpc.aio.Server, path: Path) -> None:
        listen(server, path)
        await server.start()
        self._servers.append(server)

    async def stop(self) -> None:
        """Lets calls under way end first: kubelet closes its connection, and with it their answers, when the
        registration has gone. New ones go to the driver that has registered last, if another one is there."""
        until_s = time.monotonic() + DRAIN_S
        while self._calls.count and time.monotonic() < until_s:
            await asyncio.sleep(0.05)
        self._paths.registration.unlink(missing_ok=True)
        for server in reversed(self._servers):
            await server.stop(grace=5.0)
        self._paths.endpoint.unlink(missing_ok=True)
