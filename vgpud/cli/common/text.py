"""Text that others made (program names, slice names, reasons), made safe for a terminal."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text with every character that a terminal could obey written as an escape: tenants choose their names."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def duration(seconds: float) -> str:
    """A rough span as people say it: 42s, 7m, 3h, 12d."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
