"""Tiresias' placement (Gu et al., NSDI'19): only jobs with skewed traffic are consolidated.

Skew is the part of the largest tensor in all that a job sends: it is what holds a link up. A job above the pack
limit is placed on as few nodes as possible; other jobs, and those of unknown skew, anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core.jobs.model import JobSpec, Node
from vgpud.core.placement.base import Rank, Rule
from vgpud.core.placement.shape import Devices, Shape

#: parts of a million. VGG's first dense layer has three quarters of its parameters, ResNet's largest tensor a tenth
PACK_LIMIT_PPM = 500_000


class Tiresias:
    """Consolidates by skew; ranks as `ties` does."""

    name = "tiresias"
    sharing = None

    def __init__(self, ties: Rule, pack_limit_ppm: int = PACK_LIMIT_PPM) -> None:
        self._ties = ties
        self._pack_limit_ppm = pack_limit_ppm

    def device_ranks(self, shape: Shape, part: int, node: Node, devices: Sequence[int]) -> list[int]:
        return self._ties.device_ranks(shape, part, node, devices)

    def node_rank(self, shape: Shape, node: Node, devices: Devices) -> Rank:
        return self._ties.node_rank(shape, node, devices)

    def consolidates(self, spec: JobSpec) -> bool:
        return spec.skew_ppm > self._pack_limit_ppm
