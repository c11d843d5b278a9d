"""Sharing devices by utilisation (Yeung et al., HotCloud'20; Horus, TPDS'22; the undo is Gandiva's, OSDI'18).

Memory is a hard limit, as everywhere. Utilisation is a soft one: a job is placed beside others only where the sum of
what all of them use alone, as predicted and later as measured, is not above a limit; a job of unknown utilisation
counts with all that it may use. Of 1,388 measured pairs those up to 120 % slow each other down by 13 % on average at
most, those up to 160 % by 39 %. Without numbers the limits are those that end the jobs of traces soonest, each chosen
on the others (the row `colocation-limits` of benchmarks.predict): slower beside others is sooner than waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgpud.core.colocate.pairs import Pairs
from vgpud.core.jobs.model import JobSpec, Node, Resident
from vgpud.core.placement.base import Rank, Rule
from vgpud.core.placement.shape import Devices, Shape
from vgpud.core.placement.worst_fit import WorstFit
from vgpud.core.units import MILLI_PER_DEVICE

DEFAULT_PERCENT = 160
PERCENT_MAX = 1000
DEFAULT_JOBS = 4
JOBS_MAX = 16
#: predictions are rounded to this, which is finer than their precision: equal jobs are one shape to the queue
STEP_MILLI = 50
#: a device with residents comes after every empty one
_TAKEN = 1 << 40


def shared(spec: JobSpec, jobs_per_device: int) -> JobSpec:
    """The spec as it is placed: a job of at most one device that asks for no minimum is guaranteed its part of a device
    full of such jobs, and borrows the rest while it is alone. Minima from --min, gangs and elastic jobs are
    unchanged."""
    ask, wanted = spec.ask, spec.ask.spec
    if not ask.kind and spec.kinds:
        ask = replace(ask, kind=spec.kinds[0])
    if ask.utilisation_milli > 0 and ask.utilisation_milli % STEP_MILLI:
        steps = max(1, (ask.utilisation_milli + STEP_MILLI // 2) // STEP_MILLI)
        ask = replace(ask, utilisation_milli=steps * STEP_MILLI)
    small = wanted.min_milli is None and 0 < wanted.gpus_milli <= MILLI_PER_DEVICE and wanted.spread <= 1
    if small and spec.members == 1 and spec.elastic is None and jobs_per_device > 1:
        ask = replace(ask, spec=replace(wanted, min_milli=max(1, wanted.gpus_milli // jobs_per_device)))
    return spec if ask is spec.ask else replace(spec, ask=ask)


class Limits:
    """base.Sharing: which jobs may share a device."""

    def __init__(self, percent: int, jobs_per_device: int, pairs: Pairs) -> None:
        self.jobs_per_device = jobs_per_device
        self.most_milli = percent * MILLI_PER_DEVICE // 100
        self._pairs = pairs

    def welcome(self, job: Resident, residents: Sequence[Resident]) -> bool:
        """An empty device takes any job."""
        if not residents:
            return True
        if len(residents) >= self.jobs_per_device or _used_milli(job, residents) > self.most_milli:
            return False
        return not any(self._pairs.lose(job[1], other[1]) for other in residents)

    def objection(self, job: Resident, residents: Sequence[Resident]) -> str:
        """A clause about a device: why it is not; "" when it is."""
        if self.welcome(job, residents):
            return ""
        if len(residents) >= self.jobs_per_device:
            return f"has {len(residents)} job(s), and {self.jobs_per_device} may share it"
        used_milli = _used_milli(job, residents)
        if used_milli > self.most_milli:
            return f"would be {_percent(used_milli)} used; at most {_percent(self.most_milli)} is allowed"
        return "has a job beside which such jobs lose more than they gain"


def _used_milli(job: Resident, residents: Sequence[Resident]) -> int:
    return job[0] + sum([milli for milli, _ in residents])


def _percent(milli: int) -> str:
    return f"{milli * 100 // MILLI_PER_DEVICE} %"


class Colocate:
    """Empty devices first: no job is slowed down while a device is idle. Then the fullest device that stays below the
    limit, or with spreading the least used one."""

    name = "colocate"

    def __init__(self, ties: Rule, pairs: Pairs, percent: int = DEFAULT_PERCENT, jobs: int = DEFAULT_JOBS) -> None:
        self._ties = ties
        self._sign = 1 if isinstance(ties, WorstFit) else -1
        self.sharing = Limits(percent, jobs, pairs)

    def device_ranks(self, shape: Shape, part: int, node: Node, devices: Sequence[int]) -> list[int]:
        return [self._rank(node.residents[i]) for i in devices]

    def _rank(self, residents: Sequence[Resident]) -> int:
        return _TAKEN + self._sign * sum([milli for milli, _ in residents]) if residents else 0

    def node_rank(self, shape: Shape, node: Node, devices: Devices) -> Rank:
        """Among empty devices: a node where others are in use already, if jobs are packed."""
        return (sum([self._rank(node.residents[i]) for i in devices]), *self._ties.node_rank(shape, node, devices))

    def consolidates(self, spec: JobSpec) -> bool:
        return False
