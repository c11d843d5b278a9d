"""The event log in memory: bounded, numbered, and the entries that are still to be written to the store."""

from __future__ import annotations

import bisect
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from vgpud.core.observed import ADMINS, Entry

#: entries that one key can add to the log per second; the rest is only counted
NOISY_PER_S = 10
#: deleted slices whose owner is remembered: later events about them are for that user
OWNERS_MAX = 4096
#: entries that after() returns at once
AFTER_MAX = 500
_NS = 1_000_000_000


class EventLog:
    """The last `limit` entries, in order of their sequence numbers."""

    def __init__(self, old: Iterable[Entry], limit: int) -> None:
        self._entries: deque[Entry] = deque(old, maxlen=limit)
        self._unwritten: deque[Entry] = deque(maxlen=limit)
        self._noise: dict[str, tuple[int, int]] = {}
        self._owners: OrderedDict[str, int] = OrderedDict()

    @property
    def next_sequence(self) -> int:
        return self._entries[-1].sequence + 1 if self._entries else 1

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._unwritten.append(entry)

    def after(self, sequence: int) -> Sequence[Entry]:
        """The next AFTER_MAX entries later than that, oldest first."""
        first = bisect.bisect_right(self._entries, sequence, key=lambda entry: entry.sequence)
        return tuple(itertools.islice(self._entries, first, first + AFTER_MAX))

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
