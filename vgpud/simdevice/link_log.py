"""The simulated device's log of links: which process used how much of the link between host and device, and when.

One record per span, `{u64 begin_ns, u64 end_ns, f64 link_ns, u64 bytes, i32 pid, u32 direction}`, CLOCK_MONOTONIC
(struct sim_link_use in shim/simgpu/wire.h). Pure but for the log's reader.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

RECORD = struct.Struct("=QQdQiI")
TO_DEVICE, FROM_DEVICE = 0, 1


@dataclass(frozen=True)
class LinkUse:
    """What one process moved over one link in [begin_ns, end_ns). link_ns: how long the whole link takes for it."""

    begin_ns: int
    end_ns: int
    link_ns: float
    bytes: int
    pid: int
    direction: int  # TO_DEVICE or FROM_DEVICE


def parse_link_log(raw: bytes) -> list[LinkUse]:
    """Takes a log apart; a record that is cut off at the end (still being written) is left out."""
    whole = len(raw) - len(raw) % RECORD.size
    return [LinkUse(*fields) for fields in RECORD.iter_unpack(raw[:whole])]


def read_link_log(path: Path) -> list[LinkUse]:
    """Reads a log of links from its file. Raises OSError."""
    return parse_link_log(path.read_bytes())


def link_share(uses: Iterable[LinkUse], pid: int, direction: int, begin_ns: int, end_ns: int) -> float:
    """Part of a link's time (0..1) that a process used in [begin_ns, end_ns)."""
    used_ns = 0.0
    for use in uses:
        if use.pid == pid and use.direction == direction and use.end_ns > use.begin_ns:
            inside_ns = min(use.end_ns, end_ns) - max(use.begin_ns, begin_ns)
            used_ns += use.link_ns * max(0, inside_ns) / (use.end_ns - use.begin_ns)
    return used_ns / (end_ns - begin_ns)
