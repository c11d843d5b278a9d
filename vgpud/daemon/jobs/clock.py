"""The queue's clock: wall time as it was when the daemon began, whatever happens to the machine's clock afterwards.

Time limits, usage and fair shares are differences of its times, so it neither jumps nor goes back. A daemon that finds
running jobs or slices continues the clock of the former one, while the machine was not booted in between.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from vgpud.core.queue.reasons import duration
from vgpud.host.boot import boot_id

#: difference between the machine's clock and this one that is reported to users
NEWS_MIN_NS = 60_000_000_000
FILE_NAME = "queue-clock"


class Clock:
    """`latest_ns`: the latest time in the store, which it begins after. `path`: where a former daemon has left its own
    for as long as the machine runs; `continues`: from that."""

    def __init__(self, latest_ns: int, path: Path | None = None, *, continues: bool = False) -> None:
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._offset_ns = max(time.time_ns(), latest_ns + 1) - boot_ns
        self._reported_ahead_ns = 0
        if path is None:
            return
        former_ns = _read(path) if continues else None
        if former_ns is not None and former_ns + boot_ns > latest_ns:
            self._offset_ns = former_ns
        with contextlib.suppress(OSError):  # then the next daemon begins with the machine's clock
            path.write_text(f"{boot_id()} {self._offset_ns}\n")

    def now_ns(self) -> int:
        return self._offset_ns + time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def earlier_ns(self) -> int:
        """The earlier of this clock and the machine's: this one stays ahead where that was, and has been set right."""
        return min(self.now_ns(), time.time_ns())

    def news(self) -> str:
        """A sentence when the machine's clock has been set, and that is not reported yet; else ""."""
        ahead_ns = time.time_ns() - self.now_ns()
        if abs(ahead_ns - self._reported_ahead_ns) < NEWS_MIN_NS:
            return ""
        self._reported_ahead_ns = ahead_ns
        off = f"{duration(abs(ahead_ns))} {'ahead of' if ahead_ns > 0 else 'behind'}"
        text = (
            f"this machine's clock is {off} the queue's, which counts on as before: time limits and usage stay right,"
        )
        text += " --begin and reservations are by the queue's clock until vgpud is started while no jobs or slices run"
        if ahead_ns < 0:  # it begins after all that is in the store
            text += " once the machine's has caught up"
        return text if abs(ahead_ns) >= NEWS_MIN_NS else "this machine's clock and the queue's agree again"


def _read(path: Path) -> int | None:
    """The offset in the file, None where there is none of this boot."""
    try:
        boot, _, offset_ns = path.read_text().strip().partition(" ")
        return int(offset_ns) if boot == boot_id() else None
    except (OSError, ValueError):
        return None
