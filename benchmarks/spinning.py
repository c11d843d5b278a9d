"""Processes that only spin, at normal priority: a busy host. Each is bounded in time and ended by its pid."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

#: ends by itself after argv[1] seconds, or when the benchmark is killed
SPIN = (
    "import ctypes, sys, time; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "end = time.monotonic() + float(sys.argv[1])\n"
    "while time.monotonic() < end: pass"
)


@contextlib.contextmanager
def spinning(count: int, seconds_max: float) -> Iterator[None]:
    """So many of them run in the body."""
    command = [sys.executable, "-I", "-c", SPIN, str(seconds_max)]
    # each in a session of its own: all processes of one session together may get the time of one (autogroup)
    started = [subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
