"""What is published, as it is reported to the node's vgpud for people who look there: ResourceSlices as the API server
has them, or what kubelet's device plugin counts. Pure.

vgpud keeps it in memory only, so it is reported again every few seconds; without reports it is out of date.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vgpud.core.model import PUBLISHED_MAX
from vgpud.k8s.core import published
from vgpud.k8s.core.model import Gpu
from vgpud.k8s.core.names import RESOURCE

SECOND_NS = 1_000_000_000
#: how often it is reported while nothing changes
REPORT_NS = 15 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Capacity:
    """Of a device, in quantities of Kubernetes; "": it is not bounded, or not asked for by amounts."""

    name: str
    value: str
    default_value: str = ""
    min_value: str = ""
    max_value: str = ""
    step_value: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """As the scheduler sees it. uuid: of its GPU; is_shareable: several claims have parts of it at a time."""

    name: str
    uuid: str
    is_shareable: bool
    capacities: tuple[Capacity, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """All of a node. problem: why it is nothing, or not what it should be; resource: what kubelet's device plugin
    counts, "" = ResourceSlices."""

    pool: str = ""
    generation: int = 0
    devices: tuple[Device, ...] = ()
    problem: str = ""
    resource: str = ""


@dataclass(slots=True)
class ReportState:
    """The last report. content: it was made from this, None = vgpud is not known to have any."""

    content: object = None
    reported_ns: int = 0
    is_under_way: bool = False
    error: str = ""

    def is_due(self, content: object, now_ns: int) -> bool:
        if self.is_under_way:
            return False
        return self.content != content or now_ns - self.reported_ns >= REPORT_NS

    def begin(self, content: object, now_ns: int) -> None:
        self.content, self.reported_ns, self.is_under_way = content, now_ns, True

    def finish(self, error: str) -> str:
        """What the log is to say: an error is said once."""
        self.is_under_way = False
        before, self.error = self.error, error
        text = f"what is published cannot be reported to vgpud, which is tried again: {error}"
        return text if error not in ("", before) else ""


def read_pool(stored_slices: Sequence[Mapping[str, Any]], problem: str) -> Publication:
    """The newest generation, which is what a scheduler uses. problem: what is known to be wrong, "" = nothing."""
    newest = max(map(published.generation, stored_slices), default=0)
    specs = [one.get("spec") or {} for one in stored_slices if published.generation(one) == newest]
    pools = [spec.get("pool") or {} for spec in specs]
    devices = [_read_device(device) for spec in specs for device in spec.get("devices") or ()]
    if not problem and not stored_slices:
        problem = "no ResourceSlice of this node is at the API server"
    elif not problem and len(specs) < max(int(pool.get("resourceSliceCount", 0)) for pool in pools):
        problem = f"generation {newest} is not complete: a scheduler waits for the rest of it"
    name = str(pools[0].get("name", "")) if pools else ""
    return Publication(name, newest, tuple(devices[:PUBLISHED_MAX]), problem)


def _read_device(device: Mapping[str, Any]) -> Device:
    attributes, capacities = device.get("attributes") or {}, device.get("capacity") or {}
    return Device(
        str(device.get("name", "")),
        str((attributes.get("uuid") or {}).get("string", "")),
        bool(device.get("allowMultipleAllocations")),
        tuple(_read_capacity(name, one) for name, one in sorted(capacities.items())),
    )


def _read_capacity(name: str, capacity: Mapping[str, Any]) -> Capacity:
    policy = capacity.get("requestPolicy") or {}
    valid = policy.get("validRange") or {}
    asked = (policy.get("default"), valid.get("min"), valid.get("max"), valid.get("step"))
    return Capacity(name, str(capacity.get("value", "")), *(str(value or "") for value in asked))


def count_tenths(gpus: Iterable[Gpu], ids: Iterable[str]) -> Publication:
    """Of kubelet's device plugin. ids: as it has listed them."""
    counts = Counter(one.rpartition("-tenth-")[0] for one in ids)
    devices = [
        Device(gpu.name, gpu.uuid, True, (Capacity(RESOURCE, str(counts[gpu.uuid])),))
        for gpu in sorted(gpus, key=lambda gpu: gpu.index)
        if counts[gpu.uuid]
    ]
    problem = "" if devices else "no GPU of this node is given to Kubernetes: see devices.kubernetes"
    return Publication(devices=tuple(devices[:PUBLISHED_MAX]), problem=problem, resource=RESOURCE)
