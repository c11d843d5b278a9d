"""How many members of one ask each node can take, kept up to date as rankings are; for jobs that are consolidated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from vgpud.core.jobs.model import Node
from vgpud.core.placement.choose import count_fitting_members
from vgpud.core.placement.ranking import Changes
from vgpud.core.placement.shape import Shape


class Counts:
    """Of one shape. On one node its members go where best fit puts them: counted so and placed so."""

    __slots__ = ("_at", "_changes", "_most", "_nodes", "_of", "_position", "_shape", "known_without")

    def __init__(self, shape: Shape, nodes: Sequence[Node], changes: Changes) -> None:
        self._shape = shape
        self._nodes = nodes
        self._changes = changes
        self._position = -1
        self._most = 0  # members are counted up to this number
        self._of = [0] * len(nodes)
        self._at: dict[int, set[int]] = {}  # by count: indices of nodes
        #: by node: how many it could take if some jobs had left, as asked last. Filled in by vacancy.py
        self.known_without: dict[int, tuple[object, int]] = {}

    def count_on(self, index: int) -> int:
        """How many members this node can take, as counted for the last sum_members()."""
        return self._of[index]

    def sum_members(self, members: int, per_node: int) -> int:
        """How many members all nodes can take, `per_node` of them on each at most and no node counted above
        `members`."""
        self._refresh(members)
        return sum(min(count, per_node) * len(at) for count, at in self._at.items())

    def free(self, nodes: Iterable[int]) -> int:
        """How many members these nodes can take, as counted for the last fewest()."""
        return sum(self._of[index] for index in nodes)

    def fewest(self, members: int, among: Collection[int] | None = None) -> list[tuple[int, int]] | None:
        """(node's index, members there) on as few nodes as possible; the lowest indices among equals. `among`: only on
        these nodes."""
        self._refresh(members)
        if among is None:
            left = {count: sorted(at) for count, at in self._at.items() if count and at}
        else:
            left = {}
            for index in sorted(among):
                if self._of[index]:
                    left.setdefault(self._of[index], []).append(index)
        if sum(count * len(at) for count, at in left.items()) < members:
            return None
        plan: list[tuple[int, int]] = []
        while members:
            enough = [count for count in left if count >= members]
            count = min(enough) if enough else max(left)
            plan.append((left[count].pop(0), min(count, members)))
            members -= plan[-1][1]
            if not left[count]:
                del left[count]
        return plan

    def _refresh(self, members: int) -> None:
        end = self._changes.end
        changed: Sequence[int] | set[int] | None = None
        if members <= self._most and self._position >= 0:
            changed = self._changes.since(self._position)
        if changed is None:
            self._most = max(self._most, members)
            changed = range(len(self._nodes))
        self._position = end
        for index in set(changed):
            count = count_fitting_members(self._shape, self._nodes[index], self._most)
            self._at.setdefault(self._of[index], set()).discard(index)
            self._of[index] = count
            self._at.setdefault(count, set()).add(index)
