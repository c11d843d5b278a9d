"""How the core's values look in the gRPC API, and back: conversions only, no decisions."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.core.model import BATCH, Container, Device, Process, Share, Slice, Spec, State
from vgpud.core.observed import ADMINS, Entry, ProcessStats, Reading, Reclaim, SliceStats, Standing, TraceEvent
from vgpud.core.origins import Allocation, Claim, KubernetesOrigin
from vgpud.core.slices.rotation import RotationStats
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

T = TypeVar("T")

PAGE_SIZE_MAX = 1000
_NS = 1_000_000_000
#: kind of our CDI devices
CDI_KIND = "vgpu.dev/gpu"


def timestamp(wall_ns: int) -> Timestamp:
    return Timestamp(seconds=wall_ns // _NS, nanos=wall_ns % _NS)


def spec_from(message: pb.SliceSpec) -> Spec:
    """The core's spec; unset optional fields are None."""

    def read_optional(name: str) -> int | None:
        return int(getattr(message, name)) if message.HasField(name) else None

    return Spec(
        gpus_milli=message.gpus_milli,
        min_milli=read_optional("min_milli"),
        max_milli=read_optional("max_milli"),
        mem_min_bytes=read_optional("mem_min_bytes"),
        mem_max_bytes=read_optional("mem_max_bytes"),
        weight=message.weight,
        priority=message.priority,
        device_uuids=tuple(message.device_uuids),
        service_class=words.SERVICE_CLASS.to_word(message.service_class) or BATCH,
        spread=message.spread,
        mem_swap=message.mem_swap,
        idle_after_ns=read_optional("idle_after_ns"),
        copy_min_milli=message.copy_min_milli,
        copy_max_milli=message.copy_max_milli,
    )


def spec_view(spec: Spec) -> pb.SliceSpec:
    return pb.SliceSpec(
        gpus_milli=spec.gpus_milli,
        min_milli=spec.min_milli,
        max_milli=spec.max_milli,
        mem_min_bytes=spec.mem_min_bytes,
        mem_max_bytes=spec.mem_max_bytes,
        weight=spec.weight,
        priority=spec.priority,
        device_uuids=spec.device_uuids,
        service_class=words.SERVICE_CLASS.to_number(spec.service_class),
        spread=spec.spread,
        mem_swap=spec.mem_swap,
        idle_after_ns=spec.idle_after_ns,
        copy_min_milli=spec.copy_min_milli,
        copy_max_milli=spec.copy_max_milli,
    )


def container_view(container: Container, node: str) -> pb.Container:
    """A container; one that has not started yet has no pid of its own."""
    return pb.Container(
        node=node,
        id=container.container_id,
        pid=container.pid if container.started else None,
        cgroup=container.cgroup,
        create_time=timestamp(container.created_wall_ns),
        name=container.engine_name,
    )


def claim_from(claim: pb.Claim, boot_id: str) -> KubernetesOrigin:
    """A claim, or an allocation, as the DRA driver brings it; pods and shares are put into their order."""
    granted = [Share(s.device_uuid, s.min_milli, s.max_milli, s.mem_min_bytes, s.mem_max_bytes) for s in claim.granted]
    shares = tuple(sorted(granted, key=lambda share: share.device_uuid))
    pods, ids = tuple(sorted(set(claim.pod_uids))), tuple(sorted(set(claim.device_ids)))
    names = tuple(sorted(set(claim.pod_names)))
    its = (claim.uid, claim.namespace, claim.name, pods, shares, boot_id)
    return Allocation(*its, ids, pod_names=names) if ids else Claim(*its, pod_names=names)


def _claim_view(claim: KubernetesOrigin) -> pb.Claim:
    view = pb.Claim(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        pod_uids=claim.pods,
        boot_id=claim.boot_id,
        device_ids=claim.device_ids if isinstance(claim, Allocation) else (),
        pod_names=claim.pod_names,
    )
    for share in claim.granted:
        view.granted.add(
            device_uuid=share.device_uuid,
            min_milli=share.min_milli,
            max_milli=share.max_milli,
            mem_min_bytes=share.mem_min_bytes,
            mem_max_bytes=share.mem_max_bytes,
        )
    return view


def slice_view(
    slice_: Slice,
    node: str,
    indexes: dict[str, int],
    counters: Sequence[SliceStats],
    socket: str,
    processes: int,
    containers: Sequence[Container] = (),
    job_name: str = "",
    rotation: RotationStats | None = None,
) -> pb.Slice:
    """A slice with what it got so far; `counters` in the order of its shares."""
    view = pb.Slice(
        node=node,
        name=slice_.name,
        uid=slice_.uid,
        spec=spec_view(slice_.spec),
        ephemeral=slice_.origin.ephemeral,
        owner_uid=_owner_or_none(slice_.owner_uid),
        attach_socket=socket,
        processes=processes,
        create_time=timestamp(slice_.created_wall_ns),
        revision=slice_.revision,
        containers=[container_view(c, node) for c in containers],
        cdi_device=f"{CDI_KIND}={slice_.name}" if slice_.origin.cdi_device else "",
        queue=slice_.queue,
        job_id=slice_.origin.queue_job_id or None,
        job_name=job_name,
        suspended=words.SUSPENSION.to_number(slice_.suspended),
        claim=_claim_view(slice_.origin) if isinstance(slice_.origin, KubernetesOrigin) else None,
        residency=words.RESIDENCY.to_number(slice_.residency),
        asleep_time=timestamp(slice_.asleep_wall_ns) if slice_.asleep_wall_ns else None,
        rotation=_rotation_view(rotation) if rotation else None,
        away_time=timestamp(slice_.away_wall_ns) if slice_.away_wall_ns else None,
    )
    for share, now in zip(slice_.shares, counters, strict=True):
        view.devices.add(
            node=node,
            device_uuid=share.device_uuid,
            device_index=indexes.get(share.device_uuid, 0),
            min_milli=share.min_milli,
            max_milli=share.max_milli,
            mem_min_bytes=share.mem_min_bytes,
            mem_max_bytes=share.mem_max_bytes,
            mem_used_bytes=now.mem_used_bytes,
            mem_peak_bytes=now.mem_peak_bytes,
            share_ratio=now.share_ratio,
            charged_ns=now.charged_ns,
            throttled_ns=now.throttled_ns,
            grants=now.grants,
            overruns=now.overruns,
            gate=words.GATE.to_number(now.gate),
            regime=words.REGIME.to_number(now.regime),
            entitlement_milli=now.entitlement_milli,
            share_10s_ratio=now.share_10s_ratio,
            share_60s_ratio=now.share_60s_ratio,
            lag_ns=now.lag_ns,
            borrowed_ns=now.borrowed_ns,
            early_releases=now.early_releases,
            drains=now.drains,
            drain_total_ns=now.drain_total_ns,
            drain_max_ns=now.drain_max_ns,
            wait_counts=now.wait_counts,
            launches=now.launches,
            mem_denied=now.mem_denied,
            mem_unattributed_bytes=now.mem_unattributed_bytes,
            copy_to_device_bytes=now.copy_to_device_bytes,
            copy_from_device_bytes=now.copy_from_device_bytes,
            copy_to_device_bytes_per_s=now.copy_to_device_bytes_per_s,
            copy_from_device_bytes_per_s=now.copy_from_device_bytes_per_s,
            copy_to_device_ns=now.copy_to_device_ns,
            copy_from_device_ns=now.copy_from_device_ns,
            pinned_bytes=now.pinned_bytes,
            pinned_denied=now.pinned_denied,
            reclaim=_reclaim_view(now.reclaim),
        )
    return view


def _rotation_view(now: RotationStats) -> pb.Rotation:
    return pb.Rotation(
        claims_bytes=now.cost.claims_bytes,
        capacity_bytes=now.cost.capacity_bytes,
        quantum_ns=now.cost.quantum_ns,
        lost_ratio=now.cost.lost_ratio,
        host_bytes=now.cost.host_bytes,
        bytes_per_second=now.bytes_per_s,
        moves=now.moves,
        moved_bytes=now.moved_bytes,
        moved_by=now.moved_by,
        stays_bytes=now.stays_bytes,
        waiting_calls=now.waiting_calls,
    )


def _reclaim_view(now: Reclaim) -> pb.MemoryReclaim | None:
    if now.remaining_bytes:
        spent_ns = time.monotonic_ns() - now.begin_ns
        return pb.MemoryReclaim(
            asked_bytes=now.asked_bytes, remaining_bytes=now.remaining_bytes, duration_ns=max(0, spent_ns)
        )
    if not now.end_count:
        return None
    return pb.MemoryReclaim(
        asked_bytes=now.last_asked_bytes,
        returned_bytes=now.last_returned_bytes,
        duration_ns=now.last_took_ns,
        late=now.was_late,
    )


def trace_event_view(event: TraceEvent, indexes: Mapping[str, int], names: Mapping[int, str]) -> pb.TraceEvent:
    """indexes: of the devices by UUID; names: of the slices by serial number."""
    return pb.TraceEvent(
        time_ns=event.time_ns,
        device_index=indexes[event.device_uuid],
        slice=names.get(event.serial, ""),
        kind=words.TRACE_EVENT_KIND.to_number(event.kind),
        value=event.value,
        text=event.text,
        lost=event.lost_count,
    )


def device_view(device: Device, node: str, state: State, now: Reading) -> pb.Device:
    """A device with the sums of its slices' minima (milli, bytes) and NVML's reading (0 or absent: it has none)."""
    reserved, drain, taken = (
        state.reserved(device.uuid),
        state.drains.get(device.uuid),
        state.taken_devices.get(device.uuid),
    )
    given = state.of_kubernetes(device.uuid)
    return pb.Device(
        node=node,
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        pci_bus_id=device.pci_bus_id,
        mem_total_bytes=device.memory_bytes,
        mem_used_bytes=now.used_bytes or 0,
        mem_reserved_bytes=reserved[1],
        reserved_milli=reserved[0],
        sm_count=device.sm_count,
        simulated=device.is_simulated,
        context_bytes=device.context_bytes,
        granule_bytes=device.granule_bytes,
        compute_capability=device.compute_capability,
        nvlink_group=device.nvlink_group,
        parent_uuid=device.parent_uuid,
        profile=device.profile,
        link_bytes_per_s=device.link_bytes_per_s,
        utilization_ratio=now.utilization_ratio,
        drained=drain.reason if drain else "",
        drained_by_fault=bool(drain and drain.by_fault),
        taken_by=taken.why if taken else "",
        offered=not state.closed(device.uuid, claim=given),
        kubernetes=given,
        temperature_celsius=now.temperature_celsius,
        power_milliwatts=now.power_milliwatts,
        power_limit_milliwatts=now.power_limit_milliwatts,
        xids=sum(count for _, count in now.xids),
        last_xid=now.xids[-1][0] if now.xids else None,
    )


def arbiter_view(device_uuid: str, now: Standing) -> pb.ArbiterThread:
    return pb.ArbiterThread(
        device_uuid=device_uuid,
        scheduling=words.SCHEDULING.to_number(now.scheduling),
        locked_bytes=now.locked_bytes,
        unlocked_bytes=now.unlocked_bytes,
        late=now.late,
        late_max_ns=now.late_max_ns,
        steps_down=now.steps_down,
    )


def process_view(
    process: Process,
    container: Container | None,
    node: str,
    indexes: dict[str, int],
    counters: dict[str, ProcessStats],
) -> pb.Process:
    """A process with its container, if it is in one, and its counters by device UUID."""
    view = pb.Process(
        node=node,
        slice=process.slice_name,
        process_id=process.process_id,
        pid=process.pid,
        uid=process.uid,
        program=process.program,
        attach_time=timestamp(process.attached_wall_ns),
        resumed=process.is_resumed,
        container=process.container_id,
        container_name=container.engine_name if container else "",
    )
    for uuid, now in counters.items():
        view.devices.add(
            node=node,
            device_uuid=uuid,
            device_index=indexes.get(uuid, 0),
            mem_used_bytes=now.mem_used_bytes,
            mem_peak_bytes=now.mem_peak_bytes,
            mem_held_bytes=now.mem_held_bytes,
            launches=now.launches,
            throttled_ns=now.throttled_ns,
            denied=now.mem_denied,
            mem_unattributed_bytes=now.mem_unattributed_bytes,
        )
    return view


def _owner_or_none(owner_uid: int) -> int | None:
    """None of what belongs to no single user (ANYONE, ADMINS)."""
    return owner_uid if owner_uid >= 0 else None


def event_view(entry: Entry, node: str) -> pb.Event:
    return pb.Event(
        node=node,
        sequence=entry.sequence,
        create_time=timestamp(entry.wall_ns),
        kind=entry.kind,
        slice=entry.slice_name,
        device_uuid=entry.device_uuid,
        process_id=entry.process_id or None,
        message=entry.message,
        owner_uid=_owner_or_none(entry.owner_uid),
        admins_only=entry.owner_uid == ADMINS,
    )


def page(keyed_items: Sequence[tuple[str, T]], size: int, token: str) -> tuple[list[T], str]:
    """A page of items sorted by key, and the token of the next one. Raises ValueError for an invalid token.

    The token holds the last key that was shown, so pages stay consistent while items are added and removed.
    """
    wanted, after = page_of(size, token)
    ordered = sorted((item for item in keyed_items if not token or item[0] > after), key=lambda item: item[0])
    shown = ordered[:wanted]
    more = len(ordered) > wanted
    return [value for _, value in shown], page_token(shown[-1][0]) if more else ""


def page_of(size: int, token: str) -> tuple[int, str]:
    """How many items a page has, and after which key. Raises ValueError for a token that is not ours."""
    try:
        after = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise ValueError(f"page_token {token!r} is not one of ours: begin again without it") from error
    return min(size or PAGE_SIZE_MAX, PAGE_SIZE_MAX), after


def page_token(key: str) -> str:
    """The token of the page after this key."""
    return base64.urlsafe_b64encode(key.encode()).decode()
