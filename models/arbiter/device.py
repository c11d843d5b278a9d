"""The state of one device, and predicates of slices that all decisions use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from models.arbiter.model import IDLE_NS, STOPPED_NS, Params, Regime, Slice, State


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
