"""What a scrape of the metrics shows, put together from the state and the shells' readings. No decisions, no IO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

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
    slices = [
        _slice(made, share, state.devices.get(share.device_uuid), stats(made.serial, share.device_uuid))
        for made in state.slices.values()
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
        simulated=device.simulated,
        memory_total_bytes=device.memory_bytes,
        memory_used_bytes=reading.used_bytes,
        utilization_ratio=reading.utilization_ratio,
        allocated_gpus=state.reserved(device.uuid)[0] / MILLI_PER_DEVICE,
        arbiter=arbiter,
        health=reading,
    )


def _slice(made: Slice, share: Share, device: Device | None, now: SliceStats) -> SliceSample:
    return SliceSample(
        slice_name=made.name,
        uuid=share.device_uuid,
        index=device.index if device else -1,
        min_gpus=share.min_milli / MILLI_PER_DEVICE,
        max_gpus=share.max_milli / MILLI_PER_DEVICE,
        memory_limit_bytes=share.mem_max_bytes,
        now=now,
        owner_uid=made.owner_uid,
        queue=made.queue,
        service_class=made.spec.service_class,
    )
