"""Charges all slices for the time since the last step."""

from __future__ import annotations

from models.arbiter.charges import charge, may_begin_turn
from models.arbiter.completed import count_done, take_unexplained_ns, weigh
from models.arbiter.device import Device, another_in_slot, free, lately_active, saturating, shares_device
from models.arbiter.maximum import any_waits, cap_depth, keeps_others_waiting
from models.arbiter.model import (
    CARRIED_MAX_NS,
    DEBT_MAX_NS,
    LATE_REPORTED_NS,
    LATE_STEP_NS,
    MILLI,
    SHORT_NS,
    TICK_NS,
    Slice,
    State,
    clamp_ns,
    part_of,
    scale_ns,
)


def charge_all(device: Device, now_ns: int) -> None:
    passed_ns = now_ns - device.last_ns
    for s in device.slices:
        active_ns = note_reports(device, s, passed_ns)
        fill_buckets(device, s, passed_ns, active_ns)
        accrue_lag(device, s, passed_ns)
    accrue_slot_lag(device, passed_ns)
    device.slot_occupied = any(shares_device(s, now_ns) for s in saturating(device))
    weigh(device, now_ns)
    contexts = sum(s.contexts for s in device.slices)
    for s in free(device):
        charge_free(device, s, contexts, passed_ns, now_ns)
    charge_slot(device, passed_ns, now_ns)
    for s in saturating(device):
        charge_unpaid(device, s)


def note_reports(device: Device, s: Slice, passed_ns: int) -> int:
    """What its pages report of this step, at most the time that passed. Returns for how long they were active: that a
    gang's leader is active may be for its other devices."""
    s.busy_ns = min(s.busy_total_ns - s.busy_seen_ns, passed_ns)
    s.busy_seen_ns = s.busy_total_ns
    if not s.busy_ns and s.attached and s.was_running and not s.counted_ahead:  # a page that contradicts itself
        s.busy_ns = passed_ns
    count_done(s, passed_ns)
    s.was_outstanding = s.outstanding
    s.was_running = s.running > 0  # a gang's leader has the slot for work on other devices, too
    s.contexts = max(1, s.running) if s.busy_ns > 0 else 0
    reported_ns = active_ns = min(s.active_total_ns - s.active_seen_ns, passed_ns)
    s.active_seen_ns = s.active_total_ns
    if not active_ns and s.attached and s.was_active:
        active_ns = passed_ns
    # Behind the gate that cut its work off, a slice prepares what it would have prepared while that work ran.
    prepares = s.state == State.SHUT and s.cut_off and another_in_slot(device, s)
    if not prepares:
        s.window_idle_ns += passed_ns - active_ns
    return reported_ns


def fill_buckets(device: Device, s: Slice, passed_ns: int, active_ns: int) -> None:
    """The token buckets of its maximum and of its guarantee."""
    depth_ns = cap_depth(device, s, active_ns)
    if lately_active(s, device.last_ns):  # a deficit outlasts a short pause, and does not grow in it
        depth_ns = max(depth_ns, s.cap_ns)
    s.cap_ns = min(s.cap_ns + scale_ns(passed_ns, s.params.max_milli), depth_ns)
    depth_ns = scale_ns(device.params.guarantee_depth_ns, s.params.min_milli)
    s.guarantee_ns = min(s.guarantee_ns + scale_ns(passed_ns, s.params.min_milli), depth_ns)


def accrue_lag(device: Device, s: Slice, passed_ns: int) -> None:
    """Adds its entitlement for the time that passed."""
    if s.saturating:
        if not s.was_active:  # the entitlement of an idle slice is not saved up
            s.virtual_ns += passed_ns
        return
    depth_ns = part_of(device.params.guarantee_depth_ns, s.entitlement_ppm)
    if s.active:  # the slot has used what it lacks, since the work of saturating slices cannot be taken back
        depth_ns = max(depth_ns, -device.slot_lag_ns)
    # A latency slice that needs just its minimum must not fall behind by roundings: a hundredth more.
    ppm = s.entitlement_ppm * 101 // 100 if s.params.latency else s.entitlement_ppm
    s.free_lag_ns = min(s.free_lag_ns + part_of(passed_ns, ppm), max(depth_ns, s.free_lag_ns))
    if not may_begin_turn(s):  # it is not owed what it does not take
        s.free_lag_ns = min(s.free_lag_ns, SHORT_NS)
    owed_ns = part_of(passed_ns, s.params.min_milli * MILLI * 101 // 100)
    s.owed_ns = min(s.owed_ns + owed_ns, scale_ns(device.params.guarantee_depth_ns, s.params.min_milli))


def accrue_slot_lag(device: Device, passed_ns: int) -> None:
    together_ppm = sum(s.entitlement_ppm for s in saturating(device))
    depth_ns = part_of(device.params.guarantee_depth_ns, together_ppm)
    device.slot_lag_ns = min(device.slot_lag_ns + part_of(passed_ns, together_ppm), depth_ns)


def charge_free(device: Device, s: Slice, contexts: int, passed_ns: int, now_ns: int) -> None:
    """Charges a free slice, provisionally, its contexts' part of the time in which it had work outstanding.

    The charge is corrected by its completed work when nothing is outstanding, and every tick: hardware time-slicing is
    uneven over short times.
    """
    used_ns = s.busy_ns * s.contexts // max(1, contexts)
    idle_ns = 0
    if s.has_precedence and any_waits(device, s):
        idle_ns = passed_ns - s.busy_ns
        used_ns = passed_ns  # it keeps the device from them, whatever it reports
    if s.busy_ns:  # time for which it keeps others waiting with nothing to run is not corrected later
        s.provisional_ns += used_ns
        s.outstanding_ns += max(used_ns, s.busy_ns)
    s.beside_slot |= device.slot_occupied and s.busy_ns > 0
    if s.contexts == contexts and (s.holds or not any_waits(device, s)):  # no other slice can have had that time
        s.alone_ns += s.busy_ns
    if device.slot_occupied:
        device.free_used_ns += used_ns
    done_ns = max(0, s.done_ns - s.done_seen_ns)
    if s.holds and not s.has_precedence and any_waits(device, s):
        idle_ns = passed_ns - s.busy_ns
        used_ns += idle_ns  # it left the device idle while others waited for it
    if not s.outstanding or ((device.slot_reports_work or done_ns > 0) and now_ns >= s.settled_ns + TICK_NS):
        reported_ns = done_ns + take_unexplained_ns(device, s, done_ns)
        ahead_ns = max(0, s.alone_ns // 2 - reported_ns)
        more_ns = reported_ns + ahead_ns - s.provisional_ns
        used_ns += more_ns
        if s.beside_slot:  # what it has used more, the slot has used less
            device.free_used_ns += more_ns
        s.beside_slot = False
        s.provisional_ns = s.outstanding_ns = s.alone_ns = 0
        # What was charged ahead is not charged again when it completes, also where it waits for something else first.
        s.done_seen_ns = min(max(s.done_seen_ns, s.done_ns) + ahead_ns, s.done_ns + ahead_most(s))
        s.settled_ns = now_ns
    charge(device, s, used_ns, idle_ns)


def ahead_most(s: Slice) -> int:
    """How much may have been charged before it is reported: of a slice with nothing on the device only a little."""
    return DEBT_MAX_NS if s.outstanding else LATE_REPORTED_NS


def shared_ns(device: Device, s: Slice, used_ns: int, passed_ns: int, now_ns: int) -> int:
    """The part of a slice's time that it shares with others in the slot: at most as long as their work was outstanding.

    Of a short step all of it. A step beside a drain is long only if the arbiter ran late, and then most of it belongs
    to one of them.
    """
    if passed_ns < LATE_STEP_NS:
        return used_ns
    others = (o for o in saturating(device) if o is not s and shares_device(o, now_ns))
    return min(used_ns, max((o.busy_ns if o.contexts else passed_ns for o in others), default=0))


def charge_slot(device: Device, passed_ns: int, now_ns: int) -> None:
    """Splits the time that free slices have left among the saturating slices that occupied the device.

    Each is charged wall time while another slice waits for the slot, else its time with work outstanding.
    """
    occupants = [s for s in saturating(device) if shares_device(s, now_ns)]
    if not occupants:
        return
    contexts = sum(max(1, s.contexts) for s in occupants)
    taken_ns = clamp_ns(device.free_used_ns, passed_ns)
    device.free_used_ns = clamp_ns(device.free_used_ns - taken_ns, CARRIED_MAX_NS)
    for s in occupants:
        used_ns = s.busy_ns
        if keeps_others_waiting(device, s):
            used_ns = passed_ns
            if s.quiet and s.state != State.OPEN and s.drained_ns < now_ns:
                used_ns = max(0, s.drained_ns - device.last_ns)  # its drain was noticed later than it happened
        own = max(1, s.contexts)
        used_ns = max(0, used_ns - taken_ns)
        split_ns = shared_ns(device, s, used_ns, passed_ns, now_ns)
        used_ns -= split_ns - split_ns * own // contexts
        charge(device, s, used_ns, max(0, used_ns - max(0, s.busy_ns - taken_ns)))
        # Estimates of work that other saturating slices overlapped include their time. What free slices took is no
        # reason: they say themselves how much that was.
        if s.state == State.OVERLAP:
            s.over_cap_ns -= s.busy_ns * (contexts - own) // contexts


def charge_unpaid(device: Device, s: Slice) -> None:
    """Charges a saturating slice completed work that it reports and has not been charged, whatever other slices report:
    in full for its maximum, by half for its share, since estimates taken beside others may be twice too long. In full
    is without the time in which other saturating slices overlapped its work."""
    late_ns = LATE_REPORTED_NS + device.last_ns - min(s.reported_at_ns, device.last_ns)
    s.unpaid_ns = max(s.unpaid_ns, -late_ns)
    s.over_cap_ns = max(s.over_cap_ns, -late_ns)
    charge(device, s, max(0, s.unpaid_ns - LATE_REPORTED_NS))
    more_ns = max(0, s.over_cap_ns - LATE_REPORTED_NS)
    s.over_cap_ns -= more_ns
    s.cap_ns = max(s.cap_ns - more_ns, -DEBT_MAX_NS)
