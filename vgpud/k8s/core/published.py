"""ResourceSlices: what this node's devices look like to the scheduler, and what is to be written when they differ.

A GPU is published as a device with consumable capacity, which any number of claims share, and as devices of fixed sizes
for extended resources. All of a GPU's devices consume its counters, so it is given away by amounts or in fixed parts at
a time. A MIG instance has amounts only: those are of the instance, and a fixed part is one of a GPU. Maxima are
capacities that cannot be used up: parameters that the API server checks (docs/kubernetes.md). The device for monitors
has neither capacity nor counters nor taints, since kube-scheduler compares these for adminAccess, too: a monitor could
not see a GPU that is full.

Bounds of the API (resource/v1): 64 devices in a slice whose devices have counters or taints, 8 sets of counters in a
slice, which has no devices then. Before 1.35 counters were in the slice of their devices and nowhere else, so fixed
sizes begin with that version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vgpud.core.model import SLICES_MAX
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.k8s.core.claim_objects import fixed_memory, least_memory
from vgpud.k8s.core.model import Gpu, Offer
from vgpud.k8s.core.names import (
    DRIVER,
    FIXED_MILLI,
    FREE,
    MEMORY,
    MEMORY_MAX,
    MIG,
    MONITOR,
    NVLINK_GROUP,
    SIZE,
    SLICES,
    SM,
    SM_MAX,
)
from vgpud.k8s.core.quantities import QuantityError, format_memory, memory_unit_bytes, parse_quantity
from vgpud.k8s.core.taints import taints_of

DEVICES_MAX = 64
COUNTER_SETS_MAX = 8
#: version of Kubernetes from which on counters may be in a ResourceSlice of their own
FIXED_SIZES_SINCE = (1, 35)
_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Policy:
    """What the site decides about publishing."""

    slices_max: int = 96  # claims that may share one GPU; fewer where the node has many GPUs
    fixed_sizes: bool = True
    monitors: bool = False  # a device per GPU for claims with adminAccess
    evict_on_fault: bool = False  # pods that do not tolerate it, when the driver reports a fatal Xid, or it is lost


def offers(gpus: Iterable[Gpu]) -> dict[str, Offer]:
    """All devices that a claim may have, by name: also those that were published before a setting was changed."""
    made: dict[str, Offer] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        for offer in (Offer(gpu.name, gpu), Offer(f"{gpu.name}-{MONITOR}", gpu, MONITOR)):
            made[offer.name] = offer
        for size, milli in FIXED_MILLI.items() if not gpu.profile else ():
            for number in range(MILLI_PER_DEVICE // milli):
                name = f"{gpu.name}-{size}-{number}"
                made[name] = Offer(name, gpu, size)
    return made


def devices(gpus: Iterable[Gpu], policy: Policy) -> list[Offer]:
    """The devices that are published: no part that is too small for a program, which no claim of it could be prepared
    with."""
    sizes = {FREE} | (FIXED_MILLI.keys() if policy.fixed_sizes else set()) | ({MONITOR} if policy.monitors else set())
    there = [offer for offer in offers(gpus).values() if offer.gpu.is_for_kubernetes and offer.size in sizes]
    return [offer for offer in there if offer.size == MONITOR or _memory_bytes(offer) >= least_memory(offer.gpu)]


def _memory_bytes(offer: Offer) -> int:
    gpu = offer.gpu
    return gpu.memory_bytes if offer.size == FREE else fixed_memory(gpu, FIXED_MILLI[offer.size])


def specs(gpus: Sequence[Gpu], node: str, policy: Policy) -> list[dict[str, Any]]:
    """The specs of the node's ResourceSlices, without `pool`: first the counters, then the devices."""
    wanted = devices(gpus, policy)
    ordered = [offer.gpu for offer in wanted if offer.size == FREE]
    # a node has SLICES_MAX slices: the scheduler must not count on more
    bounded = replace(policy, slices_max=max(1, min(policy.slices_max, SLICES_MAX // max(1, len(ordered)))))
    published = [_device(offer, bounded) for offer in wanted]
    counters = [_counters(gpu) for gpu in ordered if not gpu.profile] if policy.fixed_sizes else []
    own = {"driver": DRIVER, "nodeName": node}
    made = [own | {"sharedCounters": part} for part in _parts(counters, COUNTER_SETS_MAX)]
    return made + [own | {"devices": part} for part in _parts(published, DEVICES_MAX)]


def _parts(all_: list[Any], size_max: int) -> list[list[Any]]:
    return [all_[begin : begin + size_max] for begin in range(0, len(all_), size_max)]


def _counters(gpu: Gpu) -> dict[str, Any]:
    return {
        "name": gpu.name,
        "counters": {SM: {"value": str(MILLI_PER_DEVICE)}, MEMORY: {"value": format_memory(gpu.memory_bytes)}},
    }


def _device(offer: Offer, policy: Policy) -> dict[str, Any]:
    gpu = offer.gpu
    made: dict[str, Any] = {"name": offer.name, "attributes": _attributes(offer)}
    if offer.size == MONITOR:
        return made  # it is there for monitors whatever the GPU's capacity and state are
    if offer.size == FREE:
        made["allowMultipleAllocations"] = True
        made["capacity"] = _capacity(gpu, policy)
        milli, memory = MILLI_PER_DEVICE, format_memory(_memory_bytes(offer))
    else:
        milli, memory = FIXED_MILLI[offer.size], format_memory(_memory_bytes(offer))
        made["capacity"] = {SM: {"value": str(milli)}, MEMORY: {"value": memory}}
    if policy.fixed_sizes and not gpu.profile:
        counters = {SM: {"value": str(milli)}, MEMORY: {"value": memory}}
        made["consumesCounters"] = [{"counterSet": gpu.name, "counters": counters}]
    if taints := taints_of(gpu, policy.evict_on_fault):
        made["taints"] = taints
    return made


def _attributes(offer: Offer) -> dict[str, Any]:
    gpu = offer.gpu
    made: dict[str, Any] = {
        "uuid": {"string": gpu.uuid[:64]},
        "index": {"int": gpu.index},
        "type": {"string": MIG if gpu.profile else "gpu"},
        SIZE: {"string": MIG if gpu.profile and offer.size == FREE else offer.size},
        "productName": {"string": gpu.product[:64]},
        "simulated": {"bool": gpu.is_simulated},
    }
    if gpu.profile:
        made |= {"profile": {"string": gpu.profile[:64]}, "parentUUID": {"string": gpu.parent_uuid[:64]}}
    if gpu.compute_capability:
        made["cudaComputeCapability"] = {"version": f"{gpu.compute_capability}.0"}  # semantic versions have three parts
    if version := _semantic(gpu.driver_version):
        made["driverVersion"] = {"version": version}
    if gpu.pci_root:
        made["resource.kubernetes.io/pcieRoot"] = {"string": gpu.pci_root}
    if gpu.nvlink_group is not None:
        made[NVLINK_GROUP] = {"int": gpu.nvlink_group}
    if gpu.numa_node is not None:
        made["resource.kubernetes.io/numaNode"] = {"int": gpu.numa_node}
    return made


def _semantic(version: str) -> str:
    """A semantic version: three numbers without leading zeros ("580.95.05" -> "580.95.5"); "" where it is none."""
    found = _VERSION.fullmatch(version)
    return ".".join(str(int(part or 0)) for part in found.groups()) if found else ""


def _capacity(gpu: Gpu, policy: Policy) -> dict[str, Any]:
    step_bytes, least_bytes = memory_unit_bytes(gpu.granule_bytes), least_memory(gpu)
    whole, step, least = format_memory(gpu.memory_bytes), format_memory(step_bytes), format_memory(least_bytes)
    # the API refuses a step beyond the value, and with it the whole ResourceSlice
    memory_step = step if least_bytes < gpu.memory_bytes else None
    most = policy.slices_max  # as many maxima as there can be claims do not use a value up
    return {
        SM: _range(str(MILLI_PER_DEVICE), str(MILLI_PER_DEVICE), "0", str(MILLI_PER_DEVICE), "1"),
        MEMORY: _range(whole, whole, least, whole, memory_step),
        SLICES: _range(str(most), "1", "1", "1", None),
        SM_MAX: _range(str(most * MILLI_PER_DEVICE), "0", "0", str(MILLI_PER_DEVICE), "1"),
        MEMORY_MAX: _range(format_memory(most * gpu.memory_bytes), "0", "0", whole, step),
    }


def _range(value: str, default: str, minimum: str, maximum: str, step: str | None) -> dict[str, Any]:
    valid = {"min": minimum, "max": maximum} | ({"step": step} if step else {})
    return {"value": value, "requestPolicy": {"default": default, "validRange": valid}}


# ---- what is there against what is wanted ----

#: what the server adds to a taint
_ADDED = frozenset({"timeAdded"})
_INDEX = re.compile(r"([0-9]{1,3})-")


@dataclass(frozen=True, slots=True)
class Write:
    """One ResourceSlice to be written. name: of the object that is replaced, "" for a new one."""

    name: str
    index: int
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Changes:
    """What brings the pool to what is wanted: writes, then deletions."""

    writes: tuple[Write, ...] = ()
    deletions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.writes or self.deletions)


def generate_name(index: int, node: str) -> str:
    """The beginning of a ResourceSlice's name. Schedulers go through a pool by name, so the index comes first."""
    return f"{index}-{DRIVER}-{node}-"


def changes(
    wanted_specs: Sequence[Mapping[str, Any]],
    stored_slices: Sequence[Mapping[str, Any]],
    node: str,
    dropped_fields: Collection[str],
    newest: int = 0,
) -> Changes:
    """Compares the pool with what the server has; nothing when they agree. A changed pool gets a new generation, in
    which all its slices are written, since a scheduler uses a pool only when it has all slices of the newest one.

    dropped_fields: those that this server is known not to store. newest: a generation that has been written before.
    """
    there: dict[int, tuple[str, Mapping[str, Any]]] = {}
    spare = []
    for one in sorted(stored_slices, key=lambda one: str(one["metadata"]["name"])):
        name = str(one["metadata"]["name"])
        found = _INDEX.match(name)
        index = int(found.group(1)) if found else len(wanted_specs)
        if index < len(wanted_specs) and index not in there:
            there[index] = (name, one.get("spec") or {})
        else:
            spare.append(name)
    pools = [spec.get("pool") for _, spec in there.values()]
    ours = all(pool == pools[0] and _is_of(pool, node, len(wanted_specs)) for pool in pools)
    alike = all(
        n in there and not set(differences(spec, there[n][1])) - set(dropped_fields)
        for n, spec in enumerate(wanted_specs)
    )
    if ours and alike and not spare:
        return Changes()
    pool = {
        "name": node,
        "generation": max(newest, *map(generation, stored_slices), 0) + 1,
        "resourceSliceCount": len(wanted_specs),
    }
    writes = [
        Write(there[n][0] if n in there else "", n, {**spec, "pool": pool}) for n, spec in enumerate(wanted_specs)
    ]
    return Changes(tuple(writes), tuple(spare))


def differences(wanted_value: Any, stored_value: Any, path: str = "") -> list[str]:
    """The fields that the server has otherwise, or not at all, or beside what was written. Quantities count by value:
    "1k" is 1000."""
    if isinstance(wanted_value, Mapping):
        if not isinstance(stored_value, Mapping):
            return [path]
        beside = stored_value.keys() - wanted_value.keys() - _ADDED - ({"pool"} if not path else set())
        inner = [(key, wanted_value.get(key), stored_value.get(key)) for key in sorted({*wanted_value, *beside})]
        return [name for key, a, b in inner for name in differences(a, b, f"{path}.{key}" if path else key)]
    if isinstance(wanted_value, list):
        if not isinstance(stored_value, list) or len(stored_value) != len(wanted_value):
            return [path]
        return [name for a, b in zip(wanted_value, stored_value, strict=True) for name in differences(a, b, path)]
    return [] if wanted_value == stored_value or _equal_quantities(wanted_value, stored_value) else [path]


def not_stored(wanted_value: Any, stored_value: Any) -> tuple[str, ...]:
    """The fields that the server has dropped from what was just written to it: their feature gates are off."""
    return tuple(dict.fromkeys(differences(wanted_value, stored_value)))


def _equal_quantities(wanted_value: Any, stored_value: Any) -> bool:
    if not isinstance(wanted_value, str) or not isinstance(stored_value, str):
        return False
    try:
        return parse_quantity(wanted_value) == parse_quantity(stored_value)
    except QuantityError:
        return False


def generation(stored_slice: Mapping[str, Any]) -> int:
    """The generation of the pool that a ResourceSlice is of."""
    pool = (stored_slice.get("spec") or {}).get("pool") or {}
    return int(pool.get("generation", 0))


def _is_of(pool: Any, node: str, count: int) -> bool:
    return isinstance(pool, Mapping) and pool.get("name") == node and pool.get("resourceSliceCount") == count
