"""Worst fit: where most is free, so that jobs disturb one another least. Fewer whole devices stay free."""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core.jobs.model import JobSpec, Node
from vgpud.core.placement.base import Rank
from vgpud.core.placement.best_fit import fullness, sum_free_capacity
from vgpud.core.placement.shape import Devices, Shape


class WorstFit:
    """Nodes with the most GPU and CPU left, on them the emptiest devices."""

    name = "worst-fit"
    sharing = None

    def device_ranks(self, shape: Shape, part: int, node: Node, devices: Sequence[int]) -> list[int]:
        return [fullness(node, i, is_in_turn=shape.in_turn) for i in devices]

    def node_rank(self, shape: Shape, node: Node, devices: Devices) -> Rank:
        return (-sum_free_capacity(node),)

    def consolidates(self, spec: JobSpec) -> bool:
        return False
