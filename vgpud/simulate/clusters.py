"""Clusters to simulate: "8x8" (nodes x GPUs), Tiresias' cluster_spec.csv, the node list of Alibaba's openb."""

from __future__ import annotations

import re
from pathlib import Path

from vgpud.core.jobs.model import NEVER_NS, Node
from vgpud.core.model import Device
from vgpud.simulate.readers import MIB, table
from vgpud.simulate.trace import GPUS_MAX, Row, TraceError

#: traces say nothing of devices' memory: all have the same, and jobs take it in proportion to their share
MEMORY_BYTES = 80 << 30
GRANULE_BYTES = 2 * MIB
#: maximum of one node in a description; the openb list has 8
GPUS_PER_NODE_MAX = 100_000
EXAMPLE = "write NODESxGPUS, for example 8x8, or 4x8:V100+2x4:T4, or name a file"
#: GPUs, model, CPU, memory of a node
Kind = tuple[int, str, int, int]
_PART = re.compile(r"(\d{1,7})x(\d{1,7})(?::([\w.-]+))?")


def parse(text: str) -> tuple[Node, ...]:
    """The nodes of a description or of a file. Raises TraceError."""
    parts = [_PART.fullmatch(part.strip()) for part in text.split("+")]
    if all(parts):
        node_types = [(int(found[1]), int(found[2]), found[3] or "") for found in parts if found]
        return _make_nodes([(count, (gpus, model, NEVER_NS, NEVER_NS)) for count, gpus, model in node_types], text)
    if not Path(text).is_file():
        raise TraceError(f"cluster {text!r} is neither a file nor nodes x GPUs: {EXAMPLE}")
    return _from_file(Path(text))


def _from_file(path: Path) -> tuple[Node, ...]:
    columns, rows = table(path)
    if {"num_node_p_switch", "num_gpu_p_node"} <= columns:
        return _make_nodes([_tiresias(row) for row in rows], str(path))
    if {"sn", "gpu"} <= columns:
        nodes = tuple(_openb(row, index) for index, row in enumerate(rows))
        names: set[str] = set()
        for row, node in zip(rows, nodes, strict=True):
            if node.name in names:
                raise TraceError(f"{row.where}: sn is {node.name!r}: another node has that name")
            names.add(node.name)
        return _require_gpus(nodes, str(path))
    raise TraceError(
        f"{path}: no cluster has these columns (Tiresias: num_node_p_switch, num_gpu_p_node; openb: sn, gpu): {EXAMPLE}"
    )


def _tiresias(row: Row) -> tuple[int, Kind]:
    switches = row.positive("num_switch") if "num_switch" in row.values else 1
    gpus = row.whole_number("num_gpu_p_node", GPUS_PER_NODE_MAX)
    return switches * row.positive("num_node_p_switch"), (gpus, "", NEVER_NS, NEVER_NS)


def _openb(row: Row, index: int) -> Node:
    return make_node(
        row.text("sn"),
        index,
        row.whole_number("gpu", GPUS_PER_NODE_MAX),
        row.text("model"),
        row.whole_number("cpu_milli", 10**9) if "cpu_milli" in row.values else NEVER_NS,
        row.whole_number("memory_mib", 10**9) * MIB if "memory_mib" in row.values else NEVER_NS,
    )


def _make_nodes(node_types: list[tuple[int, Kind]], what: str) -> tuple[Node, ...]:
    """Nodes n0, n1, ..., so many of each kind."""
    if sum(count * max(1, gpus) for count, (gpus, *_) in node_types) > GPUS_MAX:
        raise TraceError(f"cluster {what!r} is too large: at most {GPUS_MAX} GPUs or nodes are possible")
    each = [kind for count, kind in node_types for _ in range(count)]
    return _require_gpus(tuple(make_node(f"n{index}", index, *kind) for index, kind in enumerate(each)), what)


def _require_gpus(nodes: tuple[Node, ...], what: str) -> tuple[Node, ...]:
    if not any(node.devices for node in nodes):
        raise TraceError(f"cluster {what!r} has no GPU: {EXAMPLE}")
    return nodes


def make_node(
    name: str, index: int, gpus: int, model: str = "", cpu_milli: int = NEVER_NS, ram_bytes: int = NEVER_NS
) -> Node:
    """A node with so many equal devices, all linked."""
    devices = tuple(
        Device(f"{name}/{number}", number, model, "", MEMORY_BYTES, 1, True, 0, GRANULE_BYTES) for number in range(gpus)
    )
    return Node(name, devices, cpu_milli, ram_bytes, model, (0,) * gpus, index)
