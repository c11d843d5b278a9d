"""Admission: from what was asked to four numbers per device, or a refusal (README.md: minimum, maximum). Pure.

Minima, of time and of memory, never add up to more than a device. Placement is best fit: the fullest device that still
fits, so that empty ones stay free for slices that need a whole device; with mem_swap first one where it takes no turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from vgpud.core.model import (
    CLASSES,
    LATENCY,
    PRIORITY_MAX,
    WEIGHT_MAX,
    Denied,
    Device,
    Reason,
    Share,
    SiteLimits,
    Slice,
    Spec,
    State,
)
from vgpud.core.slices import drains, swap_rules
from vgpud.core.units import GPUS_MAX, MILLI_PER_DEVICE, format_bytes, format_gpus

#: slices that one refusal names
_NAMES_MAX = 3


def _invalid(message: str, field: str) -> Denied:
    return Denied(Reason.INVALID, message, field=field)


def split(total: int, weights: Sequence[int], caps: Sequence[int]) -> list[int]:
    """Integers that add up to total (or to the caps), in proportion to weights, none above its cap: water-filling.

    Rounding goes by largest remainder, earlier first, so the result does not depend on anything else.
    """
    parts = [0] * len(weights)
    open_ = [i for i, cap in enumerate(caps) if cap > 0]
    left = min(total, sum(caps))
    while left > 0 and open_:
        weight = sum(weights[i] for i in open_)
        full = [i for i in open_ if left * weights[i] >= (caps[i] - parts[i]) * weight]
        if full:
            for i in full:
                left -= caps[i] - parts[i]
                parts[i] = caps[i]
            open_ = [i for i in open_ if i not in full]
            continue
        shares = {i: divmod(left * weights[i], weight) for i in open_}
        for i in open_:
            parts[i] += shares[i][0]
        rest = left - sum(whole for whole, _ in shares.values())
        for i in sorted(open_, key=lambda i: -shares[i][1])[:rest]:
            parts[i] += 1
        break
    return parts


@dataclass(frozen=True, slots=True)
class Part:
    """What a slice wants of one device, before it is known which one; None = in proportion to the device's memory."""

    gpus_milli: int
    min_milli: int
    max_milli: int
    mem_min_bytes: int | None
    mem_max_bytes: int | None

    def compute_share(self, device: Device) -> Share:
        """The four numbers on this device, memory rounded down to its granule."""
        fair = device.memory_bytes * self.gpus_milli // MILLI_PER_DEVICE
        high = self.mem_max_bytes if self.mem_max_bytes is not None else max(fair, self.mem_min_bytes or 0)
        low = self.mem_min_bytes if self.mem_min_bytes is not None else min(fair, high)
        granule = device.granule_bytes
        return Share(device.uuid, self.min_milli, self.max_milli, low - low % granule, high - high % granule)


def parts_of(spec: Spec, policy: SiteLimits) -> list[Part] | Denied:
    """Checks a spec by itself and divides it over its devices, biggest part first."""
    wrong = check_numbers(spec)
    if wrong:
        return wrong
    pieces = spec.pieces
    top = MILLI_PER_DEVICE * len(pieces)
    lowest = spec.gpus_milli if spec.min_milli is None else spec.min_milli
    highest = spec.max_milli
    if highest is None:
        highest = top if policy.default_max == "device" else max(spec.gpus_milli, lowest)
    if highest > top:
        return _invalid(
            f"max {format_gpus(highest)} is more than the {len(pieces)} device(s) of"
            f" {format_gpus(spec.gpus_milli)} GPUs have: ask for at most {format_gpus(top)}",
            "max_milli",
        )
    if lowest > highest:
        return _invalid(
            f"min {format_gpus(lowest)} is above max {format_gpus(highest)}: lower the minimum or raise the maximum",
            "min_milli",
        )
    caps = split(highest, pieces, [MILLI_PER_DEVICE] * len(pieces))
    if min(caps) == 0:
        return _invalid(f"max {format_gpus(highest)} leaves a device with nothing: raise the maximum", "max_milli")
    floors = split(lowest, pieces, caps)
    if spec.service_class == LATENCY and min(floors) == 0:
        return _invalid(
            f"class latency with min {format_gpus(lowest)}: only guarantees are served at once,"
            f" set a minimum above 0{_on_each(pieces)} or class batch",
            "service_class",
        )
    mem_low, mem_high = (_split_memory(total, pieces) for total in (spec.mem_min_bytes, spec.mem_max_bytes))
    return [Part(*numbers) for numbers in zip(pieces, floors, caps, mem_low, mem_high, strict=True)]


def _on_each(pieces: list[int]) -> str:
    return "" if len(pieces) == 1 else f" on each of the {len(pieces)} devices"


def _split_memory(total: int | None, pieces: list[int]) -> Sequence[int | None]:
    return [None] * len(pieces) if total is None else split(total, pieces, [total] * len(pieces))


def check_numbers(spec: Spec) -> Denied | None:
    """Refuses what no node could give."""
    if spec.gpus_milli <= 0:
        return _invalid(
            f"{format_gpus(spec.gpus_milli)} GPUs is too little: ask for 0.001 or more, for example 0.5", "gpus_milli"
        )
    if spec.gpus_milli > GPUS_MAX * MILLI_PER_DEVICE:
        return _invalid(
            f"{format_gpus(spec.gpus_milli)} GPUs is more than any node has: ask for {GPUS_MAX} or less", "gpus_milli"
        )
    wrong = _check_spread(spec)
    if wrong:
        return wrong
    if spec.min_milli is not None and spec.min_milli < 0:
        return _invalid(f"min {format_gpus(spec.min_milli)} is negative: write 0 for no guarantee", "min_milli")
    if spec.max_milli is not None and spec.max_milli <= 0:
        return _invalid(f"max {format_gpus(spec.max_milli)} allows nothing: write 0.001 or more", "max_milli")
    for name, size in (("mem_min_bytes", spec.mem_min_bytes), ("mem_max_bytes", spec.mem_max_bytes)):
        if size is not None and (size < 0 or (size == 0 and name == "mem_max_bytes")):
            return _invalid(f"{name} {size} is not an amount of memory: write for example 8589934592 (8GiB)", name)
    low, high = spec.mem_min_bytes, spec.mem_max_bytes
    if low is not None and high is not None and low > high:
        return _invalid(
            f"mem-min {format_bytes(low)} is above mem-max {format_bytes(high)}: lower the one or raise the other",
            "mem_min_bytes",
        )
    wrong = _check_link(spec)
    if wrong:
        return wrong
    if not 0 <= spec.weight <= WEIGHT_MAX:
        return _invalid(f"weight {spec.weight} is out of range: write 0 (by the minimum) to {WEIGHT_MAX}", "weight")
    if not 0 <= spec.priority <= PRIORITY_MAX:
        return _invalid(f"priority {spec.priority} is out of range: write 0 to {PRIORITY_MAX}", "priority")
    if spec.service_class not in CLASSES:
        return _invalid(f"no class {spec.service_class!r}: write {' or '.join(CLASSES)}", "service_class")
    return swap_rules.spec_refusal(spec)


def _check_link(spec: Spec) -> Denied | None:
    low, high = spec.copy_min_milli, spec.copy_max_milli
    for name, value in (("copy_min_milli", low), ("copy_max_milli", high)):
        if not 0 <= value <= MILLI_PER_DEVICE:
            return _invalid(f"{name} {value} is no part of a link: write 0 to {MILLI_PER_DEVICE}", name)
    if high and low > high:
        text = f"copy-min {format_gpus(low)} is above copy-max {format_gpus(high)}: lower the one or raise the other"
        return _invalid(text, "copy_min_milli")
    return None


def _check_spread(spec: Spec) -> Denied | None:
    least, most = -(-spec.gpus_milli // MILLI_PER_DEVICE), min(GPUS_MAX, spec.gpus_milli)
    if spec.spread == 0 or least <= spec.spread <= most:
        return None
    between = f"{least}" if least == most else f"{least} to {most}"
    return _invalid(
        f"{format_gpus(spec.gpus_milli)} GPUs cannot be spread over {spec.spread} device(s): write {between}", "spread"
    )


def smallest_limit_bytes(context_bytes: int, granule_bytes: int) -> int:
    """The smallest memory limit that works on a device with contexts and granules of these sizes: one of each."""
    return -(-context_bytes // granule_bytes) * granule_bytes + granule_bytes


def _refuse_share(share: Share, part: Part | Share, device: Device) -> Denied | None:
    """Refuses what this device could never give, however empty."""
    if share.mem_max_bytes > device.memory_bytes or share.mem_min_bytes > device.memory_bytes:
        over = max(share.mem_max_bytes, share.mem_min_bytes)
        return _invalid(
            f"memory {format_bytes(over)} is more than device {device.index} has ({format_bytes(device.memory_bytes)}):"
            f" ask for {format_bytes(device.memory_bytes)} or less",
            "mem_max_bytes",
        )
    if share.mem_max_bytes < (least := smallest_limit_bytes(device.context_bytes, device.granule_bytes)):
        return _invalid(
            f"memory {format_bytes(part.mem_max_bytes or share.mem_max_bytes)} is less than one context needs on device"
            f" {device.index} ({format_bytes(device.context_bytes)}):"
            f" ask for {least} bytes ({format_bytes(least)}) or more",
            "mem_max_bytes",
        )
    return None


def place(
    spec: Spec, state: State, excluded_slice: str = "", allowed_devices: Sequence[str] = ()
) -> tuple[Share, ...] | Denied:
    """Shares for a spec, ordered by device index; on `allowed_devices`, if any. `excluded_slice`: the one that
    changes."""
    parts = parts_of(spec, state.policy)
    if isinstance(parts, Denied):
        return parts
    candidates = _candidates(spec, parts, state, allowed_devices)
    if not isinstance(candidates, Denied):
        candidates = _with_free_link(spec, candidates, len(parts), state, excluded_slice)
    if isinstance(candidates, Denied):
        return candidates
    taken: dict[str, Share] = {}
    for part in parts:
        free = [d for d in candidates if d.uuid not in taken]
        chosen = _best_fit(part, free, state, excluded_slice, spec)
        if isinstance(chosen, Denied):
            if len(parts) == 1:
                return chosen
            have = ", ".join(str(state.devices[uuid].index) for uuid in taken)
            where = f"{len(taken)} have free capacity (device {have}), and of the others" if taken else "and"
            return replace(chosen, message=f"{len(parts)} devices are needed, {where} {chosen.message}")
        taken[chosen.device_uuid] = chosen
    return tuple(taken[uuid] for uuid in state.devices if uuid in taken)


def size_refusal(spec: Spec, state: State) -> Denied | None:
    """Why no devices of this node could hold such a slice, however empty they were, or None."""
    parts = parts_of(spec, state.policy)
    if isinstance(parts, Denied):
        return parts
    candidates = _candidates(spec, parts, state, ())
    if isinstance(candidates, Denied):
        return candidates
    for part in parts:
        wrong = [_refuse_share(part.compute_share(device), part, device) for device in candidates]
        if all(wrong):
            return wrong[0]
    return None


def check_shares(
    shares: tuple[Share, ...],
    state: State,
    old: Slice | None = None,
    *,
    claim: bool = False,
    tolerates_drain: bool = False,
    spec: Spec | None = None,
) -> tuple[Share, ...] | Denied:
    """Checks shares that were chosen elsewhere, ordered by device index, against the free capacity.

    claim: the shares are those of a claim of Kubernetes. tolerates_drain: devices may be drained. spec: of the slice,
    as far as it says more than the shares.

    `old`: the slice that is being resized. On a device where it has as much already, it needs no free capacity, and the
    device need not be offered.
    """
    several = _several([device for share in shares if (device := state.devices.get(share.device_uuid))])
    if several:
        return several
    own_name, mem_swap = old.name if old else "", spec is not None and spec.mem_swap
    for share in shares:
        device = state.devices.get(share.device_uuid)
        if device is None:
            return Denied(Reason.NO_CAPACITY, f"device {share.device_uuid} is missing", subject=share.device_uuid)
        wrong = _refuse_share(share, share, device) if claim else None  # others' numbers have been checked
        if wrong:
            return wrong
        had = old.share(share.device_uuid) if old else None
        full = _refuse_link(spec, device, state, own_name) if spec else None
        if full:
            return full
        keeps = old is None or mem_swap or not old.spec.mem_swap  # without it its memory is its own again
        if had and keeps and share.min_milli <= had.min_milli and share.mem_min_bytes <= had.mem_min_bytes:
            continue
        closed = None if had else drains.refusal([device], state, claim=claim, tolerates_drain=tolerates_drain)
        if closed:
            return closed
        milli, size = state.reserved(share.device_uuid, excluded_slice=own_name, mem_swap=mem_swap)
        size += 0 if had and share.mem_min_bytes <= had.mem_min_bytes else state.foreign_bytes(share.device_uuid)
        if not _fits(share, milli, size, device):
            text = f"device {device.index} has {format_gpus(MILLI_PER_DEVICE - milli)} GPU and"
            text += f" {format_bytes(device.memory_bytes - size)} left, and this needs"
            text += f" {format_gpus(share.min_milli)} GPU and {format_bytes(share.mem_min_bytes)}:"
            text += " it is tried again when capacity is free"
            return Denied(Reason.NO_CAPACITY, text, subject=device.uuid)
    return tuple(sorted(shares, key=lambda share: state.devices[share.device_uuid].index))


def _candidates(spec: Spec, parts: list[Part], state: State, allowed_devices: Sequence[str]) -> list[Device] | Denied:
    names = allowed_devices or spec.device_uuids
    unknown = next((name for name in names if name not in state.devices), None)
    if unknown is not None:
        have = ", ".join(f"{device.index} ({uuid})" for uuid, device in state.devices.items()) or "none"
        return Denied(Reason.NOT_FOUND, f"no device {unknown!r} on this node: it has {have}", "device_uuids")
    if names and (len(set(names)) != len(names) or len(names) != len(parts)):
        return _invalid(
            f"{format_gpus(spec.gpus_milli)} GPUs need {len(parts)} different device(s), {len(names)} are named:"
            f" name {len(parts)} or none" + (f", or spread it over {len(names)}" if len(names) > len(parts) else ""),
            "device_uuids",
        )
    devices = [state.devices[name] for name in names] or list_default_devices(state)
    have_count = len(devices)
    if spec.spread > have_count:
        return _invalid(
            f"{spec.spread} devices to spread over, this node has {have_count}: write {have_count} or less", "spread"
        )
    if len(parts) > have_count:
        return _invalid(
            f"{format_gpus(spec.gpus_milli)} GPUs need {len(parts)} devices, this node has {have_count}:"
            f" ask for {have_count} or less",
            "gpus_milli",
        )
    return (_several(devices) if len(parts) > 1 else None) or _find_offered_devices(
        devices, len(parts), state, allowed_devices
    )


def list_default_devices(state: State) -> list[Device]:
    """The devices for a slice that names none: GPUs, and MIG instances only where there are no others, since half of an
    instance is not half of a GPU."""
    devices = list(state.devices.values())
    return [device for device in devices if not device.profile] or devices


def _several(devices: Sequence[Device]) -> Denied | None:
    """Refuses MIG instances beside other devices."""
    instance = next((device for device in devices if device.profile), None)
    if instance is None or len(devices) < 2:
        return None
    text = f"device {instance.index} is a MIG instance ({instance.profile}), and a CUDA program sees one of these"
    return _invalid(f"{text} and no other device: make a slice on it alone", "device_uuids")


def _find_offered_devices(
    devices: list[Device], count: int, state: State, allowed_devices: Sequence[str]
) -> list[Device] | Denied:
    """Those on which new shares may be placed. Denied when all devices that were named are closed."""
    if allowed_devices:
        return devices  # it is there already
    found = [device for device in devices if not state.closed(device.uuid)]
    closed = drains.refusal([device for device in devices if device not in found], state)
    if closed is None or len(found) >= count:
        return found
    if not found:
        return closed
    return replace(closed, message=f"{count} devices are needed, {len(found)} offered: {closed.message}")


def _refuse_link(spec: Spec, device: Device, state: State, excluded_slice: str) -> Denied | None:
    """Refuses a minimum of the device's link to the host that others' minima do not leave."""
    left_milli = MILLI_PER_DEVICE - state.reserved_link_milli(device.uuid, excluded_slice)
    if spec.copy_min_milli <= left_milli:
        return None
    asked, left = format_gpus(spec.copy_min_milli), format_gpus(left_milli)
    text = f"copy-min {asked} is more than other slices leave of a link: device {device.index} has {left} left;"
    text += " ask for less, or lower the minimum of another slice"
    return Denied(Reason.NO_CAPACITY, text, subject=device.uuid)


def _with_free_link(
    spec: Spec, devices: list[Device], count: int, state: State, excluded_slice: str
) -> list[Device] | Denied:
    """Those whose link to the host has the minimum left; Denied if they are fewer than `count`."""
    refusals = {device.uuid: _refuse_link(spec, device, state, excluded_slice) for device in devices}
    free = [device for device in devices if not refusals[device.uuid]]
    if len(free) >= count:
        return free
    full = [device for device in devices if device not in free]
    best = min(full, key=lambda device: state.reserved_link_milli(device.uuid, excluded_slice))
    refusal = refusals[best.uuid]
    assert refusal
    return refusal


def _best_fit(part: Part, devices: list[Device], state: State, excluded_slice: str, spec: Spec) -> Share | Denied:
    """The fullest device where the part fits (for a whole device the emptiest), lowest index among equals. With
    mem_swap the one where the slices with it are the least above what it has for them; then the fullest."""
    fits: list[tuple[tuple[int, int, int], Share]] = []
    refusals: list[Denied] = []
    for device in devices:
        share = part.compute_share(device)
        wrong = _refuse_share(share, part, device)
        if wrong:
            refusals.append(wrong)
            continue
        milli, size = state.reserved(device.uuid, excluded_slice, mem_swap=spec.mem_swap)
        size += _foreign(share, state, excluded_slice)
        if not _fits(share, milli, size, device):
            continue
        fullness = milli * device.memory_bytes + size * MILLI_PER_DEVICE
        rank = fullness if part.gpus_milli == MILLI_PER_DEVICE else -fullness
        turns = swap_rules.excess_ppm(state, share, device.memory_bytes - size, excluded_slice) if spec.mem_swap else 0
        fits.append(((turns, rank, device.index), share))
    if fits:
        return min(fits, key=lambda fit: fit[0])[1]
    if refusals and len(refusals) == len(devices):
        return refusals[0]
    return _no_capacity(part, devices, state, excluded_slice, spec)


def _fits(share: Share, milli: int, size: int, device: Device) -> bool:
    """Minima never add up to more than the device. milli, size (bytes): what other slices and programs have of it."""
    return milli + share.min_milli <= MILLI_PER_DEVICE and size + share.mem_min_bytes <= device.memory_bytes


def _foreign(share: Share, state: State, excluded_slice: str) -> int:
    """What other programs hold of a device reduces the capacity for new shares, not for what a slice has there
    already."""
    had = state.slices[excluded_slice].share(share.device_uuid) if excluded_slice else None
    return state.foreign_bytes(share.device_uuid) if share.mem_min_bytes > (had.mem_min_bytes if had else 0) else 0


def _no_capacity(part: Part, devices: list[Device], state: State, excluded_slice: str, spec: Spec) -> Denied:
    """Names the device with the most left, so that the user knows what would work."""

    def find_free_capacity(device: Device) -> tuple[int, int]:
        milli, size = state.reserved(device.uuid, excluded_slice, mem_swap=spec.mem_swap)
        return MILLI_PER_DEVICE - milli, max(0, device.memory_bytes - size - state.foreign_bytes(device.uuid))

    best = max(devices, key=lambda d: (find_free_capacity(d), -d.index))
    milli, size = find_free_capacity(best)
    wanted = part.compute_share(best)
    others = state.foreign_bytes(best.uuid)
    whose = f" (programs outside slices hold {format_bytes(others)})" if others else ""
    given = ", ".join(str(device.index) for device in state.devices.values() if state.policy.of_kubernetes(device))
    kubernetes = f" (Kubernetes has device {given})" if given else ""
    asked = f"min {format_gpus(wanted.min_milli)} and memory {format_bytes(wanted.mem_min_bytes)}"
    free = f"{format_gpus(milli)} GPU and {format_bytes(size)}"
    if excluded_slice:  # what it has itself is a part of what it may have
        text = f"slice {excluded_slice} cannot have {asked}: other slices leave it {free} of device {best.index}"
        text += f"{whose}{kubernetes}; ask for less, or lower the minimum of another slice or remove it"
    else:
        text = f"no device has {asked} left: device {best.index} has the most free: {free}{whose}{kubernetes};"
        text += f" ask for less, lower the minimum or remove a slice{_advise_turns(part, devices, state, spec)}"
    return Denied(Reason.NO_CAPACITY, text, subject=best.uuid)


def _advise_turns(part: Part, devices: list[Device], state: State, spec: Spec) -> str:
    """What else would do if the new slice had its memory in turn with others; "" = nothing."""
    asked = replace(spec, mem_swap=True)
    if swap_rules.spec_refusal(asked) or swap_rules.fault_refusal(asked, state.policy):
        return ""
    for device in devices:
        share = part.compute_share(device)
        milli, size = state.reserved(device.uuid, mem_swap=True)
        is_wide = _fits(replace(share, min_milli=0), milli, size + state.foreign_bytes(device.uuid), device)
        if is_wide and spec.mem_swap:
            return "; slices in turns keep their minimum of SM time: give min 0 to share that as well"
        if is_wide and _fits(share, milli, size, device):
            return f"; or ask with mem-swap: it has device {device.index} in turn with others that do"
    return ""


def name_unused_slices(refusal: Denied, state: State, now_ns: int) -> Denied:
    """A refusal with the slices on its device to which no program has attached yet, and when they end. Above all these
    are slices of programs that ended while no daemon was there."""
    held = [name for name in state.grace_ns if state.slices[name].share(refusal.subject)]
    if refusal.reason is not Reason.NO_CAPACITY or not held:
        return refusal
    left_s = -(-max(0, max(state.grace_ns[name] for name in held) - now_ns) // 1_000_000_000)
    milli = sum(share.min_milli for name in held if (share := state.slices[name].share(refusal.subject)))
    rest = f" and {len(held) - _NAMES_MAX} more" if len(held) > _NAMES_MAX else ""
    holders = f"slice {held[0]} holds" if len(held) == 1 else f"slices {', '.join(held[:_NAMES_MAX])}{rest} hold"
    text = f"{holders} {format_gpus(milli)} GPU without a program: free in {left_s} s unless one attaches"
    return replace(refusal, message=f"{refusal.message}; {text}")


def merge(spec: Spec, patch: Spec, field_names: Sequence[str]) -> Spec | Denied:
    """The spec, with these fields taken from the patch."""
    known = [field.name for field in fields(Spec)]
    unknown = next((name for name in field_names if name not in known), None)
    if unknown is not None:
        return _invalid(f"a spec has no field {unknown!r}: write {', '.join(known)}", "update_mask")
    return replace(spec, **{name: getattr(patch, name) for name in field_names})
