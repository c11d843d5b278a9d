"""What follows from the gates: one function an output."""

from __future__ import annotations

from dataclasses import dataclass

from models.arbiter.device import Device, free, lately_active, others_active, saturating, waits
from models.arbiter.gates import may_open_from, open_state, overlap_from, set_word
from models.arbiter.lags import slot_behind
from models.arbiter.maximum import below_maximum, cap_needed, is_rescued, keeps_others_waiting, may_run
from models.arbiter.model import (
    AHEAD_NS,
    FAR_NS,
    LOOK_LEAST_NS,
    MILLI,
    NEVER,
    PPM,
    SHORT_NS,
    STATE_MASK,
    TICK_NS,
    WAKE_GRACE_NS,
    WATCH_CALLS,
    WATCH_EDGES,
    WATCH_GANG,
    WATCH_USAGE,
    WINDOW_NS,
    Regime,
    Slice,
    State,
    scale_ns,
    time_behind_ns,
)


@dataclass(frozen=True, slots=True)
class Crowd:
    """The slices of the device, counted."""

    attached_count: int
    lately_active_count: int  # active lately
    free_active: int
    turns: int  # saturating and active
    saturating_lately: int
    latency: int  # attached, of the latency class
    throttles: bool  # a slice is kept waiting so that another one gets its due
    has_limited_slice: bool  # a slice is limited by its maximum
    least_behind_ns: int  # of the free slices that were active lately

    @property
    def is_contended(self) -> bool:
        return self.attached_count > 1 and (self.turns > 1 or self.throttles)

    @property
    def is_crowded(self) -> bool:
        return self.saturating_lately > 0 or self.is_contended


def count_slices(device: Device, now_ns: int) -> Crowd:
    lately = [s for s in device.slices if lately_active(s, now_ns)]
    active = [s for s in device.slices if s.active]
    return Crowd(
        attached_count=sum(s.attached for s in device.slices),
        lately_active_count=len(lately),
        free_active=sum(not s.saturating for s in active),
        turns=sum(s.saturating for s in active),
        saturating_lately=sum(s.saturating for s in lately),
        latency=sum(s.attached and s.params.latency for s in device.slices),
        throttles=device.slot_reserved or any(s.throttled for s in active),
        has_limited_slice=any(s.limited for s in lately),
        least_behind_ns=min((time_behind_ns(s) for s in lately if not s.saturating), default=FAR_NS),
    )


def set_outputs(device: Device, crowd: Crowd, now_ns: int) -> None:
    device.regime = regime_of(crowd)
    for s in device.slices:
        wanted = open_state(device, s)
        if s.state == State.OPEN and s.word & STATE_MASK != wanted:
            set_word(s, wanted)
        s.neighbour_waits = s.saturating and keeps_others_waiting(device, s)
        s.gang_veto = gang_veto(device, s)
        s.watch = watch(device, s, crowd, now_ns)
        s.bound_ns = bound_ns(device, s, crowd, now_ns)


def regime_of(crowd: Crowd) -> Regime:
    if crowd.attached_count > 1 and crowd.turns > 1:
        return Regime.ARBITRATED
    if crowd.is_contended or crowd.has_limited_slice:
        return Regime.THROTTLED
    return Regime(min(crowd.attached_count, Regime.OPEN))


def gang_veto(device: Device, s: Slice) -> bool:
    """Whether a gang must stop on its other devices: it has reached its maximum here. Or whether its leader must stop
    it: its follower here is a lease ahead of a waiting slice, or the slot is to stay empty. A follower precedes all
    other slices, so without that a gang whose leader runs on would starve them."""
    if s.leads_or_follows and not below_maximum(device, s):
        return True
    if not s.saturating or not s.follows:
        return False
    ahead_ns = 0 if s.gang_veto else device.params.quantum_ns * PPM // s.entitlement_ppm
    waiting = (o for o in saturating(device) if not o.follows and waits(o) and may_run(device, o))
    return device.slot_reserved or any(o.virtual_ns + ahead_ns < s.virtual_ns for o in waiting)


# ---- what its processes report ----


def may_resume(s: Slice, crowd: Crowd) -> bool:
    """Another slice runs only since this one pauses, and waits for it when it resumes."""
    return s.free_lag_ns > SHORT_NS and time_behind_ns(s) > crowd.least_behind_ns + AHEAD_NS


def watch(device: Device, s: Slice, crowd: Crowd, now_ns: int) -> int:
    """Usage, if it shares the device, has a maximum or rotates. Edges (when work begins and ends), if the arbiter must
    know at once: also when a slice resumes that another one has to wait for. Collectives, if it is of a gang. Calls, if
    it rotates."""
    others = crowd.attached_count > s.attached
    at_once = crowd.is_crowded or crowd.latency > 0 or may_resume(s, crowd)
    edges = (not s.saturating and others and at_once) or cap_may_end(device, s, now_ns)
    usage = WATCH_USAGE if others or not s.is_uncapped or s.params.rotates else 0
    calls = WATCH_CALLS if s.params.rotates else 0
    return usage | calls | (WATCH_EDGES if edges else 0) | (WATCH_GANG if s.params.gang else 0)


def cap_may_end(device: Device, s: Slice, now_ns: int) -> bool:
    """Whether its bucket may be empty before the next regular step, should it begin to run now."""
    low_ns = scale_ns(device.params.cap_depth_ns, s.params.max_milli) // 2
    return not s.is_uncapped and (s.cap_ns < low_ns or not lately_active(s, now_ns))


# ---- how much work each process may have outstanding ----


def bound_ns(device: Device, s: Slice, crowd: Crowd, now_ns: int) -> int:
    params = device.params
    found_ns = lag_bound_ns(device, s, now_ns)
    if crowd.latency > (s.attached and s.params.latency):
        found_ns = min(found_ns, params.latency_bound_ns)
    elif not s.is_uncapped or (crowd.is_crowded and others_active(device, s)):
        found_ns = min(found_ns, params.bound_ns)
    return found_ns // max(1, s.running)


def lag_bound_ns(device: Device, s: Slice, now_ns: int) -> int:
    """By how much further behind a free slice is that pauses now: this slice runs only because of that pause, and its
    outstanding work delays the other one when it resumes."""
    others = (o for o in free(device) if o is not s and lately_active(o, now_ns) and o.free_lag_ns > SHORT_NS)
    own_ns = slot_behind(device) if s.saturating else time_behind_ns(s)
    further_ns = max((time_behind_ns(o) for o in others), default=-FAR_NS) - own_ns
    if further_ns <= AHEAD_NS:
        return device.params.open_bound_ns
    part = 4 if further_ns > 3 * AHEAD_NS else 2 if further_ns > 2 * AHEAD_NS else 1
    return device.params.latency_bound_ns // part


# ---- when the next step is due at the latest ----


def regular_deadline(device: Device, crowd: Crowd, now_ns: int) -> int:
    """Shares are looked at every tick, else demands at the end of their window; of one slice alone neither."""
    capped = any(not s.is_uncapped and lately_active(s, now_ns) for s in device.slices)
    if (crowd.lately_active_count > 1 and crowd.free_active) or capped:
        return now_ns + TICK_NS
    return device.window_ns + WINDOW_NS if crowd.lately_active_count and crowd.attached_count > 1 else NEVER


def cap_deadline(device: Device, s: Slice, now_ns: int) -> int:
    """When a slice shut for its cap may run again, or one that runs will have used up its cap. Other devices of a gang
    wait for the former, whether it is active here or not."""
    if s.is_uncapped or s.params.paused or not (s.active or s.gang_veto):
        return NEVER
    if is_rescued(device, s):
        return s.rescue_ns
    if s.state == State.OPEN:
        return now_ns + max(0, s.cap_ns) * MILLI // (MILLI - s.params.max_milli) + 1000
    if below_maximum(device, s):
        return NEVER
    return now_ns + (cap_needed(device, s) - s.cap_ns) * MILLI // s.params.max_milli + 1000


def slice_deadline(device: Device, s: Slice, now_ns: int) -> int:
    found = [cap_deadline(device, s, now_ns)]
    if s.active and may_open_from(s) > now_ns:
        found.append(may_open_from(s))
    if s.state == State.OVERLAP:
        found.append(s.rescue_ns)
    if s.state == State.DRAINING:
        found.append(max(overlap_from(device, s), now_ns + LOOK_LEAST_NS))
    if s.saturating and s.state == State.OPEN and s.lease_end_ns:
        found.append(s.lease_end_ns)
        if not s.outstanding and now_ns < s.grant_ns + WAKE_GRACE_NS:
            found.append(s.grant_ns + WAKE_GRACE_NS)
    return min(found)


def next_deadline(device: Device, crowd: Crowd, now_ns: int) -> int:
    found = [regular_deadline(device, crowd, now_ns)]
    if device.slot_hold_until_ns > now_ns:
        found.append(device.slot_hold_until_ns)
    found.extend(slice_deadline(device, s, now_ns) for s in device.slices)
    return min(found)
