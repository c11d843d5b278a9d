"""Shell of gRPC: turns requests into events for the core and values into messages. Bad requests never reach the core.

Every refusal carries a one-line message and rich details (google.rpc). The server listens on a private socket that is
linked to its public name when all is ready, so that the public one never has wrong permissions.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from vgpud.api import slice_messages as views
from vgpud.api import watches
from vgpud.api.backend import Backend
from vgpud.api.caller import caller
from vgpud.api.history import HistoryService
from vgpud.api.job_backend import JobBackend
from vgpud.api.jobs import JobService, QueueBackend, QueueService
from vgpud.api.peer_proxy import PeerProxy
from vgpud.api.permissions import Authorizer, Site
from vgpud.api.remote import RECHECK_S, RemoteListener
from vgpud.api.rpc import RefusedError, Watching, page, page_of, refuse, unary
from vgpud.api.tokens import Tokens, TokenService
from vgpud.api.turns import Turns, breathe
from vgpud.api.workers import WorkerBackend
from vgpud.certs.register import Register
from vgpud.core.events import (
    CreateSlice,
    DeleteSlice,
    DrainDevice,
    Event,
    PrepareClaim,
    UndrainDevice,
    UnprepareClaim,
    UpdateSlice,
)
from vgpud.core.model import ANYONE, BATCH, Denied, Device, Reason, Slice
from vgpud.core.observed import TraceEvent
from vgpud.core.origins import User
from vgpud.core.slices.drains import find
from vgpud.host import boot
from vgpud.host.listeners import API
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs
from vgpud.v1alpha1 import words

REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"
#: requests are small; more than this is no request of ours
MESSAGE_BYTES_MAX = 256 * 1024
#: a connection without a call is ended after this; clients connect again by themselves
IDLE_MS = 600_000
#: time for calls of a server whose socket was removed
RETIRE_S = 30.0
#: time limit of suspending and resuming a slice: the default, and its bounds
DEADLINE_S = 30.0
_DEADLINE_MIN_S, _DEADLINE_MAX_S = 2.0, 600.0
_Answer = TypeVar("_Answer", Slice, Slice | None)


def _owner(request: pb.CreateSliceRequest) -> int:
    """The owner of a slice that the caller creates. Users have slices for themselves only."""
    who, is_named = caller(), request.HasField("owner_uid")
    if is_named and request.every_user:
        raise refuse(Reason.INVALID, f"owner_uid {request.owner_uid} and every_user: leave one out", "owner_uid")
    if is_named and request.owner_uid < 0:
        text = f"owner_uid {request.owner_uid} is not a user: write a uid, or every_user"
        raise refuse(Reason.INVALID, text, "owner_uid")
    if not who.admin and (request.every_user or (is_named and request.owner_uid != who.uid)):
        asked = "every_user" if request.every_user else f"owner_uid {request.owner_uid}"
        text = f"{asked}: what uid {who.uid} makes is theirs alone: leave it out, or ask an admin"
        raise refuse(Reason.DENIED, text, "every_user" if request.every_user else "owner_uid")
    return ANYONE if request.every_user else request.owner_uid if is_named else who.uid


def _deadline_s(deadline: Duration, was_given: bool) -> float:
    asked_s = deadline.seconds + deadline.nanos / 1e9 if was_given else DEADLINE_S
    if not _DEADLINE_MIN_S <= asked_s <= _DEADLINE_MAX_S:
        text = f"deadline {asked_s:g} s is out of range: write {_DEADLINE_MIN_S:g} to {_DEADLINE_MAX_S:g} seconds"
        raise refuse(Reason.INVALID, text, "deadline")
    return asked_s


class Service(Watching):
    """What the services of this module share: the backend and the views of slices and devices."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.backend = backend
        self.observe = backend.observe  # as unary() calls it

    def _indexes(self) -> dict[str, int]:
        return {d.uuid: d.index for d in self.backend.machine.state.devices.values()}

    def _check_node(self, node: str) -> None:
        if node and node != self.backend.node.name:
            raise refuse(Reason.NOT_FOUND, f"this daemon is node {self.backend.node.name!r}, not {node!r}", "node")

    def _slice(self, slice_: Slice) -> pb.Slice:
        b = self.backend
        running = len(b.machine.state.processes_of(slice_.name))
        containers = b.machine.state.containers_of(slice_.name)
        job_id = slice_.origin.queue_job_id
        job_name = b.jobs.name(job_id) if job_id else ""
        counters, path = b.counters.of_slice(slice_), b.node.attach_path(slice_.name)
        names = b.node.name, self._indexes()
        turns = b.rotation.stats(slice_)
        return views.slice_view(slice_, *names, counters, path, running, containers, job_name, turns)

    def _list_visible_slices(self) -> list[Slice]:
        """The slices that the caller is shown."""
        who = caller()
        return [made for made in self.backend.machine.state.slices.values() if who.sees(made.owner_uid)]

    def _find_slice(self, node: str, name: str) -> Slice:
        self._check_node(node)
        made = self.backend.machine.state.slices.get(name)
        if made is None:
            raise refuse(Reason.NOT_FOUND, f"no slice {name!r} on this node: `vgpu slice ls` lists them", "name")
        return made

    def _device(self, device: Device) -> pb.Device:
        b = self.backend
        return views.device_view(device, b.node.name, b.machine.state, b.counters.reading(device.uuid))

    async def _submit(self, event: Event) -> Slice | None:
        return await self._answer_when_saved(await self.backend.machine.submit(event))

    async def _answer_when_saved(self, answer: _Answer | Denied) -> _Answer:
        """Answered when it is on the disk, so that a crash of the machine does not revoke an answer."""
        if isinstance(answer, Denied):
            raise RefusedError(answer)
        unsaved = await self.backend.machine.wait_until_saved()
        if unsaved:
            raise RefusedError(unsaved)
        return answer


class NodeService(Service, stubs.NodeServiceServicer):
    """The node and its devices."""

    @unary
    def GetNode(self, request: pb.GetNodeRequest) -> pb.GetNodeResponse:
        return pb.GetNodeResponse(node=self.backend.node.view())

    @unary
    def ListDevices(self, request: pb.ListDevicesRequest) -> pb.ListDevicesResponse:
        keyed = [(f"{d.index:05d}", d) for d in self.backend.machine.state.devices.values()]
        shown, token = page(keyed, request)
        return pb.ListDevicesResponse(devices=[self._device(d) for d in shown], next_page_token=token)

    @unary
    def SetArbiterParams(self, request: pb.SetArbiterParamsRequest) -> pb.SetArbiterParamsResponse:
        changes = {field.name: int(value) for field, value in request.params.ListFields()}
        answer = self.backend.arbiter_times.change(changes)
        if isinstance(answer, Denied):
            raise RefusedError(answer)
        return pb.SetArbiterParamsResponse(params=pb.ArbiterParams(**answer))

    @unary
    async def DrainDevice(self, request: pb.DrainDeviceRequest) -> pb.DrainDeviceResponse:
        self._check_node(request.node)
        await self._submit(DrainDevice(request.device_uuid, request.reason))
        return pb.DrainDeviceResponse(device=self._device_named(request.device_uuid))

    @unary
    async def UndrainDevice(self, request: pb.UndrainDeviceRequest) -> pb.UndrainDeviceResponse:
        self._check_node(request.node)
        await self._submit(UndrainDevice(request.device_uuid))
        return pb.UndrainDeviceResponse(device=self._device_named(request.device_uuid))

    def _device_named(self, name: str) -> pb.Device | None:
        found = find(name, self.backend.machine.state)
        return self._device(found) if isinstance(found, Device) else None


class SliceService(Service, stubs.SliceServiceServicer):
    """Slices and the processes in them."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._snapshots = watches.Snapshots()

    @unary
    async def CreateSlice(self, request: pb.CreateSliceRequest) -> pb.CreateSliceResponse:
        self._check_node(request.node)
        if request.cdi_device and (why := self.backend.device_files.why_not()):
            raise refuse(Reason.PRECONDITION, why, "cdi_device")
        fresh = uuid.uuid4()
        event = CreateSlice(
            request_id=request.request_id,
            origin=User(request.name, f"slice-{fresh.hex[:6]}", request.ephemeral, request.cdi_device),
            spec=views.spec_from(request.spec),
            owner_uid=_owner(request),
            uid=str(fresh),
            wall_ns=time.time_ns(),
            queue=request.queue,
            asker=caller().asker,
            pending=request.pending,
        )
        made = await self._submit(event)
        return pb.CreateSliceResponse(slice=self._slice(made) if made else None)

    @unary
    def GetSlice(self, request: pb.GetSliceRequest) -> pb.GetSliceResponse:
        return pb.GetSliceResponse(slice=self._slice(self._find_slice(request.node, request.name)))

    @unary
    async def ListSlices(self, request: pb.ListSlicesRequest) -> pb.ListSlicesResponse:
        shown, token = page([(made.name, made) for made in self._list_visible_slices()], request)
        answer = pb.ListSlicesResponse(next_page_token=token)
        for made in shown:
            answer.slices.append(self._slice(made))
            await breathe()
        return answer

    @unary
    async def UpdateSlice(self, request: pb.UpdateSliceRequest) -> pb.UpdateSliceResponse:
        self._check_node(request.node)
        given = request.update_mask.paths or [field.name for field, _ in request.spec.ListFields()]
        patch, fields = views.spec_from(request.spec), tuple(sorted(set(given)))
        made = await self._submit(UpdateSlice(request.request_id, request.name, patch, fields, asker_uid=caller().uid))
        return pb.UpdateSliceResponse(slice=self._slice(made) if made else None)

    @unary
    async def DeleteSlice(self, request: pb.DeleteSliceRequest) -> pb.DeleteSliceResponse:
        self._check_node(request.node)
        event = DeleteSlice(request.request_id, request.name, request.force, asker_uid=caller().uid)
        await self._submit(event)
        return pb.DeleteSliceResponse()

    @unary
    async def SuspendSlice(self, request: pb.SuspendSliceRequest) -> pb.SuspendSliceResponse:
        made = self._find_slice(request.node, request.name)
        deadline_s = _deadline_s(request.deadline, request.HasField("deadline"))
        answer = await self.backend.suspension.suspend(made.name, request.evict, deadline_s=deadline_s)
        return pb.SuspendSliceResponse(slice=self._slice(await self._answer_when_saved(answer)))

    @unary
    async def ResumeSlice(self, request: pb.ResumeSliceRequest) -> pb.ResumeSliceResponse:
        made = self._find_slice(request.node, request.name)
        deadline_s = _deadline_s(request.deadline, request.HasField("deadline"))
        answer = await self.backend.suspension.resume(made.name, deadline_s=deadline_s)
        return pb.ResumeSliceResponse(slice=self._slice(await self._answer_when_saved(answer)))

    @unary
    async def ListProcesses(self, request: pb.ListProcessesRequest) -> pb.ListProcessesResponse:
        self._check_node(request.node)
        state = self.backend.machine.state
        if request.slice and request.slice not in state.slices:
            text = f"no slice {request.slice!r} on this node: `vgpu slice ls` lists them"
            raise refuse(Reason.NOT_FOUND, text, "slice")
        who = caller()
        found = [
            p
            for p in state.processes.values()
            if not p.holder
            and request.slice in ("", p.slice_name)
            and (who.owns(p.uid) or who.owns(state.slices[p.slice_name].owner_uid))
        ]
        shown, token = page([(f"{p.process_id:020d}", p) for p in found], request)
        indexes = self._indexes()
        answer = pb.ListProcessesResponse(next_page_token=token)
        for process in shown:
            if process.slice_name in self.backend.machine.state.slices:  # else both have gone meanwhile
                counters = self.backend.counters.of_process(process)
                container = state.containers.get(process.container_id)
                node = self.backend.node.name
                answer.processes.append(views.process_view(process, container, node, indexes, counters))
            await breathe()
        return answer

    async def WatchSlices(self, request: pb.WatchSlicesRequest, context: Any) -> AsyncIterator[Any]:
        """All slices and devices at every change, and every interval_ms."""
        asked_s = (request.interval_ms or 1000) / 1000
        interval_s = min(max(asked_s, watches.INTERVAL_MIN_S), watches.INTERVAL_MAX_S)
        who = caller()
        rights = "admin" if who.admin else who.uid

        async def states() -> AsyncGenerator[bytes, None]:
            while True:
                shot = await self._snapshots.get(rights, lambda: self.backend.changes.count, self._everything)
                yield shot.data
                await asyncio.sleep(watches.INTERVAL_MIN_S)
                if shot.change == self.backend.changes.count:
                    await self.backend.changes.wait(interval_s - watches.INTERVAL_MIN_S)

        async for message in self._watching(context, states()):
            yield message

    async def _everything(self) -> bytes:
        """A WatchSlicesResponse for the caller."""
        answer = pb.WatchSlicesResponse()
        for made in sorted(self._list_visible_slices(), key=lambda made: made.name):
            answer.slices.append(self._slice(made))
            await breathe()
        answer.devices.extend(self._device(device) for device in self.backend.machine.state.devices.values())
        return answer.SerializeToString()

    async def WatchTrace(self, request: pb.WatchTraceRequest, context: Any) -> AsyncIterator[pb.WatchTraceResponse]:
        """What the arbiters of a slice's devices do, neighbours there included, as it happens; ends with the slice."""

        made = self.backend.machine.state.slices.get(request.name)
        names: dict[int, str] = {}

        def devices() -> set[str]:
            """Devices of the slice, none when it is gone; a slice that is not in use may move."""
            now = self.backend.machine.state.slices.get(request.name)
            return {share.device_uuid for share in now.shares} if now and made and now.uid == made.uid else set()

        def batch(events: list[TraceEvent]) -> pb.WatchTraceResponse:
            names.update((s.serial, s.name) for s in self._list_visible_slices())
            indexes = self._indexes()
            known = (e for e in events if not e.serial or e.serial in names)
            shown = [views.trace_event_view(e, indexes, names) for e in known]
            return pb.WatchTraceResponse(events=shown, now_ns=time.monotonic_ns(), node=self.backend.node.name)

        async def batches() -> AsyncGenerator[pb.WatchTraceResponse, None]:
            self._find_slice(request.node, request.name)
            while here := devices():
                with self.backend.tracing.watch(here) as watcher:
                    while devices() == here:
                        yield batch(await watcher.take())
                    self.backend.tracing.hand_out()  # how it ended
                    while events := watcher.rest():
                        yield batch(events)

        async for message in self._watching(context, batches()):
            yield message


class ClaimService(Service, stubs.ClaimServiceServicer):
    """Slices of Kubernetes claims, for the DRA driver."""

    @unary
    async def PrepareClaim(self, request: pb.PrepareClaimRequest) -> pb.PrepareClaimResponse:
        self._check_node(request.node)
        if why := self.backend.device_files.why_not():
            raise refuse(Reason.PRECONDITION, why, "claim")
        event = PrepareClaim(
            views.claim_from(request.claim, boot.boot_id()),
            words.SERVICE_CLASS.to_word(request.service_class) or BATCH,
            request.weight,
            request.priority,
            uid=str(uuid.uuid4()),
            wall_ns=time.time_ns(),
            tolerates_drain=request.tolerates_drain,
        )
        made = await self._submit(event)
        if made and (why := self.backend.device_files.why_missing(made.name)):
            raise refuse(Reason.UNAVAILABLE, why, "claim")
        return pb.PrepareClaimResponse(slice=self._slice(made) if made else None)

    @unary
    async def UnprepareClaim(self, request: pb.UnprepareClaimRequest) -> pb.UnprepareClaimResponse:
        self._check_node(request.node)
        await self._submit(UnprepareClaim(request.claim_uid))
        return pb.UnprepareClaimResponse()

    @unary
    def ReportPublication(self, request: pb.ReportPublicationRequest) -> pb.ReportPublicationResponse:
        self._check_node(request.node)
        refusal = self.backend.publications.put(request.publication)
        if refusal:
            raise RefusedError(refusal)
        return pb.ReportPublicationResponse()

    @unary
    def GetPublication(self, request: pb.GetPublicationRequest) -> pb.GetPublicationResponse:
        self._check_node(request.node)
        return pb.GetPublicationResponse(publication=self.backend.publications.view(with_reasons=caller().admin))


class EventService(Service, stubs.EventServiceServicer):
    """The event log."""

    @unary
    async def ListEvents(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        who = caller()
        size, key = page_of(request)
        seen = int(key) if key.isascii() and key.isdigit() and len(key) <= 20 else 0
        answer = pb.ListEventsResponse()
        while True:
            entries = self.backend.events.entries_after(seen)
            if not entries:
                return answer
            for entry in entries:
                if who.sees(entry.owner_uid):
                    if len(answer.events) == size:
                        answer.next_page_token = views.page_token(f"{seen:020d}")
                        return answer
                    answer.events.append(views.event_view(entry, self.backend.node.name))
                seen = entry.sequence
                await breathe()

    async def WatchEvents(self, request: pb.WatchEventsRequest, context: Any) -> AsyncIterator[pb.WatchEventsResponse]:
        """Events after a sequence number, as they happen; entries that the log has dropped meanwhile are not sent."""

        who = caller()

        async def entries() -> AsyncGenerator[pb.WatchEventsResponse, None]:
            seen = max(0, request.after_sequence)
            while True:
                change = self.backend.changes.count
                while new := self.backend.events.entries_after(seen):
                    for entry in new:
                        seen = entry.sequence
                        if who.sees(entry.owner_uid):
                            yield pb.WatchEventsResponse(event=views.event_view(entry, self.backend.node.name))
                        await breathe()
                await asyncio.sleep(watches.INTERVAL_MIN_S)
                if change == self.backend.changes.count:
                    await self.backend.changes.wait(1.0)

        async for message in self._watching(context, entries()):
            yield message


def _reflection_v1(service_names: Sequence[str]) -> Any:
    """Reflection as clients ask for it first: v1 has the messages of v1alpha, which is all that grpcio-reflection has
    (1.85.1)."""
    answer = reflection.aio.ReflectionServicer(service_names).ServerReflectionInfo  # type: ignore[attr-defined]
    request = reflection_pb2.ServerReflectionRequest.FromString
    pack = reflection_pb2.ServerReflectionResponse.SerializeToString
    method = grpc.stream_stream_rpc_method_handler(answer, request, pack)
    return grpc.method_handlers_generic_handler(REFLECTION_V1, {"ServerReflectionInfo": method})


async def _none_valid(certificate: str) -> bool:
    """Without a listener no certificate is valid."""
    return False


class Server:
    """The gRPC server on a private unix socket, and the proxy at the public one."""

    def __init__(
        self,
        backend: Backend,
        site: Site,
        job_backend: JobBackend,
        queue_backend: QueueBackend,
        workers: WorkerBackend,
        private: Path,
    ) -> None:
        self._private = private
        self._generation = 0
        turns, self._tokens = Turns(), Tokens()
        self._proxy = PeerProxy(private, turns)
        self._authorizer = Authorizer(site, self._proxy.peer, turns, self._tokens)
        self._remote: RemoteListener | None = None
        self._rechecked_s = 0.0
        self._proxy.is_admin = self._authorizer.is_admin
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        node, slices, events = NodeService(backend), SliceService(backend), EventService(backend)
        claims, tokens = ClaimService(backend), TokenService(self._tokens, backend.observe)
        jobs = JobService(job_backend, queue_backend, workers, backend.observe)
        queues, history = QueueService(queue_backend, backend.observe), HistoryService(backend)
        self._services: list[Callable[[grpc.aio.Server], None]] = [
            lambda server: stubs.add_NodeServiceServicer_to_server(node, server),
            lambda server: stubs.add_SliceServiceServicer_to_server(slices, server),
            lambda server: stubs.add_EventServiceServicer_to_server(events, server),
            lambda server: stubs.add_ClaimServiceServicer_to_server(claims, server),
            lambda server: stubs.add_TokenServiceServicer_to_server(tokens, server),
            lambda server: stubs.add_JobServiceServicer_to_server(jobs, server),
            lambda server: stubs.add_QueueServiceServicer_to_server(queues, server),
            lambda server: stubs.add_HistoryServiceServicer_to_server(history, server),
            lambda server: health_pb2_grpc.add_HealthServicer_to_server(self._health, server),
        ]
        self._names = [service.full_name for service in pb.DESCRIPTOR.services_by_name.values()]
        self._server = self._make()
        self._retiring: set[asyncio.Task[None]] = set()

    def _make(self) -> grpc.aio.Server:
        options = [
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.so_reuseport", 0),
            ("grpc.max_connection_idle_ms", IDLE_MS),
            ("grpc.server_handshake_timeout_ms", int(API.deadline_s * 1000)),  # silent before HTTP/2's first frame
        ]
        server = grpc.aio.server(interceptors=[self._authorizer], options=options)
        for add in self._services:
            add(server)
        known = (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME, REFLECTION_V1)
        reflection.enable_server_reflection(known, server)
        server.add_generic_rpc_handlers((_reflection_v1(known),))
        return server

    async def _listen(self, server: grpc.aio.Server, private: Path) -> None:
        private.unlink(missing_ok=True)
        if not server.add_insecure_port(f"unix:{private}"):
            raise OSError(f"cannot bind {private}")
        await server.start()
        private.chmod(0o600)

    async def start(self, public: Path, mode: int, gid: int, admin_gid: int = -1) -> None:
        """Serves, then accepts at the public socket with these permissions; members of admin_gid are admins.

        Raises OSError.
        """
        self._authorizer.admin_gid = admin_gid
        await self._listen(self._server, self._private)
        await self._proxy.open(public, mode, gid)
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def listen(self, host: str, port: int, certificates: Path) -> list[tuple[str, int]]:
        """Serves TLS connections as well, from start() on; the addresses. Raises VgpudError."""
        remote = RemoteListener(self._proxy, Register(certificates))
        addresses = await remote.open(host, port)
        self._remote = remote
        return addresses

    async def recheck(self) -> None:
        """Ends tokens whose user or certificate is not valid any more, every RECHECK_S."""
        if time.monotonic() - self._rechecked_s < RECHECK_S:
            return
        self._rechecked_s = time.monotonic()
        await self._tokens.recheck(self._remote.valid if self._remote else _none_valid)

    async def repair(self) -> bool:
        """Recreates sockets that were removed. Returns whether any was. Raises OSError.

        A gRPC server cannot listen again: a new one replaces it, and the old one stops after RETIRE_S.
        """
        inside = self._private.exists()
        if not inside:
            self._generation += 1  # the old server removes its own name
            private = self._private.with_name(f"{self._generation}.sock")
            server = self._make()
            await self._listen(server, private)
            old, self._server, self._private = self._server, server, private
            self._proxy.forward_to(private)
            task = asyncio.create_task(old.stop(RETIRE_S))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        return await self._proxy.repair() or not inside

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls, ends the rest after grace_s, removes the socket."""
        await self._health.enter_graceful_shutdown()
        self._proxy.stop_accepting()
        if self._remote:
            await self._remote.close()
        for task in list(self._retiring):
            task.cancel()
        await self._server.stop(grace_s)
        await self._proxy.drain()
        self._private.unlink(missing_ok=True)
