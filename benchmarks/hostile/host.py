"""A busy host: as many processes that only spin as there are processors, each bounded in time and ended by its pid."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

QUIET, BUSY = "quiet", "busy"
#: ends by itself after argv[1] seconds, or when the benchmark is killed
SPIN = (
    "import ctypes, sys, time; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "end = time.monotonic() + float(sys.argv[1])\n"
    "while time.monotonic() < end: pass"
)


@contextlib.contextmanager
def load(kind: str, seconds_max: float) -> Iterator[None]:
    """Keeps every processor busy in the body where the host is to be busy."""
    count = len(os.sched_getaffinity(0)) if kind == BUSY else 0
    command = [sys.executable, "-I", "-c", SPIN, str(seconds_max)]
    spinning = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
