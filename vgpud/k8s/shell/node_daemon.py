"""The node's vgpud, by its API: devices, claims, and containers that wait for their pod to be named."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc

from vgpud.k8s.core.events import NodeLost, NodeSeen, PodUnknown, PublicationReported, SliceEnded, SliceMade
from vgpud.k8s.core.model import Asked, Gpu, Granted, Known
from vgpud.k8s.core.publication import Publication
from vgpud.k8s.core.quantities import memory_unit_bytes
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs
from vgpud.v1alpha1.words import SERVICE_CLASS

log = logging.getLogger("vgpud.k8s")

#: for a question that is put again anyway
CALL_S = 10.0
AGAIN_S = 1.0
#: how often vgpud says what there is while nothing changes
INTERVAL_MS = 60_000
POD_UNKNOWN = "claim.pod_unknown"
#: how Device.taken_by begins for a device that has gone
_LOST = "lost: "
_PCI = Path("/sys/bus/pci/devices")


class NodeDaemon:
    """The calls that the driver makes, and the two streams. None of them raises. wait_s: for a call, in which a vgpud
    that is restarted may come back."""

    def __init__(self, channel: grpc.aio.Channel, wait_s: float) -> None:
        self._wait_s = wait_s
        self._node = stubs.NodeServiceStub(channel)
        self._slices = stubs.SliceServiceStub(channel)
        self._claims = stubs.ClaimServiceStub(channel)
        self._events = stubs.EventServiceStub(channel)

    async def make_slice(self, requested_claim: Asked) -> SliceMade:
        claim = pb.Claim(uid=requested_claim.uid, namespace=requested_claim.namespace, name=requested_claim.name)
        claim.pod_uids.extend(requested_claim.pods)
        claim.pod_names.extend(requested_claim.pod_names)
        claim.device_ids.extend(requested_claim.device_ids)
        for one in requested_claim.granted:
            claim.granted.add(
                device_uuid=one.uuid,
                min_milli=one.min_milli,
                max_milli=one.max_milli,
                mem_min_bytes=one.mem_min_bytes,
                mem_max_bytes=one.mem_max_bytes,
            )
        words = requested_claim.words
        request = pb.PrepareClaimRequest(
            claim=claim,
            service_class=SERVICE_CLASS.to_number(words.service_class),
            weight=words.weight,
            priority=words.priority,
            tolerates_drain=requested_claim.tolerates_drain,
        )
        try:
            answer = await call_with_retry(self._claims.PrepareClaim, request, self._wait_s)
        except grpc.aio.AioRpcError as error:
            full = error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            text = describe_error(error)
            return SliceMade(requested_claim.uid, error=text, full=full, absent=text == _ABSENT)
        return SliceMade(requested_claim.uid, answer.slice.name, _granted(answer.slice.devices))

    async def end_slice(self, uid: str) -> SliceEnded:
        try:
            await call_with_retry(self._claims.UnprepareClaim, pb.UnprepareClaimRequest(claim_uid=uid), self._wait_s)
        except grpc.aio.AioRpcError as error:
            return SliceEnded(uid, error=describe_error(error))
        return SliceEnded(uid)

    async def report_publication(self, publication: Publication) -> PublicationReported:
        request = pb.ReportPublicationRequest(publication=publication_message(publication))
        try:
            await self._claims.ReportPublication(request, timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            return PublicationReported(describe_error(error))
        return PublicationReported()

    async def watch(self, post: Callable[[NodeSeen | NodeLost], None]) -> None:
        """Reports devices and claims, now and after each change, for ever."""
        answered = True
        while True:
            try:
                node = (await self._node.GetNode(pb.GetNodeRequest(), timeout=CALL_S)).node
                async for answer in self._slices.WatchSlices(pb.WatchSlicesRequest(interval_ms=INTERVAL_MS)):
                    if not answered:
                        log.info("vgpud answers again")
                    answered = True
                    post(node_seen(answer, node.driver_version))
            except grpc.aio.AioRpcError as error:
                if answered:
                    log.warning("vgpud cannot be watched, which is tried again: %s", describe_error(error))
                answered = False
            post(NodeLost())
            await asyncio.sleep(AGAIN_S)

    async def watch_pods(self, unknown: Callable[[PodUnknown], None]) -> None:
        """Reports containers of pods for which a claim was reserved after it had been prepared, for ever. A vgpud that
        was started again may count its events from the beginning, so all that it keeps are read: an old one costs a
        look at a claim.
        """
        while True:
            try:
                async for answer in self._events.WatchEvents(pb.WatchEventsRequest()):
                    if answer.event.kind == POD_UNKNOWN:
                        unknown(PodUnknown(answer.event.slice))
            except grpc.aio.AioRpcError:
                pass  # watch() says it
            await asyncio.sleep(AGAIN_S)


async def call_with_retry(call: Any, request: Any, wait_s: float) -> Any:
    """An idempotent call, made again when vgpud ends during it and is started again. Raises AioRpcError."""
    until_s = time.monotonic() + wait_s
    while True:
        left_s = max(0.1, until_s - time.monotonic())
        try:
            return await call(request, timeout=left_s, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if is_own(error) or time.monotonic() >= until_s:
                raise
            await asyncio.sleep(0.1)


def is_own(error: grpc.aio.AioRpcError) -> bool:
    """Whether vgpud itself has said it, and not its absence."""
    return error.code() is not grpc.StatusCode.UNAVAILABLE or bool(error.trailing_metadata())


def describe_error(error: grpc.aio.AioRpcError) -> str:
    """vgpud's own sentence, or that there is no answer."""
    text = error.details() or error.code().name
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return _ABSENT
    return text if is_own(error) else _ABSENT


_ABSENT = "vgpud on this node does not answer: see `vgpu doctor` there"


def node_seen(answer: pb.WatchSlicesResponse, driver_version: str = "") -> NodeSeen:
    """The devices, and the slices of claims. A device given to Kubernetes while other slices had parts of it is taken
    until they end: the scheduler does not know of them. driver_version: of NVIDIA's driver."""
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
            tuple(one.claim.device_ids),
            bool(one.containers),
            tuple(one.claim.pod_names),
        )
        for one in answer.slices
        if one.HasField("claim")
    )
    gpus = tuple(_gpu(device, others.get(device.uuid, ()), driver_version) for device in answer.devices)
    return NodeSeen(gpus, claims)


def publication_message(publication: Publication) -> pb.Publication:
    made = pb.Publication(
        pool=publication.pool,
        generation=publication.generation,
        problem=publication.problem,
        resource=publication.resource,
    )
    for device in publication.devices:
        added = made.devices.add(name=device.name, device_uuid=device.uuid, shareable=device.is_shareable)
        for one in device.capacities:
            added.capacities.add(
                name=one.name,
                value=one.value,
                default_value=one.default_value,
                min_value=one.min_value,
                max_value=one.max_value,
                step_value=one.step_value,
            )
    return made


def _granted(shares: Iterable[pb.SliceDevice] | Iterable[pb.ClaimShare]) -> tuple[Granted, ...]:
    return tuple(Granted(s.device_uuid, s.min_milli, s.max_milli, s.mem_min_bytes, s.mem_max_bytes) for s in shares)


def _gpu(device: pb.Device, slices: Sequence[str], driver_version: str) -> Gpu:
    taken = device.taken_by if not device.offered else ""
    is_lost = taken.startswith(_LOST)
    if slices and device.kubernetes:
        taken = taken or f"slice {slices[0]}" + (f" and {len(slices) - 1} more" if len(slices) > 1 else "")
    fault = device.drained if device.drained_by_fault else taken if is_lost else ""
    bus_id = _sysfs_name(device.pci_bus_id)
    return Gpu(
        uuid=device.uuid,
        index=device.index,
        product=device.name,
        memory_bytes=device.mem_total_bytes - device.mem_total_bytes % memory_unit_bytes(device.granule_bytes),
        granule_bytes=device.granule_bytes,
        context_bytes=device.context_bytes,
        is_simulated=device.simulated,
        compute_capability=device.compute_capability,
        pci_root=_pci_root(bus_id),
        numa_node=_numa_node(bus_id),
        driver_version=driver_version,
        parent_uuid=device.parent_uuid,
        profile=device.profile,
        nvlink_group=device.nvlink_group if device.HasField("nvlink_group") else None,
        drained=device.drained,
        fault=fault,
        taken_by="" if device.drained or is_lost else taken,
        is_for_kubernetes=device.kubernetes,
    )


def _sysfs_name(bus_id: str) -> str:
    """The kernel's name of a PCI device: its domain has four digits where NVML has eight."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _pci_root(bus_id: str) -> str:
    """The PCI root complex of a device ("pci0000:00"), "" when the kernel does not know the device."""
    try:
        parts = (_PCI / bus_id).resolve(strict=True).parts
    except OSError:
        return ""
    return next((part for part in parts if part.startswith("pci")), "")


def _numa_node(bus_id: str) -> int | None:
    """None where the kernel does not know the device, or the machine has no such nodes (-1)."""
    try:
        number = int((_PCI / bus_id / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None
