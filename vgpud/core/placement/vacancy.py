"""Whether a job would fit on any nodes if others left: counted, without placing it.

Placing ranks nodes; whether there is a placement is a matter of counting. Only nodes that others leave are counted
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vgpud.core.jobs.model import JobSpec, Node, Placement
from vgpud.core.placement.base import Leaving, Vacancy, flatten
from vgpud.core.placement.choose import count_fitting_members
from vgpud.core.placement.counts import Counts
from vgpud.core.placement.shape import Shape


class MemberVacancy(Vacancy):
    """As many members as the job has fit, node by node. Exact for shapes whose members are alike in what they leave
    each other (Shape.is_countable), and for one member of any shape."""

    def __init__(
        self,
        adjust: Callable[[Placement, int], None],
        find_node: Callable[[str], Node | None],
        counts: Counts,
        shape: Shape,
        kinds: Sequence[Node],
        spec: JobSpec,
    ) -> None:
        """`kinds`: a node of each kind."""
        super().__init__(adjust, self._has_members)
        self._find_node = find_node
        self._counts = counts
        self._shape = shape
        self._kinds = kinds
        self._members = spec.members
        self._is_one_per_node = spec.one_per_node
        self._per_node = 1 if spec.one_per_node else spec.members
        self._total = counts.sum_members(spec.members, self._per_node)
        self._counted: dict[str, int] = {}  # members on the nodes that are not as `counts` knows them
        self._stale: dict[str, None] = {}  # nodes to be counted again

    def release(self, placement: Placement) -> None:
        super().release(placement)
        for place in placement:
            self._stale[place.node] = None

    def take(self, placement: Placement) -> None:
        super().take(placement)
        for place in placement:
            self._stale[place.node] = None

    def fits_without(self, leaving: Leaving) -> bool:
        self._recount()
        total = self._total
        for name, places in leaving.items():
            node = self._find_node(name)
            if node is not None:
                here = min(self._counts.count_on(node.index), self._per_node)
                total += self._count_without(node, places) - here
        return total >= self._members

    def _count_without(self, node: Node, places: Mapping[int, Placement]) -> int:
        """Members on a node that these jobs have left. Known until it changes: one decision after another asks of the
        same."""
        key = node.version, self._per_node, tuple(places)
        known = self._counts.known_without.get(node.index)
        if known is not None and known[0] == key:
            return known[1]
        placement = flatten(places.values())
        self._adjust(placement, 1)
        count = count_fitting_members(self._shape, node, self._per_node)
        self._adjust(placement, -1)
        self._counts.known_without[node.index] = key, count
        return count

    def needs_all_of(self, other: Vacancy) -> bool:
        if not isinstance(other, MemberVacancy):
            return False
        if other._is_one_per_node and not (self._is_one_per_node and self._members >= other._members):
            return False
        return self._shape.covers(self._members, other._shape, other._members, self._kinds)

    def _has_members(self) -> bool:
        self._recount()
        return self._total >= self._members

    def _recount(self) -> None:
        for name in self._stale:
            node = self._find_node(name)
            if node is not None:
                before = self._counted.get(name)
                if before is None:
                    before = min(self._counts.count_on(node.index), self._per_node)
                count = self._counted[name] = count_fitting_members(self._shape, node, self._per_node)
                self._total += count - before
        self._stale.clear()
