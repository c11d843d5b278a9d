"""The API's messages as plain dictionaries: the stable field names of `-o json` and `-o yaml`.

Integers for bytes, milli-GPU and nanoseconds (units in the names), ratios 0..1 as numbers, times RFC 3339. Fields are
added, never renamed, within one SCHEMA_VERSION.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.core.observed import wait_ends_ns
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view.user_names import find_user_name

View = dict[str, Any]


def _time(stamp: Timestamp) -> str | None:
    return stamp.ToJsonString() if stamp.seconds or stamp.nanos else None


def find_owner_uid(item: pb.Slice | pb.Event) -> int | None:
    """None of what belongs to no single user."""
    return item.owner_uid if item.HasField("owner_uid") else None


def node_view(node: pb.Node) -> View:
    return {
        "node": node.name,
        "version": node.version,
        "driver_version": node.driver_version,
        "abi_version": node.abi_version,
        "simulated": node.simulated,
        "mode": words.TENANT_MODE.to_word(node.mode),
        "start_time": _time(node.start_time),
        "runtime_dir": node.runtime_dir,
        "runtime_socket": node.runtime_socket,
        "cdi_dir": node.cdi_dir or None,
    }


def device_view(device: pb.Device) -> View:
    return {
        "node": device.node,
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "simulated": device.simulated,
        "pci_bus_id": device.pci_bus_id,
        "sm_count": device.sm_count,
        "reserved_milli": device.reserved_milli,
        "utilization_ratio": round(device.utilization_ratio, 4) if device.HasField("utilization_ratio") else None,
        "mem_total_bytes": device.mem_total_bytes,
        "mem_used_bytes": device.mem_used_bytes,
        "mem_reserved_bytes": device.mem_reserved_bytes,
        "context_bytes": device.context_bytes,
        "granule_bytes": device.granule_bytes,
        "drained": device.drained,
        "drained_by_fault": device.drained_by_fault,
        "taken_by": device.taken_by,
        "offered": device.offered,
        "kubernetes": device.kubernetes,
        "temperature_celsius": device.temperature_celsius if device.HasField("temperature_celsius") else None,
        "power_milliwatts": device.power_milliwatts if device.HasField("power_milliwatts") else None,
        "power_limit_milliwatts": device.power_limit_milliwatts if device.HasField("power_limit_milliwatts") else None,
        "xids": device.xids,
        "last_xid": device.last_xid if device.HasField("last_xid") else None,
        "parent_uuid": device.parent_uuid or None,
        "profile": device.profile or None,
        "link_bytes_per_s": device.link_bytes_per_s or None,
        "nvlink_group": device.nvlink_group if device.HasField("nvlink_group") else None,
    }


def _reclaim_view(reclaim: pb.MemoryReclaim) -> View:
    return {
        "asked_bytes": reclaim.asked_bytes,
        "remaining_bytes": reclaim.remaining_bytes,
        "returned_bytes": reclaim.returned_bytes,
        "duration_ns": reclaim.duration_ns,
        "late": reclaim.late,
    }


def slice_device_view(device: pb.SliceDevice, is_simulated: bool) -> View:
    return {
        "node": device.node,
        "device_index": device.device_index,
        "device_uuid": device.device_uuid,
        "simulated": is_simulated,
        "min_milli": device.min_milli,
        "max_milli": device.max_milli,
        "mem_min_bytes": device.mem_min_bytes,
        "mem_max_bytes": device.mem_max_bytes,
        "mem_used_bytes": device.mem_used_bytes,
        "mem_unattributed_bytes": device.mem_unattributed_bytes,
        "mem_over_limit_bytes": max(0, device.mem_used_bytes - device.mem_max_bytes),
        "mem_peak_bytes": device.mem_peak_bytes,
        "mem_denied": device.mem_denied,
        "reclaim": _reclaim_view(device.reclaim) if device.HasField("reclaim") else None,
        "entitlement_milli": device.entitlement_milli,
        "share_ratio": round(device.share_ratio, 4),
        "share_10s_ratio": round(device.share_10s_ratio, 4),
        "share_60s_ratio": round(device.share_60s_ratio, 4),
        "lag_ns": device.lag_ns,
        "charged_ns": device.charged_ns,
        "borrowed_ns": device.borrowed_ns,
        "throttled_ns": device.throttled_ns,
        "wait_counts": list(device.wait_counts),
        "wait_below_ns": list(wait_ends_ns()),
        "launches": device.launches,
        "grants": device.grants,
        "early_releases": device.early_releases,
        "overruns": device.overruns,
        "drains": device.drains,
        "drain_total_ns": device.drain_total_ns,
        "drain_max_ns": device.drain_max_ns,
        "copy_to_device_bytes": device.copy_to_device_bytes,
        "copy_from_device_bytes": device.copy_from_device_bytes,
        "copy_to_device_bytes_per_s": device.copy_to_device_bytes_per_s,
        "copy_from_device_bytes_per_s": device.copy_from_device_bytes_per_s,
        "copy_to_device_ns": device.copy_to_device_ns if device.HasField("copy_to_device_ns") else None,
        "copy_from_device_ns": device.copy_from_device_ns if device.HasField("copy_from_device_ns") else None,
        "pinned_bytes": device.pinned_bytes,
        "pinned_denied": device.pinned_denied,
        "gate": words.GATE.to_word(device.gate) or None,
        "regime": words.REGIME.to_word(device.regime) or None,
    }


def container_view(container: pb.Container) -> View:
    return {
        "node": container.node,
        "id": container.id,
        "name": container.name or None,
        "pid": container.pid if container.HasField("pid") else None,
        "cgroup": container.cgroup or None,
        "create_time": _time(container.create_time),
    }


def claim_view(claim: pb.Claim) -> View:
    """The ResourceClaim of Kubernetes that a slice is for. pods: the uids of those that may use it."""
    return {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid, "pods": list(claim.pod_uids)}


def rotation_view(now: pb.Rotation) -> View:
    """What it costs that slices of a device take turns, and how often this one was moved."""
    return {
        "claims_bytes": now.claims_bytes,
        "capacity_bytes": now.capacity_bytes,
        "quantum_ns": now.quantum_ns,
        "lost_ratio": round(now.lost_ratio, 4),
        "host_bytes": now.host_bytes,
        "bytes_per_second": now.bytes_per_second,
        "moves": now.moves,
        "moved_bytes": now.moved_bytes,
        "moved_by": now.moved_by,
        "stays_bytes": now.stays_bytes,
        "waiting_calls": now.waiting_calls,
    }


def slice_view(item: pb.Slice, simulated_device_uuids: frozenset[str]) -> View:
    """simulated_device_uuids: of the simulated devices."""
    return {
        "node": item.node,
        "name": item.name,
        "uid": item.uid,
        "ephemeral": item.ephemeral,
        "owner_uid": find_owner_uid(item),
        "owner": find_user_name(find_owner_uid(item)),
        "gpus_milli": item.spec.gpus_milli,
        "weight": item.spec.weight,
        "copy_min_milli": item.spec.copy_min_milli,
        "copy_max_milli": item.spec.copy_max_milli,
        "priority": item.spec.priority,
        "class": words.SERVICE_CLASS.to_word(item.spec.service_class) or "batch",
        "processes": item.processes,
        "attach_socket": item.attach_socket,
        "create_time": _time(item.create_time),
        "revision": item.revision,
        "cdi_device": item.cdi_device or None,
        "queue": item.queue,
        "job_id": item.job_id if item.HasField("job_id") else None,
        "job_name": item.job_name or None,
        "suspended": words.SUSPENSION.to_word(item.suspended) or None,
        "mem_swap": item.spec.mem_swap,
        "idle_after_ns": item.spec.idle_after_ns,
        "residency": words.RESIDENCY.to_word(item.residency) or None,
        "asleep_time": _time(item.asleep_time) if item.HasField("asleep_time") else None,
        "away_time": _time(item.away_time) if item.HasField("away_time") else None,
        "rotation": rotation_view(item.rotation) if item.HasField("rotation") else None,
        "claim": claim_view(item.claim) if item.HasField("claim") else None,
        "containers": [container_view(c) for c in item.containers],
        "devices": [slice_device_view(d, d.device_uuid in simulated_device_uuids) for d in item.devices],
    }


def process_view(process: pb.Process, simulated_device_uuids: frozenset[str]) -> View:
    """simulated_device_uuids: of the simulated devices."""
    return {
        "node": process.node,
        "slice": process.slice,
        "pid": process.pid,
        "uid": process.uid,
        "user": find_user_name(process.uid),
        "program": process.program,
        "process_id": process.process_id,
        "attach_time": _time(process.attach_time),
        "resumed": process.resumed,
        "container": process.container or None,
        "container_name": process.container_name or None,
        "devices": [
            {
                "node": d.node,
                "device_index": d.device_index,
                "device_uuid": d.device_uuid,
                "simulated": d.device_uuid in simulated_device_uuids,
                "mem_used_bytes": d.mem_used_bytes,
                "mem_unattributed_bytes": d.mem_unattributed_bytes,
                "mem_peak_bytes": d.mem_peak_bytes,
                "mem_held_bytes": d.mem_held_bytes,
                "launches": d.launches,
                "throttled_ns": d.throttled_ns,
                "denied": d.denied,
            }
            for d in process.devices
        ],
    }


#: of a slice that is away because it was idle, and of one that is away while its programs wait for its memory
ASLEEP, WAITING = "asleep", "waiting"


def describe_absence(item: View) -> str:
    """Why the gates of a slice are closed whatever others do, one word; "" = they are not."""
    if item["suspended"]:
        return str(item["suspended"])
    if item["residency"] != "away":
        return item["residency"] or ""
    if item["rotation"] and item["rotation"]["waiting_calls"]:
        return WAITING
    return ASLEEP if item["asleep_time"] else "away"


def is_on_host(item: View) -> bool:
    """Whether the memory of a slice is not on its device."""
    return bool(item["residency"] == "away" or item["suspended"] == "evicted")


def _absence_view(item: pb.Slice) -> View:
    """What the two above read."""
    return {
        "suspended": words.SUSPENSION.to_word(item.suspended),
        "residency": words.RESIDENCY.to_word(item.residency),
        "asleep_time": item.HasField("asleep_time"),
        "rotation": rotation_view(item.rotation),
    }


def find_absence(item: pb.Slice) -> str:
    """As describe_absence()."""
    return describe_absence(_absence_view(item))


def find_is_on_host(item: pb.Slice) -> bool:
    """As is_on_host()."""
    return is_on_host(_absence_view(item))


def event_view(event: pb.Event) -> View:
    return {
        "node": event.node,
        "sequence": event.sequence,
        "create_time": _time(event.create_time),
        "kind": event.kind,
        "slice": event.slice or None,
        "device_uuid": event.device_uuid or None,
        "process_id": event.process_id if event.HasField("process_id") else None,
        "owner_uid": find_owner_uid(event),
        "owner": find_user_name(find_owner_uid(event)),
        "message": event.message,
    }


def simulated_uuids(devices: list[pb.Device]) -> frozenset[str]:
    return frozenset(d.uuid for d in devices if d.simulated)
