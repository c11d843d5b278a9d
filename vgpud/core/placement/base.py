"""What a placement rule is: it ranks nodes and devices where an ask fits, lower is better, ties are its business."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from vgpud.core.jobs.model import NEVER_NS, Ask, Job, JobSpec, Node, Placement, Resident
from vgpud.core.placement.shape import Devices, Shape

Rank = tuple[int, ...]
#: as in events.RoomChanged
Direct = tuple[tuple[str, int, int], ...]
Turns = tuple[tuple[str, int, bool], ...]


class Rule(Protocol):
    """Ranks. The cluster (cluster.py) knows what fits, remembers ranks by (ask, node's version) and takes the least.

    A rank depends on nothing but the ask and the node as it is. Equal ranks: the lowest index.
    """

    name: str

    @property
    def sharing(self) -> Sharing | None:
        """The limits on sharing a device; None: any job that fits may share one, and neither ranks nor fit depend on
        residents."""
        ...

    def device_ranks(self, shape: Shape, part: int, node: Node, devices: Sequence[int]) -> list[int]:
        """Of each of these devices; this part fits on all of them."""
        ...

    def node_rank(self, shape: Shape, node: Node, devices: Devices) -> Rank:
        """Rank of a node if a member were placed on these devices."""
        ...

    def consolidates(self, spec: JobSpec) -> bool:
        """Whether the members of this job are placed on as few nodes as possible."""
        ...


class Sharing(Protocol):
    """A rule's limits on sharing a device, by what is known of its residents (model.Resident)."""

    jobs_per_device: int
    most_milli: int  # utilisation of a device by all jobs that share it, at most

    def welcome(self, job: Resident, residents: Sequence[Resident]) -> bool:
        """Whether a job may be placed beside these. An empty device takes any job."""
        ...

    def objection(self, job: Resident, residents: Sequence[Resident]) -> str:
        """Why it may not: a clause about the device; "" when it may."""
        ...


#: by node, by job: what jobs that may leave have there
Leaving = Mapping[str, Mapping[int, Placement]]


def flatten(placements: Iterable[Placement]) -> Placement:
    """All of them as one."""
    return tuple(place for placement in placements for place in placement)


class Vacancy:
    """Whether a job would fit if others left, asked of many sets of them: what is free changes in place, without a new
    version of any node, so that no ranking is made again. Whoever asks gives back what it has released.

    `adjust`: adds a placement to what is free (1) or subtracts it (-1). `fits`: whether the job fits as it is then.
    `nodes`: the only ones that count; none = all.
    """

    def __init__(
        self, adjust: Callable[[Placement, int], None], fits: Callable[[], bool], nodes: Collection[str] = ()
    ) -> None:
        self._adjust = adjust
        self.fits = fits
        self._nodes = nodes

    def fits_without(self, leaving: Leaving) -> bool:
        """Whether the job fits if all of these leave, while all that has been released is back."""
        placement = flatten(places for name in self._nodes or leaving for places in leaving.get(name, {}).values())
        self._adjust(placement, 1)
        fits = self.fits()
        self._adjust(placement, -1)
        return fits

    def release(self, placement: Placement) -> None:
        """Another job leaves this placement."""
        self._adjust(placement, 1)

    def take(self, placement: Placement) -> None:
        """One that has left it is back."""
        self._adjust(placement, -1)

    def needs_all_of(self, other: Vacancy) -> bool:
        """Whether this job certainly does not fit where the other one, of the same queue, does not."""
        return False


class ClusterCapacity(Protocol):
    """What the machine asks of a cluster."""

    def place(self, job: Job) -> Placement | None:
        """A placement for all members, not taken yet, or None."""
        ...

    def place_outside(self, job: Job, closed: Collection[str]) -> Placement | None:
        """As place(), but on none of these devices (UUIDs)."""
        ...

    def fits(self, placement: Placement) -> bool:
        """Whether exactly this placement is free, e.g. for a suspended job to resume where it was."""
        ...

    def suits(self, job: Job, placement: Placement) -> bool:
        """As fits(), and its rule lets the job share the devices with their residents."""
        ...

    def ask_vacancy(self, spec: JobSpec, placement: Placement) -> Vacancy | None:
        """For the question whether such a job would fit if others left: anywhere, or, with a placement, just there.
        None: only place() can tell."""
        ...

    def offers(self, placement: Placement) -> bool:
        """Whether a job that leaves it frees capacity for others: one of its devices is offered, or it has none."""
        ...

    def has_devices(self, job: Job, placement: Placement) -> bool:
        """Whether what is offered would do for the job if nothing else ran: anywhere, or, with a placement, just
        there."""
        ...

    def shared(self, spec: JobSpec) -> JobSpec:
        """The spec as its queue's rule places it: some rules guarantee less, so that other jobs fit beside it."""
        ...

    def annotate_placement(self, job: Job, placement: Placement) -> Placement:
        """The same with what is known of the job, where its rule uses that."""
        ...

    def count_ask(self, ask: Ask) -> None:
        """A job that asks for this was submitted: rules that go by what most jobs ask for learn from it."""
        ...

    def lose(self, class_name: str, other: str) -> None:
        """Jobs of these similarity classes slow each other down: rules that look at residents do not place them
        together again."""
        ...

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All of these pairs, oldest first."""
        ...

    def shortage(self, placement: Placement) -> str:
        """What of exactly this placement is not free: a clause for a sentence; "" when it fits."""
        ...

    def take(self, placement: Placement) -> None: ...

    def release(self, placement: Placement) -> None: ...

    def total_milli(self) -> int:
        """Of all devices that are offered."""
        ...

    def free_milli(self) -> int:
        """Free capacity of these. Called at every step: it must be at hand."""
        ...

    def rules(self, by_queue: dict[str, tuple[str, bool]]) -> None:
        """The name of the placement rule of each queue's jobs, and whether they are spread."""
        ...

    def change(
        self,
        node: str,
        direct: Direct,
        offered_uuids: tuple[str, ...],
        in_turn: Turns = (),
        swap_bytes: int = NEVER_NS,
    ) -> None:
        """As in events.RoomChanged."""
        ...

    def replace_nodes(self, nodes: Sequence[Node]) -> list[str]:
        """As in events.NodesChanged; all of it is free then. Returns the names of the nodes that there were."""
        ...

    def never_fits_reason(self, job: Job) -> str:
        """Why it does not fit an empty cluster; "" when it does."""
        ...

    def why_here(self, job: Job, placement: Placement) -> str:
        """Why its placement was chosen: a clause with the numbers that decided; "" = there was no choice."""
        ...

    def why_not(self, job: Job) -> str:
        """One sentence: what is missing now. Looks at every node: for explanations, not for every decision."""
        ...


class Tentative:
    """A cluster that is changed for a question only: leaving the context undoes every change, the latest first."""

    def __init__(self, cluster: ClusterCapacity) -> None:
        self._cluster = cluster
        self._undo: list[tuple[Callable[[Placement], None], Placement]] = []

    def __enter__(self) -> Tentative:
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            undo, placement = self._undo.pop()
            undo(placement)

    def take(self, placement: Placement) -> None:
        self._cluster.take(placement)
        self._undo.append((self._cluster.release, placement))

    def release(self, placement: Placement) -> None:
        self._cluster.release(placement)
        self._undo.append((self._cluster.take, placement))

    def fits(self, placement: Placement) -> bool:
        return self._cluster.fits(placement)
