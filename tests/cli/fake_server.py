"""A fake daemon for the command line's tests: the API's services over a dictionary, on a unix socket.

It admits by the rules that the command line shows (minima within the device, min <= max), answers with rich status
details like the real one, and keeps every request so that tests can look at what was asked.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyProto
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tests.cli.fake_queue import FakeQueue
from vgpud.client.held_slice import ABI_VERSION
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs
from vgpud.v1alpha1 import words

NODE = "testnode"
GIB = 1 << 30
DEVICE_BYTES = 64 * GIB
CREATED_S = 1_700_000_000


def uuid_of(index: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


def refuse(context: grpc.ServicerContext, code: grpc.StatusCode, message: str, hint: str = "") -> None:
    """Ends the call with a status that carries the hint as a detail."""
    status = status_pb2.Status(code=code.value[0], message=message)
    if hint:
        detail = AnyProto()
        detail.Pack(error_details_pb2.Help(links=[error_details_pb2.Help.Link(description=hint)]))
        status.details.append(detail)
    context.abort_with_status(rpc_status.to_status(status))


class FakeDaemon(
    stubs.NodeServiceServicer,
    stubs.SliceServiceServicer,
    stubs.ClaimServiceServicer,
    stubs.EventServiceServicer,
    stubs.HistoryServiceServicer,
):
    """Holds devices, slices, processes and events; use it in a `with`."""

    def __init__(self, runtime: Path, devices: int = 1, is_simulated: bool = True) -> None:
        self.runtime = runtime
        self.socket = runtime / "vgpud.sock"
        self.is_simulated = is_simulated
        self.devices = [self._device(i) for i in range(devices)]
        self.slices: dict[str, pb.Slice] = {}
        self.processes: list[pb.Process] = []
        self.events: list[pb.Event] = []
        self.publication = pb.Publication(node=NODE)
        self.histories: dict[str, pb.History] = {}
        self.requests: list[Any] = []
        self.is_unwatched = False
        self.slow_s = 0.0
        self.mode = pb.TENANT_MODE_COAST
        self.born_with = 0  # processes that a new slice has at once
        self.throttled_ns_per_view = 0  # by how much every slice has waited longer when it is shown again
        self.makes_cdi = True
        self.trace_denied = ""  # why no user may trace
        self.queue = FakeQueue()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    def __enter__(self) -> FakeDaemon:
        server = grpc.server(futures.ThreadPoolExecutor(8))
        stubs.add_NodeServiceServicer_to_server(self, server)
        stubs.add_SliceServiceServicer_to_server(self, server)
        stubs.add_ClaimServiceServicer_to_server(self, server)
        stubs.add_EventServiceServicer_to_server(self, server)
        stubs.add_HistoryServiceServicer_to_server(self, server)
        self.queue.serve(server)
        server.add_insecure_port(self.host)
        server.start()
        self._server = server
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the daemon; twice does no harm."""
        assert self._server is not None
        self._server.stop(None).wait()

    def _device(self, index: int) -> pb.Device:
        return pb.Device(
            node=NODE,
            index=index,
            uuid=uuid_of(index),
            name="SIMULATED H200" if self.is_simulated else "NVIDIA H200",
            mem_total_bytes=DEVICE_BYTES,
            sm_count=132,
            simulated=self.is_simulated,
        )

    def _tell(self, kind: str, name: str, message: str) -> None:
        event = pb.Event(node=NODE, sequence=len(self.events) + 1, kind=kind, slice=name, message=message)
        event.create_time.GetCurrentTime()
        self.events.append(event)

    # ---- node ----

    def GetNode(self, request: pb.GetNodeRequest, context: grpc.ServicerContext) -> pb.GetNodeResponse:
        time.sleep(self.slow_s)
        node = pb.Node(
            name=NODE,
            version="9.9",
            driver_version="sim",
            simulated=self.is_simulated,
            abi_version=ABI_VERSION,
            mode=self.mode,
            unwatched=self.is_unwatched,
            runtime_dir=str(self.runtime),
        )
        node.start_time.FromSeconds(CREATED_S)
        return pb.GetNodeResponse(node=node)

    def ListDevices(self, request: pb.ListDevicesRequest, context: grpc.ServicerContext) -> pb.ListDevicesResponse:
        """One device a page, whatever was asked: the client must follow the tokens."""
        time.sleep(self.slow_s)
        at = int(request.page_token or 0)
        following = str(at + 1) if at + 1 < len(self.devices) else ""
        return pb.ListDevicesResponse(devices=self.devices[at : at + 1], next_page_token=following)

    def DrainDevice(self, request: pb.DrainDeviceRequest, context: grpc.ServicerContext) -> pb.DrainDeviceResponse:
        device = self.devices[int(request.device_uuid)]
        device.drained = request.reason
        return pb.DrainDeviceResponse(device=device)

    def GetHistory(self, request: pb.GetHistoryRequest, context: grpc.ServicerContext) -> pb.GetHistoryResponse:
        self.requests.append(request)
        if request.name not in self.histories:
            refuse(context, grpc.StatusCode.NOT_FOUND, f"there is no history of {request.name}")
        return pb.GetHistoryResponse(history=self.histories[request.name])

    # ---- slices ----

    def CreateSlice(self, request: pb.CreateSliceRequest, context: grpc.ServicerContext) -> pb.CreateSliceResponse:
        self.requests.append(request)
        name = request.name or f"run-{next(self._numbers)}"
        if name in self.slices:
            refuse(context, grpc.StatusCode.ALREADY_EXISTS, f"slice {name} exists", "choose another name")
        item = pb.Slice(node=NODE, name=name, uid=f"uid-{name}", spec=request.spec)
        if not request.every_user:
            item.owner_uid = request.owner_uid if request.HasField("owner_uid") else os.getuid()
        item.ephemeral = request.ephemeral
        item.cdi_device = f"vgpu.dev/gpu={name}" if request.cdi_device and self.makes_cdi else ""
        item.attach_socket = str(self.runtime / "slices" / name / "attach.sock")
        item.create_time.FromSeconds(CREATED_S)
        item.processes = self.born_with
        self._place(item, context)
        with self._lock:
            self.slices[name] = item
            self._tell("slice.created", name, f"slice {name} made")
        return pb.CreateSliceResponse(slice=item)

    def _place(self, item: pb.Slice, context: grpc.ServicerContext) -> None:
        spec = item.spec
        count = -(-spec.gpus_milli // 1000)
        if count > len(self.devices):
            hint = f"ask for {len(self.devices)} or less"
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"{spec.gpus_milli / 1000:g} GPUs do not fit", hint)
        low = spec.min_milli if spec.HasField("min_milli") else spec.gpus_milli
        high = spec.max_milli if spec.HasField("max_milli") else max(low, spec.gpus_milli)
        if low > high:
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"min {low} is more than max {high}", "lower min")
        memory = spec.mem_max_bytes if spec.HasField("mem_max_bytes") else DEVICE_BYTES * spec.gpus_milli // 1000
        floor = spec.mem_min_bytes if spec.HasField("mem_min_bytes") else memory
        if memory > DEVICE_BYTES * count:
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"{memory} bytes are more than the device has")
        if sum(d.min_milli for s in self.slices.values() for d in s.devices) + low > 1000 * len(self.devices):
            refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"min {low} is not left", "ask for less")
        del item.devices[:]
        for index in range(count):
            item.devices.add(
                node=NODE,
                device_uuid=uuid_of(index),
                device_index=index,
                min_milli=low // count,
                max_milli=high // count,
                mem_min_bytes=floor // count,
                mem_max_bytes=memory // count,
                share_ratio=0.25,
                gate=pb.GATE_COUNT,
            )

    def _find(self, name: str, context: grpc.ServicerContext) -> pb.Slice:
        if name not in self.slices:
            refuse(context, grpc.StatusCode.NOT_FOUND, f"no slice {name}", "see `vgpu slice ls`")
        return self.slices[name]

    def GetSlice(self, request: pb.GetSliceRequest, context: grpc.ServicerContext) -> pb.GetSliceResponse:
        return pb.GetSliceResponse(slice=self._find(request.name, context))

    def ListSlices(self, request: pb.ListSlicesRequest, context: grpc.ServicerContext) -> pb.ListSlicesResponse:
        return pb.ListSlicesResponse(slices=list(self.slices.values()))

    def UpdateSlice(self, request: pb.UpdateSliceRequest, context: grpc.ServicerContext) -> pb.UpdateSliceResponse:
        self.requests.append(request)
        item = pb.Slice()
        item.CopyFrom(self._find(request.name, context))
        for field in request.update_mask.paths:
            item.spec.ClearField(field)
        item.spec.MergeFrom(request.spec)
        self._place(item, context)
        item.revision += 1
        self.slices[item.name] = item
        return pb.UpdateSliceResponse(slice=item)

    def DeleteSlice(self, request: pb.DeleteSliceRequest, context: grpc.ServicerContext) -> pb.DeleteSliceResponse:
        self.requests.append(request)
        item = self._find(request.name, context)
        if item.processes and not request.force:
            message = f"slice {item.name} has {item.processes} processes"
            refuse(context, grpc.StatusCode.FAILED_PRECONDITION, message, "end them or use --force")
        with self._lock:
            del self.slices[request.name]
            self._tell("slice.deleted", request.name, f"slice {request.name} removed")
        return pb.DeleteSliceResponse()

    def WatchSlices(
        self, request: pb.WatchSlicesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchSlicesResponse]:
        while context.is_active():
            for device in (d for item in self.slices.values() for d in item.devices):
                device.throttled_ns += self.throttled_ns_per_view
            yield pb.WatchSlicesResponse(slices=list(self.slices.values()), devices=self.devices)
            time.sleep(request.interval_ms / 1000)

    def ListProcesses(
        self, request: pb.ListProcessesRequest, context: grpc.ServicerContext
    ) -> pb.ListProcessesResponse:
        found = [p for p in self.processes if request.slice in ("", p.slice)]
        return pb.ListProcessesResponse(processes=found)

    def WatchTrace(
        self, request: pb.WatchTraceRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchTraceResponse]:
        """A lease of 3 ms, another that lasts until the end, then nothing more until the slice is gone."""
        self.requests.append(request)
        self._find(request.name, context)
        if self.trace_denied:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, self.trace_denied)
        lease = [(1_000_000, "open", "count"), (4_000_000, "close", "closed"), (5_000_000, "open", "count")]
        yield pb.WatchTraceResponse(
            events=[
                pb.TraceEvent(
                    time_ns=time_ns, slice=request.name, kind=words.TRACE_EVENT_KIND.to_number(kind), text=text
                )
                for time_ns, kind, text in lease
            ],
            now_ns=7_000_000,
        )
        while context.is_active() and request.name in self.slices:
            yield pb.WatchTraceResponse(now_ns=7_000_000)
            time.sleep(0.02)

    def create(self, name: str) -> None:
        """A slice of half a device, without a call."""
        self.slices[name] = pb.Slice(node=NODE, name=name, spec=pb.SliceSpec(gpus_milli=500))

    def add_process(self, slice_name: str, pid: int, program: str) -> None:
        """As if a program had attached."""
        process = pb.Process(node=NODE, slice=slice_name, pid=pid, uid=0, program=program, process_id=pid)
        process.attach_time.FromSeconds(CREATED_S)
        process.devices.add(node=NODE, device_uuid=uuid_of(0), mem_used_bytes=GIB, mem_peak_bytes=2 * GIB, launches=7)
        self.processes.append(process)
        self.slices[slice_name].processes += 1

    def GetPublication(
        self, request: pb.GetPublicationRequest, context: grpc.ServicerContext
    ) -> pb.GetPublicationResponse:
        return pb.GetPublicationResponse(publication=self.publication)

    # ---- events ----

    def ListEvents(self, request: pb.ListEventsRequest, context: grpc.ServicerContext) -> pb.ListEventsResponse:
        return pb.ListEventsResponse(events=self.events)

    def WatchEvents(
        self, request: pb.WatchEventsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchEventsResponse]:
        at = request.after_sequence
        while context.is_active():
            for event in self.events[at:]:
                yield pb.WatchEventsResponse(event=event)
                at = event.sequence
            time.sleep(0.01)


class FakeAttachSocket:
    """The attach socket of one slice: accepts holders, and can lose them as a restarting daemon does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[bytes] = []
        self.peers: list[socket.socket] = []
        self.status = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self.listen()

    def listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            self.messages.append(peer.recv(4096))
            reply = struct.pack("=6IQ64s64s256s", 0x55504756, 1, 0, self.status, 0, 0, 1, b"a", b"n", b"no: fix it")
            peer.send(reply)
            self.peers.append(peer)

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink()
        for peer in self.peers:
            peer.close()
        self.peers.clear()
