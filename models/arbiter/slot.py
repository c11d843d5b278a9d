"""The slot: its members, its holder and its lease."""

from __future__ import annotations

from models.arbiter.device import Device, another_waits, lately_active, leads_beside_others, others_active, saturating
from models.arbiter.entitlements import measure_demand
from models.arbiter.free_slices import first_latency
from models.arbiter.gates import close_gate, let_overlap, may_open, open_gate, renew_word
from models.arbiter.lags import (
    holder_is_active,
    is_candidate,
    lag_of,
    most_behind,
    slot_behind,
    slot_mean_ns,
)
from models.arbiter.maximum import is_caught, may_run
from models.arbiter.model import (
    AHEAD_NS,
    BACK_NS,
    DEBT_MAX_NS,
    FREE_PPM,
    GANG_NONE,
    GANG_OPEN,
    IDLE_NS,
    LATE_REPORTED_NS,
    MILLI,
    PPM,
    SATURATING_PPM,
    SHORT_NS,
    WINDOW_NS,
    Slice,
    State,
    clamp_ns,
    divide_towards_zero,
    due_time,
    time_behind_ns,
)


def find_in_slot(device: Device, state: State) -> Slice | None:
    return next((s for s in saturating(device) if s.state == state), None)


def slot_is_taken(device: Device) -> bool:
    """By a holder, or by one that drains."""
    return any(find_in_slot(device, state) for state in (State.OPEN, State.DRAINING))


def paid_ahead_ns(device: Device, s: Slice) -> int:
    """What a slice has paid ahead of its reports, or below 0 still owes; it takes that along when its class changes.

    Beside others it may have paid for keeping the device from them, and its estimates may be too long.
    """
    paid_ns = -s.over_cap_ns if s.saturating else s.done_seen_ns - s.done_ns + s.provisional_ns
    return 0 if others_active(device, s) else clamp_ns(paid_ns, LATE_REPORTED_NS)


def leave_slot(device: Device, s: Slice) -> None:
    """Makes a saturating slice free. It keeps its lag."""
    s.done_seen_ns = max(0, s.done_ns + paid_ahead_ns(device, s))
    s.free_lag_ns = lag_of(device, s)
    device.slot_lag_ns = clamp_ns(device.slot_lag_ns - s.free_lag_ns, DEBT_MAX_NS)
    s.saturating = False
    s.provisional_ns = s.outstanding_ns = s.alone_ns = 0
    s.beside_slot = False
    s.recent_run_ns = s.recent_reported_ns = 0
    s.lease_end_ns = 0
    if s.state == State.DRAINING:
        let_overlap(s, device.last_ns)


def join_slot(device: Device, s: Slice, now_ns: int) -> None:
    """Makes a free slice saturating. It keeps its lag, as virtual time."""
    s.unpaid_ns, s.over_cap_ns = 0, -paid_ahead_ns(device, s)
    taken = slot_is_taken(device)
    ahead_ns = slot_mean_ns(device) + slot_behind(device) if any(saturating(device)) else 0
    s.virtual_ns = max(0, device.floor_ns + ahead_ns - time_behind_ns(s))
    device.slot_lag_ns = clamp_ns(device.slot_lag_ns + s.free_lag_ns, DEBT_MAX_NS)
    s.free_lag_ns = 0
    s.saturating = True
    s.has_precedence = s.throttled = s.holds = False
    s.recent_run_ns = s.recent_reported_ns = 0
    if s.state == State.OPEN and taken:
        close_gate(s, now_ns)
        if s.drains:
            let_overlap(s, now_ns)


def takes_turns(device: Device, s: Slice, now_ns: int) -> bool:
    """Whether it is to be saturating."""
    if s.follows:
        return s.gang_turns
    if s.params.latency or s.params.gang == GANG_OPEN:
        return False
    if leads_beside_others(device, s):
        return True
    if not lately_active(s, now_ns):
        return False
    return s.demand_ppm >= FREE_PPM if s.saturating else s.demand_ppm >= SATURATING_PPM and s.work_ns > 0


def review_slot_members(device: Device, now_ns: int) -> None:
    """Slices enter and leave the slot when demands are measured, at the end of a window; gangs at any step, since that
    depends on the other gangs of the device."""
    window_ends = now_ns >= device.window_ns + WINDOW_NS
    if window_ends:
        device.window_ns = now_ns
    for s in device.slices:
        if not window_ends and s.params.gang == GANG_NONE:
            continue
        if window_ends:
            measure_demand(s)
        turns = takes_turns(device, s, now_ns)
        if s.saturating and not turns:
            leave_slot(device, s)
        if not s.saturating and turns:
            join_slot(device, s, now_ns)


def drains_are_long(device: Device) -> bool:
    """Work of a slice has recently outlasted its gate by more than a lease. Beside it, leases of other lengths only
    change when its next one comes, by which its seconds vary."""
    return any(s.late_ns > device.params.quantum_ns for s in saturating(device))


def order_of(device: Device, s: Slice, last_served: int) -> int:
    """The order of slices in the slot. Work that is outstanding is charged as it runs: the slice that was served last
    is next again only if it is further behind than by that and the shortest lease."""
    ahead_ns = due_time(device.params.bound_ns + device.params.quantum_min_ns, s.entitlement_ppm)
    return s.virtual_ns + ahead_ns * (s.served == last_served)


def pick(device: Device, now_ns: int, but: Slice | None = None) -> Slice | None:
    """The candidate that is next in the slot: a gang's follower, else the smallest virtual time."""
    last_served = 0 if drains_are_long(device) else max((s.served for s in saturating(device)), default=0)
    found = [
        s
        for s in saturating(device)
        if s is not but and is_candidate(device, s) and (s.state == State.OPEN or may_open(s, now_ns))
    ]
    gangs = [s for s in found if s.follows]
    return min(
        gangs or found,
        key=lambda s: (not is_caught(device, s), order_of(device, s, last_served), s.served),
        default=None,
    )


def quantum_of(device: Device, s: Slice) -> int:
    """Length of a lease; twice that for a gang beside others, whose devices stop at different places of the work and
    wait for each other when it resumes."""
    return device.params.quantum_ns * (2 if leads_beside_others(device, s) else 1)


def set_lease(device: Device, s: Slice, now_ns: int, is_contended: bool) -> None:
    """An open-ended lease, or if others wait, a quantum, less when the maximum ends it."""
    s.lease_end_ns = now_ns + quantum_of(device, s) if is_contended else 0
    if is_contended and not s.is_uncapped and s.cap_ns < device.params.quantum_ns:
        s.lease_end_ns = now_ns + max(s.cap_ns, device.params.quantum_min_ns)


def review_vacancy(device: Device) -> None:
    """The slot stays empty while a latency slice is urgent or a free slice is further behind."""
    margin_ns = BACK_NS if device.slot_reserved else AHEAD_NS
    device.slot_reserved = any(s.saturating for s in device.slices) and (
        first_latency(device) is not None or most_behind(device, None) > slot_behind(device) + margin_ns
    )


def is_a_lease_ahead(device: Device, s: Slice, of: Slice) -> bool:
    """By more than its own lease accounts for: it was let in while the other one paused."""
    return s.virtual_ns > of.virtual_ns + quantum_of(device, s) * PPM // s.entitlement_ppm


def extend_lease(device: Device, holder: Slice, now_ns: int) -> None:
    """Extends the lease until the holder is no more behind the next slice, at most by a quantum."""
    set_lease(device, holder, now_ns, True)
    following = pick(device, now_ns, holder)
    if following and holder.params.gang == GANG_NONE and not drains_are_long(device):
        behind_ns = clamp_ns(following.virtual_ns - holder.virtual_ns, DEBT_MAX_NS * MILLI)
        left_ns = divide_towards_zero(behind_ns * holder.entitlement_ppm, PPM) - device.params.bound_ns
        holder.lease_end_ns = min(holder.lease_end_ns, now_ns + max(left_ns, device.params.quantum_min_ns))


def review_holder(device: Device, holder: Slice, now_ns: int) -> None:
    """Whether the holder keeps the slot, and until when."""
    rethought = holder.quiet and holder.wants and may_open(holder, now_ns)
    if rethought or device.slot_reserved or not may_run(device, holder):
        close_gate(holder, now_ns)
        return
    if holder.gave_up_while_waiting and may_open(holder, now_ns):  # a new word lets that process in, too
        renew_word(device, holder, now_ns)
    chosen = pick(device, now_ns) if another_waits(device, holder) else None
    if chosen is None:
        set_lease(device, holder, now_ns, False)
        return
    if not holder_is_active(device, holder):
        close_gate(holder, now_ns)
        return
    if not holder.lease_end_ns:
        # a slice has just begun to wait: the open end becomes one lease, counted from its grant
        set_lease(device, holder, now_ns, True)
        if holder.grant_ns + device.params.quantum_ns <= now_ns:
            holder.lease_end_ns = now_ns
    if not chosen.limited and is_a_lease_ahead(device, holder, chosen):
        holder.lease_end_ns = min(holder.lease_end_ns, holder.grant_ns + device.params.quantum_min_ns)
    preempts = chosen.follows and chosen is not holder
    if now_ns < holder.lease_end_ns and not preempts:
        return
    if chosen is holder:
        extend_lease(device, holder, now_ns)
    else:
        close_gate(holder, now_ns)


def put_off_until(device: Device, s: Slice, now_ns: int) -> int:
    """Until when the slot is kept empty before a slice whose work outlasts its gate and that is overdrawn gets it:
    slices that are behind and pause now may come back by then. The more it is overdrawn, the longer the pause may be.
    0: not at all."""
    beyond_ns = min(-lag_of(device, s), s.late_ns) - device.params.bound_ns
    if beyond_ns <= 0:
        return 0
    pausing = (o for o in device.slices if not o.active and lately_active(o, now_ns))
    ends = (o.last_active_ns + min(beyond_ns // 4, IDLE_NS) for o in pausing if lag_of(device, o) > SHORT_NS)
    return max(ends, default=0)


def grant(device: Device, now_ns: int) -> None:
    """Gives the empty slot to the next candidate."""
    device.slot_hold_until_ns = 0
    if device.slot_reserved or slot_is_taken(device):
        return
    chosen = pick(device, now_ns)
    if chosen is None:
        return
    device.slot_hold_until_ns = put_off_until(device, chosen, now_ns)
    if now_ns >= device.slot_hold_until_ns:
        open_gate(device, chosen, now_ns)
        set_lease(device, chosen, now_ns, another_waits(device, chosen))
