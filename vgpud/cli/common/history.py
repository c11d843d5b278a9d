"""The last minute of each slice, from the views that `vgpu top` gets. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WINDOW_S = 60.0
#: rates look back at least this far, or one scheduling turn would be shown as a trend
RATE_S = 0.95

Key = tuple[str, str]  # the slice's uid and the device's


@dataclass(frozen=True, slots=True)
class _Moment:
    at_s: float
    share_ratio: float
    throttled_ns: int
    borrowed_ns: int
    wait_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recent:
    """Ratios of time over the last second, None until a second has passed. The waits are those of the last minute."""

    throttled_ratio: float | None
    borrowed_ratio: float | None
    wait_counts: tuple[int, ...]


class History:
    """The last minute of every slice on every device. interval_s: time between views."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._moments: dict[Key, deque[_Moment]] = {}

    def add(self, at_s: float, slices: Sequence[Mapping[str, Any]]) -> None:
        """Adds the slices of one view; slices that no longer exist are forgotten."""
        old, self._moments = self._moments, {}
        for item in slices:
            for device in item["devices"]:
                key = (item["uid"], device["device_uuid"])
                moments = old.get(key, deque())
                waits = tuple(device["wait_counts"])
                now = _Moment(at_s, device["share_ratio"], device["throttled_ns"], device["borrowed_ns"], waits)
                if moments and moments[-1].throttled_ns > now.throttled_ns:
                    moments.clear()  # the daemon was restarted and counts from 0
                moments.append(now)
                while moments[0].at_s < at_s - WINDOW_S:
                    moments.popleft()
                self._moments[key] = moments

    def shares(self, key: Key, cells: int) -> list[float | None]:
        """The minute in this many cells, oldest first: the mean of each, None where there is no view.

        Cells begin at whole multiples of their length, so the line moves by whole cells.
        """
        moments = self._moments.get(key, deque())
        cell_s = WINDOW_S / cells
        sums: dict[int, list[float]] = {}
        before_s = None
        for moment in moments:
            here = int(moment.at_s // cell_s)
            first = here if before_s is None else int(before_s // cell_s) + 1
            if before_s is not None and moment.at_s - before_s > 2 * self._interval_s:
                first = here  # the daemon was away: a gap
            for cell in {*range(first, here), here}:
                sums.setdefault(cell, []).append(moment.share_ratio)
            before_s = moment.at_s
        last = int(moments[-1].at_s // cell_s) if moments else 0
        found = [sums.get(cell) for cell in range(last - cells + 1, last + 1)]
        return [sum(values) / len(values) if values else None for values in found]

    def recent(self, key: Key) -> Recent:
        """Rates from the counters of the last views."""
        moments = self._moments.get(key, deque())
        if len(moments) < 2:
            return Recent(None, None, ())
        now, oldest = moments[-1], moments[0]
        before = next((m for m in reversed(moments) if m.at_s <= now.at_s - RATE_S), oldest)
        span_ns = max(now.at_s - before.at_s, 1e-3) * 1e9
        waits = tuple(a - b for a, b in zip(now.wait_counts, oldest.wait_counts, strict=False))
        return Recent(
            (now.throttled_ns - before.throttled_ns) / span_ns, (now.borrowed_ns - before.borrowed_ns) / span_ns, waits
        )
