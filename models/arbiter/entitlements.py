"""Demands, entitlements and the floor of virtual time."""

from __future__ import annotations

from models.arbiter.device import Device, lately_active, saturating, shares_device
from models.arbiter.model import (
    DEADLINE_NS,
    DEBT_MAX_NS,
    ENTITLEMENT_MIN_PPM,
    IDLE_NS,
    MILLI,
    PPM,
    SEEN_LEAST_NS,
    Slice,
    State,
    least_ppm,
)


def set_deadline(s: Slice, now_ns: int) -> None:
    """Sets the deadline of a latency slice's burst that begins now."""
    if s.params.min_milli:
        s.deadline_ns = now_ns + DEADLINE_NS * MILLI // s.params.min_milli


def note_activity(s: Slice, now_ns: int) -> None:
    if s.active:
        if now_ns >= s.last_active_ns + IDLE_NS or not s.last_active_ns:
            # its demand before the pause says nothing about now
            s.demand_ppm = PPM
            s.work_ns = s.idle_ns = s.window_work_ns = s.window_idle_ns = 0
            s.free_lag_ns, s.owed_ns = min(s.free_lag_ns, 0), min(s.owed_ns, 0)
        s.last_active_ns = now_ns
        if not s.was_active:
            set_deadline(s, now_ns)
    s.was_active = s.active


def measure_demand(s: Slice) -> None:
    """Work and idle time of the last window, averaged over about four. Time at the closed gate is neither."""
    worked_ns = max(0, min(s.window_work_ns, DEBT_MAX_NS))
    if worked_ns + s.window_idle_ns < SEEN_LEAST_NS:
        return
    s.work_ns = s.work_ns * 3 // 4 + worked_ns
    s.idle_ns = s.idle_ns * 3 // 4 + s.window_idle_ns
    s.window_work_ns = s.window_idle_ns = 0
    s.demand_ppm = s.work_ns * PPM // (s.work_ns + s.idle_ns)


def limit_of(s: Slice) -> int:
    """The most that water-filling gives a slice."""
    wanted_ppm = PPM if s.saturating else min(PPM, s.demand_ppm * 103 // 100 + 5_000)
    return min(wanted_ppm, s.params.max_milli * MILLI)


def set_entitlements(device: Device, now_ns: int) -> None:
    """Entitlements by water-filling: minima first, then by priority and weight, none beyond its maximum or its
    demand."""
    left = PPM
    limits: dict[int, int] = {}
    for s in device.slices:
        if not lately_active(s, now_ns):
            s.entitlement_ppm = least_ppm(s.params)
            continue
        limits[s.ident] = limit_of(s)
        s.entitlement_ppm = min(s.params.min_milli * MILLI, limits[s.ident])
        left -= s.entitlement_ppm
    active = [s for s in device.slices if s.ident in limits]
    for priority in sorted({s.params.priority for s in active}, reverse=True):
        left = fill_level([s for s in active if s.params.priority == priority], limits, left)
    for s in active:
        s.entitlement_ppm = max(ENTITLEMENT_MIN_PPM, s.entitlement_ppm)


def fill_level(level: list[Slice], limits: dict[int, int], spare_ppm: int) -> int:
    """Divides what is left among slices of one priority by their weights. Returns what is left after that."""
    while spare_ppm > 0:
        hungry = [s for s in level if s.entitlement_ppm < limits[s.ident]]
        weights = sum(s.weight for s in hungry)
        if not hungry:
            break
        before, full = spare_ppm, False
        for s in hungry:
            missing = limits[s.ident] - s.entitlement_ppm
            if before * s.weight // weights >= missing:
                s.entitlement_ppm += missing
                spare_ppm -= missing
                full = True
        if full:
            continue
        for s in hungry:
            s.entitlement_ppm += before * s.weight // weights
        return 0
    return spare_ppm


def is_stopped(s: Slice, now_ns: int) -> bool:
    return s.state != State.SHUT and not shares_device(s, now_ns)


def raise_floor(device: Device, now_ns: int) -> None:
    """Virtual time of the slot: the least of its members, never falling.

    A stopped member is raised with it: otherwise it would keep the others waiting for as long as it was stopped.
    """
    turns = [s for s in saturating(device) if s.active or s.state != State.SHUT]
    running = [s.virtual_ns for s in turns if not is_stopped(s, now_ns)]
    device.floor_ns = max(device.floor_ns, min(running, default=0))
    for s in turns:
        if is_stopped(s, now_ns):
            s.virtual_ns = max(s.virtual_ns, device.floor_ns)
