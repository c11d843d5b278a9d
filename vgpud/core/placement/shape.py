"""An ask prepared for placement: what its parts take of each device, and the devices of a node where they fit."""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core.jobs.model import Ask, Node, Place, Resident
from vgpud.core.model import Denied, Device, Share, SiteLimits
from vgpud.core.placement import turns
from vgpud.core.slices import swap_rules
from vgpud.core.slices.admission import Part, parts_of, smallest_limit_bytes
from vgpud.core.units import MILLI_PER_DEVICE

#: of a part that a device could never give, however empty
NEVER_BYTES = 1 << 62
#: devices whose shares a shape remembers
SHARES_MAX = 4096

Devices = tuple[int, ...]  # indices in a node, one for each part, in the order of the parts


class Shape:
    """Immutable but for memos. `parts` go on different devices, `takes` is the milli-GPU of each, `residents` how they
    appear on their devices.

    The largest part comes first: a device where it fits also fits every later one, so choosing part by part never takes
    the last device of a later part.
    """

    __slots__ = (
        "_misnamed",
        "_shares",
        "_sizes",
        "ask",
        "denial",
        "in_turn",
        "is_countable",
        "models",
        "named_uuids",
        "parts",
        "residents",
        "takes",
    )

    def __init__(self, ask: Ask, policy: SiteLimits) -> None:
        fault = swap_rules.fault_refusal(ask.spec, policy)
        parts = (fault or parts_of(ask.spec, policy)) if ask.spec.gpus_milli else []
        self.ask = ask
        self.denial = parts if isinstance(parts, Denied) else None
        self.parts: Sequence[Part] = () if isinstance(parts, Denied) else parts
        #: a member has its memory in turn with others of its device (turns.py)
        self.in_turn = ask.spec.mem_swap and bool(self.parts)
        self.takes = tuple(part.min_milli for part in self.parts)
        self.residents = tuple(resident(ask.utilisation_milli, ask.kind, part.max_milli) for part in self.parts)
        self.models = frozenset(ask.gpu_models)
        names = ask.spec.device_uuids
        self.named_uuids = frozenset(names)
        #: more or fewer are named than it has parts: no node will do
        self._misnamed = bool(names) and not len(names) == len(self.named_uuids) == len(self.parts)
        self._sizes: dict[int, tuple[tuple[int, ...], ...]] = {}
        #: wherever its members go, one takes the place of one: on one device each, or on whole ones
        self.is_countable = len(set(self.parts)) == 1 and (len(self.parts) == 1 or self.takes[0] == MILLI_PER_DEVICE)
        if self.in_turn:  # what a member needs of the host differs
            self.is_countable = False
        self._shares: dict[tuple[int, str], tuple[Device, Share]] = {}  # by part and device

    def sizes(self, node: Node) -> tuple[tuple[int, ...], ...]:
        """Bytes of each part on each device of the node; the same for all nodes of a kind."""
        found = self._sizes.get(node.kind)
        if found is None:
            found = tuple(tuple(_size_bytes(part, device) for device in node.devices) for part in self.parts)
            self._sizes[node.kind] = found
        return found

    def fitting(self, node: Node) -> list[list[int]] | None:
        """For each part the devices where it fits, or None when the node cannot take a member."""
        ask = self.ask
        if ask.cpu_milli > node.free_cpu_milli or ask.ram_bytes > node.free_ram_bytes:
            return None
        if self._misnamed or (self.models and node.gpu_model not in self.models):
            return None
        free_milli, free_bytes, offered = node.free_milli, node.free_bytes, node.offered
        fits: list[list[int]] = []
        for milli, sizes in zip(self.takes, self.sizes(node), strict=True):
            if self.in_turn:
                fit = [i for i, free in enumerate(free_milli) if free >= milli and offered[i]]
                fit = [i for i in fit if turns.admits(node, i, sizes[i])]
            else:
                fit = [
                    i for i, free in enumerate(free_milli) if free >= milli and free_bytes[i] >= sizes[i] and offered[i]
                ]
            if self.named_uuids:
                fit = [i for i in fit if node.devices[i].uuid in self.named_uuids]
            if len(fit) <= len(fits):
                return None
            fits.append(fit)
        return fits

    def count_members(self, node: Node, limit: int) -> int:
        """How many members fit on a node as it is, at most `limit`. Of countable shapes (is_countable)."""
        fits = self.fitting(node)
        if fits is None:
            return 0
        ask = self.ask
        if len(fits) == 1:
            milli, sizes_bytes = self.takes[0], self.sizes(node)[0]
            free_milli, free_bytes, count = node.free_milli, node.free_bytes, 0
            for i in fits[0]:
                on_device = free_milli[i] // milli if milli else limit
                if sizes_bytes[i]:
                    on_device = min(on_device, free_bytes[i] // sizes_bytes[i])
                count += on_device
        else:
            count = len(fits[0]) // len(fits)
        if ask.cpu_milli:
            count = min(count, node.free_cpu_milli // ask.cpu_milli)
        if ask.ram_bytes:
            count = min(count, node.free_ram_bytes // ask.ram_bytes)
        return min(count, limit)

    def covers(self, members: int, other: Shape, other_members: int, kinds: Sequence[Node]) -> bool:
        """Whether a placement of so many members leaves one of the other shape in the same place: of the same ask, or
        of one device on any node, each of which a part of these members covers. `kinds`: a node of each kind."""
        if self is other:
            return members >= other_members
        if len(other.parts) != 1 or other.models or other.named_uuids or other_members > members * len(self.parts):
            return False
        ask, least = self.ask, other.ask
        if least.cpu_milli * len(self.parts) > ask.cpu_milli or least.ram_bytes * len(self.parts) > ask.ram_bytes:
            return False
        if min(self.takes) < other.takes[0] or self.in_turn != other.in_turn:
            return False
        return all(
            need >= least_need
            for node in kinds
            for sizes in self.sizes(node)
            for need, least_need in zip(sizes, other.sizes(node)[0], strict=True)
        )

    def change(self, node: Node, devices: Devices, sign: int) -> None:
        """Takes (-1) or gives back (+1) one member's capacity. The caller updates the node's version."""
        for milli, sizes, i in zip(self.takes, self.sizes(node), devices, strict=True):
            node.free_milli[i] += sign * milli
            if self.in_turn:
                turns.change(node, i, sizes[i], sign)
            else:
                node.free_bytes[i] += sign * sizes[i]
        node.free_cpu_milli += sign * self.ask.cpu_milli
        node.free_ram_bytes += sign * self.ask.ram_bytes

    def place(self, node: Node, devices: Devices) -> Place:
        """The four numbers on each device, by device index, as admission gives them."""
        chosen = sorted(zip(devices, range(len(devices)), strict=True))
        shares = tuple(self._share(part, node.devices[i]) for i, part in chosen)
        return Place(node.name, shares, self.ask.cpu_milli, self.ask.ram_bytes, in_turn=self.in_turn)

    def _share(self, part: int, device: Device) -> Share:
        known = self._shares.get((part, device.uuid))
        if known is None or known[0] is not device:
            if len(self._shares) >= SHARES_MAX:
                self._shares.clear()
            known = self._shares[part, device.uuid] = (device, self.parts[part].compute_share(device))
        return known[1]


def resident(utilisation_milli: int, class_name: str, max_milli: int) -> Resident:
    """What counts of a job on a device: what is known, never more than its maximum there; that, where nothing is."""
    return (min(utilisation_milli if utilisation_milli > 0 else MILLI_PER_DEVICE, max_milli), class_name)


def _size_bytes(part: Part, device: Device) -> int:
    share = part.compute_share(device)
    if max(share.mem_max_bytes, share.mem_min_bytes) > device.memory_bytes:
        return NEVER_BYTES
    least = smallest_limit_bytes(device.context_bytes, device.granule_bytes)
    return NEVER_BYTES if share.mem_max_bytes < least else share.mem_min_bytes
