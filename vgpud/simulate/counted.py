"""A cluster that only counts GPUs, as the released Tiresias simulator does: any free ones do for any job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from vgpud.core.jobs.model import NEVER_NS, Ask, Job, JobSpec, Node, Place, Placement
from vgpud.core.model import Share
from vgpud.core.placement.base import Direct, Turns, Vacancy
from vgpud.core.units import MILLI_PER_DEVICE


class _CountedVacancy(Vacancy):
    def __init__(self, adjust: Callable[[Placement, int], None], fits: Callable[[], bool], milli: int) -> None:
        super().__init__(adjust, fits)
        self._milli = milli

    def needs_all_of(self, other: Vacancy) -> bool:
        return isinstance(other, _CountedVacancy) and self._milli >= other._milli


class Counted:
    """Implements base.ClusterCapacity. Placements name no node and no device."""

    def __init__(self, gpus: int) -> None:
        self._total = self._free = gpus * MILLI_PER_DEVICE

    def place(self, job: Job) -> Placement | None:
        milli = job.width_milli
        if milli > self._free:
            return None
        if job.spec.elastic and job.spec.elastic.most_members:  # its members come and go one by one
            return (_place(job.spec.ask.width_milli),) * job.spec.members
        return (_place(milli),)

    def place_outside(self, job: Job, closed: Collection[str]) -> Placement | None:
        """Its GPUs have no names that could be reserved."""
        return self.place(job)

    def fits(self, placement: Placement) -> bool:
        return _milli(placement) <= self._free

    def suits(self, job: Job, placement: Placement) -> bool:
        return self.fits(placement)

    def ask_vacancy(self, spec: JobSpec, placement: Placement) -> Vacancy | None:
        milli = _milli(placement) if placement else spec.width_milli
        return _CountedVacancy(self._adjust, lambda: milli <= self._free, milli)

    def _adjust(self, placement: Placement, sign: int) -> None:
        self._free += sign * _milli(placement)

    def offers(self, placement: Placement) -> bool:
        return True

    def has_devices(self, job: Job, placement: Placement) -> bool:
        return placement != () or job.spec.width_milli <= self._total

    def shared(self, spec: JobSpec) -> JobSpec:
        return spec

    def annotate_placement(self, job: Job, placement: Placement) -> Placement:
        return placement

    def count_ask(self, ask: Ask) -> None:
        return

    def lose(self, class_name: str, other: str) -> None:
        """Devices are not known, so neither is sharing."""

    def pairs(self) -> tuple[tuple[str, str], ...]:
        return ()

    def shortage(self, placement: Placement) -> str:
        if self.fits(placement):
            return ""
        return f"{_gpus(self._free)} GPUs are free of {_gpus(_milli(placement))} needed"

    def take(self, placement: Placement) -> None:
        self._free -= _milli(placement)

    def release(self, placement: Placement) -> None:
        self._free += _milli(placement)

    def total_milli(self) -> int:
        return self._total

    def free_milli(self) -> int:
        return self._free

    def rules(self, by_queue: dict[str, tuple[str, bool]]) -> None:
        """There is nothing to choose."""

    def change(
        self,
        node: str,
        direct: Direct,
        offered_uuids: tuple[str, ...],
        in_turn: Turns = (),
        swap_bytes: int = NEVER_NS,
    ) -> None:
        """Simulated clusters do not change."""

    def replace_nodes(self, nodes: Sequence[Node]) -> list[str]:
        self._total = self._free = sum(len(node.devices) for node in nodes) * MILLI_PER_DEVICE
        return []

    def never_fits_reason(self, job: Job) -> str:
        if job.width_milli <= self._total:
            return ""
        return f"it asks for {_gpus(job.width_milli)} GPUs and the cluster has {_gpus(self._total)}"

    def why_here(self, job: Job, placement: Placement) -> str:
        """There is nothing to choose."""
        return ""

    def why_not(self, job: Job) -> str:
        return f"it asks for {_gpus(job.width_milli)} GPUs and {_gpus(self._free)} are free"


def _place(milli: int) -> Place:
    return Place("", (Share("", milli, milli, 0, 0),))


def _milli(placement: Placement) -> int:
    return sum(share.min_milli for place in placement for share in place.shares)


def _gpus(milli: int) -> str:
    return f"{milli / MILLI_PER_DEVICE:g}"
