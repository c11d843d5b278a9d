"""The maximum of a slice: what of it is left, and whether it lets the slice run."""

from __future__ import annotations

from models.arbiter.device import Device, others_active, saturating, waits
from models.arbiter.model import DEBT_MAX_NS, RESCUE_NS, Slice, State, scale_ns


def cap_depth(device: Device, s: Slice, active_ns: int) -> int:
    """Depth of the token bucket of a maximum. Of idle time only a little is saved up. A slice that is active here, and
    kept from its guarantee, accrues a deficit instead, and may make up for it; time beyond the guarantee is not made
    up."""
    depth_ns = scale_ns(device.params.cap_depth_ns, s.params.max_milli)
    return max(depth_ns, scale_ns(DEBT_MAX_NS, s.params.min_milli)) if s.active and active_ns else depth_ns


def cap_needed(device: Device, s: Slice) -> int:
    """Tokens from which a gate that was closed for its maximum opens again: enough to be worth opening it."""
    if s.state == State.OPEN:
        return 0
    worth_ns = (
        device.params.quantum_ns // 2 if s.saturating and others_active(device, s) else device.params.quantum_min_ns
    )
    return min(worth_ns, scale_ns(device.params.cap_depth_ns, s.params.max_milli) // 2)


def is_caught(device: Device, s: Slice) -> bool:
    """Its kernels may spin because a launch of its gang waits at another device's gate. They are charged for that, so
    by its maximum or its virtual time it would never be next."""
    return s.leads_or_follows and s.state == State.OVERLAP and device.last_ns >= s.close_ns + RESCUE_NS


def is_rescued(device: Device, s: Slice) -> bool:
    """It was let in as one that is caught, and the other devices of its gang need a moment to follow."""
    return s.leads_or_follows and s.state == State.OPEN and device.last_ns < s.rescue_ns


def below_maximum(device: Device, s: Slice) -> bool:
    """Its maximum on this device lets it run, and it is not paused."""
    if s.params.paused:
        return False
    return s.is_uncapped or s.cap_ns > cap_needed(device, s) or is_caught(device, s) or is_rescued(device, s)


def gang_is_stopped(s: Slice) -> bool:
    """Another device's arbiter keeps its gang from running."""
    return s.leads_or_follows and (not s.gang_go if s.follows and s.saturating else s.gang_stop)


def may_run(device: Device, s: Slice) -> bool:
    """No maximum keeps it from running: neither here nor, for a gang, on its other devices."""
    return below_maximum(device, s) and not gang_is_stopped(s)


def may_precede(device: Device, s: Slice) -> bool:
    """It is of the latency class, and within its guarantee."""
    return s.params.latency and not s.overdrawn and below_maximum(device, s)


def any_waits(device: Device, but: Slice) -> bool:
    """Another slice waits at its closed gate, and not because of its maximum."""
    return any(s is not but and s.wants and s.state != State.OPEN and may_run(device, s) for s in device.slices)


def keeps_others_waiting(device: Device, s: Slice) -> bool:
    """Another saturating slice waits, and not because of its maximum."""
    return any(o is not s and waits(o) and may_run(device, o) for o in saturating(device))


def note_limits(device: Device) -> None:
    """A maximum limits a slice from the time when its bucket is empty until it is nearly full."""
    for s in device.slices:
        full_ns = scale_ns(device.params.cap_depth_ns, s.params.max_milli)
        s.limited = not s.is_uncapped and s.cap_ns < (full_ns * 3 // 4 if s.limited else 1)
