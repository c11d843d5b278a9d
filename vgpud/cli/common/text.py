"""Text that others made (program names, slice names, reasons), made safe for a terminal."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text with control characters escaped: tenants choose their names, and a terminal would obey them."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def duration(seconds: float) -> str:
    """A rough span of time: 42s, 7m, 3h, 12d."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def gpu_time(seconds: float) -> str:
    """Of whole devices, for people: 4.1s, 12.5m, 730h."""
    size, unit = next((s, u) for s, u in ((3600, "h"), (60, "m"), (1, "s")) if seconds >= s or s == 1)
    value = seconds / size
    return f"{value:.0f}{unit}" if value >= 100 or not value else f"{value:.1f}{unit}"
