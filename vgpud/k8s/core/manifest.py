"""A ResourceClaim (or template) for what `vgpu run` calls 0.5 or 2.5 GPUs.

"Half of the SM time and half of the memory" cannot be said in Kubernetes: the two capacities are independent, and the
memory of a request without any is the whole device's. So both are filled in here, for GPUs of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vgpud.core.model import BATCH, LATENCY
from vgpud.core.slices.admission import split
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.k8s.core.names import API, CONFIG_API, CONFIG_KIND, DRIVER, MEMORY, MEMORY_MAX, SM, SM_MAX
from vgpud.k8s.core.quantities import format_memory

#: DeviceClass of each service class, as the chart makes them
DEVICE_CLASS = {BATCH: "vgpu", LATENCY: "vgpu-latency"}


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """min_milli, max_milli and memory are totals over the devices; memory None = the same part of each device."""

    pieces: Sequence[int]  # milli-GPU per device, biggest first
    max_milli: int
    mem_min_bytes: int
    mem_max_bytes: int
    service_class: str = BATCH
    weight: int = 0
    priority: int = 0


def claim_object(request: ClaimRequest, name: str, template: bool) -> dict[str, Any]:
    """The object, to be written as YAML. Devices with equal amounts are one request."""
    spec: dict[str, Any] = {"devices": _devices(request)}
    if template:
        return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": {"spec": spec}}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def _devices(request: ClaimRequest) -> dict[str, Any]:
    pieces = request.pieces
    tops = split(request.max_milli, pieces, [MILLI_PER_DEVICE] * len(pieces))
    lows = split(request.mem_min_bytes, pieces, [request.mem_min_bytes] * len(pieces))
    highs = split(request.mem_max_bytes, pieces, [request.mem_max_bytes] * len(pieces))
    alike: dict[tuple[int, int], tuple[int, int, int]] = {}  # (milli, maximum) -> (count, memory, its maximum)
    for milli, top, low, high in zip(pieces, tops, lows, highs, strict=True):
        count, had_low, had_high = alike.get((milli, top), (0, low, high))
        alike[milli, top] = (count + 1, min(had_low, low), min(had_high, high))
    requests: list[dict[str, Any]] = []
    for (milli, top), (count, low, high) in alike.items():
        amounts = {SM: str(milli), MEMORY: format_memory(low)}
        amounts |= {SM_MAX: str(top)} if top > milli else {}
        amounts |= {MEMORY_MAX: format_memory(high)} if high > low else {}
        exactly: dict[str, Any] = {"deviceClassName": DEVICE_CLASS[request.service_class], "count": count}
        exactly["capacity"] = {"requests": amounts}
        requests.append({"name": "gpu" if len(alike) == 1 else f"gpu-{len(requests)}", "exactly": exactly})
    made: dict[str, Any] = {"requests": requests}
    if len(pieces) > 1:
        made["constraints"] = [{"distinctAttribute": f"{DRIVER}/uuid"}]
    words = {name: value for name, value in (("weight", request.weight), ("priority", request.priority)) if value}
    if words:
        parameters = {"apiVersion": CONFIG_API, "kind": CONFIG_KIND, **words}
        made["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    return made
