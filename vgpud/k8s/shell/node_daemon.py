"""The node's vgpud, by its API: devices, claims, and containers that wait for their pod to be named."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import grpc

from vgpud.k8s.core.events import NodeLost, NodeSeen, PodUnknown, SliceEnded, SliceMade
from vgpud.k8s.core.model import Asked, Gpu, Granted, Known
from vgpud.k8s.core.quantities import whole_mebibytes
from vgpud.v1 import vgpud_pb2 as pb
from vgpud.v1 import vgpud_pb2_grpc as stubs

log = logging.getLogger("vgpud.k8s")

CALL_S = 20.0
AGAIN_S = 1.0
#: how often vgpud says what there is while nothing changes
INTERVAL_MS = 60_000
POD_UNKNOWN = "claim.pod_unknown"
_PCI = Path("/sys/bus/pci/devices")


class NodeDaemon:
    """The calls that the driver makes, and the two streams. None of them raises."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._node = stubs.NodeServiceStub(channel)
        self._slices = stubs.SliceServiceStub(channel)
        self._claims = stubs.ClaimServiceStub(channel)
        self._events = stubs.EventServiceStub(channel)

    async def make_slice(self, asked: Asked) -> SliceMade:
        claim = pb.Claim(uid=asked.uid, namespace=asked.namespace, name=asked.name, pod_uids=asked.pods)
        for one in asked.granted:
            claim.granted.add(
                device_uuid=one.uuid,
                min_milli=one.min_milli,
                max_milli=one.max_milli,
                mem_min_bytes=one.mem_min_bytes,
                mem_max_bytes=one.mem_max_bytes,
            )
        words = asked.words
        request = pb.PrepareClaimRequest(
            claim=claim, service_class=words.service_class, weight=words.weight, priority=words.priority
        )
        try:
            answer = await self._claims.PrepareClaim(request, timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            full = error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            return SliceMade(asked.uid, error=said(error), full=full)
        return SliceMade(asked.uid, answer.slice.name, _granted(answer.slice.devices))

    async def end_slice(self, uid: str) -> SliceEnded:
        try:
            await self._claims.UnprepareClaim(pb.UnprepareClaimRequest(claim_uid=uid), timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            return SliceEnded(uid, error=said(error))
        return SliceEnded(uid)

    async def watch(self, seen: Callable[[NodeSeen | NodeLost], None]) -> None:
        """Reports devices and claims, now and after each change, for ever."""
        while True:
            try:
                async for answer in self._slices.WatchSlices(pb.WatchSlicesRequest(interval_ms=INTERVAL_MS)):
                    seen(node_seen(answer))
            except grpc.aio.AioRpcError as error:
                log.info("vgpud does not answer: %s", said(error))
            seen(NodeLost())
            await asyncio.sleep(AGAIN_S)

    async def watch_pods(self, unknown: Callable[[PodUnknown], None]) -> None:
        """Reports containers of pods that a claim has come to be reserved for since it was prepared, for ever."""
        last = 0
        while True:
            try:
                async for answer in self._events.WatchEvents(pb.WatchEventsRequest(after_sequence=last)):
                    last = answer.event.sequence
                    if answer.event.kind == POD_UNKNOWN:
                        unknown(PodUnknown(answer.event.slice))
            except grpc.aio.AioRpcError:
                pass  # watch() says it
            await asyncio.sleep(AGAIN_S)


def said(error: grpc.aio.AioRpcError) -> str:
    """vgpud's own sentence, or that there is no answer."""
    text = error.details() or error.code().name
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return _ABSENT
    own = error.code() is not grpc.StatusCode.UNAVAILABLE or error.trailing_metadata()
    return text if own else _ABSENT


_ABSENT = "vgpud on this node does not answer: see `vgpu doctor` there"


def node_seen(answer: pb.WatchSlicesResponse) -> NodeSeen:
    """The devices, and the slices of claims. A device given to Kubernetes while other slices had parts of it is taken
    until they end: the scheduler does not know of them."""
    others: dict[str, list[str]] = {}
    for one in answer.slices:
        for device in () if one.HasField("claim") else one.devices:
            others.setdefault(device.device_uuid, []).append(one.name)
    claims = tuple(
        Known(
            one.claim.uid,
            one.claim.namespace,
            one.claim.name,
            one.name,
            tuple(one.claim.pod_uids),
            _granted(one.devices),
            _granted(one.claim.granted),
        )
        for one in answer.slices
        if one.HasField("claim")
    )
    return NodeSeen(tuple(_gpu(device, others.get(device.uuid, ())) for device in answer.devices), claims)


def _granted(shares: Iterable[pb.SliceDevice] | Iterable[pb.ClaimShare]) -> tuple[Granted, ...]:
    return tuple(Granted(s.device_uuid, s.min_milli, s.max_milli, s.mem_min_bytes, s.mem_max_bytes) for s in shares)


def _gpu(device: pb.Device, slices: Sequence[str]) -> Gpu:
    lost = device.taken_by if not device.offered else ""
    if slices and device.kubernetes:
        lost = lost or f"slice {slices[0]}" + (f" and {len(slices) - 1} more" if len(slices) > 1 else "")
    return Gpu(
        uuid=device.uuid,
        index=device.index,
        product=device.name,
        memory_bytes=whole_mebibytes(device.memory_total_bytes - device.memory_total_bytes % device.granule_bytes),
        granule_bytes=device.granule_bytes,
        simulated=device.simulated,
        pci_root=_pci_root(device.pci_bus_id),
        drained=device.drained,
        fault=device.drained if device.drained_by_fault else "",
        taken_by=lost if not device.drained else "",
        given=device.kubernetes,
    )


def _pci_root(bus_id: str) -> str:
    """The PCI root complex of a device ("pci0000:00"), "" when the kernel does not know the device."""
    domain, _, rest = bus_id.lower().partition(":")
    path = _PCI / f"{domain[-4:]}:{rest}"
    try:
        parts = path.resolve(strict=True).parts
    except OSError:
        return ""
    return next((part for part in parts if part.startswith("pci")), "")
