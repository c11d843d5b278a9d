"""Gaps: time in which the arbiter stood still, and tenants followed their timetables."""

from __future__ import annotations

from models.arbiter.device import Device
from models.arbiter.model import STALLED_NS, Slice


def stood_still(device: Device, now_ns: int) -> bool:
    return now_ns > device.last_ns + STALLED_NS


def skip_gap(device: Device, now_ns: int) -> None:
    """Leaves a gap out: its time is charged to no slice, and neither is its work.

    For all that lasts through it, it was not there. It is measured by the arbiter's own clock: no page can make one.
    """
    if not stood_still(device, now_ns):
        return
    gap_ns = now_ns - device.last_ns
    device.last_ns = now_ns
    for s in device.slices:
        drop_work(s)
        move_times(s, gap_ns)


def drop_work(s: Slice) -> None:
    """What was completed in the gap is not believed for the time before or after it, and what was outstanding before
    it is not settled by what is reported after it: the charges stay as they are."""
    s.reported_total_ns = s.done_total_ns
    s.reportable_ns = 0
    s.done_seen_ns = s.done_ns
    s.provisional_ns = s.outstanding_ns = s.alone_ns = 0
    s.beside_slot = False
    s.unpaid_ns = max(0, s.unpaid_ns)
    s.over_cap_ns = max(0, s.over_cap_ns)


def move_times(s: Slice, gap_ns: int) -> None:
    """A lease, a drain or a pause is not longer by the gap that it lasted through."""
    s.grant_ns += gap_ns
    s.close_ns += gap_ns
    s.rescue_ns += gap_ns
    if s.lease_end_ns:
        s.lease_end_ns += gap_ns
    if s.last_active_ns:
        s.last_active_ns += gap_ns
