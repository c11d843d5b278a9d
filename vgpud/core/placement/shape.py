"""An ask made ready for placement: what its parts take of a device, where in a node it fits, on which devices."""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core.admit import Part, parts_of, smallest_limit_bytes
from vgpud.core.model import Denied, Device, Policy
from vgpud.core.placement import topology
from vgpud.core.placement.base import Rule
from vgpud.core.queue.model import Ask, Node, Place

#: a part that a device could never give, however empty
NEVER_BYTES = 1 << 62

Devices = tuple[int, ...]  # indices in a node, one for each part, in the order of the parts


class Shape:
    """Immutable but for a memo. Parts go on different devices; the biggest first, so that greedy choices are complete:

    a device where a part fits has room for every later one, so an earlier part never takes the last device of a later.
    """

    __slots__ = ("_sizes", "ask", "denied", "models", "named", "parts", "takes")

    def __init__(self, ask: Ask, policy: Policy) -> None:
        parts = parts_of(ask.spec, policy) if ask.spec.gpus_milli else []
        self.ask = ask
        self.denied = parts if isinstance(parts, Denied) else None
        self.parts: Sequence[Part] = () if isinstance(parts, Denied) else parts
        self.takes = tuple(part.min_milli for part in self.parts)
        self.models = frozenset(ask.gpu_models)
        self.named = frozenset(ask.spec.device_uuids)
        self._sizes: dict[int, tuple[tuple[int, ...], ...]] = {}

    def sizes(self, node: Node) -> tuple[tuple[int, ...], ...]:
        """Bytes of each part on each device of the node; the same for all nodes of a kind."""
        found = self._sizes.get(node.kind)
        if found is None:
            found = tuple(tuple(_size_bytes(part, device) for device in node.devices) for part in self.parts)
            self._sizes[node.kind] = found
        return found

    def choose(self, node: Node, rule: Rule) -> Devices | None:
        """The devices of this node that the rule prefers, or None where it does not fit."""
        ask = self.ask
        if ask.cpu_milli > node.free_cpu_milli or ask.ram_bytes > node.free_ram_bytes:
            return None
        if self.models and node.gpu_model not in self.models:
            return None
        if not self.parts:
            return ()
        free_milli, free_bytes, offered = node.free_milli, node.free_bytes, node.offered
        fits: list[list[int]] = []
        for count, (part, sizes) in enumerate(zip(self.parts, self.sizes(node), strict=True)):
            milli = part.min_milli
            fit = [i for i, size in enumerate(sizes) if free_milli[i] >= milli and free_bytes[i] >= size and offered[i]]
            if self.named:
                fit = [i for i in fit if node.devices[i].uuid in self.named]
            if len(fit) <= count:
                return None
            fits.append(fit)
        if len(fits) > 1:
            return self._several(node, rule, fits)
        if len(fits[0]) == 1:
            return (fits[0][0],)
        part, sizes = self.parts[0], self.sizes(node)[0]
        return (min(fits[0], key=lambda i: (rule.device_rank(node, i, part.gpus_milli, part.min_milli, sizes[i]), i)),)

    def _several(self, node: Node, rule: Rule, fits: list[list[int]]) -> Devices:
        """Greedy by part, in as few groups of linked devices as do."""
        order = topology.group_order(node.groups, fits)
        all_sizes = self.sizes(node)
        chosen: list[int] = []
        for part, sizes, fit in zip(self.parts, all_sizes, fits, strict=True):
            best = min(
                (i for i in fit if i not in chosen),
                key=lambda i: (
                    order[i],
                    rule.device_rank(node, i, part.gpus_milli, part.min_milli, sizes[i]),
                    i,
                ),
            )
            chosen.append(best)
        return tuple(chosen)

    def change(self, node: Node, devices: Devices, sign: int) -> None:
        """Takes (-1) or gives back (+1) one member's room. The caller sees to the node's version."""
        for part, sizes, i in zip(self.parts, self.sizes(node), devices, strict=True):
            node.free_milli[i] += sign * part.min_milli
            node.free_bytes[i] += sign * sizes[i]
        node.free_cpu_milli += sign * self.ask.cpu_milli
        node.free_ram_bytes += sign * self.ask.ram_bytes

    def place(self, node: Node, devices: Devices) -> Place:
        """The four numbers on each device, by device index, as admission gives them."""
        shares = sorted((i, part.on(node.devices[i])) for part, i in zip(self.parts, devices, strict=True))
        return Place(node.name, tuple(share for _, share in shares), self.ask.cpu_milli, self.ask.ram_bytes)


def _size_bytes(part: Part, device: Device) -> int:
    share = part.on(device)
    if share.mem_max_bytes > device.memory_bytes or share.mem_min_bytes > device.memory_bytes:
        return NEVER_BYTES
    return NEVER_BYTES if share.mem_max_bytes < smallest_limit_bytes(device) else share.mem_min_bytes
