"""What a charge of device time counts for, and what a turn costs at least."""

from __future__ import annotations

from models.arbiter.device import Device
from models.arbiter.model import DEBT_MAX_NS, PPM, TURN_CREDIT_NS, TURN_IDLE_NS, TURN_LEAST_NS, Slice


def may_begin_turn(s: Slice) -> bool:
    """Whether it may be served before other slices: turns without work are limited, whatever its page reports."""
    return s.holds or s.turn_credit_ns >= TURN_CREDIT_NS


def begin_turn(device: Device, s: Slice) -> None:
    """A turn for which others wait costs at least the hand-over, whether the slice launches anything or not."""
    has_credit = s.turn_credit_ns >= TURN_CREDIT_NS
    s.turn_credit_ns -= TURN_CREDIT_NS * has_credit
    s.turn_used_ns = 0
    s.turn_least_ns = TURN_LEAST_NS if has_credit else TURN_IDLE_NS
    charge_share(device, s, s.turn_least_ns)
    if not has_credit:  # a page that reports no work: the maximum limits how often others wait for nothing
        s.cap_ns = max(s.cap_ns - s.turn_least_ns, -DEBT_MAX_NS)


def charge_share(device: Device, s: Slice, used_ns: int) -> None:
    """Charges the slice's share, which decides which slice is served first and which waits."""
    s.window_work_ns += used_ns
    if s.saturating:
        most_ns = device.floor_ns + DEBT_MAX_NS * PPM // s.entitlement_ppm
        s.unpaid_ns -= used_ns
        s.virtual_ns = max(s.virtual_ns, min(s.virtual_ns + used_ns * PPM // s.entitlement_ppm, most_ns))
        device.slot_lag_ns = max(device.slot_lag_ns - used_ns, -DEBT_MAX_NS)
    else:
        s.free_lag_ns = max(s.free_lag_ns - used_ns, -DEBT_MAX_NS)
        s.owed_ns = max(s.owed_ns - used_ns, -DEBT_MAX_NS)


def charge(device: Device, s: Slice, used_ns: int, idle_ns: int = 0) -> None:
    """Charges used device time: to the share, the maximum, the guarantee and the statistics.

    What a turn costs beyond the time that was used is charged to the share alone. idle_ns: the part of used_ns in which
    the slice kept the device from others with nothing to run; it is no usage that is reported.
    """
    before_ns = max(s.turn_least_ns, s.turn_used_ns)
    s.turn_used_ns += used_ns
    charge_share(device, s, max(s.turn_least_ns, s.turn_used_ns) - before_ns)
    s.charged_ns += used_ns - idle_ns
    s.cap_ns = max(s.cap_ns - used_ns, -DEBT_MAX_NS)
    s.guarantee_ns -= used_ns - idle_ns
    if s.guarantee_ns < 0:
        if s.params.max_milli > s.params.min_milli:  # else it has nothing to borrow
            s.borrowed_ns -= s.guarantee_ns
        s.guarantee_ns = 0
    if s.saturating:
        s.over_cap_ns -= used_ns
