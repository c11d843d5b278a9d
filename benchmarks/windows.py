"""Share errors in sliding windows, as the acceptance asks: one-second windows every 100 ms, worst tenant and window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from vgpud.simdevice.busy_log import SECOND_NS, STEP_NS, Span, busy_steps, sliding


@dataclass(frozen=True)
class Worst:
    """The largest difference between share and wanted share, in percentage points, and where it was."""

    error_pp: float
    tenant: str
    window_begin_s: float
    share: float
    target_share: float


def shares_by_tenant(
    spans: Iterable[Span], pids: Mapping[str, int], begin_ns: int, end_ns: int
) -> dict[str, list[float]]:
    """Tenant -> its share in every sliding window of [begin_ns, end_ns)."""
    of_pid: dict[int, list[Span]] = {pid: [] for pid in pids.values()}
    for span in spans:
        if span.pid in of_pid:
            of_pid[span.pid].append(span)
    return {name: sliding(busy_steps(of_pid[pid], begin_ns, end_ns)) for name, pid in pids.items()}


def worst_window(shares: Mapping[str, list[float]], targets: Mapping[str, float]) -> Worst:
    """The worst tenant and window. Raises ValueError when there is no window at all."""
    found = [
        Worst(abs(share - targets[name]) * 100, name, index * STEP_NS / SECOND_NS, share, targets[name])
        for name, series in shares.items()
        for index, share in enumerate(series)
    ]
    if not found:
        raise ValueError("no window: the run was shorter than one second")
    return max(found, key=lambda one: one.error_pp)


def handovers_ns(spans: Iterable[Span], begin_ns: int, end_ns: int) -> list[int]:
    """How long the device stood idle between two processes, each time that it went from one to the other, sorted."""
    inside = sorted((s for s in spans if begin_ns <= s.begin_ns < end_ns), key=lambda s: s.begin_ns)
    return sorted(max(0, b.begin_ns - a.end_ns) for a, b in pairwise(inside) if a.pid != b.pid)
