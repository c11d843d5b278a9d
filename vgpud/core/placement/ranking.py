"""The nodes where one ask fits, best first: a heap that re-ranks only nodes that have changed since the last query.

Entries carry their node's version. An entry older than its node is dropped when it reaches the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from vgpud.core.jobs.model import Node
from vgpud.core.placement import turns
from vgpud.core.placement.base import Rank, Rule
from vgpud.core.placement.choose import choose
from vgpud.core.placement.shape import Devices, Shape
from vgpud.core.placement.topology import groups_used

Entry = tuple[Rank, int, int, Devices]  # rank, node's index, its version, devices
#: a heap with more entries per node than this (and some) is mostly stale: it is rebuilt
STALE_FACTOR = 2
STALE_MIN = 64
#: states of nodes whose ranks are remembered, of each shape
STATES_MAX = 1024


class Changes:
    """Which nodes have changed, in order, for rankings that look now and then."""

    __slots__ = ("_indices", "_keep", "_numbers", "_start", "_state_of", "_states", "clock")

    def __init__(self, nodes: int, clock: int = 0) -> None:
        self._indices: list[int] = []
        self._start = 0
        self._keep = 8 * nodes + 1024
        self._state_of = [(-1, 0)] * nodes  # of each node: at which version, which
        self._states: dict[object, int] = {}
        self._numbers = 0
        #: grows with every change of any node; a node's version is the clock at its last
        self.clock = clock

    def add(self, node: Node) -> None:
        self.clock += 1
        node.version = self.clock
        self._indices.append(node.index)
        if len(self._indices) > 2 * self._keep:
            del self._indices[: self._keep]
            self._start += self._keep

    def state_of(self, node: Node) -> int:
        """A number from 1, equal for nodes that a rule distinguishes only by their index (or names of devices)."""
        version, number = self._state_of[node.index]
        if version == node.version:
            return number
        device_state = (tuple(node.free_milli), tuple(node.free_bytes), tuple(node.offered), node.groups)
        state: tuple[object, ...] = (
            node.kind,
            node.gpu_model,
            node.free_cpu_milli,
            node.free_ram_bytes,
            device_state,
        )
        if node.turns or node.host_sizes:
            state = (*state, tuple(node.turns), tuple(node.host_sizes), node.swap_bytes - node.swapped_bytes)
        if len(self._states) > self._keep:
            self._states.clear()  # numbers are never used again, so that nothing can go wrong but some more ranking
        self._numbers += 1
        number = self._states.setdefault(state, self._numbers)
        self._state_of[node.index] = node.version, number
        return number

    @property
    def end(self) -> int:
        return self._start + len(self._indices)

    def since(self, position: int) -> list[int] | None:
        """The indices of nodes that have changed; None: too many changes ago."""
        return None if position < self._start else self._indices[position - self._start :]


class Ranking:
    """Of one shape by one rule."""

    __slots__ = ("_by_state", "_changes", "_heap", "_is_by_state", "_nodes", "_position", "_rule", "shape")

    def __init__(self, shape: Shape, rule: Rule, nodes: Sequence[Node], changes: Changes) -> None:
        self.shape = shape
        self._rule = rule
        self._nodes = nodes
        self._changes = changes
        self._heap: list[Entry] = []
        self._position = -1
        #: nodes in the same state have the same rank: residents and names are not in it
        self._is_by_state = rule.sharing is None and not shape.named_uuids
        self._by_state: dict[int, tuple[Rank, Devices] | None] = {}

    def entry(self, node: Node) -> Entry | None:
        """Where on a node a member is placed, and its rank; None where it does not fit."""
        found = self._rank_by_state(node) if self._is_by_state else self._rank(node)
        return found and (found[0], node.index, node.version, found[1])

    def _rank_by_state(self, node: Node) -> tuple[Rank, Devices] | None:
        known, state = self._by_state, self._changes.state_of(node)
        if state in known:
            return known[state]
        if len(known) >= STATES_MAX:
            known.clear()
        found = known[state] = self._rank(node)
        return found

    def _rank(self, node: Node) -> tuple[Rank, Devices] | None:
        shape = self.shape
        devices = choose(shape, node, self._rule)
        if devices is None:
            return None
        rank = self._rule.node_rank(shape, node, devices)
        if len(devices) > 1 and node.groups:
            rank = (groups_used(node.groups, devices), *rank)
        if shape.in_turn:  # where all of them can be resident at once comes first
            rank = (int(turns.rotates(node, devices[0], shape.sizes(node)[0][devices[0]])), *rank)
        return (rank, devices)

    def find_best(self) -> Entry | None:
        """The first node where a member fits now."""
        self._refresh()
        heap, nodes = self._heap, self._nodes
        while heap:
            top = heap[0]
            if nodes[top[1]].version == top[2]:
                return top
            heappop(heap)
        return None

    def all(self) -> list[Entry]:
        """All nodes where a member fits now, best first, each once."""
        self._refresh()
        nodes = self._nodes
        valid = {entry[1]: entry for entry in self._heap if nodes[entry[1]].version == entry[2]}
        return sorted(valid.values())

    def push(self, node: Node) -> None:
        """Ranks a node that the caller has changed for the time being, or put back."""
        entry = self.entry(node)
        if entry is not None:
            heappush(self._heap, entry)

    def _refresh(self) -> None:
        end = self._changes.end
        if self._position == end:
            return
        changed = self._changes.since(self._position) if self._position >= 0 else None
        self._position = end
        limit = STALE_FACTOR * len(self._nodes) + STALE_MIN
        if changed is None or 2 * len(changed) > limit or len(self._heap) > limit:
            self._rebuild()
            return
        for index in set(changed):
            self.push(self._nodes[index])

    def _rebuild(self) -> None:
        """Of nodes that are alike only the first is ranked: in a cluster that is half empty most are."""
        shape, state_of = self.shape, self._changes.state_of
        seen: dict[object, Entry | None] = {}
        self._heap = []
        for node in self._nodes:
            state: object = -node.index if shape.named_uuids else state_of(node)
            if self._rule.sharing is not None:
                state = state, tuple(node.residents)
            if state not in seen:
                seen[state] = self.entry(node)
            entry = seen[state]
            if entry is not None:
                self._heap.append((entry[0], node.index, node.version, entry[3]))
        heapify(self._heap)
