"""Which jobs have which devices in Slurm, beside what the queue believes of its own jobs.

Slurm places jobs on the nodes that it is given, and chooses the devices there itself. Where it says which devices a job
has, the queue's books follow. Where it does not, but shows how much of each device is used, only these sums matter to a
placement: the queue's jobs are moved, in its books, until they are no more on any device than Slurm has given there.
What is left is others'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from vgpud.cluster.core.model import SlurmNode
from vgpud.cluster.core.translate import MEMORY_BYTES, device_name
from vgpud.core.jobs.events import RoomChanged
from vgpud.core.jobs.model import Job, Place, Placement
from vgpud.core.units import MILLI_PER_DEVICE

#: by node: milli-GPU of each device
Held = dict[str, list[int]]


def held_by(placements: Sequence[Placement], nodes: Mapping[str, SlurmNode]) -> Held:
    """What these placements take of the devices that there are."""
    found: Held = {name: [0] * node.gpus for name, node in nodes.items()}
    for placement in placements:
        for place in placement:
            for share in place.shares:
                at = index_of(share.device_uuid)
                if place.node in found and at < len(found[place.node]):
                    found[place.node][at] += share.min_milli
    return found


def index_of(device: str) -> int:
    return int(device.rpartition("/")[2])


def on_nodes(placement: Placement, names: Sequence[str]) -> Placement:
    """The placement on these nodes, where they are others: devices with the same numbers."""
    if len(names) != len(placement) or {place.node for place in placement} == set(names):
        return placement
    return tuple(_move_place(place, name, {}) for place, name in zip(placement, sorted(names), strict=True))


def on_devices(placement: Placement, devices: Sequence[tuple[str, int, int]]) -> Placement:
    """The placement on the devices that Slurm says, where these are as many of the same size on the same nodes."""
    moved = []
    for place in placement:
        there = sorted((at, milli) for name, at, milli in devices if name == place.node)
        shares = sorted(place.shares, key=lambda share: share.min_milli)
        if [milli for _, milli in sorted(there, key=lambda one: one[1])] != [share.min_milli for share in shares]:
            return placement
        moved.append(_move_place(place, place.node, dict(zip(_indices(place), (at for at, _ in there), strict=True))))
    return tuple(moved)


def foreign(devices: Iterable[tuple[str, int, int]], nodes: Mapping[str, SlurmNode]) -> Held:
    """What jobs that are not the queue's have, as far as Slurm says it."""
    found: Held = {name: [0] * node.gpus for name, node in nodes.items()}
    for name, at, milli in devices:
        if name in found and at < len(found[name]):
            found[name][at] += milli
    return found


def _indices(place: Place) -> list[int]:
    return [index_of(share.device_uuid) for share in place.shares]


def settle(running: Sequence[Job], nodes: Mapping[str, SlurmNode]) -> dict[int, Placement]:
    """By job: the devices that it has as far as the sums say, where that is not what was believed."""
    held = held_by([job.placement for job in running], nodes)
    moved: dict[int, Placement] = {}
    for job in running:
        placement = tuple(_settle_place(place, nodes, held) for place in job.placement)
        if placement != job.placement:
            moved[job.job_id] = placement
    return moved


def _settle_place(place: Place, nodes: Mapping[str, SlurmNode], held: Held) -> Place:
    node = nodes.get(place.node)
    if node is None or len(node.used_milli) != node.gpus:
        return place
    believed, used = held[place.node], node.used_milli
    have = {index_of(share.device_uuid) for share in place.shares}
    to: dict[int, int] = {}
    for share in place.shares:
        at, milli = index_of(share.device_uuid), share.min_milli
        if at < node.gpus and believed[at] - used[at] < milli:
            continue  # it can be there
        others = [i for i in range(node.gpus) if i not in have and used[i] - believed[i] >= milli]
        if others:
            to[at] = min(others, key=lambda i: used[i] - believed[i])
            have = have - {at} | {to[at]}
            believed[to[at]] += milli
            if at < node.gpus:
                believed[at] -= milli
    return _move_place(place, place.node, to) if to else place


def _move_place(place: Place, node: str, to: Mapping[int, int]) -> Place:
    pairs = zip(place.shares, _indices(place), strict=True)
    shares = [replace(share, device_uuid=device_name(node, to.get(at, at))) for share, at in pairs]
    return replace(place, node=node, shares=tuple(sorted(shares, key=lambda share: index_of(share.device_uuid))))


def make_capacity_event(
    node: SlurmNode, held: Sequence[int], others: Sequence[int], is_schedulable: bool
) -> RoomChanged:
    """What others have of a node, and whether anything is placed there (`is_schedulable`). `held`: what the queue has
    reserved; `others`: what others are known to have, which counts where the node shows no sums."""
    names = [device_name(node.name, i) for i in range(node.gpus)]
    if len(node.used_milli) == node.gpus:
        others = [max(0, given - ours) for given, ours in zip(node.used_milli, held, strict=True)]
    direct = []
    for name, milli in zip(names, others, strict=True):
        if milli:
            direct.append((name, milli, milli * MEMORY_BYTES // MILLI_PER_DEVICE))
    return RoomChanged(node.name, tuple(direct), tuple(names) if is_schedulable else ())
