"""The simulated device's busy log, and shares of device time out of it. Pure but for the log's reader.

The log is what the simulated device writes: one record per span of SM time, `{u64 begin_ns, u64 end_ns, i32 pid, u32
context}`, CLOCK_MONOTONIC (struct sim_busy in shim/simgpu/wire.h). Read by the demo and the share benchmarks, so
that a share is never taken from the arbiter's own counters.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

RECORD = struct.Struct("=QQiI")
STEP_NS = 100_000_000
WINDOW_NS = 1_000_000_000
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Span:
    """Device time of one process: [begin_ns, end_ns) on CLOCK_MONOTONIC."""

    begin_ns: int
    end_ns: int
    pid: int


def parse_busy_log(raw: bytes) -> list[Span]:
    """Takes a busy log apart; a record that is cut off at the end (still being written) is left out."""
    whole = len(raw) - len(raw) % RECORD.size
    return [Span(begin, end, pid) for begin, end, pid, _context in RECORD.iter_unpack(raw[:whole])]


def read_busy_log(path: Path) -> list[Span]:
    """Reads a busy log from its file. Raises OSError."""
    return parse_busy_log(path.read_bytes())


def busy_steps(spans: Iterable[Span], begin_ns: int, end_ns: int, step_ns: int = STEP_NS) -> list[int]:
    """Busy nanoseconds in each whole step of [begin_ns, end_ns). Spans of one process do not overlap."""
    steps = [0] * ((end_ns - begin_ns) // step_ns)
    last_ns = begin_ns + len(steps) * step_ns
    for span in spans:
        at_ns, end = max(span.begin_ns, begin_ns), min(span.end_ns, last_ns)
        while at_ns < end:
            index = (at_ns - begin_ns) // step_ns
            until_ns = min(end, begin_ns + (index + 1) * step_ns)
            steps[index] += until_ns - at_ns
            at_ns = until_ns
    return steps


def sliding(steps: list[int], window_ns: int = WINDOW_NS, step_ns: int = STEP_NS) -> list[float]:
    """Share (0..1) in each window that slides by one step."""
    width = window_ns // step_ns
    if len(steps) < width:
        return []
    total = sum(steps[:width])
    shares = [total / window_ns]
    for index in range(width, len(steps)):
        total += steps[index] - steps[index - width]
        shares.append(total / window_ns)
    return shares


def mean_share(spans: Iterable[Span], pid: int, begin_ns: int, end_ns: int) -> float:
    """Share of one process over the whole of [begin_ns, end_ns)."""
    busy = sum(max(0, min(s.end_ns, end_ns) - max(s.begin_ns, begin_ns)) for s in spans if s.pid == pid)
    return busy / (end_ns - begin_ns)
