"""The arbiter's policy as a reference model, pure: what shim/arbiter/policy.c decides, this decides, step by step.

One device. Each step takes what the tenants report and the time, and sets the gates. Integers throughout, so that the
two can be compared for equality (tests/arbiter/test_equality.py).

A slice is *free* or *saturating*, by what it does. Free: it leaves gaps, or has just come; its gate is open and the
hardware slices time between it and whatever else runs; it is charged for completed work. Saturating: it always wants
the device; such slices take turns in one slot by leases, the smallest virtual time first (start-time fair queueing,
Goyal et al., SIGCOMM 1996), and are charged the time that free ones have left. What a slice is due follows from
water-filling everybody's demand into minima, priorities, weights and maxima. Whoever has had more than that waits as
long as a free slice that wants to run has had less. Maxima are token buckets (HTB's ceiling).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.arbiter.model import (
    AHEAD_NS,
    BACK_NS,
    CLOSED,
    COUNT,
    DEBT_MAX_NS,
    EPOCH_SHIFT,
    FAR_NS,
    FORECAST_MAX_NS,
    FREE_PPM,
    GANG_NONE,
    GANG_OPEN,
    IDLE_NS,
    LATENCY_DEBT_NS,
    LOOK_LEAST_NS,
    MILLI,
    NEVER,
    PPM,
    RENEWAL_NS,
    RENEWALS,
    RESCUE_NS,
    SATURATING_PPM,
    SHORT_NS,
    SOLO,
    STATE_MASK,
    TICK_NS,
    WAKE_GRACE_NS,
    WATCH_EDGES,
    WATCH_GANG,
    WATCH_USAGE,
    WINDOW_NS,
    Regime,
    Slice,
    SliceParams,
    State,
    behind,
    due_time,
    parts,
    scaled,
    truncated,
)
from models.arbiter.shares import Shares, within


@dataclass
class Arbiter(Shares):
    """The decisions for one device."""

    window_ns: int = 0  # when the present window of demands began
    served: int = 0
    vacated: bool = False  # the slot is kept empty for somebody who is short
    put_off_ns: int = 0  # it is empty until then, for whoever comes back by then; 0: for nobody
    regime: Regime = Regime.IDLE

    # ---- slices ----

    def set(self, ident: int, params: SliceParams) -> Slice:
        """Makes a slice, or changes one: in force with the next step."""
        if params.gang != GANG_NONE:  # a gang comes in on all of its devices at once
            params = replace(params, latency=False)
        for known in self.slices:
            if known.ident == ident:
                if params.max_milli < known.params.max_milli:  # in force now, whatever has come together before
                    known.cap_ns = min(known.cap_ns, scaled(self.params.cap_depth_ns, params.max_milli))
                known.params = params
                return known
        made = Slice(ident, params)
        made.cap_ns = scaled(self.params.cap_depth_ns, params.max_milli)
        made.guarantee_ns = scaled(self.params.guarantee_depth_ns, params.min_milli)
        made.last_active_ns = self.last_ns
        made.virtual_ns = self.floor_ns
        made.owed_ns = -LATENCY_DEBT_NS  # who makes slices again and again is not served first with each
        made.entitlement_ppm = max(1000, params.min_milli * MILLI)
        self._open(made, self.last_ns)
        if params.paused:
            self._close(made, self.last_ns)
        made.grants = 0
        taken = {s.place for s in self.slices}
        made.place = next(place for place in range(len(taken) + 1) if place not in taken)
        self.slices.append(made)
        self.slices.sort(key=lambda s: s.place)
        return made

    def remove(self, ident: int) -> None:
        self.slices = [s for s in self.slices if s.ident != ident]

    # ---- gates ----

    def _set_word(self, s: Slice, gate: int) -> None:
        s.word = ((s.word >> EPOCH_SHIFT) + 1) << EPOCH_SHIFT & 0xFFFFFFFF | gate

    def _alone(self, s: Slice) -> bool:
        return not any(o is not s and (o.attached or o.state in (State.DRAINING, State.OVERLAP)) for o in self.slices)

    def _open_gate_state(self, s: Slice) -> int:
        counted = not s.uncapped or s.params.gang != GANG_NONE  # of a gang collectives are counted
        return SOLO if not counted and self._alone(s) else COUNT

    def _open(self, s: Slice, now_ns: int) -> None:
        self._set_word(s, self._open_gate_state(s))
        s.state = State.OPEN
        s.renewed_ns = max(s.renewed_ns, now_ns) + RENEWAL_NS
        s.quiet = False
        s.wants = False
        s.grant_ns = now_ns
        self.served += 1
        s.served = self.served
        s.grants += s.attached
        if s.saturating and self._somebody_waits(s):
            self._begin_turn(s)

    def _close(self, s: Slice, now_ns: int) -> None:
        gave_up = s.quiet and s.state == State.OPEN  # nothing in flight and none can be: no drain to wait for
        self._set_word(s, CLOSED)
        s.quiet = False
        s.overran = False
        s.drain_expected_ns = 0
        s.late_ns -= s.late_ns // 8
        s.close_ns = now_ns
        s.lease_end_ns = 0
        if gave_up or not s.attached:
            s.early_releases += gave_up
            s.state = State.SHUT
        elif s.saturating:
            s.state = State.DRAINING
        else:  # nobody waits for its drain
            s.state = State.OVERLAP
            s.rescue_ns = now_ns + RESCUE_NS

    # ---- who wants what ----

    def _other_waits(self, s: Slice) -> bool:
        return any(o is not s and self._waits(o) for o in self._saturating())

    # ---- free or saturating ----

    @staticmethod
    def _wait_no_longer(s: Slice, now_ns: int) -> None:
        if s.state == State.DRAINING:
            s.state = State.OVERLAP
            s.rescue_ns = now_ns + RESCUE_NS

    def _slot_mean_ns(self) -> int:
        """Of the virtual times in the slot beyond the floor, by what their owners are due."""
        members = list(self._saturating())
        total = sum(truncated(truncated(s.virtual_ns - self.floor_ns, 1000) * s.entitlement_ppm, 1000) for s in members)
        return truncated(total * MILLI, max(1, sum(s.entitlement_ppm for s in members))) * MILLI

    def _lag_of(self, s: Slice) -> int:
        """What it has had less than it was due; in the slot its part of what that has, and less than others there."""
        if not s.saturating:
            return s.free_lag_ns
        ahead_ns = s.virtual_ns - self.floor_ns - self._slot_mean_ns()
        together_ppm = sum(o.entitlement_ppm for o in self._saturating())
        own_ns = truncated(self.slot_lag_ns * s.entitlement_ppm, together_ppm)
        return within(own_ns - truncated(truncated(ahead_ns, 1000) * s.entitlement_ppm, 1000), DEBT_MAX_NS)

    def _far(self, lag_ns: int, entitlement_ppm: int) -> int:
        """A lag that no pause and no turn makes; others do not count when somebody enters the slot or leaves it."""
        return lag_ns if abs(lag_ns) > parts(self.params.guarantee_depth_ns, entitlement_ppm) else 0

    def _leave_slot(self, s: Slice) -> None:
        """Far more or less than the others there have had is taken along."""
        s.free_lag_ns = self._far(self._lag_of(s), s.entitlement_ppm)
        self.slot_lag_ns = within(self.slot_lag_ns - s.free_lag_ns, DEBT_MAX_NS)
        s.saturating = False
        s.provisional_ns = s.outstanding_ns = s.alone_ns = 0
        s.beside_slot = False
        s.done_seen_ns = s.done_ns
        s.recent_run_ns = s.recent_reported_ns = 0
        s.over_reported_ns = 0
        s.lease_end_ns = 0
        self._wait_no_longer(s, self.last_ns)

    def _join_slot(self, s: Slice, now_ns: int) -> None:
        taken = any(o.state in (State.OPEN, State.DRAINING) for o in self._saturating())
        lag_ns = self._far(s.free_lag_ns, s.entitlement_ppm)
        together_ppm = sum(o.entitlement_ppm for o in self._saturating())
        slot_ns = due_time(self._far(self.slot_lag_ns, together_ppm), together_ppm) if together_ppm else 0
        s.virtual_ns = max(0, self.floor_ns + slot_ns - due_time(lag_ns, s.entitlement_ppm))
        self.slot_lag_ns = within(self.slot_lag_ns + lag_ns, DEBT_MAX_NS)
        s.free_lag_ns = 0
        s.saturating = True
        s.has_precedence = s.throttled = s.holds = False
        s.recent_run_ns = s.recent_reported_ns = 0
        s.over_reported_ns = 0
        s.unpaid_ns = s.over_cap_ns = 0
        if s.state == State.OPEN and taken:
            self._close(s, now_ns)
            self._wait_no_longer(s, now_ns)

    def _leads_beside_others(self, s: Slice) -> bool:
        """Gangs take turns whatever they demand: side by side, each could wait on one device for what the other has."""
        return s.leads and any(o is not s and o.attached and o.leads for o in self.slices)

    def _takes_turns(self, s: Slice, now_ns: int) -> bool:
        if s.follows:
            return s.gang_turns
        if s.params.latency or s.params.gang == GANG_OPEN:
            return False
        if self._leads_beside_others(s):
            return True
        if not self._lately_active(s, now_ns):
            return False
        return s.demand_ppm >= FREE_PPM if s.saturating else s.demand_ppm >= SATURATING_PPM and s.work_ns > 0

    def _judge(self, now_ns: int) -> None:
        """Demands change once in a window; what a gang does is a matter of others, who come and go."""
        window_ends = now_ns >= self.window_ns + WINDOW_NS
        if window_ends:
            self.window_ns = now_ns
        for s in self.slices:
            if not window_ends and s.params.gang == GANG_NONE:
                continue
            if window_ends:
                self._measure_demand(s)
            turns = self._takes_turns(s, now_ns)
            if s.saturating and not turns:
                self._leave_slot(s)
            if not s.saturating and turns:
                self._join_slot(s, now_ns)

    # ---- drains ----

    def _patience_end(self, s: Slice) -> int:
        return s.close_ns + self.params.bound_ns + self.params.overrun_ns

    def _overlap_from(self, s: Slice) -> int:
        """From when on the next may run beside one that drains: a moment before it is expected to be done, so that its
        waking up costs no device time, or when it is late."""
        if self._leads_beside_others(s):  # side by side they could stand still for ever
            return s.close_ns + RESCUE_NS if s.gang_busy else self._patience_end(s)
        if s.drain_expected_ns < s.close_ns:
            return self._patience_end(s)
        if s.drain_expected_ns <= self._patience_end(s):
            return s.drain_expected_ns - self.params.lookahead_ns
        return min(s.drain_expected_ns, s.close_ns + self._patience_for_long(s))

    def _patience_for_long(self, s: Slice) -> int:
        """Side by side the hardware changes context every millisecond, so a long kernel is waited for. What that takes
        is missing from the others' next second by as much as they are due: the less they are, the longer. And nobody
        comes ahead of its end: whoever does has a slice of the hardware first, for half its price."""
        patience_ns = self.params.bound_ns + self.params.overrun_ns
        return patience_ns * PPM // max(PPM - s.entitlement_ppm, PPM // 3)

    @staticmethod
    def _rescue_after(s: Slice, now_ns: int) -> int:
        """Work that is said to take long is not stuck as long as it may yet be done, beside one neighbour or two: to
        let its owner launch more meanwhile would pay him for it."""
        return max(RESCUE_NS, 3 * min(s.drain_expected_ns - now_ns, FORECAST_MAX_NS))

    def _note_drains(self, now_ns: int) -> None:
        for s in self.slices:
            if s.state in (State.DRAINING, State.OVERLAP):
                s.late_ns = max(s.late_ns, now_ns - s.close_ns)
            if s.state in (State.DRAINING, State.OVERLAP) and (s.quiet or not s.attached):
                if s.is_open:
                    self._set_word(s, CLOSED)
                s.state = State.SHUT
            if s.state == State.DRAINING and now_ns >= self._overlap_from(s):
                s.state = State.OVERLAP
                s.rescue_ns = now_ns + self._rescue_after(s, now_ns)
            if s.saturating and s.state == State.OVERLAP and not s.overran and now_ns >= self._patience_end(s):
                s.overran = True
                s.overruns += 1

    # ---- free slices ----

    def _first_latency(self) -> Slice | None:
        """The latency slice to be served before everything else: of those owed, the one with the earliest deadline."""
        owed = [s for s in self.slices if self._is_urgent(s)]
        return min(owed, key=lambda s: (s.deadline_ns, s.ident), default=None)

    def _may_precede(self, s: Slice) -> bool:
        """Its class is latency, and it is within its guarantee."""
        return s.params.latency and not s.overdrawn and self._has_cap(s)

    def _is_urgent(self, s: Slice) -> bool:
        return s.active and self._may_precede(s) and self._may_begin_turn(s)

    def _is_short(self, s: Slice) -> bool:
        return not s.saturating and s.active and s.free_lag_ns > SHORT_NS and self._has_cap(s)

    def _slot_is_short(self) -> bool:
        return self.slot_lag_ns > SHORT_NS and any(self._candidate(s) for s in self._saturating())

    def _slot_behind(self) -> int:
        return due_time(self.slot_lag_ns, max(1000, sum(s.entitlement_ppm for s in self._saturating())))

    def _most_behind(self, but: Slice | None) -> int:
        """How far behind the one is that is short and furthest behind; far ahead when nobody is short."""
        found = [behind(s) for s in self.slices if s is not but and self._is_short(s)]
        if but and self._slot_is_short():
            found.append(self._slot_behind())
        return max(found, default=-FAR_NS)

    def _way_bound(self, s: Slice, now_ns: int) -> int:
        """While it runs only since somebody who is further behind pauses: what it has outstanding then is in that
        one's way, so it may have the less the further behind that one is."""
        mine_ns = self._slot_behind() if s.saturating else behind(s)
        found = (
            behind(o)
            for o in self._free()
            if o is not s and self._lately_active(o, now_ns) and o.free_lag_ns > SHORT_NS
        )
        further_ns = max(found, default=-FAR_NS) - mine_ns
        if further_ns <= AHEAD_NS:
            return self.params.open_bound_ns
        return self.params.latency_bound_ns // (
            4 if further_ns > 3 * AHEAD_NS else 2 if further_ns > 2 * AHEAD_NS else 1
        )

    def _had_too_much(self, s: Slice) -> bool:
        return self._most_behind(s) > behind(s) + (BACK_NS if s.throttled else AHEAD_NS)

    def _review_free(self, now_ns: int) -> None:
        first = self._first_latency()
        for s in self._free():
            s.has_precedence = s is first
            yields = not self._may_precede(s) and self._had_too_much(s)
            s.throttled = not self._has_cap(s) or (s is not first and (first is not None or yields))
            if s.throttled and s.state == State.OPEN:
                self._close(s, now_ns)
            elif s.throttled or not self._may_open(s, now_ns):
                continue
            elif s.state != State.OPEN:
                self._open(s, now_ns)
            elif s.gave_up_while_waiting or (s.quiet and s.wants):
                self._renew(s, now_ns)

    @staticmethod
    def _may_open(s: Slice, now_ns: int) -> bool:
        """A slice is given new words at a bounded rate, whatever its page says."""
        return s.renewed_ns <= now_ns + (RENEWALS - 1) * RENEWAL_NS

    def _renew(self, s: Slice, now_ns: int) -> None:
        """A word can be given up once: who wants the device again is given a new one."""
        self._set_word(s, self._open_gate_state(s))
        s.renewed_ns = max(s.renewed_ns, now_ns) + RENEWAL_NS

    def _note_turns(self) -> None:
        """A free slice has a turn while others are kept from running for it."""
        shut = self.vacated or any(s.throttled and s.active and self._has_cap(s) for s in self._free())
        for s in self._free():
            held = s.holds
            s.holds = shut and s.state == State.OPEN and s.active and (s.has_precedence or self._is_short(s))
            if s.holds and not held:
                self._begin_turn(s)

    # ---- the slot ----

    def _active_holder(self, s: Slice) -> bool:
        return not s.quiet and (s.outstanding or s.wants or self.last_ns < s.grant_ns + WAKE_GRACE_NS)

    @staticmethod
    def _must_not_run(s: Slice) -> bool:
        return not s.gang_go if s.follows else s.gang_stop

    def _candidate(self, s: Slice) -> bool:
        if self._must_not_run(s) or not self._has_cap(s):
            return False
        return self._active_holder(s) if s.state == State.OPEN else self._waits(s)

    def _pick(self, now_ns: int) -> Slice | None:
        found = [
            s for s in self._saturating() if self._candidate(s) and (s.state == State.OPEN or self._may_open(s, now_ns))
        ]
        gangs = [s for s in found if s.follows]
        return min(gangs or found, key=lambda s: (not self._is_caught(s), s.virtual_ns, s.served), default=None)

    def _is_caught(self, s: Slice) -> bool:
        """Spins since a launch of its own stands at another device's gate, and pays for it: its turn never comes."""
        return s.leads and s.state == State.OVERLAP and self.last_ns >= s.close_ns + RESCUE_NS

    def _quantum_of(self, s: Slice) -> int:
        """A gang's devices stop at different places of its work and wait for each other when it goes on."""
        return self.params.quantum_ns * (2 if self._leads_beside_others(s) else 1)

    def _set_lease(self, s: Slice, now_ns: int, contended: bool) -> None:
        s.lease_end_ns = now_ns + self._quantum_of(s) if contended else 0
        if contended and not s.uncapped and s.cap_ns < self.params.quantum_ns:
            s.lease_end_ns = now_ns + max(s.cap_ns, self.params.quantum_min_ns)

    def _forgive(self, now_ns: int) -> None:
        """Time that was had while nobody was behind is nobody's loss: it is no debt to those who come later. Who is
        served first whenever he wants to run is not behind because of others."""
        for s in self.slices:
            behind_ns = self.slot_lag_ns if s.saturating else s.free_lag_ns
            if behind_ns > SHORT_NS and self._lately_active(s, now_ns) and not self._may_precede(s):
                return
        for s in self._free():
            s.free_lag_ns = max(s.free_lag_ns, -parts(AHEAD_NS, s.entitlement_ppm))
            s.owed_ns = max(s.owed_ns, -scaled(AHEAD_NS, s.params.min_milli))
        together_ppm = sum(s.entitlement_ppm for s in self._saturating())
        self.slot_lag_ns = max(self.slot_lag_ns, -parts(AHEAD_NS, together_ppm))

    def _note_debts(self) -> None:
        """A latency slice that has used up its debt is as any other until some of it is paid. A cap is what limits a
        slice from the time on which its bucket is empty until it is nearly full."""
        for s in self.slices:
            full_ns = scaled(self.params.cap_depth_ns, s.params.max_milli)
            s.limited = not s.uncapped and s.cap_ns < (full_ns * 3 // 4 if s.limited else 1)
            overdrawn = s.owed_ns <= (BACK_NS if s.overdrawn else 0) - LATENCY_DEBT_NS
            if s.overdrawn and not overdrawn:
                s.deadline_ns = self._deadline_of(s, self.last_ns)
            s.overdrawn = overdrawn

    def _review_slot(self) -> None:
        """Is the slot to stay empty, because somebody else is short?"""
        margin_ns = BACK_NS if self.vacated else AHEAD_NS
        self.vacated = any(s.saturating for s in self.slices) and (
            self._first_latency() is not None or self._most_behind(None) > self._slot_behind() + margin_ns
        )

    def _review_holder(self, holder: Slice, now_ns: int) -> None:
        rethought = holder.quiet and holder.wants and self._may_open(holder, now_ns)
        if rethought or self.vacated or self._must_not_run(holder) or not self._has_cap(holder):
            self._close(holder, now_ns)
            return
        if holder.gave_up_while_waiting and self._may_open(holder, now_ns):  # a new word lets that process in, too
            self._renew(holder, now_ns)
        chosen = self._pick(now_ns) if self._other_waits(holder) else None
        if chosen is None:
            self._set_lease(holder, now_ns, False)
            return
        if not self._active_holder(holder):
            self._close(holder, now_ns)
            return
        if not holder.lease_end_ns:  # somebody has just come: the open end becomes one lease, counted from its grant
            self._set_lease(holder, now_ns, True)
            if holder.grant_ns + self.params.quantum_ns <= now_ns:
                holder.lease_end_ns = now_ns
        if not chosen.limited and self._is_a_lease_ahead(holder, chosen):
            holder.lease_end_ns = min(holder.lease_end_ns, holder.grant_ns + self.params.quantum_ns // 4)
        preempts = chosen.follows and chosen is not holder
        if now_ns < holder.lease_end_ns and not preempts:
            return
        if chosen is holder:
            self._set_lease(holder, now_ns, True)
        else:
            self._close(holder, now_ns)

    def _is_a_lease_ahead(self, s: Slice, of: Slice) -> bool:
        """By more than a lease of its own makes: it was let in while the other one paused."""
        return s.virtual_ns > of.virtual_ns + self._quantum_of(s) * PPM // s.entitlement_ppm

    def _put_off_until(self, s: Slice, now_ns: int) -> int:
        """Whose work cannot be taken back, and who has had more than his due, is not let in as soon as those pause who
        have had less: the more it is, the longer they may."""
        beyond_ns = min(-self._lag_of(s), s.late_ns) - self.params.bound_ns - self.params.overrun_ns
        if beyond_ns <= 0:
            return 0
        pausing = (o for o in self.slices if not o.active and self._lately_active(o, now_ns))
        ends = (o.last_active_ns + min(beyond_ns // 8, IDLE_NS) for o in pausing if self._lag_of(o) > SHORT_NS)
        return max(ends, default=0)

    def _must_make_room(self, s: Slice) -> bool:
        """A follower goes before everyone else. So that a gang that its leader lets go on and on starves nobody, the
        leader is to stop it when it is a lease ahead of somebody who waits here, or when the slot is to be empty."""
        if not s.saturating or not s.follows:
            return False
        ahead_ns = 0 if s.gang_veto else self.params.quantum_ns * PPM // s.entitlement_ppm
        waiting = (o for o in self._saturating() if not o.follows and self._waits(o) and self._has_cap(o))
        return self.vacated or any(o.virtual_ns + ahead_ns < s.virtual_ns for o in waiting)

    def _grant(self, now_ns: int) -> None:
        self.put_off_ns = 0
        if self.vacated or any(s.state in (State.OPEN, State.DRAINING) for s in self._saturating()):
            return
        chosen = self._pick(now_ns)
        if chosen is None:
            return
        self.put_off_ns = self._put_off_until(chosen, now_ns)
        if now_ns >= self.put_off_ns:
            self._open(chosen, now_ns)
            self._set_lease(chosen, now_ns, self._other_waits(chosen))

    def _rescue(self, now_ns: int) -> None:
        """Work that does not end because it waits for something that a thread at our gate has yet to launch would wait
        for ever. So the gate of whoever has not drained for so long is opened for a moment now and then."""
        for s in self.slices:
            if s.state != State.OVERLAP or now_ns < s.rescue_ns:
                continue
            gang = s.leads or s.follows  # its turn comes, on all of its devices
            patience_ns = self._rescue_after(s, now_ns)
            if not gang and (s.is_open or (self._waits(s) and patience_ns == RESCUE_NS)):
                self._set_word(s, CLOSED if s.is_open else COUNT)
            s.rescue_ns = now_ns + (self.params.quantum_min_ns if s.is_open else patience_ns)

    # ---- what comes of it ----

    def _outputs(self, now_ns: int) -> None:
        turns = sum(s.saturating and s.active for s in self.slices)
        takers = any(s.saturating and self._lately_active(s, now_ns) for s in self.slices)
        attached = sum(s.attached for s in self.slices)
        throttles = self.vacated or any(s.throttled and s.active for s in self.slices)
        crowded = takers or (attached > 1 and (turns > 1 or throttles))
        if attached > 1 and turns > 1:
            self.regime = Regime.ARBITRATED
        elif (attached > 1 and throttles) or any(s.limited and self._lately_active(s, now_ns) for s in self.slices):
            self.regime = Regime.THROTTLED
        else:
            self.regime = Regime(min(attached, Regime.OPEN))
        watched = crowded or any(s.attached and s.params.latency for s in self.slices)
        for s in self.slices:
            wanted = self._open_gate_state(s)
            if s.state == State.OPEN and s.word & STATE_MASK != wanted:
                self._set_word(s, wanted)
            s.neighbour_waits = s.saturating and self._keeps_others_waiting(s)
            s.gang_veto = self._must_make_room(s)
            others = [o for o in self.slices if o is not s and o.attached]
            edges = (not s.saturating and others and watched) or self._cap_may_end(s, now_ns)
            s.watch = WATCH_USAGE if others or not s.uncapped else 0
            s.watch |= (WATCH_EDGES if edges else 0) | (WATCH_GANG if s.params.gang else 0)
            s.bound_ns = self._way_bound(s, now_ns)
            if any(o.params.latency for o in others):
                s.bound_ns = min(s.bound_ns, self.params.latency_bound_ns)
            elif not s.uncapped or (crowded and self._others_active(s)):
                s.bound_ns = min(s.bound_ns, self.params.bound_ns)
            s.bound_ns //= max(1, s.running)  # it holds for each process

    def _cap_may_end(self, s: Slice, now_ns: int) -> bool:
        """Before anybody looks of his own accord, should it begin to run now."""
        low_ns = scaled(self.params.cap_depth_ns, s.params.max_milli) // 2
        return not s.uncapped and (s.cap_ns < low_ns or not self._lately_active(s, now_ns))

    def _cap_deadline(self, s: Slice, now_ns: int) -> int:
        """When a slice shut for its cap may run again, or one that runs will have used up its cap."""
        if s.uncapped or s.follows or s.params.paused or not s.active:
            return NEVER
        if s.state == State.OPEN:
            return now_ns + max(0, s.cap_ns) * MILLI // (MILLI - s.params.max_milli) + 1000
        if self._has_cap(s):
            return NEVER
        return now_ns + (self._cap_needed(s) - s.cap_ns) * MILLI // s.params.max_milli + 1000

    def _deadline(self, now_ns: int) -> int:
        found = [self.put_off_ns if self.put_off_ns > now_ns else NEVER]
        lately = sum(self._lately_active(s, now_ns) for s in self.slices)
        attached = sum(s.attached for s in self.slices)
        free = any(s.active and not s.saturating for s in self.slices)
        if (lately > 1 and free) or any(not s.uncapped and self._lately_active(s, now_ns) for s in self.slices):
            found.append(now_ns + TICK_NS)
        elif lately and attached > 1:
            found.append(self.window_ns + WINDOW_NS)
        for s in self.slices:
            found.append(self._cap_deadline(s, now_ns))
            if s.active and not self._may_open(s, now_ns):
                found.append(s.renewed_ns - (RENEWALS - 1) * RENEWAL_NS)
            if s.state == State.OVERLAP:
                found.append(s.rescue_ns)
            if s.state == State.DRAINING:
                found.append(max(self._overlap_from(s), now_ns + LOOK_LEAST_NS))
            if s.saturating and s.state == State.OPEN and s.lease_end_ns:
                found.append(s.lease_end_ns)
                if not s.outstanding and now_ns < s.grant_ns + WAKE_GRACE_NS:
                    found.append(s.grant_ns + WAKE_GRACE_NS)
        return min(found)

    def step(self, now_ns: int) -> int:
        """Decides; returns when it wants to be called again at the latest (NEVER: when something happens)."""
        now_ns = max(now_ns, self.last_ns)
        self._charge_all(now_ns)
        self.last_ns = now_ns
        for s in self.slices:
            self._note_activity(s, now_ns)
        self._note_drains(now_ns)
        self._judge(now_ns)
        self._fill(now_ns)
        self._raise_floor(now_ns)
        self._forgive(now_ns)
        self._note_debts()
        self._review_slot()
        self._review_free(now_ns)
        holder = next((s for s in self._saturating() if s.state == State.OPEN), None)
        if holder:
            self._review_holder(holder, now_ns)
        self._grant(now_ns)
        self._note_turns()
        self._rescue(now_ns)
        self._outputs(now_ns)
        return self._deadline(now_ns)
