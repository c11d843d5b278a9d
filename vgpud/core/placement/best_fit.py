"""Best fit: where least is left afterwards, so that what is whole stays whole. Devices as
core/slices/admission.py takes them."""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core.jobs.model import JobSpec, Node
from vgpud.core.placement import turns
from vgpud.core.placement.base import Rank
from vgpud.core.placement.shape import Devices, Shape
from vgpud.core.units import MILLI_PER_DEVICE

#: free CPUs of a node that weigh as much as one free GPU (128 CPUs and 8 GPUs in FGD's published simulator)
CPUS_PER_GPU = 16


class BestFit:
    """Nodes with the least GPU and CPU left; the fullest device that fits, for a whole one the emptiest."""

    name = "best-fit"
    sharing = None

    def device_ranks(self, shape: Shape, part: int, node: Node, devices: Sequence[int]) -> list[int]:
        sign = 1 if shape.parts[part].gpus_milli == MILLI_PER_DEVICE else -1
        return [sign * fullness(node, i, is_in_turn=shape.in_turn) for i in devices]

    def node_rank(self, shape: Shape, node: Node, devices: Devices) -> Rank:
        return (sum_free_capacity(node),)

    def consolidates(self, spec: JobSpec) -> bool:
        return False


def fullness(node: Node, device: int, *, is_in_turn: bool = False) -> int:
    """How much of a device is taken, compute and memory alike. `is_in_turn`: for a member in turn with others there."""
    memory_bytes = node.devices[device].memory_bytes
    free_bytes = node.free_bytes[device] + (turns.largest_bytes(node, device) if is_in_turn else 0)
    taken = (MILLI_PER_DEVICE - node.free_milli[device]) * memory_bytes
    return taken + (memory_bytes - free_bytes) * MILLI_PER_DEVICE


def sum_free_capacity(node: Node) -> int:
    """How much GPU and CPU is free on a node. What a job takes of it is the same on every node."""
    return sum(node.free_milli) * CPUS_PER_GPU + node.free_cpu_milli
