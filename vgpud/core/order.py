"""Jobs sorted by their policy's key, in blocks with sums: a decision costs what changes in it, not what waits.

A job has a shape here (one bit): jobs of one shape fit or fail together. A block knows the shapes in it, so that a
block with only failed shapes is skipped as a whole. After the sorted list of lists of Jenks' sortedcontainers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

#: (key of the policy, job_id)
Entry = tuple[tuple[int, ...], int]

BLOCK = 256


class _Block:
    __slots__ = ("bits", "counts", "entries", "mask", "weight", "weights")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.bits: list[int] = []  # of each entry: 1 << its shape
        self.weights: list[int] = []
        self.mask = 0  # all bits
        self.counts: dict[int, int] = {}  # bit -> how many
        self.weight = 0

    def insert(self, at: int, entry: Entry, bit: int, weight: int) -> None:
        self.entries.insert(at, entry)
        self.bits.insert(at, bit)
        self.weights.insert(at, weight)
        self._count(bit, weight)

    def _count(self, bit: int, weight: int) -> None:
        self.counts[bit] = self.counts.get(bit, 0) + 1
        self.mask |= bit
        self.weight += weight

    def delete(self, at: int) -> None:
        del self.entries[at]
        bit = self.bits.pop(at)
        self.weight -= self.weights.pop(at)
        left = self.counts[bit] - 1
        if left:
            self.counts[bit] = left
        else:
            del self.counts[bit]
            self.mask ^= bit

    def extend(self, entries: list[Entry], bits: list[int], weights: list[int]) -> None:
        self.entries += entries
        self.bits += bits
        self.weights += weights
        for bit, weight in zip(bits, weights, strict=True):
            self._count(bit, weight)


class Order:
    """A sorted set of jobs. `weight` is summed (milli-GPU), `bit` is skipped by."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._lasts: list[Entry] = []  # the last entry of each block
        self._of: dict[int, tuple[Entry, int, int]] = {}  # job_id -> entry, bit, weight
        self.weight = 0
        self.version = 0  # grows with every change

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._of

    def __iter__(self) -> Iterator[int]:
        """Job ids, best first."""
        for block in self._blocks:
            for _, job_id in block.entries:
                yield job_id

    def walk(self) -> Iterator[tuple[Entry, int]]:
        """All entries with their weights, best first."""
        for block in self._blocks:
            yield from zip(block.entries, block.weights, strict=True)

    def ids(self) -> list[int]:
        """In no particular order, but in the same one in equal runs."""
        return list(self._of)

    def entry(self, job_id: int) -> Entry:
        return self._of[job_id][0]

    def bit(self, job_id: int) -> int:
        return self._of[job_id][1]

    def add(self, job_id: int, key: tuple[int, ...], bit: int, weight: int) -> None:
        entry = (key, job_id)
        self.version += 1
        self._of[job_id] = (entry, bit, weight)
        self.weight += weight
        if not self._blocks:
            self._blocks.append(_Block())
            self._lasts.append(entry)
        at = min(bisect_left(self._lasts, entry), len(self._blocks) - 1)
        block = self._blocks[at]
        block.insert(bisect_left(block.entries, entry), entry, bit, weight)
        self._lasts[at] = block.entries[-1]
        if len(block.entries) > 2 * BLOCK:
            self._replace(at, 1, block)

    def remove(self, job_id: int) -> None:
        self.version += 1
        entry, _, weight = self._of.pop(job_id)
        self.weight -= weight
        at = bisect_left(self._lasts, entry)
        block = self._blocks[at]
        block.delete(bisect_left(block.entries, entry))
        if not block.entries:
            del self._blocks[at], self._lasts[at]
            return
        self._lasts[at] = block.entries[-1]
        after = at + 1
        if after < len(self._blocks) and len(block.entries) + len(self._blocks[after].entries) < BLOCK:
            follower = self._blocks[after]
            block.extend(follower.entries, follower.bits, follower.weights)
            self._lasts[at] = block.entries[-1]
            del self._blocks[after], self._lasts[after]

    def _replace(self, at: int, count: int, block: _Block) -> None:
        """Puts the entries of `block` where `count` blocks were, in blocks of the usual length."""
        made = []
        for start in range(0, len(block.entries), BLOCK):
            part = slice(start, start + BLOCK)
            piece = _Block()
            piece.extend(block.entries[part], block.bits[part], block.weights[part])
            made.append(piece)
        self._blocks[at : at + count] = made
        self._lasts[at : at + count] = [piece.entries[-1] for piece in made]

    def rekey(self, keys: Iterable[tuple[int, tuple[int, ...]]]) -> None:
        """All jobs at once: (job_id, key) of each that is in."""
        self.version += 1
        whole = _Block()
        entries = sorted((key, job_id) for job_id, key in keys)
        known = [self._of[job_id] for _, job_id in entries]
        whole.entries, whole.bits, whole.weights = entries, [k[1] for k in known], [k[2] for k in known]
        for entry, (_, bit, weight) in zip(entries, known, strict=True):
            self._of[entry[1]] = (entry, bit, weight)
        self._replace(0, len(self._blocks), whole)

    def next(self, cursor: Entry | None, skip: int) -> Entry | None:
        """The first entry beyond `cursor` (None: of all) whose bit is not in `skip`."""
        at, start = 0, 0
        if cursor is not None:
            at = bisect_right(self._lasts, cursor)
            if at == len(self._blocks):
                return None
            start = bisect_right(self._blocks[at].entries, cursor)
        for block in self._blocks[at:] if at else self._blocks:
            if block.mask & ~skip:
                bits = block.bits
                for index in range(start, len(bits)):
                    if not bits[index] & skip:
                        return block.entries[index]
            start = 0
        return None

    def find_last(self, cursor: Entry | None) -> Entry | None:
        """The last entry before `cursor` (None: of all)."""
        if not self._blocks:
            return None
        if cursor is None:
            return self._lasts[-1]
        at = min(bisect_left(self._lasts, cursor), len(self._blocks) - 1)
        index = bisect_left(self._blocks[at].entries, cursor)
        if index:
            return self._blocks[at].entries[index - 1]
        return self._lasts[at - 1] if at else None

    def find_neighbour(self, entry: Entry) -> Entry | None:
        """The entry just before this one; of the first one the entry just behind it. None: there is no other."""
        return self.find_last(entry) or self.next(entry, 0)

    def walk_back(self, cursor: Entry | None) -> Iterator[Entry]:
        """All entries before `cursor` (None: all), the last one first, while nothing changes."""
        at, index = len(self._blocks) - 1, BLOCK * 2
        if cursor is not None and self._blocks:
            at = min(bisect_left(self._lasts, cursor), len(self._blocks) - 1)
            index = bisect_left(self._blocks[at].entries, cursor)
        while at >= 0:
            yield from reversed(self._blocks[at].entries[:index])
            at, index = at - 1, BLOCK * 2

    def weight_after(self, entry: Entry) -> int:
        """Sum of the weights beyond this entry."""
        at = bisect_right(self._lasts, entry)
        if at == len(self._blocks):
            return 0
        block = self._blocks[at]
        first = bisect_right(block.entries, entry)
        return sum(block.weights[first:]) + sum(b.weight for b in self._blocks[at + 1 :])

    def weight_before(self, job_id: int) -> int:
        """Sum of the weights before this job."""
        entry = self._of[job_id][0]
        at = bisect_left(self._lasts, entry)
        block = self._blocks[at]
        first = bisect_left(block.entries, entry)
        return sum(block.weights[:first]) + sum([b.weight for b in self._blocks[:at]])

    def rank(self, job_id: int) -> int:
        """How many are before it."""
        entry = self._of[job_id][0]
        at = bisect_left(self._lasts, entry)
        return sum(len(b.entries) for b in self._blocks[:at]) + bisect_left(self._blocks[at].entries, entry)
