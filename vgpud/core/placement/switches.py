"""Nodes of a network of switches: the members of a gang go below the lowest switch with capacity for all of them.

As Slurm's topology.conf describes it: a switch has nodes, or switches below it. Of several such switches, the one with
the least free capacity is taken, so that wide ones stay free for gangs that need them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vgpud.core.jobs.model import Node
from vgpud.core.placement.ranking import Entry
from vgpud.core.placement.shape import Devices


def levels(indices: Iterable[int], nodes: Sequence[Node]) -> Iterator[list[list[int]]]:
    """Of each height, the lowest first: these nodes by the switch that they are below, in their order."""
    left = list(indices)
    for height in range(max((len(nodes[index].switches) for index in left), default=0)):
        below: dict[str, list[int]] = {}
        for index in left:
            names = nodes[index].switches
            if height < len(names):
                below.setdefault(names[height], []).append(index)
        yield list(below.values())


def place_one_per_node(
    entries: Sequence[Entry], nodes: Sequence[Node], members: int
) -> list[tuple[int, Devices]] | None:
    """Each member on another node, where they are nearest to each other; of equal nodes the best. `entries`: all nodes
    where one fits, best first."""
    if len(entries) < members:
        return None
    devices = {entry[1]: entry[3] for entry in entries}
    chosen = list(devices)
    for below in levels(devices, nodes):
        enough = [group for group in below if len(group) >= members]
        if enough:
            chosen = min(enough, key=len)
            break
    return [(index, devices[index]) for index in chosen[:members]]
