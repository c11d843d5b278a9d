"""What a scrape of the metrics shows, put together from the state and the shells' readings. No decisions, no IO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import takewhile

from vgpud.core.model import Device, Share, Slice, State
from vgpud.core.observed import DeviceSample, QueueSample, Reading, SliceSample, SliceStats, Snapshot, Standing
from vgpud.core.units import MILLI_PER_DEVICE


def take_snapshot(
    state: State,
    node: str,
    version: str,
    readings: Mapping[str, Reading],
    stats: Callable[[int, str], SliceStats],
    standing: Callable[[str], Standing],
    queues: tuple[QueueSample, ...] = (),
) -> Snapshot:
    """Everything at one moment. `stats`: of a slice (its serial number) on a device; `standing`: of its arbiter."""
    nothing = Reading(None, None)
    devices = [_device(d, readings.get(d.uuid, nothing), state, standing(d.uuid)) for d in state.devices.values()]
    names: dict[str, set[str]] = {}
    for one in state.containers.values():
        names.setdefault(one.slice_name, set()).add(one.engine_name.rpartition("/")[2])
    slices = [
        _slice(made, labels, share, state.devices.get(share.device_uuid), stats(made.serial, share.device_uuid))
        for made, labels in ((made, _pod_labels(made, names.get(made.name, ()))) for made in state.slices.values())
        for share in made.shares
    ]
    clients = sum(not p.holder for p in state.processes.values())
    containers = Counter(c.slice_name for c in state.containers.values())
    counted = tuple(containers.items())
    return Snapshot(node, version, tuple(devices), tuple(slices), len(state.slices), clients, counted, queues)


def _device(device: Device, reading: Reading, state: State, arbiter: Standing) -> DeviceSample:
    return DeviceSample(
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        is_simulated=device.is_simulated,
        memory_total_bytes=device.memory_bytes,
        memory_used_bytes=reading.used_bytes,
        utilization_ratio=reading.utilization_ratio,
        allocated_gpus=state.reserved(device.uuid)[0] / MILLI_PER_DEVICE,
        arbiter=arbiter,
        health=reading,
    )


def _pod_labels(slice_: Slice, containers: Collection[str]) -> tuple[str, ...]:
    """(namespace, pod, container) of a claim's slice, as far as each is the only one. containers: names of those that
    use it now; "" for one that has none."""
    namespace, pod = slice_.origin.name_pod()
    container = next(iter(containers)) if pod and len(containers) == 1 else ""
    return tuple(takewhile(bool, (namespace, pod, container)))


def _slice(
    slice_: Slice, pod_labels: tuple[str, ...], share: Share, device: Device | None, now: SliceStats
) -> SliceSample:
    return SliceSample(
        slice_name=slice_.name,
        uuid=share.device_uuid,
        index=device.index if device else -1,
        min_gpus=share.min_milli / MILLI_PER_DEVICE,
        max_gpus=share.max_milli / MILLI_PER_DEVICE,
        memory_limit_bytes=share.mem_max_bytes,
        now=now,
        owner_uid=slice_.owner_uid,
        is_resident=not slice_.residency,
        queue=slice_.queue,
        service_class=slice_.spec.service_class,
        pod_labels=pod_labels,
    )
