"""Placement by the speed of a job on each model of GPU (the idea of Gavel: Narayanan et al., OSDI'20).

Jobs gain differently from a faster GPU: what trains ten times as fast there should have it before what waits for its
host anyway. So a job goes where it is fastest, but for models on which it loses little: of these it takes the slowest,
and leaves the faster ones to jobs that gain from them. Gavel solves a linear program for shares of time; here the
queue's policy keeps the order of jobs, and each takes the best that is free. Jobs of unknown speeds go by ties, and
models that a job has no speed for come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from vgpud.core.devices.rates import FASTEST_MILLI, Speeds, speed_on
from vgpud.core.jobs.model import Ask, JobSpec, Node
from vgpud.core.placement.base import Rank, Rule
from vgpud.core.placement.shape import Devices, Shape

#: % of its highest speed that a job may lose to leave a faster model to others
DEFAULT_LOSS_PERCENT = 20


class Throughput:
    """Ranks by speed, then as `ties` does."""

    name = "throughput"
    sharing = None

    def __init__(self, ties: Rule, loss_percent: Fraction) -> None:
        self._ties = ties
        self._little_milli = FASTEST_MILLI - int(FASTEST_MILLI * loss_percent / 100)
        self._ranks: dict[tuple[Speeds, str], int] = {}

    def device_ranks(self, shape: Shape, part: int, node: Node, devices: Sequence[int]) -> list[int]:
        return self._ties.device_ranks(shape, part, node, devices)

    def node_rank(self, shape: Shape, node: Node, devices: Devices) -> Rank:
        return (self._model_rank(shape.ask, node.gpu_model), *self._ties.node_rank(shape, node, devices))

    def consolidates(self, spec: JobSpec) -> bool:
        return False

    def _model_rank(self, ask: Ask, model: str) -> int:
        """Models that are fast enough by their speed upwards, then the others by theirs downwards."""
        key = ask.rates, model
        rank = self._ranks.get(key)
        if rank is None:
            rate_milli = speed_on(ask.rates, model) or 0
            enough = rate_milli >= self._little_milli
            rank = self._ranks[key] = rate_milli if enough or not ask.rates else 2 * FASTEST_MILLI - rate_milli
        return rank
