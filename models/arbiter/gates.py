"""Opening and closing gates, drains, and the rescue of work that cannot end."""

from __future__ import annotations

from models.arbiter.charges import begin_turn
from models.arbiter.device import Device, is_alone, leads_beside_others, waits
from models.arbiter.maximum import any_waits, is_caught
from models.arbiter.model import (
    CLOSED,
    COUNT,
    ENDLESS_PATIENCES,
    EPOCH_SHIFT,
    FORECAST_MAX_NS,
    PPM,
    RENEWAL_NS,
    RENEWALS,
    RESCUE_NS,
    SOLO,
    Slice,
    State,
)


def set_word(s: Slice, gate: int) -> None:
    """A new gate word: the next epoch, and CLOSED, COUNT or SOLO."""
    s.word = ((s.word >> EPOCH_SHIFT) + 1) << EPOCH_SHIFT & 0xFFFFFFFF | gate


def may_open_from(s: Slice) -> int:
    """New open words are rate-limited, whatever its page reports: the time from which on it may be given one."""
    return max(0, s.renewed_ns - (RENEWALS - 1) * RENEWAL_NS)


def may_open(s: Slice, now_ns: int) -> bool:
    return may_open_from(s) <= now_ns


def spend_word(s: Slice, now_ns: int) -> None:
    s.renewed_ns = max(s.renewed_ns, now_ns) + RENEWAL_NS


def open_state(device: Device, s: Slice) -> int:
    """What the word of an open gate says: COUNT or SOLO."""
    return SOLO if not s.is_counted and is_alone(device, s) else COUNT


def open_gate(device: Device, s: Slice, now_ns: int) -> None:
    set_word(s, open_state(device, s))
    s.rescue_ns = now_ns + device.params.quantum_min_ns * is_caught(device, s)
    s.state = State.OPEN
    spend_word(s, now_ns)
    s.quiet = False
    s.wants = False
    s.cut_off = False
    s.grant_ns = now_ns
    device.served += 1
    s.served = device.served
    s.grants += s.attached
    if s.saturating and any_waits(device, s):
        begin_turn(device, s)


def close_gate(s: Slice, now_ns: int) -> None:
    gave_up = s.quiet and s.state == State.OPEN  # nothing is outstanding and nothing can be launched: there is no drain
    set_word(s, CLOSED)
    s.quiet = False
    s.overran = False
    s.cut_off = s.outstanding
    s.drain_expected_ns = 0
    s.late_ns -= s.late_ns // 8
    s.close_ns = now_ns
    s.lease_end_ns = 0
    if gave_up or not s.attached:
        s.early_releases += gave_up
        s.state = State.SHUT
    elif s.saturating:
        s.state = State.DRAINING
    else:  # no slice waits for the drain of a free one
        let_overlap(s, now_ns)


def renew_word(device: Device, s: Slice, now_ns: int) -> None:
    """A new open word. A process can give a word up once; to launch again, it needs a new one."""
    set_word(s, open_state(device, s))
    spend_word(s, now_ns)


def let_overlap(s: Slice, now_ns: int) -> None:
    """Others may run beside the work that it still has outstanding."""
    s.state = State.OVERLAP
    s.rescue_ns = now_ns + RESCUE_NS


def patience_end(device: Device, s: Slice) -> int:
    """Until when the slot waits for its drain, if there is no forecast."""
    return s.close_ns + device.params.bound_ns + device.params.overrun_ns


def patience_for_long(device: Device, s: Slice) -> int:
    """How long the slot waits for a long kernel: side by side, the hardware would switch contexts every millisecond.

    The wait delays the others by their part of it: the less their entitlement, the longer it may be. The next slice is
    not let in before the end: it would get a hardware time slice first, at half its price.
    """
    patience_ns = device.params.bound_ns + device.params.overrun_ns
    return patience_ns * PPM // max(PPM - s.entitlement_ppm, PPM // 3)


def overlap_from(device: Device, s: Slice) -> int:
    """When the next slice may run beside one that drains: just before the forecast end, so that waking up costs no
    device time, or when the drain is late."""
    if leads_beside_others(device, s):  # side by side, two gangs could deadlock
        return s.close_ns + RESCUE_NS if s.gang_busy else patience_end(device, s)
    if s.drain_expected_ns < s.close_ns:
        return patience_end(device, s)
    if s.drain_expected_ns <= patience_end(device, s):
        return s.drain_expected_ns - device.params.lookahead_ns
    patience_ns = patience_for_long(device, s)
    if s.drain_expected_ns > s.close_ns + ENDLESS_PATIENCES * patience_ns:  # the wait would only put off the overlap
        return s.close_ns
    return min(s.drain_expected_ns, s.close_ns + patience_ns)


def rescue_after(s: Slice, now_ns: int) -> int:
    """Work with a long forecast is not stuck before it could be done beside two neighbours. Letting its owner launch
    more before that would reward long forecasts."""
    return max(RESCUE_NS, 3 * min(s.drain_expected_ns - now_ns, FORECAST_MAX_NS))


def resume(s: Slice, now_ns: int) -> None:
    """Work that waited in its stream for something else runs, behind a gate that has been closed meanwhile."""
    let_overlap(s, now_ns)
    s.close_ns = now_ns


def note_drains(device: Device, now_ns: int) -> None:
    for s in device.slices:
        if s.state == State.SHUT and s.attached and s.outstanding and not s.quiet:
            resume(s, now_ns)
        if s.drains:
            s.late_ns = max(s.late_ns, now_ns - s.close_ns)
        if s.drains and (s.quiet or not s.attached):
            if s.is_open:
                set_word(s, CLOSED)
            s.state = State.SHUT
        if s.state == State.DRAINING and now_ns >= overlap_from(device, s):
            let_overlap(s, now_ns)
            s.rescue_ns = now_ns + rescue_after(s, now_ns)
        if s.saturating and s.state == State.OVERLAP and not s.overran and now_ns >= patience_end(device, s):
            s.overran = True
            s.overruns += 1


def rescue(device: Device, now_ns: int) -> None:
    """Opens the gate of a slice that does not drain, for a moment now and then: its work may wait for something that a
    thread at that gate has yet to launch, and would wait for ever."""
    for s in device.slices:
        if s.state != State.OVERLAP or now_ns < s.rescue_ns:
            continue
        patience_ns = rescue_after(s, now_ns)
        if not s.leads_or_follows and (s.is_open or (waits(s) and patience_ns == RESCUE_NS)):
            set_word(s, CLOSED if s.is_open else COUNT)
        s.rescue_ns = now_ns + (device.params.quantum_min_ns if s.is_open else patience_ns)
