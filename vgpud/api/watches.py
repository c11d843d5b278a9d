"""What several streams send alike: made once per interval for all callers with equal rights."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

#: no stream of a Watch call sends, and no snapshot is made, more often
INTERVAL_MIN_S, INTERVAL_MAX_S = 0.1, 60.0
#: callers whose snapshots are kept
KEPT_MAX = 256


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A message as bytes, and the number of the last change that is in it."""

    data: bytes
    change: int
    made_ns: int


class Snapshots:
    """The last snapshot for each kind of caller."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._kept: OrderedDict[Hashable, Snapshot] = OrderedDict()
        self._locks: dict[Hashable, asyncio.Lock] = {}

    async def get(self, rights: Hashable, change: Callable[[], int], make: Callable[[], Awaitable[bytes]]) -> Snapshot:
        """The snapshot for callers with these rights, at most INTERVAL_MIN_S old. `change`: number of the last one."""
        lock = self._locks.setdefault(rights, asyncio.Lock())
        try:
            async with lock:
                known = self._kept.get(rights)
                if known and self._now_ns() - known.made_ns < INTERVAL_MIN_S * 1e9:
                    return known
                number = change()
                made = Snapshot(await make(), number, self._now_ns())
                self._kept[rights] = made
                self._kept.move_to_end(rights)
                if len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)
                return made
        finally:
            if not lock.locked():
                self._locks.pop(rights, None)
