"""The driver's limits behind the ledger (DESIGN D17): how much device memory each cgroup of a slice may have. Pure.

They stop programs that bypass the hook. The ledger stays exact and theirs are looser, since what the driver counts is
not known to the byte: so nothing that the ledger grants meets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vgpud.core.devices.strangers import SLACK_BYTES
from vgpud.core.model import Device, Share, Slice, State

#: processes for which a fence has reserve from the beginning
_PLACES_MIN = 8

#: (cgroup, device's UUID) -> bytes
Fences = dict[tuple[str, str], int]


def fences(state: State, other_cgroups: Mapping[str, Iterable[str]]) -> Fences:
    """The hard limit of each cgroup on each device. `other_cgroups`: by slice, those that are no containers'.

    Each cgroup of a slice has the slice's maximum, so a slice with several can have more in all. Of a slice's cgroups
    none is another's.
    """
    found: Fences = {}
    for made in state.slices.values():
        if made.name in state.waiting:
            continue
        cgroups = [c.cgroup for c in state.containers_of(made.name) if c.cgroup]
        for cgroup in (*cgroups, *other_cgroups.get(made.name, ())):
            found |= {(cgroup, share.device_uuid): limit for share, limit in _limits(state, made)}
    return found


def _limits(state: State, slice_: Slice) -> Iterable[tuple[Share, int]]:
    for share in slice_.shares:
        device = state.devices[share.device_uuid]
        if not device.profile:  # the driver has no such limits on MIG instances, which are fences themselves
            yield share, share.mem_max_bytes + reserve_bytes(device, len(state.processes_of(slice_.name)))


def reserve_bytes(device: Device, process_count: int) -> int:
    """What a slice may have beyond its maximum: a context of a program that bypasses the ledger, and for each process
    what the ledger does not count of it. In steps, so that not each attach changes the limit."""
    places = _PLACES_MIN
    while places < 2 * process_count:
        places *= 2
    return device.context_bytes + places * SLACK_BYTES
