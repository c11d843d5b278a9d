"""A busy host: as many processes that only spin as there are processors."""

from __future__ import annotations

import contextlib
import os

from benchmarks.spinning import spinning

QUIET, BUSY = "quiet", "busy"


def load(kind: str, seconds_max: float) -> contextlib.AbstractContextManager[None]:
    """Keeps every processor busy in the body where the host is to be busy."""
    return spinning(len(os.sched_getaffinity(0)) if kind == BUSY else 0, seconds_max)
