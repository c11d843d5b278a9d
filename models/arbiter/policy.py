"""The arbiter's policy as a reference model, pure: what shim/arbiter/policy.c decides, this decides, step by step.

One device. Each step takes what the tenants report and the time, and sets the gates. Integers throughout, so that the
two can be compared for equality (tests/arbiter/test_equality.py). Files and functions of shim/arbiter/ have the names
that they have here (tests/rules/test_arbiter_names.py).

A slice is *free* or *saturating*, by what it does. Free: it leaves gaps, or is new; its gate is open and the
hardware time-slices between it and whatever else runs; it is charged for completed work. Saturating: it always wants
the device; such slices take turns in one slot by leases, the smallest virtual time first (start-time fair queueing,
Goyal et al., SIGCOMM 1996), and are charged the time that free slices have left. Entitlements follow from
water-filling all demands into minima, priorities, weights and maxima. A slice that has used more than its entitlement
waits as long as a free slice that wants to run has used less. Maxima are token buckets (HTB's ceiling).

Reading order: step() below, then device, lags, free_slices, slot, gates and outputs for the gates; accounting, charges,
completed and entitlements for what slices are charged and due.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.arbiter.accounting import charge_all
from models.arbiter.device import Device
from models.arbiter.entitlements import note_activity, raise_floor, set_entitlements
from models.arbiter.free_slices import note_debts, note_turns, review_free
from models.arbiter.gaps import skip_gap
from models.arbiter.gates import close_gate, note_drains, open_gate, rescue
from models.arbiter.lags import forgive
from models.arbiter.maximum import note_limits
from models.arbiter.model import GANG_NONE, LATENCY_DEBT_NS, Slice, SliceParams, State, least_ppm, scale_ns
from models.arbiter.outputs import count_slices, next_deadline, set_outputs
from models.arbiter.slot import find_in_slot, grant, review_holder, review_slot_members, review_vacancy


@dataclass
class Arbiter(Device):
    """The decisions for one device."""

    def find(self, ident: int) -> Slice | None:
        return next((s for s in self.slices if s.ident == ident), None)

    def find_place(self) -> int:
        """The first in the core's table that no slice has."""
        taken = {s.place for s in self.slices}
        return next(place for place in range(len(taken) + 1) if place not in taken)

    def set(self, ident: int, params: SliceParams) -> Slice:
        """Creates or changes a slice, in force with the next step."""
        if params.gang != GANG_NONE:  # a gang enters on all of its devices at once
            params = replace(params, latency=False)
        if known := self.find(ident):
            if params.max_milli < known.params.max_milli:  # a lower maximum truncates the bucket
                known.cap_ns = min(known.cap_ns, scale_ns(self.params.cap_depth_ns, params.max_milli))
            known.params = params
            return known
        made = Slice(ident, params)
        made.cap_ns = scale_ns(self.params.cap_depth_ns, params.max_milli)
        made.guarantee_ns = scale_ns(self.params.guarantee_depth_ns, params.min_milli)
        made.last_active_ns = self.last_ns
        made.virtual_ns = self.floor_ns
        made.owed_ns = -LATENCY_DEBT_NS  # a user who creates slices again and again has no precedence with each
        made.entitlement_ppm = least_ppm(params)
        open_gate(self, made, self.last_ns)
        if params.paused:
            close_gate(made, self.last_ns)
        made.grants = 0
        made.place = self.find_place()
        self.slices.append(made)
        self.slices.sort(key=lambda s: s.place)
        return made

    def remove(self, ident: int) -> None:
        self.slices = [s for s in self.slices if s.ident != ident]

    def step(self, now_ns: int) -> int:
        """Decides; returns when it wants to be called again at the latest (NEVER: when something happens)."""
        now_ns = max(now_ns, self.last_ns)
        skip_gap(self, now_ns)
        charge_all(self, now_ns)
        self.last_ns = now_ns
        for s in self.slices:
            note_activity(s, now_ns)
        note_drains(self, now_ns)
        review_slot_members(self, now_ns)
        set_entitlements(self, now_ns)
        raise_floor(self, now_ns)
        forgive(self, now_ns)
        note_limits(self)
        note_debts(self)
        review_vacancy(self)
        review_free(self, now_ns)
        holder = find_in_slot(self, State.OPEN)
        if holder:
            review_holder(self, holder, now_ns)
        grant(self, now_ns)
        note_turns(self)
        rescue(self, now_ns)
        crowd = count_slices(self, now_ns)
        set_outputs(self, crowd, now_ns)
        return next_deadline(self, crowd, now_ns)
