"""Why a job is where it is: one sentence with the numbers that decided, made when it starts."""

from __future__ import annotations

from collections.abc import Mapping

from vgpud.core.jobs.model import Job, Node, Placement
from vgpud.core.model import Share
from vgpud.core.placement import turns
from vgpud.core.placement.base import Rule, Sharing
from vgpud.core.placement.memory import with_memory
from vgpud.core.units import MILLI_PER_DEVICE, format_gpus

#: rule -> what it prefers among devices with enough free
_LOOKS_FOR = {
    "best-fit": "the one that is left with the least",
    "worst-fit": "the one that is left with the most",
    "fgd": "the one that is left with the least that jobs like those of the queue cannot use",
    "tiresias": "the one that is left with the least",
    "throughput": "the one whose GPU model suits it best",
}


def why_here(job: Job, placement: Placement, nodes: Mapping[str, Node], rule: Rule) -> str:
    """Looks only at the job's own nodes. `nodes`: with the job's placement taken."""
    if not placement or not placement[0].shares:
        return ""
    if len(placement) > 1 or len(placement[0].shares) > 1:
        return _several(job, placement, nodes, rule)
    (place,) = placement
    (share,) = place.shares
    node = nodes[place.node]
    at = next((i for i, device in enumerate(node.devices) if device.uuid == share.device_uuid), -1)
    if at < 0:
        return ""
    name = f"device {node.devices[at].index} of {node.name}"
    if job.spec.ask.spec.device_uuids:
        return f"on {name}, as --device asks"
    if rule.sharing is not None:
        return f"on {name}{_describe_sharing(node, at, place.utilisation_milli, rule.sharing)}"
    others = _count_fitting_devices(node, at, share, is_in_turn=place.in_turn)
    left = with_memory(f"{format_gpus(max(0, node.free_milli[at]))} GPU", node, at, max(0, node.free_bytes[at]))
    left += " is left" if node.told_bytes == 0 else " are left"
    if not others:
        only = f", the only one of {len(node.devices)} that fits" if len(node.devices) > 1 else ""
        return f"on {name}{only}; {left} there"
    looks = _LOOKS_FOR.get(rule.name, f"as {rule.name} has it")
    return f"on {name}: of {others + 1} that fit, {looks} ({rule.name}); {left} there"


def _count_fitting_devices(node: Node, at: int, share: Share, *, is_in_turn: bool) -> int:
    """How many other devices of the node would have had enough free."""
    others = [i for i in range(len(node.devices)) if i != at and node.offered[i]]
    lent = [turns.largest_bytes(node, i) if is_in_turn else 0 for i in others]
    return sum(
        node.free_milli[i] >= share.min_milli and node.free_bytes[i] + more >= share.mem_min_bytes
        for i, more in zip(others, lent, strict=True)
    )


def _describe_sharing(node: Node, at: int, own_milli: int, sharing: Sharing) -> str:
    """How much of the device is used by all residents."""
    there = node.residents[at]
    if len(there) < 2:
        return ", which was empty: empty devices come first"
    sum_milli = sum(milli for milli, _ in there)
    own = _percent(own_milli) if own_milli > 0 else "not known and counts as all that it may use"
    most = f"at most {_percent(sharing.most_milli)} by {sharing.jobs_per_device} jobs"
    return f", where all use {_percent(sum_milli)} ({most}); its own part of that is {own}"


def _several(job: Job, placement: Placement, nodes: Mapping[str, Node], rule: Rule) -> str:
    """Members, or parts of one."""
    parts = []
    for name in dict.fromkeys(place.node for place in placement):
        index = {device.uuid: device.index for device in nodes[name].devices}
        used = {index[s.device_uuid] for p in placement if p.node == name for s in p.shares if s.device_uuid in index}
        parts.append(f"{', '.join(map(str, sorted(used)))} of {name}")
    together = "on as few nodes as possible, for its skew" if rule.consolidates(job.spec) else f"by {rule.name}"
    members = f"{len(placement)} members " if len(placement) > 1 else ""
    return f"{members}on devices {'; '.join(parts)}, {together}"


def _percent(milli: int) -> str:
    return f"{milli * 100 // MILLI_PER_DEVICE} %"
