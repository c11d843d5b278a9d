"""The partition's nodes: which the queue uses, what they are made of, and what is free there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgpud.cluster.core import capacity
from vgpud.cluster.core.model import Settings, SlurmJob, SlurmNode
from vgpud.cluster.core.registrations import Registrations
from vgpud.cluster.core.translate import node_of, objection
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import Job, Placement


class Nodes:
    """From look to look."""

    def __init__(self, settings: Settings) -> None:
        self.unusable: dict[str, str] = {}  # those that are not used -> why
        self.registrations = Registrations()
        self._settings = settings
        self._used: dict[str, SlurmNode] = {}
        self._hardware: tuple[object, ...] | None = None  # what the machine knows of their make
        self._capacities: dict[str, qe.RoomChanged] = {}
        self._others: capacity.Held = {}  # what jobs that are not the queue's have

    def look(self, nodes: Sequence[SlurmNode], jobs: Sequence[SlurmJob], running: Sequence[Job]) -> list[qe.Event]:
        """What the machine must know before jobs are looked at: their make, if that is another one. `running`: the
        queue's."""
        nodes = [self._as_known(node) for node in nodes]
        have_shards = any(node.shards for node in nodes)
        self.unusable = {node.name: text for node in nodes if (text := objection(node, self._settings, have_shards))}
        used = sorted((node for node in nodes if node.name not in self.unusable), key=lambda node: node.name)
        self._used = {node.name: node for node in used}
        ours = {job.spec.name for job in running}
        self._others = capacity.foreign((one for job in jobs if job.key not in ours for one in job.devices), self._used)
        hardware = tuple((node.name, node.gpus, node.gpu_model, node.cpus, node.memory_bytes) for node in used)
        if hardware == self._hardware:
            return []
        self._hardware = hardware
        self._capacities.clear()
        changed = qe.NodesChanged(tuple(node_of(node, self._settings) for node in used))
        return [changed, *self.list_capacity_changes([job.placement for job in running])]

    def _as_known(self, node: SlurmNode) -> SlurmNode:
        """slurmctld does not know what a node has before it has registered."""
        known = self._used.get(node.name)
        return (
            replace(known, state=node.state, used_milli=node.used_milli) if known and not node.is_registered else node
        )

    def settle(self, running: Sequence[Job]) -> dict[int, Placement]:
        """By job: the devices that it has, where these are others than was believed."""
        return capacity.settle(running, self._used)

    def list_capacity_changes(self, placements: Sequence[Placement]) -> list[qe.Event]:
        """Of the nodes where something has changed. `placements`: what the queue has reserved."""
        held = capacity.held_by(placements, self._used)
        found: list[qe.Event] = []
        for name, node in self._used.items():
            offered = node.is_schedulable and name not in self.registrations.unsure
            capacity_event = capacity.make_capacity_event(node, held[name], self._others[name], offered)
            if self._capacities.get(name) != capacity_event:
                self._capacities[name] = capacity_event
                found.append(capacity_event)
        return found
