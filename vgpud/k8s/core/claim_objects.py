"""A ResourceClaim, as the API server has it, into what vgpud is to prepare, or why it cannot be.

Shares are read from the allocation's results, each by itself: two results may name one device, or two parts of one. A
claim has one slice and a slice has a GPU once. Fixed parts of a GPU are summed, since the scheduler may give
`limits: {vgpu.dev/half: 2}` either way; amounts of one GPU in two results are refused here with the remedy. The words
(class, weight, priority) are those of the slice, too, so all of a claim's requests must have the same. Whether the
slice fits beside others is vgpud's to decide: core/slices/claims.py: on_prepare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vgpud.core.slices.admission import smallest_limit_bytes
from vgpud.core.slices.claims import POD_NAME
from vgpud.core.units import MILLI_PER_DEVICE, format_bytes, format_gpus
from vgpud.k8s.core.model import Asked, Gpu, Granted, Offer, Ref, Result, Words
from vgpud.k8s.core.names import CAPACITIES, DRIVER, FIXED_MILLI, FREE, MEMORY, MEMORY_MAX, MONITOR, SM, SM_MAX
from vgpud.k8s.core.quantities import QuantityError, memory_unit_bytes, parse_quantity
from vgpud.k8s.core.slice_config import FROM_CLAIM, ConfigError, words_of
from vgpud.k8s.core.taints import tolerates_drain

RESULTS_MAX = 32  # of a claim's allocation, in the API
PODS = "pods"
_AMOUNT_MAX = 1 << 60  # sums of all devices' are still numbers of 64 bits


class ClaimError(ValueError):
    """The claim cannot be prepared: one line, which kubelet shows in the pod's events."""


def is_of(claim: Mapping[str, Any], uid: str) -> bool:
    """Whether this is the claim with that uid, and not a later one of the same name."""
    return bool(_at(claim, "metadata", "uid") == uid)


def is_left(claim: Mapping[str, Any], pool: str, pods: Iterable[str]) -> bool:
    """Whether a claim that these pods had is not allocated to this node any more: they were deleted by force, and it
    may be another node's by now."""
    found = [(one.get("driver"), one.get("pool")) for one in _list(claim, "status", "allocation", "devices", "results")]
    return (DRIVER, pool) not in found and set(pods).isdisjoint(pods_of(claim))


def read_claim(
    claim: Mapping[str, Any],
    ref: Ref,
    offers: Mapping[str, Offer],
    pool: str,
    priority_max: int,
    admits_monitors: bool = False,
) -> Asked:
    """The claim, checked. offers: the published devices by name; pool: this node's; admits_monitors: whether the site
    lets claims with adminAccess see GPUs. Raises ClaimError."""
    if not is_of(claim, ref.uid):
        text = f"claim {ref} has another uid than kubelet asks for ({ref.uid})"
        raise ClaimError(f"{text}: it was deleted and created again")
    allocation = _at(claim, "status", "allocation")
    if not isinstance(allocation, Mapping):
        raise ClaimError(f"claim {ref} is not allocated: the scheduler has not chosen devices for it")
    found = [one for one in _list(allocation, "devices", "results") if one.get("driver") == DRIVER][:RESULTS_MAX]
    if not found:
        raise ClaimError(f"claim {ref} has no device of {DRIVER}")
    foreign = next((one.get("pool") for one in found if one.get("pool") != pool), None)
    if foreign is not None:
        raise ClaimError(f"claim {ref} has a device of pool {foreign}, and this node's is {pool}")
    _require_pods(ref, claim)
    if any(one.get("adminAccess") for one in found):
        if not admits_monitors:
            raise ClaimError(f"claim {ref} has adminAccess, which this site does not allow (driver.monitors)")
        return _monitor(ref, claim, found, offers)
    parts = [_granted(ref, one, offers) for one in found]
    results = tuple(_result(one, part.uuid) for one, part in zip(found, parts, strict=True))
    granted = _by_gpu(ref, parts, [str(one.get("device")) for one in found], offers)
    reckoned = (part.uuid for one, part in zip(found, parts, strict=True) if not one.get("consumedCapacity"))
    words = _words(ref, allocation, found, priority_max)
    pods = pods_of(claim)
    tolerant = tolerates_drain((one, _offer(ref, one, offers).gpu) for one in found)
    return Asked(
        ref.uid,
        ref.namespace,
        ref.name,
        pods,
        results,
        granted,
        words,
        derived_memory_uuids=frozenset(reckoned),
        pod_names=tuple(sorted({pod.name for pod in pod_refs(claim)})),
        tolerates_drain=tolerant,
    )


def _monitor(
    ref: Ref, claim: Mapping[str, Any], device_results: Sequence[Mapping[str, Any]], offers: Mapping[str, Offer]
) -> Asked:
    """A claim with adminAccess: it has devices, and nothing of their capacity."""
    if not all(one.get("adminAccess") for one in device_results):
        text = f"claim {ref} has requests with adminAccess and without: those with it have no slice,"
        raise ClaimError(f"{text} so make a claim for each")
    gpus = [_offer(ref, one, offers).gpu for one in device_results]
    results = tuple(_result(one, gpu.uuid) for one, gpu in zip(device_results, gpus, strict=True))
    return Asked(ref.uid, ref.namespace, ref.name, pods_of(claim), results, (), Words(), monitor_gpus=tuple(gpus))


def _offer(ref: Ref, result: Mapping[str, Any], offers: Mapping[str, Offer]) -> Offer:
    name = str(result.get("device"))
    offer = offers.get(name)
    if offer is None:
        have = ", ".join(sorted(one.name for one in offers.values() if one.size == FREE)) or "none"
        raise ClaimError(f"claim {ref} has device {name[:80]}, which this node does not have: it has {have}")
    return offer


def _granted(ref: Ref, result: Mapping[str, Any], offers: Mapping[str, Offer]) -> Granted:
    offer = _offer(ref, result, offers)
    name, whole = offer.name, offer.gpu.memory_bytes
    if offer.size == MONITOR:
        text = f"claim {ref}, device {name}: it is for monitoring, by claims with adminAccess:"
        raise ClaimError(f"{text} use the DeviceClass vgpu for a part of the GPU")
    if offer.size != FREE:
        milli = FIXED_MILLI[offer.size]
        memory = fixed_memory(offer.gpu, milli)
        return Granted(offer.gpu.uuid, milli, milli, memory, memory)
    given = _amounts(ref, name, result.get("consumedCapacity"))
    if not given:  # a server without consumable capacity gives the device as a whole
        return Granted(offer.gpu.uuid, MILLI_PER_DEVICE, MILLI_PER_DEVICE, whole, whole)
    least, memory = given.get(SM, MILLI_PER_DEVICE), given.get(MEMORY, whole)
    most, memory_most = given.get(SM_MAX, 0) or least, given.get(MEMORY_MAX, 0) or memory
    memory_most = max(memory_most, min(memory, least_memory(offer.gpu)))  # as the scheduler raises a smaller memory
    if most < least:
        text = f"{SM_MAX} {format_gpus(most)} is below {SM} {format_gpus(least)}: {SM_MAX} is the maximum, 0 = as {SM}"
        raise ClaimError(f"claim {ref}, device {name}: {text}")
    if not most:
        raise ClaimError(f"claim {ref}, device {name}: {SM} 0 without {SM_MAX} allows nothing: set {SM_MAX}")
    if memory_most < memory:
        text = f"{MEMORY_MAX} {format_bytes(memory_most)} is below {MEMORY} {format_bytes(memory)}"
        raise ClaimError(f"claim {ref}, device {name}: {text}: {MEMORY_MAX} is the maximum, 0 = as {MEMORY}")
    granule = offer.gpu.granule_bytes
    return Granted(offer.gpu.uuid, least, most, memory - memory % granule, memory_most - memory_most % granule)


def least_memory(gpu: Gpu) -> int:
    """The least memory that vgpud prepares a claim with: what it admits, in the unit that is published."""
    unit = memory_unit_bytes(gpu.granule_bytes)
    return -(-smallest_limit_bytes(gpu.context_bytes, gpu.granule_bytes) // unit) * unit


def fixed_memory(gpu: Gpu, milli: int) -> int:
    """The memory of a fixed part of a device, in whole granules and mebibytes."""
    part = gpu.memory_bytes * milli // MILLI_PER_DEVICE
    return part - part % memory_unit_bytes(gpu.granule_bytes)


def _amounts(ref: Ref, device: str, consumed_capacity: Any) -> dict[str, int]:
    if not isinstance(consumed_capacity, Mapping):
        return {}
    amounts = {}
    for name, value in consumed_capacity.items():
        short = str(name).rpartition("/")[2]
        if short not in CAPACITIES:
            raise ClaimError(f"claim {ref}, device {device}: no capacity {str(name)[:40]}: {', '.join(CAPACITIES)}")
        try:
            amounts[short] = parse_quantity(value)
        except QuantityError as error:
            raise ClaimError(f"claim {ref}, device {device}, {short}: {error}") from error
        if not 0 <= amounts[short] <= _AMOUNT_MAX:
            wrong = "is negative" if amounts[short] < 0 else "is more than any device has"
            raise ClaimError(f"claim {ref}, device {device}, {short}: {str(value)[:40]} {wrong}")
    return amounts


def _by_gpu(
    ref: Ref, parts: Sequence[Granted], names: Sequence[str], offers: Mapping[str, Offer]
) -> tuple[Granted, ...]:
    """One share of each GPU, in the order of the results."""
    made: dict[str, Granted] = {}
    shared: set[str] = set()  # GPUs of which the claim has amounts
    for part, name in zip(parts, names, strict=True):
        before = made.get(part.uuid)
        free = offers[name].size == FREE
        if before and (free or part.uuid in shared):
            text = f"claim {ref} has GPU {name} twice: add a constraint with distinctAttribute {DRIVER}/uuid,"
            raise ClaimError(f"{text} or ask for the sum in one request")
        if free:
            shared.add(part.uuid)
        made[part.uuid] = _sum(before, part) if before else part
    return tuple(made.values())


def _sum(a: Granted, b: Granted) -> Granted:
    return Granted(
        a.uuid,
        a.min_milli + b.min_milli,
        a.max_milli + b.max_milli,
        a.mem_min_bytes + b.mem_min_bytes,
        a.mem_max_bytes + b.mem_max_bytes,
    )


def _result(result: Mapping[str, Any], uuid: str) -> Result:
    request, pool, device, share = (str(result.get(name) or "") for name in ("request", "pool", "device", "shareID"))
    # kubelet and containers know a request by its own name, whichever of its alternatives (firstAvailable) it got
    return Result(request.partition("/")[0], pool, device, share, uuid)


def _words(
    ref: Ref, allocation: Mapping[str, Any], device_results: Sequence[Mapping[str, Any]], priority_max: int
) -> Words:
    configs = _configs(allocation)
    each: dict[str, Words] = {}  # by request
    for one in device_results:
        request = str(one.get("request") or "")
        theirs = [(str(given.get("source")), _at(given, "opaque", "parameters")) for given in configs]
        theirs = [pair for pair, given in zip(theirs, configs, strict=True) if _is_for(given, request)]
        try:
            each[request] = words_of(theirs, priority_max)
        except ConfigError as error:
            raise ClaimError(f"claim {ref}, {error}") from error
    words = next(iter(each.values()))
    other = next((request for request, one in each.items() if one != words), None)
    if other is not None:
        first = next(iter(each))
        text = f"claim {ref} has requests of different classes: {other[:80]} has another SliceConfig than {first[:80]},"
        raise ClaimError(f"{text} and a claim has one slice: use one DeviceClass for all, or a claim for each")
    return words


def _configs(allocation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ours = [one for one in _list(allocation, "devices", "config") if _at(one, "opaque", "driver") == DRIVER]
    return sorted(ours, key=lambda one: one.get("source") == FROM_CLAIM)  # the class's first, else in their order


def _is_for(config: Mapping[str, Any], request: str) -> bool:
    """Whether a configuration is for a request. A name alone stands for all alternatives of that request, no name for
    all requests."""
    named = config.get("requests")
    return not isinstance(named, list) or not named or request in named or request.partition("/")[0] in named


def _require_pods(ref: Ref, claim: Mapping[str, Any]) -> None:
    """Which pods are of a PodGroup is not said in the claim, so no container could be recognized as one of it."""
    other = next((one for one in _list(claim, "status", "reservedFor") if one.get("resource") != PODS), None)
    if other is not None:
        what = f"{str(other.get('resource'))[:40]} {str(other.get('name'))[:80]}"
        raise ClaimError(f"claim {ref} is reserved for {what}: claims of a PodGroup do not work, name it in the pods")


def pods_of(claim: Mapping[str, Any]) -> tuple[str, ...]:
    """The uids of the pods that may use the claim, sorted."""
    reserved = _list(claim, "status", "reservedFor")
    return tuple(sorted(str(one.get("uid")) for one in reserved if one.get("resource") == PODS and one.get("uid")))


def pod_refs(claim: Mapping[str, Any]) -> list[Ref]:
    """The same with their names, of those that have one as the API server allows it."""
    namespace, reserved = str(_at(claim, "metadata", "namespace")), _list(claim, "status", "reservedFor")
    named = ((one, str(one.get("name") or "")) for one in reserved if one.get("resource") == PODS and one.get("uid"))
    return [Ref(str(one.get("uid")), namespace, name) for one, name in named if POD_NAME.fullmatch(name)]


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _list(value: Any, *path: str) -> list[Mapping[str, Any]]:
    inner = _at(value, *path)
    return [one for one in inner if isinstance(one, Mapping)] if isinstance(inner, list) else []
