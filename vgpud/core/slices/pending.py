"""Pending slices: a size, and no device until a program attaches that names one in CUDA_VISIBLE_DEVICES. Pure.

For schedulers that start a program before they choose its device, as Ray does. A pending slice reserves nothing and no
arbiter knows it; bound, it is a slice like any other, and pending no more.
"""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.model import Denied, Reason, Slice, Spec, State
from vgpud.core.slices import admission, queue_quota, swap_rules
from vgpud.core.units import format_gpus


def creation_refusal(spec: Spec, state: State, *, cdi_device: bool) -> Denied | None:
    """Why no slice of this size can ever be bound on this node, or None."""
    if cdi_device:
        text = "a pending slice has no CDI device: containers get their devices when they are created"
        return Denied(Reason.INVALID, text, field="pending")
    if spec.device_uuids:
        text = "a pending slice takes the devices that its program names: leave the devices out"
        return Denied(Reason.INVALID, text, field="device_uuids")
    return admission.size_refusal(spec, state)


def bind(state: State, slice_: Slice, named_uuids: tuple[str, ...]) -> Slice | Denied:
    """The slice on the devices that its program names, by UUID. The state is not changed."""
    count = len(slice_.spec.pieces)
    if not named_uuids:
        text = f"slice {slice_.name} is pending, and CUDA_VISIBLE_DEVICES names no device by its UUID: set it to"
        return Denied(Reason.PRECONDITION, f"{text} {count} device(s), GPU-..., before CUDA starts")
    if len(named_uuids) != count:
        text = f"slice {slice_.name} is pending and of {format_gpus(slice_.spec.gpus_milli)} GPUs, so for {count}"
        return Denied(Reason.PRECONDITION, f"{text} device(s): CUDA_VISIBLE_DEVICES names {len(named_uuids)}")
    spec = replace(slice_.spec, device_uuids=named_uuids)
    shares = admission.place(spec, state.seen_by(slice_.queue) if state.reservations else state)
    if isinstance(shares, Denied):
        return _cannot(slice_, shares)
    full = queue_quota.limit_refusal(state, slice_.queue, sum(share.min_milli for share in shares))
    refused = full or swap_rules.host_refusal(state, spec, shares)
    if refused:
        return _cannot(slice_, refused)
    residency = swap_rules.first_residency(state, spec, shares)
    return replace(slice_, spec=spec, shares=shares, residency=residency, revision=slice_.revision + 1)


def change_refusal(slice_: Slice) -> Denied:
    """Why a pending slice is not resized, suspended or joined by a container."""
    text = f"slice {slice_.name} is pending: it has no device before a program has attached to it"
    return Denied(Reason.PRECONDITION, text)


def _cannot(slice_: Slice, why: Denied) -> Denied:
    """The reason NO_CAPACITY is for too many processes where programs attach."""
    return replace(why, reason=Reason.PRECONDITION, message=f"slice {slice_.name} cannot be bound: {why.message}")
