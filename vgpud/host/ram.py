"""The host's RAM, as the kernel says it (proc_meminfo(5))."""

from __future__ import annotations

from pathlib import Path

#: of the host's RAM, what memory that was moved from devices leaves free
FREE_PART = 10


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
