"""Host RAM for the device memory of evicted slices, and of those that rotate: how much of it there may be.

Without a bound a few idle programs could fill the host. What is held is what the ledgers of evicted programs say; what
is available, the kernel says (proc_meminfo(5)), of which a part stays free for everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vgpud.core.model import AWAY, COMING, EVICTING, EVICTION, LEAVING, Denied, Reason, Slice
from vgpud.core.units import format_bytes
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.arbiters import Arbiters

#: of the host's RAM, what memory that was moved from devices leaves free
FREE_PART = 10
_ON_HOST = (*EVICTION, AWAY, LEAVING, COMING)


def read_ram() -> tuple[int, int]:
    """Bytes of the host: all, and what is available. Raises OSError, KeyError, ValueError, IndexError."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    known = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
    return known["MemTotal"], known["MemAvailable"]


def swap_bytes(most_bytes: int) -> int:
    """What slices with mem_swap may ask for together; most_bytes: the site's bound, 0 = none. 0: the RAM is not
    known."""
    try:
        all_bytes, _ = read_ram()
    except (OSError, KeyError, ValueError, IndexError):
        return most_bytes
    usable = all_bytes - all_bytes // FREE_PART
    return min(most_bytes or usable, usable)


class EvictedMemory:
    """`most_bytes`: the site's bound, 0 = none but the available RAM; `read_ram`: the host's."""

    def __init__(
        self,
        machine: SliceMachine,
        arbiters: Arbiters,
        most_bytes: Callable[[], int],
        read_ram: Callable[[], tuple[int, int]] = read_ram,
    ) -> None:
        self._machine, self._arbiters = machine, arbiters
        self._most_bytes, self._read_ram = most_bytes, read_ram

    def _size(self, slice_: Slice) -> int:
        return sum(self._arbiters.in_ledger(slice_.serial, share.device_uuid) for share in slice_.shares)

    def refuse(self, slice_: Slice) -> Denied | None:
        """Why this slice's memory cannot move to the host."""
        wanted = self._size(slice_)
        others = [one for one in self._machine.state.slices.values() if one.name != slice_.name]
        held = dict.fromkeys(_ON_HOST, 0)
        for one in others:
            if (state := one.residency or one.suspended) in held:
                held[state] += self._size(one)
        try:
            all_bytes, available_bytes = self._read_ram()
        except (OSError, KeyError, ValueError, IndexError):
            all_bytes, available_bytes = 0, 1 << 62
        left = available_bytes - all_bytes // FREE_PART - held[EVICTING] - held[LEAVING]  # which have not arrived yet
        why = f"the host has {format_bytes(max(0, left))} for it (a tenth of its RAM stays free)"
        most = self._most_bytes()
        total = sum(held.values())
        if most and most - total < left:
            left = most - total
            why = f"evicted slices have {format_bytes(total)} of {format_bytes(most)} (suspended_bytes_max)"
        if not wanted or wanted <= left:
            return None
        text = f"slice {slice_.name} has {format_bytes(wanted)} of device memory, and {why}"
        return Denied(Reason.NO_CAPACITY, f"{text}: resume or remove other slices, or pause this one")
