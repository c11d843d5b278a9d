"""The id of this boot of the machine: what was left on a tmpfs, and every process, belongs to one."""

from __future__ import annotations

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """A UUID; "" where the kernel has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
