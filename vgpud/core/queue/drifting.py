"""Running jobs in order where their keys fall with time, each at its own pace: no key is computed again as time passes.

Jobs of one pace keep their order among each other, so they are in one order by the keys that they would have had at
time 0. Where a job is among those of another pace follows from the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge

from vgpud.core.order import Entry, Order


class DriftingOrder:
    """As Order, of keys whose second part falls by `pace` with each ns. `now_ns` never goes back."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.weight = 0
        self.version = 0  # grows with every change of a job
        self._by_pace: dict[int, Order] = {}
        self._pace_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._pace_of)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._pace_of

    def __iter__(self) -> Iterator[int]:
        """Job ids, best first."""
        return (job_id for _, job_id in merge(*(self._walk(pace) for pace in self._by_pace)))

    def ids(self) -> list[int]:
        """In no particular order, but in the same one in equal runs."""
        return list(self._pace_of)

    def _walk(self, pace: int) -> Iterator[Entry]:
        order = self._by_pace[pace]
        return (_shift(order.entry(job_id), -pace * self.now_ns) for job_id in order)

    def entry(self, job_id: int) -> Entry:
        """As of now."""
        pace = self._pace_of[job_id]
        return _shift(self._by_pace[pace].entry(job_id), -pace * self.now_ns)

    def pace(self, job_id: int) -> int:
        return self._pace_of[job_id]

    def bit(self, job_id: int) -> int:
        return self._by_pace[self._pace_of[job_id]].bit(job_id)

    def add(self, job_id: int, key: tuple[int, ...], bit: int, weight: int, pace: int = 0) -> None:
        """`key`: as of now."""
        self.version += 1
        self.weight += weight
        self._pace_of[job_id] = pace
        (key, _) = _shift((key, job_id), pace * self.now_ns)
        self._by_pace.setdefault(pace, Order()).add(job_id, key, bit, weight)

    def remove(self, job_id: int) -> None:
        self.version += 1
        pace = self._pace_of.pop(job_id)
        order = self._by_pace[pace]
        self.weight -= order.weight
        order.remove(job_id)
        self.weight += order.weight
        if not len(order):
            del self._by_pace[pace]

    def rekey_one(self, job_id: int, key: tuple[int, ...]) -> None:
        """A job's key as of now, at the pace that it has."""
        self._move(job_id, key, self._pace_of[job_id])

    def _move(self, job_id: int, key: tuple[int, ...], pace: int) -> None:
        order = self._by_pace[self._pace_of[job_id]]
        bit, weight = order.bit(job_id), order.weight
        self.remove(job_id)
        self.add(job_id, key, bit, weight - order.weight, pace)

    def rekey(self, keys: Iterable[tuple[int, tuple[int, ...], int]]) -> None:
        """All jobs at once: (job_id, key as of now, pace) of each that is in."""
        by_pace: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for job_id, key, pace in keys:
            if pace != self._pace_of[job_id]:
                self._move(job_id, key, pace)
            by_pace.setdefault(pace, []).append((job_id, _shift((key, job_id), pace * self.now_ns)[0]))
        self.version += 1
        for pace, found in by_pace.items():
            self._by_pace[pace].rekey(found)

    def find_last(self, cursor: Entry | None) -> Entry | None:
        """The last entry before `cursor` (None: of all)."""
        last: Entry | None = None
        for pace, order in self._by_pace.items():
            shift = pace * self.now_ns
            found = order.find_last(cursor if cursor is None else _shift(cursor, shift))
            if found is not None:
                found = _shift(found, -shift)
                if last is None or found > last:
                    last = found
        return last

    def walk_back(self, cursor: Entry | None) -> Iterator[Entry]:
        """All entries before `cursor` (None: all), the last one first, while nothing changes."""
        walks = [self._walk_back(pace, cursor) for pace in self._by_pace]
        return walks[0] if len(walks) == 1 else merge(*walks, reverse=True)

    def _walk_back(self, pace: int, cursor: Entry | None) -> Iterator[Entry]:
        by = pace * self.now_ns
        walk = self._by_pace[pace].walk_back(cursor if cursor is None else _shift(cursor, by))
        return (_shift(entry, -by) for entry in walk) if by else walk

    def weight_after(self, entry: Entry) -> int:
        """Sum of the weights beyond this entry."""
        return sum(order.weight_after(_shift(entry, pace * self.now_ns)) for pace, order in self._by_pace.items())


def _shift(entry: Entry, by: int) -> Entry:
    if not by:
        return entry
    (first, second, *rest), job_id = entry
    return ((first, second + by, *rest), job_id)
