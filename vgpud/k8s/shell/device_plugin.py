"""kubelet's older interface for devices that are counted: the plugin's socket, and registration with kubelet.

Here the plugin calls kubelet to register, and kubelet then calls back. A kubelet that starts removes all sockets of its
directory and knows no plugin: its own socket is another one then, which observe_kubelet() shows.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc

from vgpud.k8s.core.names import CDI_KIND, RESOURCE
from vgpud.k8s.core.plugin_events import AllocateCalled, Allocated, KubeletSeen, PodsListed, Registered, Socket
from vgpud.k8s.core.tenths import choose_preferred_ids
from vgpud.k8s.kubelet_api import (
    device_plugin_pb2,
    device_plugin_pb2_grpc,
    pod_resources_pb2,
    pod_resources_pb2_grpc,
)
from vgpud.k8s.shell.sockets import listen, make_server

log = logging.getLogger("vgpud.k8s")

VERSION = "v1beta1"
KUBELET_SOCKET, POD_RESOURCES_SOCKET = "kubelet.sock", "kubelet.sock"
#: the core answers earlier
ANSWER_S, CALL_S = 30.0, 10.0
#: a server that stops may remove its socket late, so the next one has another name
_SOCKETS = ("vgpu-tenth-0.sock", "vgpu-tenth-1.sock")
_HEALTH = {True: "Healthy", False: "Unhealthy"}
#: runtimes without the CRI field for CDI devices (kubelet before 1.28) read the annotation
_CDI_ANNOTATION = "cdi.k8s.io/vgpud_"


class Service(device_plugin_pb2_grpc.DevicePluginServicer):
    """What kubelet calls. post: gives an event to the core."""

    def __init__(self, post: Callable[[AllocateCalled], None]) -> None:
        self._post = post
        self._waiting: dict[int, asyncio.Future[Allocated]] = {}
        self._next = 1
        self._devices: tuple[tuple[str, bool], ...] = ()
        self._changed = asyncio.Event()
        self.streams = 0  # that kubelet reads

    def set(self, devices: tuple[tuple[str, bool], ...]) -> None:
        self._devices = devices
        self._changed.set()
        self._changed = asyncio.Event()

    def answer(self, reply: Allocated) -> None:
        """The core's answer; its caller may have gone meanwhile."""
        waiting = self._waiting.get(reply.call)
        if waiting and not waiting.done():
            waiting.set_result(reply)

    async def GetDevicePluginOptions(
        self, request: device_plugin_pb2.Empty, context: Any
    ) -> device_plugin_pb2.DevicePluginOptions:
        return options()

    async def ListAndWatch(
        self, request: device_plugin_pb2.Empty, context: Any
    ) -> AsyncIterator[device_plugin_pb2.ListAndWatchResponse]:
        self.streams += 1
        try:
            while True:
                changed = self._changed
                answer = device_plugin_pb2.ListAndWatchResponse()
                for name, healthy in self._devices:
                    answer.devices.add(ID=name, health=_HEALTH[healthy])
                yield answer
                await changed.wait()
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(
        self, request: device_plugin_pb2.PreferredAllocationRequest, context: Any
    ) -> device_plugin_pb2.PreferredAllocationResponse:
        answer = device_plugin_pb2.PreferredAllocationResponse()
        for one in request.container_requests:
            chosen = choose_preferred_ids(one.available_deviceIDs, set(one.must_include_deviceIDs), one.allocation_size)
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def Allocate(self, request: device_plugin_pb2.AllocateRequest, context: Any) -> Any:
        given = await asyncio.gather(*(self._ask(one.devices_ids) for one in request.container_requests))
        error = next((one.error for one in given if one.error), "")
        if error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, error)
        answer = device_plugin_pb2.AllocateResponse()
        for one in given:
            device = f"{CDI_KIND}={one.slice_name}"
            container = answer.container_responses.add(annotations={f"{_CDI_ANNOTATION}{one.slice_name}": device})
            container.cdi_devices.add(name=device)
        return answer

    async def _ask(self, ids: Iterable[str]) -> Allocated:
        call, self._next = self._next, self._next + 1
        answer: asyncio.Future[Allocated] = asyncio.get_running_loop().create_future()
        self._waiting[call] = answer
        self._post(AllocateCalled(call, str(uuid.uuid4()), tuple(sorted(ids))))
        try:
            return await asyncio.wait_for(answer, ANSWER_S)
        except asyncio.TimeoutError:
            return Allocated(call, error=f"{RESOURCE}: vgpud did not finish in time")
        finally:
            self._waiting.pop(call, None)

    async def PreStartContainer(
        self, request: device_plugin_pb2.PreStartContainerRequest, context: Any
    ) -> device_plugin_pb2.PreStartContainerResponse:
        return device_plugin_pb2.PreStartContainerResponse()


def options() -> device_plugin_pb2.DevicePluginOptions:
    return device_plugin_pb2.DevicePluginOptions(get_preferred_allocation_available=True)


class PluginSocket:
    """The plugin's server. plugins: kubelet's directory device-plugins; pod_resources: the one of that name."""

    def __init__(self, plugins: Path, pod_resources: Path, service: Service) -> None:
        self._plugins, self._pod_resources, self._service = plugins, pod_resources, service
        self._server: grpc.aio.Server | None = None
        self._served = 0

    @property
    def path(self) -> Path:
        return self._plugins / _SOCKETS[self._served % 2]

    async def serve(self) -> None:
        """Listens, in place of a socket that is gone or of another process. Raises OSError."""
        await self.stop()
        self._served += 1
        for path in plugin_sockets(self._plugins):
            path.unlink(missing_ok=True)
        server = make_server()
        device_plugin_pb2_grpc.add_DevicePluginServicer_to_server(self._service, server)
        listen(server, self.path)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server:
            await self._server.stop(grace=1.0)
            self._server = None
            self.path.unlink(missing_ok=True)

    def observe_kubelet(self) -> KubeletSeen:
        socket = _identity(self._plugins / KUBELET_SOCKET)
        return KubeletSeen(socket, self.path.exists(), self._service.streams > 0)

    async def register(self, socket: Socket) -> Registered:
        try:
            if not self.path.exists():
                await self.serve()
            async with grpc.aio.insecure_channel(f"unix://{self._plugins / KUBELET_SOCKET}") as channel:
                request = device_plugin_pb2.RegisterRequest(
                    version=VERSION, endpoint=self.path.name, resource_name=RESOURCE, options=options()
                )
                await device_plugin_pb2_grpc.RegistrationStub(channel).Register(request, timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            return Registered(socket, error.details() or error.code().name)
        except OSError as error:
            return Registered(socket, error.strerror or str(error))
        return Registered(socket)

    async def list_pods(self) -> PodsListed:
        """kubelet's PodResources service, which clusters may have switched off."""
        try:
            async with grpc.aio.insecure_channel(f"unix://{self._pod_resources / POD_RESOURCES_SOCKET}") as channel:
                stub = pod_resources_pb2_grpc.PodResourcesListerStub(channel)
                answer = await stub.List(pod_resources_pb2.ListPodResourcesRequest(), timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            log.info("kubelet does not say which pods have devices: %s", error.details() or error.code().name)
            return PodsListed(None)
        devices = (d for pod in answer.pod_resources for container in pod.containers for d in container.devices)
        return PodsListed(frozenset(one for d in devices if d.resource_name == RESOURCE for one in d.device_ids))


def plugin_sockets(plugins: Path) -> Sequence[Path]:
    """Where the plugin may listen."""
    return [plugins / name for name in _SOCKETS]


def _identity(path: Path) -> Socket | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
