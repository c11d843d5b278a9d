"""Devices as bars of slices: positions for the drawing, in thousandths of the device."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.slices import find_absence
from vgpud.view.text import natural_key

COLORS = 8
#: a name is written into a part that is at least this wide, at this width of a letter
_LABEL_MIN, _LETTER = 60, 9


@dataclass(frozen=True, slots=True)
class Part:
    """What one slice has of a device. Positions and widths in thousandths."""

    name: str
    owner_uid: int | None
    color: int
    at: float
    width: float
    used: float  # width of what it used in the last second
    mem_at: float
    mem_width: float
    mem_used: float
    label: str
    waits: bool
    absence: str


@dataclass(frozen=True, slots=True)
class Others:
    """What slices have of a device that this user may not see, all together. As in Part."""

    at: float
    width: float
    mem_at: float
    mem_width: float
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A device and its parts."""

    device: pb.Device
    parts: Sequence[Part]
    others: Others
    allocated_milli: int
    used_ratio: float
    free_milli: int


@dataclass(frozen=True, slots=True)
class Free:
    """Free capacity of the devices on which something new may be placed."""

    milli: int
    largest_milli: int  # on one device
    whole_device_count: int  # devices that are free as a whole
    fragmented_part: (
        float  # part of the free capacity that lies on partly used devices: no whole device can be had of it
    )


def colors(slices: Iterable[pb.Slice]) -> dict[str, int]:
    """By name; those of a device differ while there are colours, and neighbours always. The same slices have the same
    colours on every page."""
    found: dict[str, int] = {}
    last: dict[str, int] = {}  # by device
    used: dict[str, set[int]] = {}  # by device
    for item in sorted(slices, key=lambda item: natural_key(item.name)):
        chosen = zlib.crc32(item.name.encode()) % COLORS
        taken = set().union(*(used.setdefault(part.device_uuid, set()) for part in item.devices))
        if len(taken) == COLORS:  # all are there already: only neighbours differ
            taken = {last[part.device_uuid] for part in item.devices if part.device_uuid in last}
        while chosen in taken and len(taken) < COLORS:
            chosen = (chosen + 3) % COLORS
        found[item.name] = chosen
        for part in item.devices:
            last[part.device_uuid] = chosen
            used[part.device_uuid].add(chosen)
    return found


def bars(devices: Iterable[pb.Device], slices: Sequence[pb.Slice]) -> list[Bar]:
    by_device: dict[str, list[tuple[pb.Slice, pb.SliceDevice]]] = {}
    for item in slices:
        for part in item.devices:
            by_device.setdefault(part.device_uuid, []).append((item, part))
    painted = colors(slices)
    return [_bar(device, by_device.get(device.uuid, []), painted) for device in devices]


def _bar(
    device: pb.Device, slices_on_device: list[tuple[pb.Slice, pb.SliceDevice]], slice_colors: Mapping[str, int]
) -> Bar:
    parts, at, mem_at = [], 0.0, 0.0
    total = max(1, device.mem_total_bytes)
    used = 0.0
    for item, part in sorted(slices_on_device, key=lambda pair: natural_key(pair[0].name)):
        width, absence = float(part.min_milli), find_absence(item)
        mem_width = 1000 * part.mem_min_bytes / total
        used += part.share_ratio
        letters = int(width / _LETTER)
        label = item.name if len(item.name) <= letters else f"{item.name[: letters - 1]}…"
        parts.append(
            Part(
                name=item.name,
                owner_uid=item.owner_uid if item.HasField("owner_uid") else None,
                color=slice_colors[item.name],
                at=at,
                width=width,
                used=min(width, part.share_ratio * MILLI_PER_DEVICE) if width else 0.0,
                mem_at=mem_at,
                mem_width=mem_width,
                mem_used=min(mem_width, 1000 * part.mem_used_bytes / total),
                label=label if width >= _LABEL_MIN else "",
                waits=part.gate == pb.GATE_CLOSED and not absence,
                absence=absence,
            )
        )
        at += width
        mem_at += mem_width
    others = _others(device, at, mem_at)
    free = max(0, MILLI_PER_DEVICE - device.reserved_milli) if device.offered and not device.drained else 0
    return Bar(device, parts, others, device.reserved_milli, min(1.0, max(used, device.utilization_ratio)), free)


def _others(device: pb.Device, at: float, mem_at: float) -> Others:
    """The rest of what is allocated, behind the parts that are drawn: it is not free."""
    width = max(0.0, min(MILLI_PER_DEVICE, device.reserved_milli) - at)
    mem_width = max(0.0, 1000 * device.mem_reserved_bytes / max(1, device.mem_total_bytes) - mem_at)
    return Others(at, width, mem_at, mem_width, "others'" if width >= _LABEL_MIN else "")


def free(device_bars: Sequence[Bar]) -> Free:
    milli = sum(bar.free_milli for bar in device_bars)
    whole = sum(bar.free_milli == MILLI_PER_DEVICE for bar in device_bars)
    rest = milli - whole * MILLI_PER_DEVICE
    return Free(milli, max((bar.free_milli for bar in device_bars), default=0), whole, rest / milli if milli else 0.0)
