"""Fragmentation gradient descent: place where fragmentation grows least (Weng et al., Beware of Fragmentation, ATC'23).

Idle GPU of a node is fragmented for a job that it cannot serve: all of it where the job does not fit, else what is on
devices with too little for it. F is the mean of that over a mix of popular jobs, weighted by popularity. Here it is a
sum over devices, free x weight of the jobs that a device cannot serve, from a table for each (model, CPU, RAM left):

    F = sum_i free_i x unserved[usable_i] + idle_whole x weight of jobs of more devices than are whole

The score is coarse on purpose, floor(100 sigmoid(dF / 1000)), as published; ties go to best fit (worst fit for queues
that spread), then to the lowest index. How ties fall is worth five points of allocation.

Not as published: GPU that a job takes of a model counts as fragmented as far as other jobs ask for that model by name
(model_demand.py). F alone sends jobs that can run anywhere to the models that the fewest jobs can use, however few GPUs
there are of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp

from vgpud.core.jobs.model import Ask, JobSpec, Node
from vgpud.core.model import Spec
from vgpud.core.placement import turns
from vgpud.core.placement.base import Rank, Rule
from vgpud.core.placement.model_demand import ModelCost
from vgpud.core.placement.shape import Devices, Shape
from vgpud.core.units import MILLI_PER_DEVICE

#: the mix is the most popular asks that make up so much of all jobs
POPULAR_PERCENT = 95
SCORE_MAX = 100
TABLES_REMEMBERED_MAX = 100_000
#: scores of devices are combined with their ties' ranks, which are smaller
_TIES = 1 << 80
Mix = tuple[tuple[Ask, int], ...]
#: when nothing is known of the jobs: as many halves as quarters, whole devices as often as both
PLAIN_MIX: Mix = ((Ask(Spec(1000)), 2), (Ask(Spec(500)), 1), (Ask(Spec(250)), 1))


def mix_of(asks: Iterable[Ask], popular_percent: int = POPULAR_PERCENT) -> Mix:
    """The most popular of these asks, with how often each occurs; the earlier first among equals."""
    counts: Counter[Ask] = Counter()
    for ask, count in Counter(asks).items():
        counts[simplify(ask)] += count
    return choose_popular(counts, popular_percent)


def simplify(ask: Ask) -> Ask:
    """What counts of it in a mix: not memory, nor what it will use."""
    return Ask(Spec(ask.spec.gpus_milli, spread=ask.spec.spread), ask.cpu_milli, ask.ram_bytes, ask.gpu_models)


def choose_popular(counts: Counter[Ask], popular_percent: int = POPULAR_PERCENT) -> Mix:
    """The most popular of simplified asks that make up so much of all."""
    total, so_far = sum(counts.values()), 0
    mix: list[tuple[Ask, int]] = []
    for ask, count in counts.most_common():
        if so_far * 100 >= total * popular_percent:
            break
        so_far += count
        mix.append((ask, count))
    return tuple(mix)


class _Table:
    """For nodes of one model with CPU and RAM for the same jobs of the mix."""

    __slots__ = ("unserved_weights", "wider")

    def __init__(self, mix: Mix, model: str, cpu_milli: int, ram_bytes: int) -> None:
        #: by number of whole devices: the weight of the jobs that need more
        self.wider = [0] * (1 + max(len(ask.spec.pieces) for ask, _ in mix))
        from_milli = [0] * (MILLI_PER_DEVICE + 2)
        for ask, weight in mix:
            count = len(ask.spec.pieces)
            runs = ask.cpu_milli <= cpu_milli and ask.ram_bytes <= ram_bytes
            if not count or not runs or (ask.gpu_models and model not in ask.gpu_models):
                from_milli[MILLI_PER_DEVICE + 1] += weight
                continue
            from_milli[ask.spec.pieces[0] if count == 1 else MILLI_PER_DEVICE] += weight
            for whole in range(count if count > 1 else 0):
                self.wider[whole] += weight
        #: by milli-GPU that a device can give: the weight of the jobs that it cannot serve
        self.unserved_weights = [0] * (MILLI_PER_DEVICE + 1)
        for milli in range(MILLI_PER_DEVICE, -1, -1):
            from_milli[milli] += from_milli[milli + 1]
            self.unserved_weights[milli] = from_milli[milli + 1]


class _Sums:
    """A node as it is: what each device can give, and F."""

    __slots__ = ("_by_table", "fragmentation", "free", "usable", "version", "whole_count")

    def __init__(self, node: Node, table: _Table) -> None:
        self.version = node.version
        self.free = [free if on else 0 for free, on in zip(node.free_milli, node.offered, strict=True)]
        self.usable = [_usable(node, i, node.free_milli[i], node.free_bytes[i]) for i in range(len(node.devices))]
        self.whole_count = self.usable.count(MILLI_PER_DEVICE)
        self._by_table: dict[_Table, int] = {}
        self.fragmentation = self.devices(table)
        if self.whole_count < len(table.wider):
            self.fragmentation += self.whole_count * MILLI_PER_DEVICE * table.wider[self.whole_count]

    def devices(self, table: _Table) -> int:
        """The sum over devices, without what is whole and not enough."""
        found = self._by_table.get(table)
        if found is None:
            unserved = table.unserved_weights
            found = sum([free * unserved[usable] for free, usable in zip(self.free, self.usable, strict=True)])
            self._by_table[table] = found
        return found


def _usable(node: Node, device: int, free_milli: int, free_bytes: int) -> int:
    """Milli-GPU that a device can give together with that part of its memory."""
    if not node.offered[device] or free_milli < 0 or free_bytes < 0:
        return 0
    memory_bytes = node.devices[device].memory_bytes
    if free_bytes * MILLI_PER_DEVICE >= free_milli * memory_bytes:
        return free_milli
    return free_bytes * MILLI_PER_DEVICE // memory_bytes


class Fgd:
    """Of one cluster: it remembers sums by node and version."""

    name = "fgd"
    sharing = None

    def __init__(self, ties: Rule, mix: Mix = PLAIN_MIX, model_demand_milli: Mapping[str, int] | None = None) -> None:
        """`model_demand_milli`: as sum_model_demand() has it for the cluster's nodes; none: as published."""
        self._ties = ties
        self.set_mix(mix, model_demand_milli)

    def set_mix(self, mix: Mix, model_demand_milli: Mapping[str, int] | None = None) -> None:
        """Measures fragmentation by this mix from now on: ranks are others then."""
        self._cost = ModelCost(model_demand_milli or {})
        self._mix = mix = mix or PLAIN_MIX
        self.total_weight = sum(weight for _, weight in mix)
        self._scale = MILLI_PER_DEVICE * self.total_weight
        self._cpu_steps = sorted({ask.cpu_milli for ask, _ in mix})
        self._ram_steps = sorted({ask.ram_bytes for ask, _ in mix})
        self._models = {model for ask, _ in mix for model in ask.gpu_models}
        self._tables: dict[tuple[str, int, int], _Table] = {}
        self._of_left: dict[tuple[str, int, int], _Table] = {}
        self._sums: dict[int, _Sums] = {}

    def fragmentation(self, node: Node) -> int:
        """F of a node, in milli-GPU x weight of the whole mix (`total_weight`)."""
        return self._sums_of(node).fragmentation

    def device_ranks(self, shape: Shape, part: int, node: Node, devices: Sequence[int]) -> list[int]:
        ties = self._ties.device_ranks(shape, part, node, devices)
        if shape.takes[part] == MILLI_PER_DEVICE:
            return ties
        return [tie - self._score(shape, node, ((part, i),)) * _TIES for i, tie in zip(devices, ties, strict=True)]

    def node_rank(self, shape: Shape, node: Node, devices: Devices) -> Rank:
        cost_milli = self._cost.cost_milli(shape.models, node.gpu_model) * sum(shape.takes) // MILLI_PER_DEVICE
        score = self._score(shape, node, enumerate(devices), cost_milli)
        return (-score, *self._ties.node_rank(shape, node, devices))

    def consolidates(self, spec: JobSpec) -> bool:
        return False

    def _score(self, shape: Shape, node: Node, puts: Iterable[tuple[int, int]], cost_milli: int = 0) -> int:
        """How much less is fragmented once these parts are placed on these devices, as 0 to SCORE_MAX."""
        ask, sums = shape.ask, self._sums_of(node)
        table = self._table(node, node.free_cpu_milli - ask.cpu_milli, node.free_ram_bytes - ask.ram_bytes)
        unserved, wider = table.unserved_weights, table.wider
        after, whole = sums.devices(table) + cost_milli * self.total_weight, sums.whole_count
        sizes, takes = shape.sizes(node), shape.takes
        for part, i in puts:
            milli = node.free_milli[i] - takes[part]
            size = turns.added_bytes(node, i, sizes[part][i]) if shape.in_turn else sizes[part][i]
            usable = _usable(node, i, milli, node.free_bytes[i] - size)
            was = sums.usable[i]
            after += milli * unserved[usable] - sums.free[i] * unserved[was]
            if was == MILLI_PER_DEVICE != usable:
                whole -= 1
        if whole < len(wider):
            after += whole * MILLI_PER_DEVICE * wider[whole]
        return int(SCORE_MAX / (1 + exp((after - sums.fragmentation) / self._scale)))

    def _sums_of(self, node: Node) -> _Sums:
        found = self._sums.get(node.index)
        if found is None or found.version != node.version:
            found = self._sums[node.index] = _Sums(node, self._table(node, node.free_cpu_milli, node.free_ram_bytes))
        return found

    def _table(self, node: Node, cpu_milli: int, ram_bytes: int) -> _Table:
        left = (node.gpu_model, cpu_milli, ram_bytes)
        found = self._of_left.get(left)
        if found is None:
            key = (
                node.gpu_model if node.gpu_model in self._models else "",
                max((step for step in self._cpu_steps if step <= cpu_milli), default=-1),
                max((step for step in self._ram_steps if step <= ram_bytes), default=-1),
            )
            found = self._tables.get(key)
            if found is None:
                found = self._tables[key] = _Table(self._mix, *key)
            if len(self._of_left) >= TABLES_REMEMBERED_MAX:
                self._of_left.clear()
            self._of_left[left] = found
        return found
