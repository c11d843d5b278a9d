"""How the slices of a device divide one of its links to the host. Pure; shim/arbiter/copies.c is the same in C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MILLI = 1000
#: what a slice may always copy, so that its demand shows: of the link
LEAST_PART = 64
#: by such a part of itself a demand fades in a window, since a piece may take several
FADES, FADES_DELAYED = 4, 16


@dataclass
class Copier:
    """A slice in one direction. bytes_per_ms: what it may copy; granted: of its demand."""

    min_milli: int
    max_milli: int
    weight: int  # of what the minima leave; at least 1
    demand_bytes_per_ms: int
    granted_bytes_per_ms: int = 0
    bytes_per_ms: int = 0


def copy_demand(copied_bytes_per_ms: int, has_delays: bool, before_bytes_per_ms: int, link_bytes_per_ms: int) -> int:
    """How much a slice would copy. Twice what it does, not all: a page may claim delays and copy nothing."""
    more = copied_bytes_per_ms if has_delays else copied_bytes_per_ms // 4
    now = copied_bytes_per_ms + more + link_bytes_per_ms // LEAST_PART
    faded = before_bytes_per_ms - before_bytes_per_ms // (FADES_DELAYED if has_delays else FADES)
    return min(max(now, faded), link_bytes_per_ms)


def part_of(link_bytes_per_ms: int, milli: int) -> int:
    return link_bytes_per_ms * milli // MILLI


def want_of(copier: Copier, link_bytes_per_ms: int) -> int:
    return min(copier.demand_bytes_per_ms, part_of(link_bytes_per_ms, copier.max_milli))


def divide_rest(copiers: Sequence[Copier], link_bytes_per_ms: int, rest_bytes_per_ms: int) -> int:
    """One round: divides what is left by weight among those that want more. Returns what is left after it."""
    weights = sum(c.weight for c in copiers if c.granted_bytes_per_ms < want_of(c, link_bytes_per_ms))
    given = 0
    for copier in copiers if weights else ():
        more = want_of(copier, link_bytes_per_ms) - copier.granted_bytes_per_ms
        more = min(more, rest_bytes_per_ms * copier.weight // weights)
        copier.granted_bytes_per_ms += more
        given += more
    return rest_bytes_per_ms - given


def divide_link(copiers: Sequence[Copier], link_bytes_per_ms: int) -> None:
    """Minima first, then what is left by weight up to demand and maximum; what no slice wants may be borrowed."""
    left = link_bytes_per_ms
    for copier in copiers:
        least = part_of(link_bytes_per_ms, copier.min_milli)
        copier.granted_bytes_per_ms = min(least, want_of(copier, link_bytes_per_ms))
        left -= min(left, copier.granted_bytes_per_ms)
    for _ in copiers:
        left = divide_rest(copiers, link_bytes_per_ms, left) if left else 0
    for copier in copiers:
        most = part_of(link_bytes_per_ms, copier.max_milli)
        least = part_of(link_bytes_per_ms, copier.min_milli) + link_bytes_per_ms // LEAST_PART
        copier.bytes_per_ms = min(max(copier.granted_bytes_per_ms + left, least), most) + 1
