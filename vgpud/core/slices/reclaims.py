"""Pure: events about requests to give memory back, and about slices that cannot have all of their minimum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vgpud.core import events as ev
from vgpud.core.model import Slice
from vgpud.core.observed import ADMINS, Reclaim
from vgpud.core.units import format_bytes

#: slices that an entry names
_NAMED_MAX = 3


class Holder(NamedTuple):
    """A slice that holds more of a device's memory than it is guaranteed."""

    name: str
    owner_uid: int
    beyond_bytes: int


def reclaim_entries(
    slice_: Slice, device_uuid: str, past: Reclaim, now: Reclaim, holders: Sequence[Holder]
) -> Iterator[ev.Log]:
    """What has happened between two readings."""
    if now.end_count != past.end_count:
        yield _end_entry(slice_.name, device_uuid, now)
    if now.remaining_bytes and (now.begin_ns, now.asked_bytes) != (past.begin_ns, past.asked_bytes):
        grace_s = (now.deadline_ns - now.begin_ns) / 1e9
        text = f"slice {slice_.name} is asked to give back {format_bytes(now.asked_bytes)} of device memory"
        yield ev.Log("memory.asked", f"{text} within {grace_s:.0f} s", slice_.name, device_uuid)
    if now.shortages != past.shortages:
        yield from _shortage_entries(slice_, device_uuid, now, holders)


def _end_entry(name: str, device_uuid: str, now: Reclaim) -> ev.Log:
    came, asked = format_bytes(now.last_returned_bytes), format_bytes(now.last_asked_bytes)
    text = f"slice {name} was asked for {asked} of device memory and gave back {came} in {now.last_took_ns / 1e9:.2f} s"
    if not now.was_late:
        return ev.Log("memory.returned", text, name, device_uuid)
    return ev.Log("memory.kept", f"{text}: its time is up, and it keeps the rest", name, device_uuid)


def _shortage_entries(slice_: Slice, device_uuid: str, now: Reclaim, holders: Sequence[Holder]) -> Iterator[ev.Log]:
    """One for the owner, who is not told other users' slices by name; and one for admins if there are such."""
    text = (
        f"slice {slice_.name} misses {format_bytes(now.last_short_bytes)} of its guaranteed memory, which is in use by "
    )
    others = [h for h in holders if h.name != slice_.name]
    own = [h for h in others if h.owner_uid == slice_.owner_uid]
    foreign_bytes = sum(h.beyond_bytes for h in others) - sum(h.beyond_bytes for h in own)
    parts = _names(own) + ([f"other users ({format_bytes(foreign_bytes)})"] if foreign_bytes else [])
    yield ev.Log("memory.short", text + _join(parts), slice_.name, device_uuid)
    if foreign_bytes:
        yield ev.Log("memory.short", text + _join(_names(others)), slice_.name, device_uuid, owner_uid=ADMINS)


def _names(holders: Sequence[Holder]) -> list[str]:
    most = sorted(holders, key=lambda holder: (-holder.beyond_bytes, holder.name))[:_NAMED_MAX]
    return [f"{holder.name} ({format_bytes(holder.beyond_bytes)} beyond its minimum)" for holder in most]


def _join(parts: Sequence[str]) -> str:
    return ", ".join(parts) or "programs beyond the ledgers"
