"""A file that says when its process was last seen to work, for probes that start no interpreter.

Its line is the time since boot in whole seconds, as in /proc/uptime: a shell compares the two without a program of its
own. A busy node must not lose its driver or daemon to the price of asking whether it is well.
"""

from __future__ import annotations

import time
from pathlib import Path

NAME = "beat"


def write_beat(folder: Path) -> None:
    """Says that the process works now. Raises OSError."""
    beside = folder / f".{NAME}.new"
    beside.write_text(f"{int(time.clock_gettime(time.CLOCK_BOOTTIME))}\n")
    beside.rename(folder / NAME)  # a probe never reads half a line
