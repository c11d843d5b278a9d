"""Nothing is forgotten by age for a day after a start under a clock far ahead of the database: it may be wrong.

The day is of time that the daemon runs, over all starts: whoever sees a wrong clock switches the machine off.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from vgpud.core.queue.reasons import duration
from vgpud.host import private_files

DAY_NS = 24 * 3600 * 1_000_000_000
#: a clock so far after all that is in the store is not believed at once
FAR_NS = 7 * DAY_NS
#: time that the daemon must run before it is
HOLD_NS = DAY_NS
#: how often the rest of it is written
WRITE_NS = 600 * 1_000_000_000
HOLD_FILE = "forget-nothing-for"


class Hold:
    """`why`: a sentence for the event log while it holds, else ""."""

    def __init__(self, path: Path, latest_ns: int, now_ns: int, far_ns: int) -> None:
        self._path = path
        is_far = latest_ns > 0 and now_ns - latest_ns >= far_ns
        self._left_ns = HOLD_NS if is_far else self._read()
        self._written_ns = self._left_ns
        self.why = ""
        if not self._left_ns:
            return
        self._write()
        begin = "it was far ahead of the database when vgpud was started before"
        if is_far:
            begin = f"it is {duration(now_ns - latest_ns)} after the latest entry of the database"
        self.why = f"this machine's clock may be wrong, or nothing was used for long: {begin};"
        self.why += f" nothing is deleted because of its age until vgpud has run for {duration(self._left_ns)}"

    def lasts(self, elapsed_ns: int) -> bool:
        """Whether it still holds, after so much more time."""
        self._left_ns = max(0, self._left_ns - elapsed_ns)
        if self._written_ns - self._left_ns >= WRITE_NS or (self._written_ns and not self._left_ns):
            self._write()
        return self._left_ns > 0

    def _read(self) -> int:
        """What a former start has left; a file that cannot be read holds for the whole time."""
        try:
            return min(max(int(self._path.read_text()), 0), HOLD_NS)
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            return HOLD_NS

    def _write(self) -> None:
        """Where that fails it holds for this start alone."""
        self._written_ns = self._left_ns
        with contextlib.suppress(OSError):
            if self._left_ns:
                private_files.replace(self._path, f"{self._left_ns}\n")
            else:
                self._path.unlink(missing_ok=True)
