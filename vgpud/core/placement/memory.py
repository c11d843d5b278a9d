"""Memory of devices in sentences: it may be another than the one that placement counts with, or not be known."""

from __future__ import annotations

from vgpud.core.jobs.model import Node
from vgpud.core.units import format_bytes


def with_memory(gpus: str, node: Node, device: int, size_bytes: int) -> str:
    """An amount of GPUs, and so many bytes of one of the node's devices if its memory is known: "0.5 and 20GiB"."""
    if node.told_bytes is None:
        return f"{gpus} and {format_bytes(size_bytes)}"
    if not node.told_bytes:
        return gpus
    return f"{gpus} and {format_bytes(size_bytes * node.told_bytes // node.devices[device].memory_bytes)}"
