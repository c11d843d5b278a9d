"""Lags: which slice has received less than its entitlement, and by how much."""

from __future__ import annotations

from models.arbiter.device import Device, free, lately_active, saturating, waits
from models.arbiter.maximum import may_precede, may_run
from models.arbiter.model import (
    AHEAD_NS,
    DEBT_MAX_NS,
    FAR_NS,
    MILLI,
    SHORT_NS,
    WAKE_GRACE_NS,
    Slice,
    State,
    clamp_ns,
    divide_towards_zero,
    due_time,
    part_of,
    scale_ns,
    time_behind_ns,
)


def slot_mean_ns(device: Device) -> int:
    """Mean of the members' virtual times beyond the floor, weighted by entitlement."""
    members = list(saturating(device))
    total = sum(
        divide_towards_zero(divide_towards_zero(s.virtual_ns - device.floor_ns, 1000) * s.entitlement_ppm, 1000)
        for s in members
    )
    return divide_towards_zero(total * MILLI, max(1, sum(s.entitlement_ppm for s in members))) * MILLI


def lag_of(device: Device, s: Slice) -> int:
    """Entitlement minus usage, in device time. In the slot: its part of the slot's lag, less what it is ahead of the
    other members."""
    if not s.saturating:
        return s.free_lag_ns
    ahead_ns = s.virtual_ns - device.floor_ns - slot_mean_ns(device)
    together_ppm = sum(o.entitlement_ppm for o in saturating(device))
    own_ns = divide_towards_zero(device.slot_lag_ns * s.entitlement_ppm, together_ppm)
    return clamp_ns(
        own_ns - divide_towards_zero(divide_towards_zero(ahead_ns, 1000) * s.entitlement_ppm, 1000), DEBT_MAX_NS
    )


def is_short(device: Device, s: Slice) -> bool:
    """A free slice that wants to run and has used less than its entitlement."""
    return not s.saturating and s.active and s.free_lag_ns > SHORT_NS and may_run(device, s)


def holder_is_active(device: Device, s: Slice) -> bool:
    """The holder of the slot uses it, or has just been let in."""
    return not s.quiet and (s.outstanding or s.wants or device.last_ns < s.grant_ns + WAKE_GRACE_NS)


def is_candidate(device: Device, s: Slice) -> bool:
    """A saturating slice that may have the slot next."""
    if not may_run(device, s):
        return False
    return holder_is_active(device, s) if s.state == State.OPEN else waits(s)


def slot_is_short(device: Device) -> bool:
    return device.slot_lag_ns > SHORT_NS and any(is_candidate(device, s) for s in saturating(device))


def slot_behind(device: Device) -> int:
    return due_time(device.slot_lag_ns, max(1000, sum(s.entitlement_ppm for s in saturating(device))))


def most_behind(device: Device, but: Slice | None) -> int:
    """How far behind the slice is that is furthest behind, of all that are short; -FAR_NS when none is."""
    found = [time_behind_ns(s) for s in device.slices if s is not but and is_short(device, s)]
    if but and slot_is_short(device):
        found.append(slot_behind(device))
    return max(found, default=-FAR_NS)


def forgive(device: Device, now_ns: int) -> None:
    """Drops debts while no slice is behind: time that no other slice missed is not owed to later ones. A slice with
    precedence is served first whenever it wants to run, so others are not the reason if it is behind."""
    for s in device.slices:
        behind_ns = device.slot_lag_ns if s.saturating else s.free_lag_ns
        if behind_ns > SHORT_NS and lately_active(s, now_ns) and not may_precede(device, s):
            return
    for s in free(device):
        s.free_lag_ns = max(s.free_lag_ns, -part_of(AHEAD_NS, s.entitlement_ppm))
        s.owed_ns = max(s.owed_ns, -scale_ns(AHEAD_NS, s.params.min_milli))
    together_ppm = sum(s.entitlement_ppm for s in saturating(device))
    device.slot_lag_ns = max(device.slot_lag_ns, -part_of(AHEAD_NS, together_ppm))
