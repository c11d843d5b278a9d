"""Best fit: where least is left afterwards, so that what is whole stays whole. Devices as core/admit.py takes them."""

from __future__ import annotations

from vgpud.core.placement.base import Rank
from vgpud.core.queue.model import Ask, JobSpec, Node
from vgpud.core.units import MILLI_PER_DEVICE

#: how many CPUs left on a node weigh as much as one GPU left (128 CPUs and 8 GPUs in the published simulator)
CPUS_PER_GPU = 16


class BestFit:
    """Nodes with the least GPU and CPU left; the fullest device that fits, for a whole one the emptiest."""

    name = "best-fit"

    def device_rank(self, node: Node, device: int, gpus_milli: int, milli: int, size_bytes: int) -> int:
        memory_bytes = node.devices[device].memory_bytes
        fullness = (MILLI_PER_DEVICE - node.free_milli[device]) * memory_bytes
        fullness += (memory_bytes - node.free_bytes[device]) * MILLI_PER_DEVICE
        return fullness if gpus_milli == MILLI_PER_DEVICE else -fullness

    def node_rank(self, ask: Ask, node: Node, devices: tuple[int, ...], takes: tuple[int, ...]) -> Rank:
        return (sum(node.free_milli) * CPUS_PER_GPU + node.free_cpu_milli, node.free_ram_bytes)

    def consolidates(self, spec: JobSpec) -> bool:
        return False
