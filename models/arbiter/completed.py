"""Completed work as the tenants report it, and how far it is believed."""

from __future__ import annotations

from models.arbiter.device import Device, free, lately_active, others_active, saturating
from models.arbiter.maximum import any_waits
from models.arbiter.model import (
    DEBT_MAX_NS,
    LATE_REPORTED_NS,
    PPM,
    RENEWED_BY_WORK,
    REPORTABLE_IDLE_NS,
    REPORTED_NS,
    SILENT_NS,
    TURN_CREDIT_NS,
    TURN_CREDITS,
    TURN_REFILL_NS,
    UNEXPLAINED_MAX_NS,
    Slice,
    clamp_ns,
)


def reported_ppm(s: Slice) -> int:
    """The part of its time with work outstanding that it reports as completed work."""
    return min(PPM, s.recent_reported_ns * PPM // max(1, s.recent_run_ns))


def is_silent(device: Device, s: Slice) -> bool:
    """Reports little of what it completes, or seldom: its reports do not say which slice had the device."""
    seldom = max(s.reported_after_ns, device.last_ns - s.reported_at_ns) > SILENT_NS
    return s.contexts > 0 and (seldom or (s.recent_run_ns > REPORTED_NS and reported_ppm(s) < PPM // 4))


def note_reported(device: Device, s: Slice, ran: int, now_ns: int) -> int:
    """Takes over its report. Returns the work that it has completed, in ns.

    A saturating slice that reports only a part of its time is known from the times when it ran alone; its reports are
    scaled up by that.
    """
    more_ns = min(s.done_ns - s.done_reported_ns, DEBT_MAX_NS)
    s.done_reported_ns = s.done_ns
    if more_ns > 0:
        s.reported_after_ns = now_ns - s.reported_at_ns
    if more_ns > 0 or not s.contexts:
        s.reported_at_ns = now_ns
    if s.contexts and (not s.saturating or ran == 1):
        s.recent_run_ns += s.busy_ns
        s.recent_reported_ns = min(s.recent_reported_ns + more_ns, DEBT_MAX_NS)
    if s.recent_run_ns > 2 * REPORTED_NS:
        s.recent_run_ns //= 2
        s.recent_reported_ns //= 2
    if s.saturating:
        own_ns = more_ns
        if s.recent_reported_ns > s.recent_run_ns > 0 and others_active(device, s):  # alone it reports late
            own_ns = more_ns * s.recent_run_ns // s.recent_reported_ns
        s.unpaid_ns += own_ns // 2
        s.over_cap_ns += own_ns
    known = s.saturating and s.recent_run_ns > REPORTED_NS
    return more_ns * PPM // max(PPM // 4, reported_ppm(s)) if known else more_ns


def weigh(device: Device, now_ns: int) -> None:
    """Compares the time in which several slices ran, or one while another one waited, with the work that they report.
    The difference is unexplained time, see take_unexplained_ns()."""
    ran = [s for s in device.slices if s.contexts]
    reported_ns = sum(note_reported(device, s, len(ran), now_ns) for s in device.slices)
    device.slot_reports_work = not any(is_silent(device, s) for s in saturating(device))
    found = (reported_ppm(s) for s in free(device) if s.recent_run_ns and lately_active(s, device.last_ns))
    device.least_reported_ppm = min(found, default=0)
    alone = len(ran) == 1 and not ran[0].saturating and any_waits(device, ran[0])
    if device.slot_reports_work and (alone or len(ran) > 1):
        busy_ns = max(s.busy_ns for s in ran)
        # context switches; with one slice the delay from the end of its work until that is noticed
        overhead_ns = busy_ns // (8 if alone else 16)
        left_ns = device.unexplained_ns + busy_ns - overhead_ns - reported_ns
        device.unexplained_ns = clamp_ns(left_ns, UNEXPLAINED_MAX_NS)


def take_unexplained_ns(device: Device, s: Slice, done_ns: int) -> int:
    """What is charged beyond the completed work that a slice reports, as far as no slice's reports explain the time.

    Up to its provisional charge; for the slice that reports least of its time, up to all time in which it had work
    outstanding; up to half of its provisional charge where saturating slices do not report what they complete.
    """
    if not device.slot_reports_work:
        return max(0, s.provisional_ns // 2 - done_ns)
    most_ns = s.outstanding_ns if reported_ppm(s) <= device.least_reported_ppm else s.provisional_ns
    doubted_ns = max(0, min(most_ns - done_ns, device.unexplained_ns))
    device.unexplained_ns -= doubted_ns
    return doubted_ns


def count_done(s: Slice, passed_ns: int) -> None:
    """Counts reported work, at most as much as the time with work outstanding: its processes together cannot complete
    more. Some of that time may be reported later. Reported work also refills the buckets of turns and of gate words."""
    s.reportable_ns = min(s.reportable_ns + s.busy_ns, DEBT_MAX_NS)
    if not (s.outstanding or s.was_outstanding):
        s.reportable_ns = min(s.reportable_ns, REPORTABLE_IDLE_NS)
    more_ns = min(s.done_total_ns - s.reported_total_ns, s.reportable_ns)
    s.reported_total_ns = max(s.reported_total_ns + more_ns, s.done_total_ns - LATE_REPORTED_NS)
    s.reportable_ns -= more_ns
    s.done_ns += more_ns
    s.renewed_ns = max(0, s.renewed_ns - RENEWED_BY_WORK * more_ns)
    credit_ns = s.turn_credit_ns + more_ns + passed_ns // (TURN_REFILL_NS // TURN_CREDIT_NS)
    s.turn_credit_ns = min(credit_ns, TURN_CREDITS * TURN_CREDIT_NS)
