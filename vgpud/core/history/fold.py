"""Points of a level as the points of an answer, which are fewer and longer. Pure.

A year has 35,000 points: chunks are folded as columns, since an object for each point would take too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from vgpud.core.history.points import Point, join

#: bytes of the unit in which columns have memory
MEMORY_UNIT_BYTES = 1 << 20


class Folded:
    """Points by their begin, in seconds since 1970, each `step_s` long; only those from `since_s` to `until_s`."""

    def __init__(self, own_step_s: int, step_s: int, since_s: float, until_s: float) -> None:
        self._own_step_s = own_step_s
        self._per_point = step_s // own_step_s
        self._first = int(since_s // own_step_s)
        self._last = int(until_s // own_step_s)
        self._points: dict[int, Point] = {}

    def add_point(self, slot: int, point: Point) -> None:
        """`slot`: the number of the step since 1970."""
        if point.samples and self._first <= slot <= self._last:
            number = slot // self._per_point
            self._points[number] = join(self._points.get(number), point)

    def add_columns(self, first_slot: int, columns: Sequence[Sequence[int]]) -> None:
        """A chunk: the fields of Point in its order, memory in MEMORY_UNIT_BYTES; its first slot."""
        begin = max(self._first, first_slot)
        end = min(self._last + 1, first_slot + len(columns[0]))
        while begin < end:
            number = begin // self._per_point
            until = min(end, (number + 1) * self._per_point)
            self._add_part(number, [column[begin - first_slot : until - first_slot] for column in columns])
            begin = until

    def _add_part(self, number: int, columns: Sequence[Sequence[int]]) -> None:
        counts, used, used_peak, min_, max_, waiting, mem_used, mem_peak, mem_max = columns
        count = sum(counts)
        if not count:
            return
        last = next(n for n in range(len(counts) - 1, -1, -1) if counts[n])
        part = Point(
            count,
            sum(map(mul, counts, used)) / count,
            max(used_peak),
            min_[last],
            max_[last],
            sum(map(mul, counts, waiting)) / count,
            sum(map(mul, counts, mem_used)) / count * MEMORY_UNIT_BYTES,
            max(mem_peak) * MEMORY_UNIT_BYTES,
            mem_max[last] * MEMORY_UNIT_BYTES,
        )
        self._points[number] = join(self._points.get(number), part)

    def points(self) -> list[tuple[int, Point]]:
        """(begin, point) in order of time."""
        step_s = self._own_step_s * self._per_point
        return [(number * step_s, self._points[number]) for number in sorted(self._points)]
