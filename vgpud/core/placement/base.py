"""What a placement rule is: it ranks nodes and devices where an ask fits, lower is better, ties are its business."""

from __future__ import annotations

from typing import Protocol

from vgpud.core.queue.model import Ask, Job, JobSpec, Node, Placement

Rank = tuple[int, ...]


class Rule(Protocol):
    """Ranks. The cluster (cluster.py) knows what fits, remembers ranks by (ask, node's version) and takes the least.

    A rank depends on nothing but the ask and the node as it is. Equal ranks: the lowest index.
    """

    name: str

    def device_rank(self, node: Node, device: int, gpus_milli: int, milli: int, size_bytes: int) -> int:
        """Of a device where a part fits that asks for `gpus_milli` and takes (milli, size_bytes)."""
        ...

    def node_rank(self, ask: Ask, node: Node, devices: tuple[int, ...], takes: tuple[int, ...]) -> Rank:
        """Of a node where the ask would go on these devices, taking so many milli-GPU of each."""
        ...

    def consolidates(self, spec: JobSpec) -> bool:
        """Whether the members of this job go on as few nodes as possible."""
        ...


class Room(Protocol):
    """What the machine asks of a cluster."""

    def place(self, job: Job) -> Placement | None:
        """Room for all members, not taken yet, or None."""
        ...

    def fits(self, placement: Placement) -> bool:
        """Whether exactly this room is free, e.g. for a suspended job to go on where it was."""
        ...

    def take(self, placement: Placement) -> None: ...

    def release(self, placement: Placement) -> None: ...

    def total_milli(self) -> int:
        """Of all devices that are offered."""
        ...

    def free_milli(self) -> int:
        """Of those: what nothing has taken."""
        ...

    def rules(self, by_queue: dict[str, tuple[str, bool]]) -> None:
        """The name of the placement rule of each queue's jobs, and whether they are spread."""
        ...

    def change(self, node: str, direct: tuple[tuple[str, int, int], ...], offered: tuple[str, ...]) -> None:
        """As events.RoomChanged says it."""
        ...

    def could_ever(self, job: Job) -> str:
        """Why an empty cluster has no room for it; "" when it has."""
        ...

    def why_not(self, job: Job) -> str:
        """One sentence: what is missing now. Looks at every node: for those who ask, not for every decision."""
        ...
