"""Devices of kubelet's device plugin: a set that kubelet allocates has a slice, as a claim has, with its ids. Pure.

kubelet says which ids a container gets, and not which pod it is of: the first pod whose container uses the slice has it
from then on. The slice's name is a random UUID that only the container with the CDI device is given.

kubelet does not say either when ids are free again. It shows by allocating them again, and that means one of two things
(pkg/kubelet/cm/devicemanager):

- another pod gets them, because the pod that had them has ended. The slice has been used, and ends.
- a later container of the same pod gets the ids of its init containers again. kubelet allocates for all containers when
  it admits a pod, so no container of it has used a slice yet. Such slices are alternatives: one of them has the
  guarantee, and the others are `lent`, with minima of 0, until a container of theirs is created.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vgpud.core.events import ApplySlice, Command, Log, SaveSlice
from vgpud.core.model import BATCH, Denied, Reason, Share, Slice, State
from vgpud.core.origins import Allocation
from vgpud.core.slices import admission
from vgpud.core.slices.make import end

IDS_MAX = 1280  # ten for each of 128 devices
ID_BYTES_MAX = 80
_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./")


def invalid(claim: Allocation) -> Denied | None:
    """What is wrong with the ids of an allocation, whatever the node has."""
    ids = claim.device_ids
    wrong = next((one for one in ids if not 0 < len(one) <= ID_BYTES_MAX or not _SIGNS.issuperset(one)), None)
    if wrong is not None:
        return Denied(Reason.INVALID, f"{wrong[:80]!r} is not the id of a device", field="claim.device_ids")
    if len(ids) > IDS_MAX:
        text = f"{claim.what} has {len(ids)} devices: it can have {IDS_MAX}"
        return Denied(Reason.INVALID, text, field="claim.device_ids")
    return None


def make_free(state: State, claim: Allocation) -> list[Command]:
    """Takes the ids of a new allocation from the slices that had them."""
    commands: list[Command] = []
    for old, its in _with_ids(state, claim):
        if its.pods:
            commands += end(state, old, "kubelet has allocated its devices again, so its pod has ended")
        else:
            commands += _lend(state, old, its)
    return commands


def join(state: State, slice_: Slice, claim: Allocation, pod: str) -> tuple[Slice, list[Command]] | Denied:
    """The slice for a container of this pod, with its guarantee."""
    outside = claim.refuse_pod(pod)
    if outside:
        return outside
    others = _with_ids(state, claim)
    owner = next((one for its in (claim, *(its for _, its in others)) for one in its.pods if one != pod), None)
    if owner:
        text = f"{claim.what}: pod {owner} has devices of this allocation, not pod {pod}: delete {pod}"
        return Denied(Reason.DENIED, text)
    if claim.pods and not claim.is_lent:
        return slice_, []
    before = dict(state.slices)
    commands: list[Command] = []
    for old, its in others:
        commands += _lend(state, old, its)
    shares = admission.check_shares(_with_guarantee(slice_, claim), state, slice_, claim=True)
    if isinstance(shares, Denied):
        state.slices.update(before)
        return shares
    bound_claim = replace(claim, pods=(pod,), is_lent=False)
    used = replace(slice_, shares=shares, origin=bound_claim, revision=slice_.revision + 1)
    state.slices[used.name] = used
    log = Log("claim.bound", f"slice {used.name} is that of pod {pod} from now on: {claim.what}", used.name)
    return used, [*commands, SaveSlice(used), ApplySlice(used), log]


def _with_ids(state: State, claim: Allocation) -> list[tuple[Slice, Allocation]]:
    """The other allocations that have a device of this one."""
    ids = set(claim.device_ids)
    found = [(made, made.origin) for made in state.slices.values() if isinstance(made.origin, Allocation)]
    return [(made, its) for made, its in found if its.uid != claim.uid and not ids.isdisjoint(its.device_ids)]


def _with_guarantee(slice_: Slice, claim: Allocation) -> tuple[Share, ...]:
    if not claim.is_lent:
        return slice_.shares
    least = {share.device_uuid: share for share in claim.granted}
    return tuple(
        replace(
            share,
            min_milli=least[share.device_uuid].min_milli,
            max_milli=max(share.max_milli, least[share.device_uuid].min_milli),
            mem_min_bytes=least[share.device_uuid].mem_min_bytes,
            mem_max_bytes=max(share.mem_max_bytes, least[share.device_uuid].mem_min_bytes),
        )
        for share in slice_.shares
    )


def _lend(state: State, old: Slice, claim: Allocation) -> Iterable[Command]:
    """Leaves the guarantee of a slice to another one with the same devices."""
    if claim.is_lent:
        return []
    shares = tuple(replace(share, min_milli=0, mem_min_bytes=0) for share in old.shares)
    spec = replace(old.spec, service_class=BATCH)  # class latency is for a guarantee
    lent = replace(old, shares=shares, spec=spec, origin=replace(claim, is_lent=True), revision=old.revision + 1)
    state.slices[lent.name] = lent
    return [SaveSlice(lent), ApplySlice(lent)]
