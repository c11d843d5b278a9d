"""What a placement rule is: it ranks nodes and devices where an ask fits, lower is better, ties are its business."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from vgpud.core.jobs.model import Job, JobSpec, Node, Placement, Resident
from vgpud.core.placement.shape import Devices, Shape

Rank = tuple[int, ...]


class Rule(Protocol):
    """Ranks. The cluster (cluster.py) knows what fits, remembers ranks by (ask, node's version) and takes the least.

    A rank depends on nothing but the ask and the node as it is. Equal ranks: the lowest index.
    """

    name: str

    @property
    def sharing(self) -> Sharing | None:
        """Who may share a device; None: whoever fits, and neither ranks nor rooms depend on who is there."""
        ...

    def device_ranks(self, shape: Shape, part: int, node: Node, devices: Sequence[int]) -> list[int]:
        """Of each of these devices; this part fits on all of them."""
        ...

    def node_rank(self, shape: Shape, node: Node, devices: Devices) -> Rank:
        """Of a node where a member would go on these devices."""
        ...

    def consolidates(self, spec: JobSpec) -> bool:
        """Whether the members of this job go on as few nodes as possible."""
        ...


class Sharing(Protocol):
    """A rule's veto: who may share a device, told what is known of those who would (model.Resident)."""

    jobs_per_device: int
    most_milli: int  # of a device, that all who share it may use together

    def welcome(self, job: Resident, beside: Sequence[Resident]) -> bool:
        """Whether a job may go beside these. Alone everybody may."""
        ...

    def objection(self, job: Resident, beside: Sequence[Resident]) -> str:
        """Why it may not: a clause about the device; "" when it may."""
        ...


class Room(Protocol):
    """What the machine asks of a cluster."""

    def place(self, job: Job) -> Placement | None:
        """Room for all members, not taken yet, or None."""
        ...

    def fits(self, placement: Placement) -> bool:
        """Whether exactly this room is free, e.g. for a suspended job to go on where it was."""
        ...

    def suits(self, job: Job, placement: Placement) -> bool:
        """The same, and that its rule lets it go beside those who are there."""
        ...

    def shared(self, spec: JobSpec) -> JobSpec:
        """The spec as its queue's rule places it: some guarantee less, so that others fit beside it."""
        ...

    def noted(self, job: Job, placement: Placement) -> Placement:
        """The same with what is known of the job, where its rule goes by that."""
        ...

    def lose(self, kind: str, other: str) -> None:
        """Jobs of these kinds get less done together: no rule that looks at who shares a device lets them again."""
        ...

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All of these, oldest first."""
        ...

    def shortage(self, placement: Placement) -> str:
        """What of exactly this room is not free: a clause for a sentence; "" when it fits."""
        ...

    def take(self, placement: Placement) -> None: ...

    def release(self, placement: Placement) -> None: ...

    def total_milli(self) -> int:
        """Of all devices that are offered."""
        ...

    def free_milli(self) -> int:
        """Of those: what nothing has taken. Asked for at every step: it must be at hand."""
        ...

    def rules(self, by_queue: dict[str, tuple[str, bool]]) -> None:
        """The name of the placement rule of each queue's jobs, and whether they are spread."""
        ...

    def change(self, node: str, direct: tuple[tuple[str, int, int], ...], offered: tuple[str, ...]) -> None:
        """As events.RoomChanged says it."""
        ...

    def never_fits_reason(self, job: Job) -> str:
        """Why an empty cluster has no room for it; "" when it has."""
        ...

    def why_here(self, job: Job, placement: Placement) -> str:
        """Why this room, which it has, was chosen: a clause with the numbers that decided; "" = there was no choice."""
        ...

    def why_not(self, job: Job) -> str:
        """One sentence: what is missing now. Looks at every node: for those who ask, not for every decision."""
        ...


class Tentative:
    """A room that is changed for a question only: leaving the context undoes every change, the latest first."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._undo: list[tuple[Callable[[Placement], None], Placement]] = []

    def __enter__(self) -> Tentative:
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            undo, placement = self._undo.pop()
            undo(placement)

    def take(self, placement: Placement) -> None:
        self._room.take(placement)
        self._undo.append((self._room.release, placement))

    def release(self, placement: Placement) -> None:
        self._room.release(placement)
        self._undo.append((self._room.take, placement))

    def fits(self, placement: Placement) -> bool:
        return self._room.fits(placement)
