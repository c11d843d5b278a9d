"""What the objects of the API server say about pods and their slices. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vgpud.core.origins import claim_slice
from vgpud.core.units import format_bytes, format_gpus
from vgpud.k8s.core.claim_objects import pod_refs
from vgpud.k8s.core.names import DRIVER, FREE, MEMORY, SIZE, SM
from vgpud.k8s.core.quantities import QuantityError, parse_quantity

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SliceOfPod:
    """What a claim has on one device, as the driver has written it into the claim's status."""

    namespace: str
    pods: tuple[str, ...]
    claim: str
    name: str  # of the slice on its node
    node: str
    device: str
    sm: str
    memory: str


def slices_of(claims: Iterable[Object]) -> list[SliceOfPod]:
    """The prepared claims of our driver, by namespace and claim."""
    found = [one for claim in claims for one in _of_claim(claim)]
    return sorted(found, key=lambda one: (one.namespace, one.claim, one.device))


def _of_claim(claim: Object) -> Iterator[SliceOfPod]:
    metadata, pods = claim["metadata"], tuple(sorted(pod.name for pod in pod_refs(claim)))
    for entry in claim.get("status", {}).get("devices", []):
        data = entry.get("data") or {}
        if entry.get("driver") == DRIVER and data.get("slice"):
            yield SliceOfPod(
                metadata["namespace"],
                pods,
                metadata["name"],
                claim_slice(metadata["uid"]),  # what the status says of it may be another's
                entry["pool"],
                entry["device"],
                _range(data.get("smMilli") or {}, format_gpus),
                _range(data.get("memoryBytes") or {}, format_bytes),
            )


def _range(numbers: Object, format_amount: Any) -> str:
    low, high = (int(numbers.get(name, 0)) for name in ("min", "max"))
    return str(format_amount(low)) if low == high else f"{format_amount(low)}..{format_amount(high)}"


def claims_of(pod: Object) -> dict[str, str]:
    """The pod's claims, by the name that its containers use: the names of the objects, "" for one not made yet."""
    made = {one["name"]: one.get("resourceClaimName") or "" for one in _status(pod, "resourceClaimStatuses")}
    named = pod["spec"].get("resourceClaims") or []
    found = {one["name"]: one.get("resourceClaimName") or made.get(one["name"], "") for one in named}
    extended = pod.get("status", {}).get("extendedResourceClaimStatus") or {}
    return found | ({"limits": extended["resourceClaimName"]} if extended.get("resourceClaimName") else {})


def _status(pod: Object, name: str) -> Sequence[Object]:
    return pod.get("status", {}).get(name) or []


def state_of(pod: Object) -> str:
    """Where the pod is, or why it is nowhere, in one line."""
    node, phase = pod["spec"].get("nodeName"), pod.get("status", {}).get("phase", "Unknown")
    if node:
        return f"{phase} on node {node}"
    why = (one for one in _status(pod, "conditions") if one.get("type") == "PodScheduled" and one.get("message"))
    return f"{phase}: {next((one['message'] for one in why), 'the scheduler has not looked at it yet')}"


def requests_of(claim: Object) -> list[str]:
    """The requests of a claim, one line each."""
    lines = []
    for request in claim["spec"].get("devices", {}).get("requests", []):
        for one in [request["exactly"]] if request.get("exactly") else request.get("firstAvailable", []):
            amounts = (one.get("capacity") or {}).get("requests") or {}
            named = ", ".join(f"{name} {value}" for name, value in amounts.items()) or "all of it"
            what = "adminAccess" if one.get("adminAccess") else named
            count = "all" if one.get("allocationMode") == "All" else one.get("count", 1)
            lines.append(f"{request['name']}: {count} of class {one['deviceClassName']}, {what}")
    return lines


def results_of(claim: Object) -> list[Object]:
    """What the scheduler has allocated of our driver."""
    allocation = claim.get("status", {}).get("allocation") or {}
    return [one for one in allocation.get("devices", {}).get("results", []) if one.get("driver") == DRIVER]


def free_lines(resource_slices: Iterable[Object], claims: Iterable[Object], lines_max: int) -> list[str]:
    """The GPUs with most SM time that is not allocated, one line each. Fixed parts of a GPU take it as a whole."""
    used: dict[tuple[str, str], list[Object]] = {}
    for claim in claims:
        for one in results_of(claim):
            if not one.get("adminAccess"):
                used.setdefault((one["pool"], one["device"]), []).append(one)
    found = []
    for spec in (one["spec"] for one in resource_slices if one["spec"].get("driver") == DRIVER):
        for device in spec.get("devices", []):
            if device["attributes"].get(SIZE, {}).get("string") == FREE:
                found.append(_free(spec["pool"]["name"], device, used))
    return [line for _, line in sorted(found, key=lambda one: (-one[0], one[1]))[:lines_max]]


def _free(pool: str, device: Object, used: Mapping[tuple[str, str], Sequence[Object]]) -> tuple[int, str]:
    name = device["name"]
    where = f"{name} of {pool}"
    if taints := device.get("taints"):
        return -1, f"{where}: tainted, {', '.join(sorted(one['key'] for one in taints))}"
    if any(at == pool and part.startswith(f"{name}-") for at, part in used):
        return 0, f"{where}: in use by fixed parts"
    left = {}
    for capacity in (SM, MEMORY):
        taken = [_amount(one.get("consumedCapacity") or {}, capacity) for one in used.get((pool, name), ())]
        left[capacity] = parse_quantity(device["capacity"][capacity]["value"]) - sum(taken)
    return left[SM], f"{where}: {format_gpus(left[SM])} GPU and {format_bytes(max(0, left[MEMORY]))} are free"


def _amount(consumed_capacity: Object, name: str) -> int:
    """As it is named, or with the driver's domain."""
    try:
        return parse_quantity(consumed_capacity.get(name) or consumed_capacity.get(f"{DRIVER}/{name}") or 0)
    except QuantityError:
        return 0
