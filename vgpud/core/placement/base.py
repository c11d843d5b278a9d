"""What a placement rule is: it ranks nodes and devices where an ask fits, lower is better, ties are its business."""

from __future__ import annotations

from typing import Protocol

from vgpud.core.queue.model import Ask, Job, Node, Placement


class Rule(Protocol):
    """Ranks. The cluster (cluster.py) knows what fits, remembers ranks by (ask, node's version) and takes the least."""

    name: str

    def node_rank(self, ask: Ask, node: Node) -> tuple[int, ...]:
        """Of a node where the ask fits. Depends on nothing but the ask and the node as it is."""
        ...

    def device_rank(self, ask: Ask, node: Node, device: int) -> tuple[int, ...]:
        """Of a device of that node where a part of the ask fits."""
        ...


class Room(Protocol):
    """What the machine asks of a cluster."""

    def place(self, job: Job) -> Placement | None:
        """Room for all members, not taken yet, or None."""
        ...

    def take(self, placement: Placement) -> None: ...

    def release(self, placement: Placement) -> None: ...

    def could_ever(self, job: Job) -> str:
        """Why an empty cluster has no room for it; "" when it has."""
        ...

    def why_not(self, job: Job) -> str:
        """One sentence: what is missing now."""
        ...
