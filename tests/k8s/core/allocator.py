"""How kube-scheduler gives devices away, as a model: its arithmetic of capacities and counters, and its order.

As k8s.io/dynamic-resource-allocation 1.36 does it (structured/internal/incubating/consumable_capacity.go): an amount
that is not asked for is the policy's default, or all; below the least it is raised, between steps rounded up; above the
most, or of a name that the device has not, the device is passed over. The sum over all claims stays within the value.
All shares of a device consume its counters once. The first complete solution in the order of slices and devices is
taken. tests/k8s/test_control_plane.py has the same cases on a real scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.k8s.parts import allocated
from vgpud.k8s.core.names import FREE, SIZE
from vgpud.k8s.core.quantities import QuantityError, parse_quantity

Amounts = dict[str, int]


@dataclass(frozen=True)
class Request:
    """capacity: as in a claim; size: what the DeviceClass selects; admin: with adminAccess."""

    capacity: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    size: str = FREE
    admin: bool = False


def round_quantity_up(text: str) -> int:
    """Quantity.Value(): what is no whole number is rounded up."""
    try:
        return parse_quantity(text)
    except QuantityError:
        return math.ceil(int(text.removesuffix("m")) / 1000)


def compute_amount(quantity: str | None, capacity: Mapping[str, Any]) -> int | None:
    """What a request consumes of one capacity of a device; None: the device is passed over."""
    policy = capacity.get("requestPolicy")
    if quantity is None:
        return round_quantity_up(policy["default"] if policy else capacity["value"])
    if not policy:
        return round_quantity_up(quantity)
    least, most = round_quantity_up(policy["validRange"]["min"]), round_quantity_up(policy["validRange"]["max"])
    step = round_quantity_up(policy["validRange"].get("step", "1"))
    amount = max(round_quantity_up(quantity), least)
    amount = least + -(-(amount - least) // step) * step
    return amount if amount <= most else None


class Allocator:
    """One pool. specs: of its ResourceSlices, in their order."""

    def __init__(self, specs: Sequence[Mapping[str, Any]]) -> None:
        self.devices = {one["name"]: one for spec in specs for one in spec.get("devices", [])}
        self._counters = {one["name"]: one["counters"] for spec in specs for one in spec.get("sharedCounters", [])}
        self.claims: dict[str, list[tuple[str, Amounts]]] = {}
        self.admins: set[str] = set()  # claims of which nothing counts

    def allocate(self, name: str, *requests: Request, distinct: str = "") -> list[tuple[str, Amounts]] | None:
        """(device, what is consumed of it) for each device of the claim; None: it stays pending. distinct: an attribute
        that no two of them share."""
        wanted = [request for request in requests for _ in range(request.count)]
        found = next(self._solutions(wanted, [], distinct), None)
        if found is not None:
            self.claims[name] = found
            self.admins |= {name} if any(request.admin for request in requests) else set()
        return found

    def claim(self, name: str, pod: str) -> dict[str, Any]:
        """An allocated claim, as the API server has it."""
        given = [(device, {key: str(value) for key, value in one.items()}) for device, one in self.claims[name]]
        return allocated(name, *given, pods=(pod,))

    def _solutions(
        self, requests: list[Request], chosen_shares: list[tuple[str, Amounts]], distinct: str
    ) -> Iterator[list[tuple[str, Amounts]]]:
        if not requests:
            yield chosen_shares
            return
        values = [self.devices[name]["attributes"][distinct] for name, _ in chosen_shares] if distinct else []
        for name, device in self.devices.items():
            if not distinct or device["attributes"][distinct] not in values:
                amounts = self._share(name, requests[0], chosen_shares)
                if amounts is not None:
                    yield from self._solutions(requests[1:], [*chosen_shares, (name, amounts)], distinct)

    def _share(self, name: str, request: Request, chosen_shares: list[tuple[str, Amounts]]) -> Amounts | None:
        device = self.devices[name]
        if device["attributes"][SIZE]["string"] != request.size or device.get("taints"):
            return None
        shares = [
            *(share for name, claim in self.claims.items() if name not in self.admins for share in claim),
            *chosen_shares,
        ]
        others = [amounts for used, amounts in shares if used == name]
        shared = device.get("allowMultipleAllocations", False)
        capacities = device.get("capacity", {})
        # adminAccess ignores other claims of a device, but neither its capacity nor its counters
        if (others and not shared and not request.admin) or request.capacity.keys() - capacities.keys():
            return None
        amounts: Amounts = {}
        for key, capacity in capacities.items():
            amount = compute_amount(request.capacity.get(key), capacity)
            if amount is None or sum(one.get(key, 0) for one in others) + amount > round_quantity_up(capacity["value"]):
                return None
            amounts[key] = amount
        if not self._has_counters({*(used for used, _ in shares), name}):
            return None
        return amounts if shared else {}

    def _has_counters(self, used: set[str]) -> bool:
        sums: dict[tuple[str, str], int] = {}
        for name in used:
            for one in self.devices[name].get("consumesCounters", []):
                for key, counter in one["counters"].items():
                    at = (one["counterSet"], key)
                    sums[at] = sums.get(at, 0) + round_quantity_up(counter["value"])
        return all(total <= round_quantity_up(self._counters[at][key]["value"]) for (at, key), total in sums.items())
