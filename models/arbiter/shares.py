"""Charging, demands and entitlements of the arbiter's reference model; in C: shim/arbiter/shares.c."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from models.arbiter.model import (
    CARRIED_MAX_NS,
    DEBT_MAX_NS,
    IDLE_NS,
    LATE_REPORTED_NS,
    MILLI,
    MS,
    PPM,
    REMITTED_PART,
    RENEWED_BY_WORK,
    REPORTED_NS,
    SEEN_LEAST_NS,
    SHORT_NS,
    SILENT_NS,
    STALLED_NS,
    STOPPED_NS,
    TICK_NS,
    TURN_CREDIT_NS,
    TURN_CREDITS,
    TURN_IDLE_NS,
    TURN_LEAST_NS,
    TURN_REFILL_NS,
    UNEXPLAINED_MAX_NS,
    Params,
    Slice,
    State,
    parts,
    scaled,
)


def less_changes(ns: int) -> int:
    """Without what changes of context take while several run, more or less."""
    return ns - ns // 32


def within(ns: int, most_ns: int) -> int:
    return max(-most_ns, min(ns, most_ns))


@dataclass
class Shares:
    """What the slices of one device have had, what they want, and what they are due."""

    params: Params = field(default_factory=Params)
    slices: list[Slice] = field(default_factory=list)
    last_ns: int = 0
    floor_ns: int = 0  # virtual time of the slot
    slot_lag_ns: int = 0  # what the saturating ones together have had less than they were due
    free_used_ns: int = 0  # by free ones, to be taken from what the holder is charged
    slot_occupied: bool = False  # in the time that is being charged
    unexplained_ns: int = 0  # while several ran: busy, and nobody has completed anything in it
    excess_ns: int = 0  # while only free ones ran: completed, as they tell, and nobody was busy for so long
    available_ns: int = 0  # while only free ones ran: lately the time with work outstanding
    all_reported_ns: int = 0  # completed in that, as they tell
    witnessed: bool = True  # those who saturate say what they complete
    least_reported_ppm: int = 0  # by the free one who says least of its time

    def _saturating(self) -> Iterator[Slice]:
        return (s for s in self.slices if s.saturating)

    def _free(self) -> Iterator[Slice]:
        return (s for s in self.slices if not s.saturating)

    def _lately_active(self, s: Slice, now_ns: int) -> bool:
        return s.active or (s.attached and now_ns < s.last_active_ns + IDLE_NS and s.last_active_ns > 0)

    def _waits(self, s: Slice) -> bool:
        return s.wants and not s.params.paused and s.state != State.OPEN and (s.state == State.SHUT or s.noticed)

    def _cap_depth(self, s: Slice) -> int:
        """How much a cap bucket may hold. Idle time is saved up only a little; a slice that is kept from what is its
        own is in arrears instead, and may catch up. What it could only have borrowed, it has not missed."""
        depth_ns = scaled(self.params.cap_depth_ns, s.params.max_milli)
        return max(depth_ns, scaled(DEBT_MAX_NS, s.params.min_milli)) if s.active else depth_ns

    def _cap_needed(self, s: Slice) -> int:
        """A gate that was shut for its cap opens again when something worth opening it for has come together."""
        if s.state == State.OPEN:
            return 0
        worth_ns = (
            self.params.quantum_ns // 2 if s.saturating and self._others_active(s) else self.params.quantum_min_ns
        )
        return min(worth_ns, scaled(self.params.cap_depth_ns, s.params.max_milli) // 2)

    def _has_cap(self, s: Slice) -> bool:
        if s.params.paused:
            return False
        caught = s.leads and s.state == State.OVERLAP  # by what stands at another device's gate, and would pay for ever
        return s.follows or caught or s.uncapped or s.cap_ns > self._cap_needed(s)

    def _others_active(self, s: Slice) -> bool:
        return any(o is not s and self._lately_active(o, self.last_ns) for o in self.slices)

    def _keeps_others_waiting(self, s: Slice) -> bool:
        return any(o is not s and self._waits(o) and self._has_cap(o) for o in self._saturating())

    def _shares_device(self, s: Slice, now_ns: int) -> bool:
        if s.state == State.SHUT:
            return False
        return s.state != State.OVERLAP or s.is_open or s.noticed or now_ns < s.close_ns + STOPPED_NS

    @staticmethod
    def _may_begin_turn(s: Slice) -> bool:
        """Before everybody else: turns without work are few, whatever its page says."""
        return s.holds or s.turn_credit_ns >= TURN_CREDIT_NS

    def _begin_turn(self, s: Slice) -> None:
        """Others wait for it: that costs it the hand-over at least, whether it launches anything or not."""
        has_credit = s.turn_credit_ns >= TURN_CREDIT_NS
        s.turn_credit_ns -= TURN_CREDIT_NS * has_credit
        s.turn_used_ns = 0
        s.turn_least_ns = TURN_LEAST_NS if has_credit else TURN_IDLE_NS
        self._charge_share(s, s.turn_least_ns)
        if not has_credit:  # a page that tells of no work: its maximum bounds how often others wait in vain
            s.cap_ns = max(s.cap_ns - s.turn_least_ns, -DEBT_MAX_NS)

    def _charge_share(self, s: Slice, used_ns: int) -> None:
        """Of what it is due beside others: who is served first, and who waits."""
        s.window_work_ns += used_ns
        if s.saturating:
            most_ns = self.floor_ns + DEBT_MAX_NS * PPM // s.entitlement_ppm
            s.unpaid_ns -= used_ns
            s.virtual_ns = max(s.virtual_ns, min(s.virtual_ns + used_ns * PPM // s.entitlement_ppm, most_ns))
            self.slot_lag_ns = max(self.slot_lag_ns - used_ns, -DEBT_MAX_NS)
        else:
            s.free_lag_ns = max(s.free_lag_ns - used_ns, -DEBT_MAX_NS)
            s.owed_ns = max(s.owed_ns - used_ns, -DEBT_MAX_NS)

    def _charge(self, s: Slice, used_ns: int) -> None:
        """What a turn costs beyond what was used is no use of the device: it counts neither for the maximum nor in
        what is told as used."""
        before_ns = max(s.turn_least_ns, s.turn_used_ns)
        s.turn_used_ns += used_ns
        self._charge_share(s, max(s.turn_least_ns, s.turn_used_ns) - before_ns)
        s.charged_ns += used_ns
        s.cap_ns = max(s.cap_ns - used_ns, -DEBT_MAX_NS)
        s.guarantee_ns -= used_ns
        if s.guarantee_ns < 0:
            if s.params.max_milli > s.params.min_milli:  # else all that it has is its own
                s.borrowed_ns -= s.guarantee_ns
            s.guarantee_ns = 0
        if s.saturating:
            s.over_cap_ns -= used_ns

    def _somebody_waits(self, but: Slice) -> bool:
        """At a closed gate, and not for its own maximum."""
        return any(s is not but and s.wants and s.state != State.OPEN and self._has_cap(s) for s in self.slices)

    def _charge_free(self, s: Slice, contexts: int, passed_ns: int, now_ns: int) -> None:
        """Its contexts' part of the time in which it had work outstanding, put right by its completed work when it has
        none left, and now and then: what the hardware gives in slices is uneven over a short time."""
        used_ns = s.busy_ns * s.contexts // max(1, contexts)
        if s.has_precedence and self._somebody_waits(s):
            used_ns = passed_ns  # it keeps the device from them, whatever it says
        if s.busy_ns:  # what it keeps from them with nothing to run is not put right later
            s.provisional_ns += used_ns
            s.outstanding_ns += max(used_ns, s.busy_ns)
        s.beside_slot |= self.slot_occupied and s.busy_ns > 0
        if s.contexts == contexts and (s.holds or not self._somebody_waits(s)):  # nobody else can have had that
            s.alone_ns += s.busy_ns
        if self.slot_occupied:
            self.free_used_ns += used_ns
        done_ns = max(0, s.done_ns - s.done_seen_ns)
        if s.holds and not s.has_precedence and self._somebody_waits(s):
            used_ns += passed_ns - s.busy_ns  # it let that pass, and nobody else had it
        used_ns -= s.remitted_ns
        s.remitted_ns = 0
        if not s.outstanding or ((self.witnessed or done_ns > 0) and now_ns >= s.settled_ns + TICK_NS):
            reported_ns = done_ns + self._doubted(s, done_ns)
            ahead_ns = max(0, s.alone_ns // 2 - reported_ns)
            more_ns = reported_ns + ahead_ns - s.provisional_ns
            used_ns += more_ns
            if s.beside_slot:  # what it has had more or less, the slot has had less or more
                self.free_used_ns += more_ns
            s.beside_slot = False
            s.provisional_ns = s.outstanding_ns = s.alone_ns = 0
            s.done_seen_ns = max(s.done_seen_ns, s.done_ns) + ahead_ns if s.outstanding else s.done_ns
            s.settled_ns = now_ns
        self._charge(s, used_ns)

    def _doubted(self, s: Slice, done_ns: int) -> int:
        """Completed work is what the tenant says. More than that is charged as far as nobody's work explains the time:
        up to its part of it, or all in which it had work outstanding for the one who tells least; up to half of its
        part where the others do not say what they do."""
        if not self.witnessed:
            return max(0, s.provisional_ns // 2 - done_ns)
        most_ns = s.outstanding_ns if self._reported_ppm(s) <= self.least_reported_ppm else s.provisional_ns
        doubted_ns = max(0, min(most_ns - done_ns, self.unexplained_ns))
        self.unexplained_ns -= doubted_ns
        return doubted_ns

    @staticmethod
    def _reported_ppm(s: Slice) -> int:
        return min(PPM, s.recent_reported_ns * PPM // max(1, s.recent_run_ns))

    def _is_silent(self, s: Slice) -> bool:
        """Says little of what it completes, or seldom: no witness of who had the device."""
        seldom = max(s.reported_after_ns, self.last_ns - s.reported_at_ns) > SILENT_NS
        return s.contexts > 0 and (seldom or (s.recent_run_ns > REPORTED_NS and self._reported_ppm(s) < PPM // 4))

    def _note_reported(self, s: Slice, ran: int, now_ns: int) -> int:
        """What it has completed, by what it tells now. How much of its time one that saturates tells is seen while it
        runs alone."""
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
            if s.recent_reported_ns > s.recent_run_ns > 0:
                own_ns = more_ns * s.recent_run_ns // s.recent_reported_ns
            s.unpaid_ns += own_ns // 2
            s.over_cap_ns += own_ns
        known = s.saturating and s.recent_run_ns > REPORTED_NS
        return more_ns * PPM // max(PPM // 4, self._reported_ppm(s)) if known else more_ns

    def _is_believable(self, reported_ns: int, available_ns: int) -> bool:
        """Lately all together have told no more than a quarter beyond the time that was there: estimates are never
        so wrong, so somebody says what it likes."""
        self.available_ns += available_ns
        self.all_reported_ns += reported_ns
        if self.available_ns > 2 * REPORTED_NS:
            self.available_ns //= 2
            self.all_reported_ns //= 2
        return 4 * self.all_reported_ns <= 5 * self.available_ns + 4 * LATE_REPORTED_NS

    def _remit(self, told: list[int], passed_ns: int) -> None:
        """Estimates that were taken beside others may be too long. What all tell together is not charged beyond the
        time that was there; who told more than his contexts' part is charged less. Not beside the slot: what others
        are charged, that one is not."""
        ran = [s for s in self.slices if s.contexts]
        if any(s.saturating for s in ran):
            return
        contexts = max(1, sum(s.contexts for s in ran))
        excess_ns = self.excess_ns
        over_ns = 0
        for s, reported_ns in zip(self.slices, told, strict=True):
            if s.saturating:
                continue
            excess_ns += reported_ns
            more_ns = reported_ns - less_changes(s.busy_ns * s.contexts // contexts)
            s.over_reported_ns = within(s.over_reported_ns + more_ns, UNEXPLAINED_MAX_NS)
            s.remittable_ns = min(s.remittable_ns + reported_ns // REMITTED_PART, UNEXPLAINED_MAX_NS)
            over_ns += max(0, s.over_reported_ns)
        busy_ns = min(passed_ns, sum(s.busy_ns for s in ran))
        all_reported_ns = sum(n for s, n in zip(self.slices, told, strict=True) if not s.saturating)
        believable = self._is_believable(all_reported_ns, busy_ns)
        excess_ns = within(excess_ns - (less_changes(busy_ns) if len(ran) > 1 else busy_ns), UNEXPLAINED_MAX_NS)
        remitted_ns = max(0, min(excess_ns, over_ns)) if believable else 0
        self.excess_ns = excess_ns - remitted_ns
        for s in self._free():
            s.remitted_ns = min(remitted_ns * max(0, s.over_reported_ns) // max(1, over_ns), s.remittable_ns)
            s.remittable_ns -= s.remitted_ns
            s.over_reported_ns -= s.remitted_ns

    def _weigh(self, passed_ns: int, now_ns: int) -> None:
        """The time in which several ran, or one and somebody waited, and what they say that they have completed."""
        ran = [s for s in self.slices if s.contexts]
        told = [self._note_reported(s, len(ran), now_ns) for s in self.slices]
        reported_ns = sum(told)
        self._remit(told, passed_ns)
        self.witnessed = not any(self._is_silent(s) for s in self._saturating())
        found = (
            self._reported_ppm(s) for s in self._free() if s.recent_run_ns and self._lately_active(s, self.last_ns)
        )
        self.least_reported_ppm = min(found, default=0)
        alone = len(ran) == 1 and not ran[0].saturating and self._somebody_waits(ran[0])
        if self.witnessed and (alone or len(ran) > 1):
            busy_ns = max(s.busy_ns for s in ran)
            # Changes of context; and alone what lies between the end of work and its being noticed
            nobodys_ns = busy_ns // (8 if alone else 16)
            left_ns = self.unexplained_ns + busy_ns - nobodys_ns - reported_ns
            self.unexplained_ns = within(left_ns, UNEXPLAINED_MAX_NS)

    def _charge_slot(self, passed_ns: int, now_ns: int) -> None:
        """Splits what free ones have left of the time among those of the slot that occupied the device. Wall time while
        somebody waits for them; else the time with work outstanding."""
        occupants = [s for s in self._saturating() if self._shares_device(s, now_ns)]
        if not occupants:
            return
        contexts = sum(max(1, s.contexts) for s in occupants)
        taken_ns = within(self.free_used_ns, passed_ns)
        self.free_used_ns = within(self.free_used_ns - taken_ns, CARRIED_MAX_NS)
        for s in occupants:
            used_ns = s.busy_ns
            if self._keeps_others_waiting(s):
                used_ns = passed_ns
                if s.quiet and s.state != State.OPEN and s.drained_ns < now_ns:
                    used_ns = max(0, s.drained_ns - self.last_ns)  # noticed later than it happened
            self._charge(s, max(0, used_ns - taken_ns) * max(1, s.contexts) // contexts)

    def _charge_unpaid(self, s: Slice) -> None:
        """What it says itself that it has completed counts, whatever others say that they have had meanwhile: in full
        for its maximum, by half for its share, for estimates that were taken beside others may be twice too long."""
        late_ns = LATE_REPORTED_NS + self.last_ns - min(s.reported_at_ns, self.last_ns)
        s.unpaid_ns = max(s.unpaid_ns, -late_ns)
        s.over_cap_ns = max(s.over_cap_ns, -late_ns)
        self._charge(s, max(0, s.unpaid_ns - LATE_REPORTED_NS))
        more_ns = max(0, s.over_cap_ns - LATE_REPORTED_NS)
        s.over_cap_ns -= more_ns
        s.cap_ns = max(s.cap_ns - more_ns, -DEBT_MAX_NS)

    @staticmethod
    def _count_done(s: Slice, passed_ns: int) -> None:
        """All its processes together complete no more than a second's work in a second in which some is outstanding."""
        s.reportable_ns = min(s.reportable_ns + s.busy_ns, DEBT_MAX_NS)
        if not (s.outstanding or s.was_outstanding):
            s.reportable_ns = min(s.reportable_ns, LATE_REPORTED_NS)
        more_ns = min(s.done_total_ns - s.reported_total_ns, s.reportable_ns)
        s.reported_total_ns = s.done_total_ns
        s.reportable_ns -= more_ns
        s.done_ns += more_ns
        s.renewed_ns = max(0, s.renewed_ns - RENEWED_BY_WORK * more_ns)
        credit_ns = s.turn_credit_ns + more_ns + passed_ns // (TURN_REFILL_NS // TURN_CREDIT_NS)
        s.turn_credit_ns = min(credit_ns, TURN_CREDITS * TURN_CREDIT_NS)

    def _charge_all(self, now_ns: int) -> int:
        passed_ns = now_ns - self.last_ns
        if passed_ns > STALLED_NS:
            passed_ns = 0
        contexts = 0
        for s in self.slices:
            s.busy_ns = min(s.busy_total_ns - s.busy_seen_ns, passed_ns)
            s.busy_seen_ns = s.busy_total_ns
            if not s.busy_ns and s.attached and s.was_outstanding:  # a page without sense
                s.busy_ns = passed_ns
            self._count_done(s, passed_ns)
            s.was_outstanding = s.outstanding
            s.contexts = max(1, s.running) if s.busy_ns > 0 else 0
            contexts += s.contexts
            active_ns = min(s.active_total_ns - s.active_seen_ns, passed_ns)
            s.active_seen_ns = s.active_total_ns
            if not active_ns and s.attached and s.was_active:
                active_ns = passed_ns
            s.window_idle_ns += passed_ns - active_ns
            deepest_ns = self._cap_depth(s)
            if self._lately_active(s, self.last_ns):  # arrears outlast a short pause, and do not grow in it
                deepest_ns = max(deepest_ns, s.cap_ns)
            s.cap_ns = min(s.cap_ns + scaled(passed_ns, s.params.max_milli), deepest_ns)
            depth_ns = scaled(self.params.guarantee_depth_ns, s.params.min_milli)
            s.guarantee_ns = min(s.guarantee_ns + scaled(passed_ns, s.params.min_milli), depth_ns)
            if s.saturating and not s.was_active:  # what it was due meanwhile is not saved up
                s.virtual_ns += passed_ns
            if not s.saturating:
                deepest_ns = parts(self.params.guarantee_depth_ns, s.entitlement_ppm)
                if s.active:  # what it lacks for others have had it, since their work could not be taken back
                    deepest_ns = max(deepest_ns, -self.slot_lag_ns)
                # A latency slice that needs just its minimum must not fall behind by roundings: a hundredth more.
                ppm = s.entitlement_ppm * 101 // 100 if s.params.latency else s.entitlement_ppm
                s.free_lag_ns = min(s.free_lag_ns + parts(passed_ns, ppm), max(deepest_ns, s.free_lag_ns))
                if not self._may_begin_turn(s):  # it is not owed what it does not take
                    s.free_lag_ns = min(s.free_lag_ns, SHORT_NS)
                owed_ns = parts(passed_ns, s.params.min_milli * MILLI * 101 // 100)
                s.owed_ns = min(s.owed_ns + owed_ns, depth_ns)
        together_ppm = sum(s.entitlement_ppm for s in self._saturating())
        deepest_ns = parts(self.params.guarantee_depth_ns, together_ppm)
        self.slot_lag_ns = min(self.slot_lag_ns + parts(passed_ns, together_ppm), deepest_ns)
        self.slot_occupied = any(self._shares_device(s, now_ns) for s in self._saturating())
        self._weigh(passed_ns, now_ns)
        for s in self._free():
            self._charge_free(s, contexts, passed_ns, now_ns)
        self._charge_slot(passed_ns, now_ns)
        for s in self._saturating():
            self._charge_unpaid(s)
        return passed_ns

    @staticmethod
    def _deadline_of(s: Slice, now_ns: int) -> int:
        """Of a burst that begins now."""
        return now_ns + 4 * MS * MILLI // s.params.min_milli if s.params.min_milli else s.deadline_ns

    def _note_activity(self, s: Slice, now_ns: int) -> None:
        if s.active:
            if now_ns >= s.last_active_ns + IDLE_NS or not s.last_active_ns:  # what it did before says nothing now
                s.demand_ppm = PPM
                s.work_ns = s.idle_ns = s.window_work_ns = s.window_idle_ns = 0
                s.free_lag_ns, s.owed_ns = min(s.free_lag_ns, 0), min(s.owed_ns, 0)
            s.last_active_ns = now_ns
            if not s.was_active:
                s.deadline_ns = self._deadline_of(s, now_ns)
        s.was_active = s.active

    @staticmethod
    def _measure_demand(s: Slice) -> None:
        """Time at the closed gate says nothing, be it seconds."""
        worked_ns = max(0, min(s.window_work_ns, DEBT_MAX_NS))
        if worked_ns + s.window_idle_ns < SEEN_LEAST_NS:
            return
        s.work_ns = s.work_ns * 3 // 4 + worked_ns
        s.idle_ns = s.idle_ns * 3 // 4 + s.window_idle_ns
        s.window_work_ns = s.window_idle_ns = 0
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
