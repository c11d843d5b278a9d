"""The arbiter's policy as a reference model, pure: what shim/arbiter_core.c decides, this decides, step by step.

One device. Each step takes what the tenants report and the time, and sets the gates. Integers throughout, so that the
two can be compared for equality (tests/core/test_arbiter_equality.py).

A slice is *free* or *saturating*, by what it does. Free: it leaves gaps, or has just come; its gate is open and the
hardware slices time between it and whatever else runs; it is charged for completed work. Saturating: it always wants
the device; such slices take turns in one slot by leases, the smallest virtual time first (start-time fair queueing,
Goyal et al., SIGCOMM 1996), and are charged the time that free ones have left. What a slice is due follows from
water-filling everybody's demand into minima, priorities, weights and maxima. Whoever has had more than that waits as
long as a free slice that wants to run has had less. Maxima are token buckets (HTB's ceiling).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

MILLI, PPM = 1000, 1_000_000
MS = 1_000_000
NEVER = 2**64 - 1
FAR_NS = 2**62
CLOSED, COUNT, SOLO = 0, 1, 2
_STATE_MASK, _EPOCH_SHIFT = 3, 2
WATCH_USAGE, WATCH_EDGES, WATCH_GANG = 1, 2, 4
GANG_NONE, GANG_LEADER, GANG_FOLLOWER, GANG_OPEN = 0, 1, 2, 3

#: a single kernel of a minute must not shut its owner out for an hour
DEBT_MAX_NS = 1000 * MS
RESCUE_NS = 50 * MS
#: no step for so long: the tenants followed their timetables meanwhile, which charge nobody
STALLED_NS = 100 * MS
CARRIED_MAX_NS = 20 * MS
#: without notice of its closed gate for so long: the process is stopped
STOPPED_NS = 50 * MS
#: a holder that has just been let in needs this long to wake up and launch before it can be called idle
WAKE_GRACE_NS = MS // 2
#: demand is looked at so often, over about four times as long
WINDOW_NS = 10 * MS
#: inactive for so long: idle; what it does next is news
IDLE_NS = 50 * MS
#: demand, in parts of a million, above which a free slice becomes saturating and below which that one becomes free
SATURATING_PPM, FREE_PPM = 970_000, 930_000
#: lag from which a slice is short; and by how much more it must be behind than another, each by its own entitlement, for
#: that other one to wait for it, and until when
SHORT_NS = MS
AHEAD_NS, BACK_NS = 4 * MS, 2 * MS
#: a latency slice is served first until it is so far ahead of its due
LATENCY_DEBT_NS = 10 * MS
#: how often shares are looked at while several run
TICK_NS = 2 * MS


class State(IntEnum):
    SHUT = 0
    OPEN = 1
    DRAINING = 2
    OVERLAP = 3


class Regime(IntEnum):
    IDLE = 0
    SOLO = 1
    OPEN = 2
    THROTTLED = 3
    ARBITRATED = 4


@dataclass
class Params:
    """As struct vg_arbiter_params: times of the device's arbiter, ns."""

    quantum_ns: int = 10 * MS
    quantum_min_ns: int = MS
    bound_ns: int = 2 * MS
    open_bound_ns: int = 20 * MS
    latency_bound_ns: int = MS
    overrun_ns: int = 2 * MS
    lookahead_ns: int = MS // 10
    guarantee_depth_ns: int = 50 * MS
    cap_depth_ns: int = 15 * MS


@dataclass
class SliceParams:
    """As struct vg_slice_params, without memory."""

    min_milli: int
    max_milli: int
    weight: int = 0
    priority: int = 0
    latency: bool = False
    gang: int = GANG_NONE


@dataclass(eq=False)
class Slice:
    """A slice on the device: what its processes report, what is decided for it, and what is remembered of it."""

    ident: int
    params: SliceParams
    place: int = 0  # in the core's table: slices are looked at in this order
    # reported
    attached: bool = False
    wants: bool = False  # a launching thread waits at the closed gate
    outstanding: bool = False
    running: int = 0  # processes with work outstanding: the hardware divides its time by contexts
    quiet: bool = False  # every process has given up the present word (open) or drained it (closed)
    regrets: bool = False  # a process has given the present word up, and one of its threads waits at the gate
    noticed: bool = False  # some process has noticed the present closed word
    gang_turns: bool = False  # a follower's leader takes turns in the slot, so it does as well
    gang_go: bool = False  # a follower's leader's gate is open
    gang_stop: bool = False  # a leader's follower is to make room (its gang_veto)
    gang_busy: bool = False  # work of a leader's gang is outstanding on another device
    drained_ns: int = 0
    drain_expected_ns: int = 0
    busy_total_ns: int = 0  # with work outstanding
    done_total_ns: int = 0  # completed work, as calibrated
    active_total_ns: int = 0  # with work outstanding or waiting at the gate
    # decided
    word: int = 0
    state: State = State.SHUT
    lease_end_ns: int = 0  # 0 = open end
    bound_ns: int = 0
    neighbour_waits: bool = False
    watch: int = 0
    entitlement_ppm: int = 0
    gang_veto: bool = False  # a follower is to make room for others on its device
    # remembered
    saturating: bool = False
    throttled: bool = False  # its gate is shut for its cap or since it has had too much
    lag_ns: int = 0  # free: what it has had less than it was due
    cap_ns: int = 0
    guarantee_ns: int = 0  # what is left of its minimum; beyond that it borrows
    virtual_ns: int = 0
    grant_ns: int = 0
    close_ns: int = 0
    rescue_ns: int = 0
    overran: bool = False
    served: int = 0
    busy_seen_ns: int = 0
    done_seen_ns: int = 0  # completed work up to the last time with none outstanding
    provisional_ns: int = 0  # charged since then
    settled_ns: int = 0  # when that was
    active_seen_ns: int = 0
    busy_ns: int = 0  # in this step
    contexts: int = 0  # that ran in this step
    last_active_ns: int = 0
    was_active: bool = False
    deadline_ns: int = 0  # of a latency slice's present burst
    demand_ppm: int = PPM
    window_work_ns: int = 0
    window_idle_ns: int = 0
    work_ns: int = 0
    idle_ns: int = 0
    # counted
    charged_ns: int = 0
    borrowed_ns: int = 0
    grants: int = 0
    early_releases: int = 0
    overruns: int = 0

    @property
    def is_open(self) -> bool:
        return self.word & _STATE_MASK != CLOSED

    @property
    def active(self) -> bool:
        return self.attached and (self.outstanding or self.wants)

    @property
    def leads(self) -> bool:
        return self.params.gang == GANG_LEADER

    @property
    def follows(self) -> bool:
        """Another device's arbiter decides for it: caps are that one's business, too."""
        return self.params.gang == GANG_FOLLOWER

    @property
    def uncapped(self) -> bool:
        return self.params.max_milli >= MILLI

    @property
    def weight(self) -> int:
        return max(1, self.params.weight or self.params.min_milli)


def scaled(ns: int, milli: int) -> int:
    return ns * milli // MILLI


def parts(ns: int, ppm: int) -> int:
    return ns * ppm // PPM


def due_time(lag_ns: int, entitlement_ppm: int) -> int:
    """The time that an entitlement takes for a lag, rounded towards zero."""
    time_ns = abs(lag_ns) * PPM // entitlement_ppm
    return time_ns if lag_ns >= 0 else -time_ns


def _behind(s: Slice) -> int:
    return due_time(s.lag_ns, s.entitlement_ppm)


@dataclass
class Arbiter:
    """The decisions for one device."""

    params: Params = field(default_factory=Params)
    slices: list[Slice] = field(default_factory=list)
    last_ns: int = 0
    window_ns: int = 0  # when the present window of demands began
    served: int = 0
    floor_ns: int = 0  # virtual time of the slot
    slot_lag_ns: int = 0  # what the saturating ones together have had less than they were due
    free_used_ns: int = 0  # by free ones, to be taken from what the holder is charged
    _slot_occupied: bool = False
    vacated: bool = False  # the slot is kept empty for somebody who is short
    regime: Regime = Regime.IDLE

    # ---- slices ----

    def set(self, ident: int, params: SliceParams) -> Slice:
        """Makes a slice, or changes one: in force with the next step."""
        for known in self.slices:
            if known.ident == ident:
                known.params = params
                return known
        made = Slice(ident, params)
        made.cap_ns = scaled(self.params.cap_depth_ns, params.max_milli)
        made.guarantee_ns = scaled(self.params.guarantee_depth_ns, params.min_milli)
        made.last_active_ns = self.last_ns
        made.virtual_ns = self.floor_ns
        self._open(made, self.last_ns)
        made.grants = 0
        taken = {s.place for s in self.slices}
        made.place = next(place for place in range(len(taken) + 1) if place not in taken)
        self.slices.append(made)
        self.slices.sort(key=lambda s: s.place)
        return made

    def remove(self, ident: int) -> None:
        self.slices = [s for s in self.slices if s.ident != ident]

    def _saturating(self) -> Iterator[Slice]:
        return (s for s in self.slices if s.saturating)

    def _free(self) -> Iterator[Slice]:
        return (s for s in self.slices if not s.saturating)

    def _lately_active(self, s: Slice, now_ns: int) -> bool:
        return s.active or (s.attached and now_ns < s.last_active_ns + IDLE_NS and s.last_active_ns > 0)

    # ---- gates ----

    def _set_word(self, s: Slice, gate: int) -> None:
        s.word = ((s.word >> _EPOCH_SHIFT) + 1) << _EPOCH_SHIFT & 0xFFFFFFFF | gate

    def _alone(self, s: Slice) -> bool:
        return not any(o is not s and (o.attached or o.state in (State.DRAINING, State.OVERLAP)) for o in self.slices)

    def _open_gate_state(self, s: Slice) -> int:
        counted = not s.uncapped or s.params.gang != GANG_NONE  # of a gang collectives are counted
        return SOLO if not counted and self._alone(s) else COUNT

    def _open(self, s: Slice, now_ns: int) -> None:
        self._set_word(s, self._open_gate_state(s))
        s.state = State.OPEN
        s.quiet = False
        s.wants = False
        s.grant_ns = now_ns
        self.served += 1
        s.served = self.served
        s.grants += 1

    def _close(self, s: Slice, now_ns: int) -> None:
        gave_up = s.quiet and s.state == State.OPEN  # nothing in flight and none can be: no drain to wait for
        self._set_word(s, CLOSED)
        s.quiet = False
        s.overran = False
        s.drain_expected_ns = 0
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

    def _waits(self, s: Slice) -> bool:
        return s.wants and s.state != State.OPEN and (s.state == State.SHUT or s.noticed)

    def _cap_depth(self, s: Slice) -> int:
        """How much a cap bucket may hold. Idle time is saved up only a little; a slice that is kept from running is in
        arrears instead: it stays under its cap from the time on which it began to want."""
        return scaled(DEBT_MAX_NS if s.active else self.params.cap_depth_ns, s.params.max_milli)

    def _cap_needed(self, s: Slice) -> int:
        """A gate that was shut for its cap opens again when something worth opening it for has come together."""
        if s.state == State.OPEN:
            return 0
        worth_ns = (
            self.params.quantum_ns // 2 if s.saturating and self._others_active(s) else self.params.quantum_min_ns
        )
        return min(worth_ns, scaled(self.params.cap_depth_ns, s.params.max_milli) // 2)

    def _has_cap(self, s: Slice) -> bool:
        caught = s.leads and s.state == State.OVERLAP  # by what stands at another device's gate, and would pay for ever
        return s.follows or caught or s.uncapped or s.cap_ns > self._cap_needed(s)

    def _others_active(self, s: Slice) -> bool:
        return any(o is not s and self._lately_active(o, self.last_ns) for o in self.slices)

    def _other_waits(self, s: Slice) -> bool:
        return any(o is not s and self._waits(o) for o in self._saturating())

    def _keeps_others_waiting(self, s: Slice) -> bool:
        return any(o is not s and self._waits(o) and self._has_cap(o) for o in self._saturating())

    def _shares_device(self, s: Slice, now_ns: int) -> bool:
        if s.state == State.SHUT:
            return False
        return s.state != State.OVERLAP or s.is_open or s.noticed or now_ns < s.close_ns + STOPPED_NS

    # ---- charging ----

    def _charge(self, s: Slice, used_ns: int) -> None:
        s.charged_ns += used_ns
        s.window_work_ns += used_ns
        s.cap_ns = max(s.cap_ns - used_ns, -DEBT_MAX_NS)
        s.guarantee_ns -= used_ns
        if s.guarantee_ns < 0:
            s.borrowed_ns -= s.guarantee_ns
            s.guarantee_ns = 0
        if s.saturating:
            most_ns = self.floor_ns + DEBT_MAX_NS * PPM // s.entitlement_ppm
            s.virtual_ns = max(s.virtual_ns, min(s.virtual_ns + used_ns * PPM // s.entitlement_ppm, most_ns))
            self.slot_lag_ns = max(self.slot_lag_ns - used_ns, -DEBT_MAX_NS)
        else:
            s.lag_ns = max(s.lag_ns - used_ns, -DEBT_MAX_NS)

    def _charge_free(self, s: Slice, contexts: int, now_ns: int) -> None:
        """Its contexts' part of the time in which it had work outstanding, put right by its completed work when it has
        none left, and now and then: what the hardware gives in slices is uneven over a short time. Completed work is what the tenant
        says; half of that part is charged all the same."""
        used_ns = s.busy_ns * s.contexts // max(1, contexts)
        s.provisional_ns += used_ns
        done_ns = s.done_total_ns - s.done_seen_ns
        if not s.outstanding or (done_ns > 0 and now_ns >= s.settled_ns + TICK_NS):
            settled_ns = max(done_ns, s.provisional_ns // 2)
            used_ns += settled_ns - s.provisional_ns
            s.provisional_ns = 0
            s.done_seen_ns = s.done_seen_ns + settled_ns if s.outstanding else s.done_total_ns
            s.settled_ns = now_ns
        self._charge(s, used_ns)
        if self._slot_occupied:
            self.free_used_ns += used_ns

    def _charge_slot(self, passed_ns: int, now_ns: int) -> None:
        """Splits what free ones have left of the time among those of the slot that occupied the device. Wall time while
        somebody waits for them; else the time with work outstanding."""
        occupants = [s for s in self._saturating() if self._shares_device(s, now_ns)]
        if not occupants:
            return
        contexts = sum(max(1, s.contexts) for s in occupants)
        taken_ns = max(-passed_ns, min(self.free_used_ns, passed_ns))
        self.free_used_ns = max(-CARRIED_MAX_NS, min(self.free_used_ns - taken_ns, CARRIED_MAX_NS))
        for s in occupants:
            used_ns = s.busy_ns
            if self._keeps_others_waiting(s):
                used_ns = passed_ns
                if s.quiet and s.state != State.OPEN and s.drained_ns < now_ns:
                    used_ns = max(0, s.drained_ns - self.last_ns)  # noticed later than it happened
            self._charge(s, max(0, used_ns - taken_ns) * max(1, s.contexts) // contexts)

    def _charge_all(self, now_ns: int) -> int:
        passed_ns = now_ns - self.last_ns
        if passed_ns > STALLED_NS:
            passed_ns = 0
        contexts = 0
        for s in self.slices:
            s.busy_ns = min(s.busy_total_ns - s.busy_seen_ns, passed_ns)
            s.busy_seen_ns = s.busy_total_ns
            s.contexts = max(1, s.running) if s.busy_ns > 0 else 0
            contexts += s.contexts
            active_ns = min(s.active_total_ns - s.active_seen_ns, passed_ns)
            s.active_seen_ns = s.active_total_ns
            s.window_idle_ns += passed_ns - active_ns
            s.cap_ns = min(s.cap_ns + scaled(passed_ns, s.params.max_milli), self._cap_depth(s))
            depth_ns = scaled(self.params.guarantee_depth_ns, s.params.min_milli)
            s.guarantee_ns = min(s.guarantee_ns + scaled(passed_ns, s.params.min_milli), depth_ns)
            if not s.saturating:
                deepest_ns = parts(self.params.guarantee_depth_ns, s.entitlement_ppm)
                # A latency slice that needs just its minimum must not fall behind by roundings: a hundredth more.
                ppm = s.entitlement_ppm * 101 // 100 if s.params.latency else s.entitlement_ppm
                s.lag_ns = min(s.lag_ns + parts(passed_ns, ppm), deepest_ns)
        together_ppm = sum(s.entitlement_ppm for s in self._saturating())
        deepest_ns = parts(self.params.guarantee_depth_ns, together_ppm)
        self.slot_lag_ns = min(self.slot_lag_ns + parts(passed_ns, together_ppm), deepest_ns)
        self._slot_occupied = any(self._shares_device(s, now_ns) for s in self._saturating())
        for s in self._free():
            self._charge_free(s, contexts, now_ns)
        self._charge_slot(passed_ns, now_ns)
        return passed_ns

    # ---- kinds and entitlements ----

    def _note_activity(self, s: Slice, now_ns: int) -> None:
        if s.active:
            if now_ns >= s.last_active_ns + IDLE_NS or not s.last_active_ns:  # what it did before says nothing now
                s.demand_ppm = PPM
                s.work_ns = s.idle_ns = s.window_work_ns = s.window_idle_ns = 0
                s.lag_ns = min(s.lag_ns, 0)
            s.last_active_ns = now_ns
            if not s.was_active and s.params.min_milli:
                s.deadline_ns = now_ns + 4 * MS * MILLI // s.params.min_milli
        s.was_active = s.active

    def _leave_slot(self, s: Slice) -> None:
        s.saturating = False
        s.lag_ns = 0
        s.provisional_ns = 0
        s.done_seen_ns = s.done_total_ns
        s.lease_end_ns = 0
        if s.state == State.DRAINING:
            s.state = State.OVERLAP
            s.rescue_ns = self.last_ns + RESCUE_NS

    def _join_slot(self, s: Slice, now_ns: int) -> None:
        taken = any(o.state in (State.OPEN, State.DRAINING) for o in self._saturating())
        s.saturating = True
        s.throttled = False
        s.virtual_ns = max(s.virtual_ns, self.floor_ns)
        if s.state == State.OPEN and taken:
            self._close(s, now_ns)
            if s.state == State.DRAINING:
                s.state = State.OVERLAP
                s.rescue_ns = now_ns + RESCUE_NS

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

    @staticmethod
    def _measure_demand(s: Slice) -> None:
        worked_ns = max(0, s.window_work_ns)
        s.work_ns = s.work_ns * 3 // 4 + worked_ns
        s.idle_ns = s.idle_ns * 3 // 4 + s.window_idle_ns
        seen_ns = worked_ns + s.window_idle_ns
        s.window_work_ns = s.window_idle_ns = 0
        if s.work_ns + s.idle_ns > 0 and seen_ns:
            s.demand_ppm = s.work_ns * PPM // (s.work_ns + s.idle_ns)

    def _fill(self, now_ns: int) -> None:
        """Entitlements by water-filling: minima first, then by priority and weight, nobody beyond maximum or demand."""
        left = PPM
        limits: dict[int, int] = {}
        for s in self.slices:
            if not self._lately_active(s, now_ns):
                s.entitlement_ppm = max(1000, s.params.min_milli * MILLI)
                continue
            wanted = PPM if s.saturating else min(PPM, s.demand_ppm * 103 // 100 + 5_000)
            limits[s.ident] = min(wanted, s.params.max_milli * MILLI)
            s.entitlement_ppm = min(s.params.min_milli * MILLI, limits[s.ident])
            left -= s.entitlement_ppm
        active = [s for s in self.slices if s.ident in limits]
        for priority in sorted({s.params.priority for s in active}, reverse=True):
            left = self._fill_level([s for s in active if s.params.priority == priority], limits, left)
        for s in active:
            s.entitlement_ppm = max(1000, s.entitlement_ppm)

    @staticmethod
    def _fill_level(level: list[Slice], limits: dict[int, int], left: int) -> int:
        while left > 0:
            hungry = [s for s in level if s.entitlement_ppm < limits[s.ident]]
            weights = sum(s.weight for s in hungry)
            if not hungry:
                break
            before, full = left, False
            for s in hungry:
                room = limits[s.ident] - s.entitlement_ppm
                if before * s.weight // weights >= room:
                    s.entitlement_ppm += room
                    left -= room
                    full = True
            if full:
                continue
            for s in hungry:
                s.entitlement_ppm += before * s.weight // weights
            return 0
        return left

    def _is_stopped(self, s: Slice, now_ns: int) -> bool:
        return s.state != State.SHUT and not self._shares_device(s, now_ns)

    def _raise_floor(self, now_ns: int) -> None:
        """Virtual time of the slot: the least of those who take turns; it never falls. A stopped one comes along: it
        would keep the others from running for as long when it goes on."""
        turns = [s for s in self._saturating() if s.active or s.state != State.SHUT]
        running = [s.virtual_ns for s in turns if not self._is_stopped(s, now_ns)]
        self.floor_ns = max(self.floor_ns, min(running, default=0))
        for s in turns:
            if self._is_stopped(s, now_ns):
                s.virtual_ns = max(s.virtual_ns, self.floor_ns)

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
        return min(s.drain_expected_ns - self.params.lookahead_ns, self._patience_end(s))

    def _note_drains(self, now_ns: int) -> None:
        for s in self.slices:
            if s.state in (State.DRAINING, State.OVERLAP) and (s.quiet or not s.attached):
                if s.is_open:
                    self._set_word(s, CLOSED)
                s.state = State.SHUT
            if s.state == State.DRAINING and now_ns >= self._overlap_from(s):
                s.state = State.OVERLAP
                s.rescue_ns = now_ns + RESCUE_NS
            if s.saturating and s.state == State.OVERLAP and not s.overran and now_ns >= self._patience_end(s):
                s.overran = True
                s.overruns += 1

    # ---- free slices ----

    def _first_latency(self) -> Slice | None:
        """The latency slice to be served before everything else: of those owed, the one with the earliest deadline."""
        owed = [s for s in self.slices if self._is_urgent(s)]
        return min(owed, key=lambda s: (s.deadline_ns, s.ident), default=None)

    def _has_precedence(self, s: Slice) -> bool:
        """Its class is latency, and it is within its guarantee."""
        return s.params.latency and s.lag_ns > -LATENCY_DEBT_NS and self._has_cap(s)

    def _is_urgent(self, s: Slice) -> bool:
        return s.active and self._has_precedence(s)

    def _is_short(self, s: Slice) -> bool:
        return not s.saturating and s.active and s.lag_ns > SHORT_NS and self._has_cap(s)

    def _slot_is_short(self) -> bool:
        return self.slot_lag_ns > SHORT_NS and any(self._candidate(s) for s in self._saturating())

    def _slot_behind(self) -> int:
        return due_time(self.slot_lag_ns, max(1000, sum(s.entitlement_ppm for s in self._saturating())))

    def _most_behind(self, but: Slice | None) -> int:
        """How far behind the one is that is short and furthest behind; far ahead when nobody is short."""
        found = [_behind(s) for s in self.slices if s is not but and self._is_short(s)]
        if but and self._slot_is_short():
            found.append(self._slot_behind())
        return max(found, default=-FAR_NS)

    def _gives_way(self, s: Slice, now_ns: int) -> bool:
        """Runs only while somebody who is further behind pauses: what it has outstanding then is in that one's way."""
        mine_ns = self._slot_behind() if s.saturating else _behind(s)
        return any(
            o is not s
            and not o.saturating
            and self._lately_active(o, now_ns)
            and o.lag_ns > SHORT_NS
            and _behind(o) > mine_ns + AHEAD_NS
            for o in self.slices
        )

    def _had_too_much(self, s: Slice) -> bool:
        return self._most_behind(s) > _behind(s) + (BACK_NS if s.throttled else AHEAD_NS)

    def _review_free(self, now_ns: int) -> None:
        first = self._first_latency()
        for s in self._free():
            yields = not self._has_precedence(s) and self._had_too_much(s)
            s.throttled = not self._has_cap(s) or (s is not first and (first is not None or yields))
            if s.throttled and s.state == State.OPEN:
                self._close(s, now_ns)
            elif not s.throttled and s.state != State.OPEN:
                self._open(s, now_ns)
            elif s.state == State.OPEN and (s.regrets or (s.quiet and s.wants)):
                self._set_word(s, self._open_gate_state(s))

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

    def _pick(self) -> Slice | None:
        found = [s for s in self._saturating() if self._candidate(s)]
        gangs = [s for s in found if s.follows]
        return min(gangs or found, key=lambda s: (not self._is_caught(s), s.virtual_ns, s.served), default=None)

    def _is_caught(self, s: Slice) -> bool:
        """Spins since a launch of its own stands at another device's gate, and pays for it: its turn would never come."""
        return s.leads and s.state == State.OVERLAP and self.last_ns >= s.close_ns + RESCUE_NS

    def _set_lease(self, s: Slice, now_ns: int, contended: bool) -> None:
        # A gang's devices stop at different places of its work and wait for each other when it goes on
        quantum_ns = self.params.quantum_ns * (2 if self._leads_beside_others(s) else 1)
        s.lease_end_ns = now_ns + quantum_ns if contended else 0
        if contended and not s.uncapped and s.cap_ns < self.params.quantum_ns:
            s.lease_end_ns = now_ns + max(s.cap_ns, self.params.quantum_min_ns)

    def _forgive(self, now_ns: int) -> None:
        """Time that was had while nobody was behind is nobody's loss: it is no debt to those who come later."""
        for s in self.slices:
            behind_ns = self.slot_lag_ns if s.saturating else s.lag_ns
            if behind_ns > SHORT_NS and self._lately_active(s, now_ns):
                return
        for s in self._free():
            s.lag_ns = max(s.lag_ns, -parts(AHEAD_NS, s.entitlement_ppm))
        together_ppm = sum(s.entitlement_ppm for s in self._saturating())
        self.slot_lag_ns = max(self.slot_lag_ns, -parts(AHEAD_NS, together_ppm))

    def _review_slot(self) -> None:
        """Is the slot to stay empty, because somebody else is short?"""
        margin_ns = BACK_NS if self.vacated else AHEAD_NS
        self.vacated = any(s.saturating for s in self.slices) and (
            self._first_latency() is not None or self._most_behind(None) > self._slot_behind() + margin_ns
        )

    def _review_holder(self, holder: Slice, now_ns: int) -> None:
        rethought = holder.quiet and holder.wants
        if rethought or self.vacated or self._must_not_run(holder) or not self._has_cap(holder):
            self._close(holder, now_ns)
            return
        if holder.regrets:  # its other processes run: a new word lets this one in
            self._set_word(holder, self._open_gate_state(holder))
        chosen = self._pick() if self._other_waits(holder) else None
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
        preempts = chosen.follows and chosen is not holder
        if now_ns < holder.lease_end_ns and not preempts:
            return
        if chosen is holder:
            self._set_lease(holder, now_ns, True)
        else:
            self._close(holder, now_ns)

    def _must_make_room(self, s: Slice) -> bool:
        """A follower goes before everyone else. So that a gang that its leader lets go on and on starves nobody, the
        leader is to stop it when it is a lease ahead of somebody who waits here, or when the slot is to be empty."""
        if not s.saturating or not s.follows:
            return False
        ahead_ns = 0 if s.gang_veto else self.params.quantum_ns * PPM // s.entitlement_ppm
        waiting = (o for o in self._saturating() if not o.follows and self._waits(o) and self._has_cap(o))
        return self.vacated or any(o.virtual_ns + ahead_ns < s.virtual_ns for o in waiting)

    def _grant(self, now_ns: int) -> None:
        if self.vacated or any(s.state in (State.OPEN, State.DRAINING) for s in self._saturating()):
            return
        chosen = self._pick()
        if chosen:
            self._open(chosen, now_ns)
            self._set_lease(chosen, now_ns, self._other_waits(chosen))

    def _rescue(self, now_ns: int) -> None:
        """Work that does not end because it waits for something that a thread at our gate has yet to launch would wait
        for ever. So the gate of whoever has not drained for so long is opened for a moment now and then."""
        for s in self.slices:
            if s.state != State.OVERLAP or now_ns < s.rescue_ns:
                continue
            gang = s.leads or s.follows  # its turn comes, on all of its devices
            if not gang and (s.is_open or self._waits(s)):
                self._set_word(s, CLOSED if s.is_open else COUNT)
            s.rescue_ns = now_ns + (self.params.quantum_min_ns if s.is_open else RESCUE_NS)

    # ---- what comes of it ----

    def _outputs(self, now_ns: int) -> None:
        turns = sum(s.saturating and s.active for s in self.slices)
        takers = any(s.saturating and self._lately_active(s, now_ns) for s in self.slices)
        attached = sum(s.attached for s in self.slices)
        throttles = self.vacated or any(s.throttled and s.active for s in self.slices)
        if attached < 2:
            self.regime = Regime(attached)
        elif turns > 1:
            self.regime = Regime.ARBITRATED
        else:
            self.regime = Regime.THROTTLED if throttles else Regime.OPEN
        for s in self.slices:
            wanted = self._open_gate_state(s)
            if s.state == State.OPEN and s.word & _STATE_MASK != wanted:
                self._set_word(s, wanted)
            s.neighbour_waits = s.saturating and self._keeps_others_waiting(s)
            s.gang_veto = self._must_make_room(s)
            others = [o for o in self.slices if o is not s and o.attached]
            crowded = self.regime > Regime.OPEN or takers or any(o.attached and o.params.latency for o in self.slices)
            edges = (not s.saturating and others and crowded) or self._cap_may_end(s, now_ns)
            s.watch = WATCH_USAGE if others or not s.uncapped else 0
            s.watch |= (WATCH_EDGES if edges else 0) | (WATCH_GANG if s.params.gang else 0)
            if any(o.params.latency for o in others) or self._gives_way(s, now_ns):
                s.bound_ns = self.params.latency_bound_ns
            elif not s.uncapped or (self.regime > Regime.OPEN or takers) and self._others_active(s):
                s.bound_ns = self.params.bound_ns
            else:
                s.bound_ns = self.params.open_bound_ns
            s.bound_ns //= max(1, s.running)  # it holds for each process

    def _cap_may_end(self, s: Slice, now_ns: int) -> bool:
        """Before anybody looks of his own accord, should it begin to run now."""
        low_ns = scaled(self.params.cap_depth_ns, s.params.max_milli) // 2
        return not s.uncapped and (s.cap_ns < low_ns or not self._lately_active(s, now_ns))

    def _cap_deadline(self, s: Slice, now_ns: int) -> int:
        """When a slice shut for its cap may run again, or one that runs will have used up its cap."""
        if s.uncapped or not s.active:
            return NEVER
        if s.state == State.OPEN:
            return now_ns + max(0, s.cap_ns) * MILLI // (MILLI - s.params.max_milli) + 1000
        if self._has_cap(s):
            return NEVER
        return now_ns + (self._cap_needed(s) - s.cap_ns) * MILLI // s.params.max_milli + 1000

    def _deadline(self, now_ns: int) -> int:
        found = [NEVER]
        lately = sum(self._lately_active(s, now_ns) for s in self.slices)
        attached = sum(s.attached for s in self.slices)
        free = any(s.active and not s.saturating for s in self.slices)
        if (lately > 1 and free) or any(not s.uncapped and self._lately_active(s, now_ns) for s in self.slices):
            found.append(now_ns + TICK_NS)
        elif lately and attached > 1:
            found.append(self.window_ns + WINDOW_NS)
        for s in self.slices:
            found.append(self._cap_deadline(s, now_ns))
            if s.state == State.OVERLAP:
                found.append(s.rescue_ns)
            if s.state == State.DRAINING:
                found.append(self._overlap_from(s))
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
        self._review_slot()
        self._review_free(now_ns)
        holder = next((s for s in self._saturating() if s.state == State.OPEN), None)
        if holder:
            self._review_holder(holder, now_ns)
        self._grant(now_ns)
        self._rescue(now_ns)
        self._outputs(now_ns)
        return self._deadline(now_ns)
