"""Tenths of GPUs, as kubelet's device plugin interface counts them: ids, sizes, and which ids go together. Pure.

kubelet gives devices away by number alone, and the scheduler knows only their sum over a node. So free tenths may lie
on several GPUs. n tenths are n // 10 whole GPUs and n % 10 tenths of another one; other splits are refused, since a
program that asked for 0.7 of a GPU cannot use 0.4 of one and 0.3 of another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from vgpud.core.units import MILLI_PER_DEVICE, format_gpus
from vgpud.k8s.core.model import Gpu, Granted
from vgpud.k8s.core.names import RESOURCE

PER_GPU = 10
_MILLI = MILLI_PER_DEVICE // PER_GPU
#: by UUID: indices may change at a boot, and kubelet keeps ids for as long as their pod lives
_ID = re.compile(r"(.{1,64})-tenth-([0-9])")


class AllocationError(ValueError):
    """The devices cannot be given away: one line, which kubelet shows in the pod's status."""


def device_id(uuid: str, number: int) -> str:
    return f"{uuid}-tenth-{number}"


def list_devices(gpus: Iterable[Gpu]) -> tuple[tuple[str, bool], ...]:
    """(id, whether pods may get it) of all devices: of GPUs, since a tenth of a MIG instance is less."""
    return tuple(
        (device_id(gpu.uuid, number), not (gpu.drained or gpu.fault or gpu.taken_by))
        for gpu in sorted(gpus, key=lambda gpu: gpu.index)
        if not gpu.profile
        for number in range(PER_GPU)
    )


def granted(ids: Collection[str], gpus: Iterable[Gpu], max_milli: int) -> tuple[Granted, ...]:
    """What a slice with these devices has, by index of its GPUs. max_milli: a maximum on each GPU above its tenths, 0
    for none. Raises AllocationError."""
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    counts: dict[str, int] = {}
    for one in set(ids):
        found = _ID.fullmatch(one)
        if found is None or found.group(1) not in by_uuid:
            raise AllocationError(f"{RESOURCE}: this node has no device {one[:80]!r}: see `vgpu gpu ls` there")
        counts[found.group(1)] = counts.get(found.group(1), 0) + 1
    if not counts:
        raise AllocationError(f"{RESOURCE}: no device was named")
    split = sorted(counts.values(), reverse=True)
    if split != _pieces(sum(split)):
        parts = " + ".join(format_gpus(count * _MILLI) for count in split)
        text = f"{RESOURCE}: {format_gpus(sum(split) * _MILLI)} GPUs are free on this node only as {parts} of"
        raise AllocationError(f"{text} {len(split)} GPUs: use fewer tenths, or a new pod when others have ended")
    return tuple(_share(by_uuid[uuid], counts[uuid], max_milli) for uuid in by_uuid if uuid in counts)


def _pieces(tenths: int) -> list[int]:
    whole, rest = divmod(tenths, PER_GPU)
    return [PER_GPU] * whole + ([rest] if rest else [])


def _share(gpu: Gpu, tenths: int, max_milli: int) -> Granted:
    memory = gpu.memory_bytes * tenths // PER_GPU
    memory -= memory % gpu.granule_bytes
    return Granted(gpu.uuid, tenths * _MILLI, max(tenths * _MILLI, max_milli), memory, memory)


# ---- which ids kubelet had best give away ----


def choose_preferred_ids(available: Iterable[str], must: Collection[str], size: int) -> tuple[str, ...]:
    """`size` of the ids, those in `must` among them: whole GPUs, and the rest on the fullest GPU where it fits. Where
    this is impossible, ids of as few GPUs as there can be, which granted() then refuses."""
    free: dict[str, list[str]] = {}
    bound: dict[str, int] = {}
    # those that must be taken come first on their GPU
    for one in sorted({*available, *must}, key=lambda one: (one not in must, one)):
        uuid = one.rpartition("-tenth-")[0]
        free.setdefault(uuid, []).append(one)
        bound[uuid] = bound.get(uuid, 0) + (one in must)
    amounts = _fitting(free, bound, size) or _fewest(free, bound, size)
    return tuple(one for uuid, amount in amounts.items() for one in free[uuid][:amount])


def _fitting(free: Mapping[str, Sequence[str]], required_counts: Mapping[str, int], size: int) -> dict[str, int]:
    """Tenths to take of each GPU, {} where they cannot be whole GPUs and one part."""
    whole, rest = divmod(size, PER_GPU)
    # a GPU that is not needed as a whole, and the fullest one, so that free GPUs stay free
    fits = [uuid for uuid in free if required_counts[uuid] <= rest <= len(free[uuid])]
    fits.sort(key=lambda uuid: (-required_counts[uuid], len(free[uuid]), uuid))
    for part in fits if rest else [""]:
        full = [uuid for uuid in free if len(free[uuid]) == PER_GPU and uuid != part]
        chosen = sorted(full, key=lambda uuid: (-required_counts[uuid], uuid))[:whole]
        amounts = dict.fromkeys(chosen, PER_GPU) | ({part: rest} if rest else {})
        if len(chosen) == whole and all(amounts.get(uuid, 0) >= count for uuid, count in required_counts.items()):
            return amounts
    return {}


def _fewest(free: Mapping[str, Sequence[str]], required_counts: Mapping[str, int], size: int) -> dict[str, int]:
    amounts = {uuid: count for uuid, count in required_counts.items() if count}
    for uuid in sorted(free, key=lambda uuid: (-required_counts[uuid], -len(free[uuid]), uuid)):
        more = min(len(free[uuid]) - amounts.get(uuid, 0), size - sum(amounts.values()))
        if more > 0:
            amounts[uuid] = amounts.get(uuid, 0) + more
    return amounts


# ---- GPUs that the other interface has given away ----


def without_those_of_others(gpus: Iterable[Gpu], uuids: Collection[str], taken_by: str) -> tuple[Gpu, ...]:
    """A GPU belongs to one interface: where slices of the other one are left, nothing new is placed."""
    return tuple(replace(gpu, taken_by=taken_by) if gpu.uuid in uuids else gpu for gpu in gpus)
