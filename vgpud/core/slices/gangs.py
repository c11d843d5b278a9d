"""Gangs: slices over several devices, of none of which they have the whole. Which device decides when a gang runs.
Pure.

The kernels of a gang may wait for each other across its devices, so it must have all of them at once: the arbiter of
one device, the leader, decides when the gang runs, and those of the others follow. Two gangs that share a device must
have the same leader, or each could hold what the other one waits for. So all gangs that are connected by common devices
have one leader: a device that all of them use, the most crowded one, since turns are taken there anyway. Where there is
none, they conflict: their gates stay open, and the hardware slices time between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from vgpud.core.model import Share, Slice
from vgpud.core.units import MILLI_PER_DEVICE


class Role(Enum):
    """A slice's part in its gang on one device; the values are VG_GANG_* of shim/arbiter/arbiter.h."""

    NONE = 0
    LEADER = 1
    FOLLOWER = 2
    OPEN = 3


def roles(slices: Iterable[Slice], index: Mapping[str, int]) -> dict[tuple[int, str], Role]:
    """(serial, device) -> role, of all shares of all slices. index: of each device."""
    everyone = list(slices)
    found = {(s.serial, share.device_uuid): Role.NONE for s in everyone for share in s.shares}
    crowd: dict[str, int] = {}
    for _, uuid in found:
        crowd[uuid] = crowd.get(uuid, 0) + 1
    for group in _groups(everyone):
        common = set.intersection(*group.values())
        leader = min(common, key=lambda uuid: (-crowd[uuid], index[uuid])) if common else None
        for serial, shared in group.items():
            for uuid in shared:
                if leader is None:
                    found[serial, uuid] = Role.OPEN
                else:
                    found[serial, uuid] = Role.LEADER if uuid == leader else Role.FOLLOWER
    return found


def _is_shared(share: Share) -> bool:
    return share.min_milli < MILLI_PER_DEVICE


def _groups(slices: Iterable[Slice]) -> list[dict[int, set[str]]]:
    """Gangs that are connected by common devices, each group as {serial: shared devices}."""
    groups: list[dict[int, set[str]]] = []
    for each in slices:
        shared = {share.device_uuid for share in each.shares if _is_shared(share)}
        if len(shared) < 2:
            continue
        joined = {each.serial: shared}
        apart = []
        for group in groups:
            if any(shared & theirs for theirs in group.values()):
                joined.update(group)
            else:
                apart.append(group)
        groups = [*apart, joined]
    return groups
