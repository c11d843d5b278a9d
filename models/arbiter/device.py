"""The state of one device, and predicates of slices that all decisions use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from models.arbiter.model import DEBT_MAX_NS, IDLE_NS, RESCUE_NS, STOPPED_NS, Params, Regime, Slice, State, scale_ns


@dataclass
class Device:
    """The slices of one device, and what is remembered across steps for all of them."""

    params: Params = field(default_factory=Params)
    slices: list[Slice] = field(default_factory=list)
    last_ns: int = 0
    floor_ns: int = 0  # virtual time of the slot
    slot_lag_ns: int = 0  # entitlement minus usage of all saturating slices together
    free_used_ns: int = 0  # used by free slices, to be deducted from what the holder is charged
    slot_occupied: bool = False  # during the time that is being charged
    unexplained_ns: int = 0  # while several ran: busy time that no slice's completed work explains
    excess_ns: int = 0  # while only free slices ran: completed work reported beyond the busy time
    available_ns: int = 0  # while only free slices ran: recent time with work outstanding
    all_reported_ns: int = 0  # completed work reported for that time
    slot_reports_work: bool = True  # saturating slices report what they complete
    least_reported_ppm: int = 0  # reported_ppm() of the free slice that reports least
    window_ns: int = 0  # when the present window of demands began
    served: int = 0  # grants so far
    slot_reserved: bool = False  # the slot is kept empty for a slice that is short
    slot_hold_until_ns: int = 0  # the slot is kept empty until then, see slot.put_off_until(); 0: it is not
    regime: Regime = Regime.IDLE


def saturating(device: Device) -> Iterator[Slice]:
    return (s for s in device.slices if s.saturating)


def free(device: Device) -> Iterator[Slice]:
    return (s for s in device.slices if not s.saturating)


def lately_active(s: Slice, now_ns: int) -> bool:
    """Active now or less than IDLE_NS ago."""
    return s.active or (s.attached and now_ns < s.last_active_ns + IDLE_NS and s.last_active_ns > 0)


def waits(s: Slice) -> bool:
    """A thread waits at the closed gate, and what ran before the gate was closed has drained or been noticed."""
    return s.wants_to_run and s.state != State.OPEN and (s.state == State.SHUT or s.noticed)


def others_active(device: Device, s: Slice) -> bool:
    return any(o is not s and lately_active(o, device.last_ns) for o in device.slices)


def another_in_slot(device: Device, s: Slice) -> bool:
    return any(o is not s for o in saturating(device))


def another_waits(device: Device, s: Slice) -> bool:
    """Another saturating slice waits."""
    return any(o is not s and waits(o) for o in saturating(device))


def any_waits(device: Device, but: Slice) -> bool:
    """Another slice waits at its closed gate, and not because of its maximum."""
    return any(s is not but and s.wants and s.state != State.OPEN and may_run(device, s) for s in device.slices)


def keeps_others_waiting(device: Device, s: Slice) -> bool:
    """Another saturating slice waits, and not because of its maximum."""
    return any(o is not s and waits(o) and may_run(device, o) for o in saturating(device))


def shares_device(s: Slice, now_ns: int) -> bool:
    """Its work may run: its gate is open, or it drains and is not stopped (SIGSTOP, a debugger)."""
    if s.state == State.SHUT:
        return False
    return s.state != State.OVERLAP or s.is_open or s.noticed or now_ns < s.close_ns + STOPPED_NS


def is_alone(device: Device, s: Slice) -> bool:
    """No other slice is attached or has work outstanding."""
    return not any(o is not s and (o.attached or o.drains) for o in device.slices)


def leads_beside_others(device: Device, s: Slice) -> bool:
    """A gang's leader beside another gang's: gangs take turns whatever their demand, since side by side each could wait
    on one device for what the other one has."""
    return s.leads and any(o is not s and o.attached and o.leads for o in device.slices)


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
