"""The event log in memory: bounded, numbered, and the entries that are still to be written to the store."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence

from vgpud.core.observed import ADMINS, Entry

#: entries that one key can add to the log per second; the rest is only counted
NOISY_PER_S = 10
#: deleted slices whose owner is remembered: later events about them are for that user
OWNERS_MAX = 4096
#: entries that entries_after() returns at once
AFTER_MAX = 500
_NS = 1_000_000_000


class EventLog:
    """The last `limit` entries. When there are more, the oldest is forgotten of the owner who has most of them: no user
    pushes out what others are still to see."""

    def __init__(self, old: Iterable[Entry], limit: int) -> None:
        self._limit = limit
        self._by_owner: dict[int, deque[Entry]] = {}
        self._count = 0
        self._last = 0  # sequence number
        self._unwritten: deque[Entry] = deque(maxlen=limit)
        self._noise: dict[str, tuple[int, int]] = {}
        self._owners: OrderedDict[str, int] = OrderedDict()
        for entry in old:
            self._keep(entry)

    @property
    def next_sequence(self) -> int:
        return self._last + 1

    def add(self, entry: Entry) -> None:
        self._keep(entry)
        self._unwritten.append(entry)

    def _keep(self, entry: Entry) -> None:
        self._by_owner.setdefault(entry.owner_uid, deque()).append(entry)
        self._last = entry.sequence
        self._count += 1
        if self._count > self._limit:
            most = max(self._by_owner, key=lambda uid: len(self._by_owner[uid]))
            self._by_owner[most].popleft()
            self._count -= 1
            if not self._by_owner[most]:
                del self._by_owner[most]

    def entries_after(self, sequence: int) -> Sequence[Entry]:
        """The next AFTER_MAX entries later than that, oldest first."""
        later = [
            _iterate_after(entries, sequence) for entries in self._by_owner.values() if entries[-1].sequence > sequence
        ]
        return tuple(itertools.islice(heapq.merge(*later, key=lambda entry: entry.sequence), AFTER_MAX))

    def take_unwritten(self) -> list[Entry]:
        """Entries since the last call, for the store. Return them with keep_unwritten if that fails."""
        taken = list(self._unwritten)
        self._unwritten.clear()
        return taken

    def keep_unwritten(self, entries: Iterable[Entry]) -> None:
        self._unwritten = deque([*entries, *self._unwritten], maxlen=self._unwritten.maxlen)

    def too_noisy(self, key: str, now_ns: int) -> bool:
        """Whether this key has used up its entries of this second. Keys are slice names, so they are bounded."""
        begin_ns, count = self._noise.get(key, (now_ns, 0))
        if now_ns - begin_ns >= _NS:
            begin_ns, count = now_ns, 0
        self._noise[key] = (begin_ns, count + 1)
        return count >= NOISY_PER_S

    def remember_owner(self, slice_name: str, owner_uid: int) -> None:
        """The owner of a slice that is about to be deleted."""
        self._owners[slice_name] = owner_uid
        self._owners.move_to_end(slice_name)
        if len(self._owners) > OWNERS_MAX:
            self._owners.popitem(last=False)

    def owner(self, slice_name: str) -> int:
        """The owner of the last deleted slice of this name."""
        return self._owners.get(slice_name, ADMINS)

    def forget_noise(self, key: str) -> None:
        self._noise.pop(key, None)


def _iterate_after(entries: deque[Entry], sequence: int) -> Iterator[Entry]:
    first = bisect.bisect_right(entries, sequence, key=lambda entry: entry.sequence)
    return itertools.islice(entries, first, first + AFTER_MAX)
