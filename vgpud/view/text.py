"""Text that others made (program names, slice names, reasons), made safe for a terminal."""

from __future__ import annotations

import math
import re


def plain(text: str) -> str:
    """The text with control characters escaped: tenants choose their names, and a terminal would obey them."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def natural_key(name: str) -> list[tuple[bool, int, str]]:
    """A key that sorts j-2 before j-10: numbers in names count as numbers."""
    parts = re.split(r"(\d+)", name)
    return [(True, int(part), part) if part.isdecimal() else (False, 0, part) for part in parts]


def duration(seconds: float) -> str:
    """A rough span of time, rounded: 42s, 7m, 3h, 12d. What rounds to a larger unit has that: 59.7 s are 1m."""
    for size, unit, finer in ((86400, "d", 3600), (3600, "h", 60), (60, "m", 1)):
        if _round_half_up(seconds / finer) * finer >= size:
            return f"{_round_half_up(seconds / size)}{unit}"
    return f"{max(0, _round_half_up(seconds))}s"


def _round_half_up(value: float) -> int:
    """Halves up, which round() does not do."""
    return math.floor(value + 0.5)


def gpu_time(seconds: float) -> str:
    """Of whole devices, for people: 4.1s, 12.5m, 730h."""
    size, unit = next((s, u) for s, u in ((3600, "h"), (60, "m"), (1, "s")) if seconds >= s or s == 1)
    value = seconds / size
    return f"{value:.0f}{unit}" if value >= 100 or not value else f"{value:.1f}{unit}"
