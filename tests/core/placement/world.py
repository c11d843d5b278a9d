"""Small clusters for tests of placement, and the state of one as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.builders import make_device
from vgpud.core.jobs.model import NEVER_NS, Ask, Job, JobSpec, Node, Placement
from vgpud.core.model import Device, Spec

GIB = 1 << 30
GRANULE_BYTES = 2 << 20


def device(node: str, index: int, memory_bytes: int = 80 * GIB, context_bytes: int = 0) -> Device:
    return make_device(index, uuid=f"{node}/{index}", memory_bytes=memory_bytes, context_bytes=context_bytes)


def node(
    name: str,
    gpus: int,
    *,
    memory_bytes: int = 80 * GIB,
    cpu_milli: int = NEVER_NS,
    ram_bytes: int = NEVER_NS,
    model: str = "",
    groups: tuple[int, ...] = (),
    context_bytes: int = 0,
) -> Node:
    devices = tuple(device(name, index, memory_bytes, context_bytes) for index in range(gpus))
    return Node(name, devices, cpu_milli, ram_bytes, model, groups)


def fresh(nodes: Sequence[Node]) -> list[Node]:
    """The same nodes with nothing on them, for another cluster."""
    return [replace(n, free_milli=[], free_bytes=[], offered=[], residents=[], version=0) for n in nodes]


def ask(gpus_milli: int, cpu_milli: int = 0, ram_bytes: int = 0, models: tuple[str, ...] = (), **spec: object) -> Ask:
    return Ask(Spec(gpus_milli, **spec), cpu_milli, ram_bytes, models)  # type: ignore[arg-type]


def job(amount: Ask | int, members: int = 1, **spec: object) -> Job:
    amount = ask(amount) if isinstance(amount, int) else amount
    return Job(1, JobSpec(amount, members, **spec), 0)  # type: ignore[arg-type]


def devices_of(placement: Placement | None) -> list[tuple[str, ...]]:
    """The devices of each member."""
    assert placement is not None
    return [tuple(share.device_uuid for share in place.shares) for place in placement]


def at(placement: Placement | None) -> list[str]:
    """The node of each member."""
    assert placement is not None
    return [place.node for place in placement]


def state(nodes: Sequence[Node]) -> list[tuple[object, ...]]:
    return [
        (
            tuple(n.free_milli),
            tuple(n.free_bytes),
            n.free_cpu_milli,
            n.free_ram_bytes,
            tuple(n.offered),
            tuple(n.residents),
            tuple(n.turns),
            tuple(n.host_sizes),
            n.swapped_bytes,
        )
        for n in nodes
    ]
