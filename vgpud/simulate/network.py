"""The network of a simulated cluster: the switches above its nodes, and which jobs had to go beyond one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from vgpud.core.jobs.model import Node


class NoNodeError(ValueError):
    """A network of other nodes; one sentence with the remedy."""


def add_switches(nodes: Sequence[Node], switches: Mapping[str, tuple[str, ...]]) -> tuple[Node, ...]:
    """The nodes with the switches above each, its own first, by name. Raises NoNodeError when it has none of them."""
    if not any(node.name in switches for node in nodes):
        here = nodes[0].name if len(nodes) == 1 else f"{nodes[0].name} to {nodes[-1].name}"
        there = next(iter(switches), "")
        raise NoNodeError(
            f"it has none of the cluster's nodes ({here})" + (f", but for example {there}" if there else "")
        )
    return tuple(replace(node, switches=switches.get(node.name, ())) for node in nodes)


def above_one_switch(groups: Sequence[Collection[str]], nodes: Sequence[Node]) -> int:
    """How many of these groups of nodes, by name, are not below one and the same lowest switch. What is not known of a
    node's switches counts so."""
    lowest = {node.name: node.switches[:1] or (node.name,) for node in nodes}
    return sum(len({lowest[name] for name in group}) > 1 for group in groups)
