"""kubelet's side of its device plugin interface, with its real messages."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from tests.daemon.node import wait_until
from vgpud.k8s.kubelet_api import device_plugin_pb2 as dp
from vgpud.k8s.kubelet_api import device_plugin_pb2_grpc as dp_grpc
from vgpud.k8s.kubelet_api import pod_resources_pb2 as pr
from vgpud.k8s.kubelet_api import pod_resources_pb2_grpc as pr_grpc


class DeviceManager(dp_grpc.RegistrationServicer, pr_grpc.PodResourcesListerServicer):
    """start() and stop() are kubelet's: when it starts it removes all sockets of its directory."""

    def __init__(self, kubelet_dir: Path) -> None:
        self.plugins, self._pods = kubelet_dir / "device-plugins", kubelet_dir / "pod-resources"
        for directory in (self.plugins, self._pods):
            directory.mkdir(parents=True, exist_ok=True)
        self.registrations: queue.Queue[dp.RegisterRequest] = queue.Queue()
        self.devices: dict[str, str] = {}  # health by id, as listed last
        self._server: grpc.Server | None = None
        self._channel: grpc.Channel | None = None

    def start(self) -> None:
        for path in self.plugins.glob("*.sock"):
            path.unlink()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        dp_grpc.add_RegistrationServicer_to_server(self, self._server)
        pr_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._pods / 'kubelet.sock'}")
        self._server.add_insecure_port(f"unix:{self.plugins / 'kubelet.sock'}")
        self._server.start()

    def stop(self) -> None:
        if self._channel:
            self._channel.close()
        if self._server:
            self._server.stop(0).wait()
        self._channel = self._server = None

    def Register(self, request: dp.RegisterRequest, context: Any) -> dp.Empty:
        self._watch(request.endpoint)
        self.registrations.put(request)
        return dp.Empty()

    def List(self, request: pr.ListPodResourcesRequest, context: Any) -> pr.ListPodResourcesResponse:
        return pr.ListPodResourcesResponse()

    def _watch(self, endpoint: str) -> None:
        if self._channel:
            self._channel.close()
        channel = self._channel = grpc.insecure_channel(f"unix:{self.plugins / endpoint}")

        def read() -> None:
            try:
                for answer in dp_grpc.DevicePluginStub(channel).ListAndWatch(dp.Empty(), wait_for_ready=True):
                    self.devices = {device.ID: device.health for device in answer.devices}
            except (grpc.RpcError, ValueError):
                pass  # the plugin or this kubelet has gone

        threading.Thread(target=read, daemon=True).start()

    def registration(self) -> dp.RegisterRequest:
        """The next one, and the devices that follow it."""
        request = self.registrations.get(timeout=30)
        wait_until(lambda: self.devices, "the devices")
        return request

    @property
    def stub(self) -> dp_grpc.DevicePluginStub:
        assert self._channel
        return dp_grpc.DevicePluginStub(self._channel)

    def allocate(self, ids: Collection[str]) -> dp.ContainerAllocateResponse:
        """Raises grpc.RpcError."""
        request = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids)])
        (answer,) = self.stub.Allocate(request, timeout=60).container_responses
        return answer

    def get_preferred_ids(self, available: Sequence[str], size: int) -> list[str]:
        one = dp.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
        request = dp.PreferredAllocationRequest(container_requests=[one])
        (answer,) = self.stub.GetPreferredAllocation(request, timeout=60).container_responses
        return list(answer.deviceIDs)


@contextmanager
def device_manager(kubelet_dir: Path) -> Iterator[DeviceManager]:
    made = DeviceManager(kubelet_dir)
    made.start()
    try:
        yield made
    finally:
        made.stop()
