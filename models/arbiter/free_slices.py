"""The free slices: which is served first, and which waits for others."""

from __future__ import annotations

from models.arbiter.charges import begin_turn, may_begin_turn
from models.arbiter.device import Device, free
from models.arbiter.entitlements import set_deadline
from models.arbiter.gates import close_gate, may_open, open_gate, renew_word
from models.arbiter.lags import is_short, most_behind
from models.arbiter.maximum import may_precede, may_run
from models.arbiter.model import AHEAD_NS, BACK_NS, LATENCY_DEBT_NS, Slice, State, time_behind_ns


def is_urgent(device: Device, s: Slice) -> bool:
    return s.active and may_precede(device, s) and may_begin_turn(s)


def first_latency(device: Device) -> Slice | None:
    """The latency slice that is served before all others: of the urgent ones the one with the earliest deadline."""
    urgent = [s for s in device.slices if is_urgent(device, s)]
    return min(urgent, key=lambda s: (s.deadline_ns, s.ident), default=None)


def is_ahead(device: Device, s: Slice) -> bool:
    """Another slice that wants to run is further behind than this one, by a margin."""
    return most_behind(device, s) > time_behind_ns(s) + (BACK_NS if s.throttled else AHEAD_NS)


def review_free(device: Device, now_ns: int) -> None:
    """Closes the gates of free slices that must wait, for their maximum or for others, and opens the others'."""
    first = first_latency(device)
    for s in free(device):
        s.has_precedence = s is first
        yields = not may_precede(device, s) and is_ahead(device, s)
        s.throttled = not may_run(device, s) or (s is not first and (first is not None or yields))
        if s.throttled and s.state == State.OPEN:
            close_gate(s, now_ns)
        elif s.throttled or not may_open(s, now_ns):
            continue
        elif s.state != State.OPEN:
            open_gate(device, s, now_ns)
        elif s.gave_up_while_waiting or (s.quiet and s.wants):
            renew_word(device, s, now_ns)


def note_turns(device: Device) -> None:
    """A free slice takes a turn while others are kept from running for it."""
    shut = device.slot_reserved or any(s.throttled and s.active and may_run(device, s) for s in free(device))
    for s in free(device):
        held = s.holds
        s.holds = shut and s.state == State.OPEN and s.active and (s.has_precedence or is_short(device, s))
        if s.holds and not held:
            begin_turn(device, s)


def note_debts(device: Device) -> None:
    """An overdrawn latency slice has no precedence until part of its debt is paid."""
    for s in device.slices:
        overdrawn = s.owed_ns <= (BACK_NS if s.overdrawn else 0) - LATENCY_DEBT_NS
        if s.overdrawn and not overdrawn:
            set_deadline(s, device.last_ns)
        s.overdrawn = overdrawn
