"""Memory of jobs and slices with mem-swap, which are resident in turn (docs/design/rotation.md).

Of a device the largest of their sizes is taken, and the host must hold all but the smallest, as slices.swap_rules
admits them. Only nodes with such jobs have lists of sizes: all others are as if there were no rotation.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from vgpud.core.jobs.model import Node
from vgpud.core.slices.swap_rules import compute_host_need


def largest_bytes(node: Node, device: int) -> int:
    """What those in turn have of a device together."""
    return node.turns[device][-1] if node.turns and node.turns[device] else 0


def added_bytes(node: Node, device: int, size_bytes: int) -> int:
    """How much less of a device is free for others with one more of this size in turn there."""
    return max(0, size_bytes - largest_bytes(node, device))


def admits(node: Node, device: int, size_bytes: int) -> bool:
    """Whether one more of this size may have memory of a device in turn, and the host can hold it meanwhile."""
    return fits_device(node, device, size_bytes) and host_bytes(node, device, size_bytes) <= node.swap_bytes


def fits_device(node: Node, device: int, size_bytes: int) -> bool:
    """The same without a look at the host."""
    return node.free_bytes[device] + largest_bytes(node, device) >= size_bytes


def rotates(node: Node, device: int, size_bytes: int) -> bool:
    """Whether those of a device could not all be resident at once with one more of this size."""
    others = sum(node.turns[device]) if node.turns else 0
    return node.free_bytes[device] + largest_bytes(node, device) - others < size_bytes


def host_bytes(node: Node, device: int, size_bytes: int) -> int:
    """RAM of the host that all of the node need with one more of this size: on each device, all but the smallest, for
    which the others must leave."""
    sizes = _sizes(node, device)
    return node.swapped_bytes + compute_host_need((*sizes, size_bytes)) - compute_host_need(sizes)


def change(node: Node, device: int, size_bytes: int, sign: int, *, is_on_device: bool = True) -> None:
    """Takes (-1) this memory in turn, or gives it back (+1). `is_on_device`: else it is evicted, and only the host
    counts it. The caller updates the node's version."""
    if not size_bytes:
        return
    free, before = node.free_bytes[device] + largest_bytes(node, device), compute_host_need(_sizes(node, device))
    if is_on_device:
        node.turns = _change_sizes(node.turns or [()] * len(node.devices), device, size_bytes, sign)
    else:
        node.host_sizes = _change_sizes(node.host_sizes or [()] * len(node.devices), device, size_bytes, sign)
    node.free_bytes[device] = free - largest_bytes(node, device)
    node.swapped_bytes += compute_host_need(_sizes(node, device)) - before


def _sizes(node: Node, device: int) -> tuple[int, ...]:
    return (*(node.turns[device] if node.turns else ()), *(node.host_sizes[device] if node.host_sizes else ()))


def _change_sizes(sizes: list[tuple[int, ...]], device: int, size_bytes: int, sign: int) -> list[tuple[int, ...]]:
    """The ascending sizes of each device with one more or less; [] where there are none left."""
    there = list(sizes[device])
    if sign < 0:
        insort(there, size_bytes)
    else:
        at = bisect_left(there, size_bytes)
        assert there[at : at + 1] == [size_bytes], "what is given back was taken"
        del there[at]
    sizes[device] = tuple(there)
    return sizes if there or any(sizes) else []
