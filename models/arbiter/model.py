"""The data of the arbiter's reference model: constants, settings and slices, and what follows from one slice alone.

The names are those of struct vg_core_slice in shim/arbiter/model.h; where a field's own name is too short, after that
of its struct (lag_ns in free is free_lag_ns).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

MILLI, PPM = 1000, 1_000_000
MS = 1_000_000
NEVER = 2**64 - 1
FAR_NS = 2**62
CLOSED, COUNT, SOLO = 0, 1, 2
STATE_MASK, EPOCH_SHIFT = 3, 2
WATCH_USAGE, WATCH_EDGES, WATCH_GANG, WATCH_CALLS = 1, 2, 4, 8
GANG_NONE, GANG_LEADER, GANG_FOLLOWER, GANG_OPEN = 0, 1, 2, 3

#: limit of lags and debts: a single kernel of a minute must not keep its slice from running for an hour
DEBT_MAX_NS = 1000 * MS
#: the slot does not wait for a drain that is forecast to take so many times as long as it would wait
ENDLESS_PATIENCES = 8
#: a slice that has not drained for this long has its gate opened for a moment
RESCUE_NS = 50 * MS
#: longest forecast of a drain that is believed
FORECAST_MAX_NS = 10_000 * MS
#: after this long without a step, tenants have followed their timetables (coast): the arbiter stood still
STALLED_NS = 100 * MS
#: limit of time used by free slices that is carried over to the next step
CARRIED_MAX_NS = 20 * MS
#: run time over which reported work is compared with it; a slice that reports nothing for SILENT_NS is silent; limit of
#: the time that no slice's reports explain
REPORTED_NS = 50 * MS
SILENT_NS = 10 * MS
UNEXPLAINED_MAX_NS = 20 * MS
#: a process that has not noticed its closed gate for this long is stopped (SIGSTOP, a debugger)
STOPPED_NS = 50 * MS
#: a holder that has just been let in needs this long to wake up and launch before it can be called idle
WAKE_GRACE_NS = MS // 2
#: window over which demand is measured (averaged over about four), and the least work and idle time in one
WINDOW_NS = 10 * MS
SEEN_LEAST_NS = MS // 10
#: a slice inactive for this long is idle: its demand before that no longer counts
IDLE_NS = 50 * MS
#: demand, in parts of a million, above which a free slice becomes saturating, and below which it becomes free again
SATURATING_PPM, FREE_PPM = 970_000, 930_000
#: lag from which a slice is short; how much further behind than another one it must be, each by its own entitlement,
#: for the other one to begin waiting for it, and to keep waiting
SHORT_NS = MS
AHEAD_NS, BACK_NS = 4 * MS, 2 * MS
#: least cost of a turn that keeps others waiting: what the hand-over takes; and if the slice reported little work for
#: its last turns
TURN_LEAST_NS, TURN_IDLE_NS = MS // 4, MS
#: token bucket of turns without work: cost of one, depth, time in which it fills by one (reported work fills it, too)
TURN_CREDIT_NS, TURN_CREDITS, TURN_REFILL_NS = MS // 20, 20, 100 * MS
#: token bucket of open gate words: depth, time in which it fills by one, how much faster reported work fills it
RENEWALS, RENEWAL_NS, RENEWED_BY_WORK = 10, MS, 5
#: completed work may be reported this long after the time in which it ran
LATE_REPORTED_NS = 20 * MS
#: so much may be reported of one that is idle: late, and of time counted before it was known to be idle
REPORTABLE_IDLE_NS = 2 * LATE_REPORTED_NS
#: a step in which work of several saturating slices overlaps is shorter, unless the arbiter runs late
LATE_STEP_NS = MS
#: a latency slice has precedence until it is this far ahead of its entitlement; time that it has for a burst, if its
#: minimum is the whole device
LATENCY_DEBT_NS = 10 * MS
DEADLINE_NS = 4 * MS
#: least entitlement of any slice
ENTITLEMENT_MIN_PPM = 1000
#: period of steps while several slices run
TICK_NS = 2 * MS
#: least time between two looks at a drain, whose forecast moves while the hardware gives the device to others
LOOK_LEAST_NS = 25_000


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

    quantum_ns: int = 7 * MS
    quantum_min_ns: int = MS
    bound_ns: int = 2 * MS
    open_bound_ns: int = 20 * MS
    latency_bound_ns: int = MS
    overrun_ns: int = 14 * MS
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
    paused: bool = False  # its gate stays closed, and it accrues nothing
    rotates: bool = False  # its memory may leave the device: its launches are counted, and its calls noticed, always


@dataclass(eq=False)
class Slice:
    """A slice on the device: what its processes report, what is decided for it, and what is remembered of it."""

    ident: int
    params: SliceParams
    place: int = 0  # in the core's table: slices are looked at in this order
    saturating: bool = False  # takes turns in the slot; else free
    # reported before each step
    attached: bool = False  # has at least one process
    wants: bool = False  # a launching thread waits at the closed gate
    outstanding: bool = False  # work is outstanding
    quiet: bool = False  # every process has given up the present word (open) or drained it (closed)
    gave_up_while_waiting: bool = False  # a process has given up the present word while one of its threads waits
    noticed: bool = False  # some process has noticed the present closed word: not a stopped one
    counted_ahead: bool = False  # the time that is reported moves, within what has been counted
    gang_turns: bool = False  # a gang's follower: its leader takes turns in the slot, so it does as well
    gang_go: bool = False  # a gang's follower: its leader's gate is open
    gang_stop: bool = False  # a gang: it is to stop for another of its devices (gang_veto there)
    gang_busy: bool = False  # a gang's leader: work is outstanding on another of its devices
    running: int = 0  # processes with work outstanding: the hardware divides its time by contexts
    drained_ns: int = 0  # when quiet under a closed word: the last process's drain
    drain_expected_ns: int = 0  # under a closed word: when all processes will have drained; 0 = no forecast
    busy_total_ns: int = 0  # monotone: device time with work outstanding, as reported
    active_total_ns: int = 0  # monotone: time with work outstanding or a thread at the gate
    done_total_ns: int = 0  # monotone: calibrated cost of completed work, as reported
    # decided by a step
    word: int = 0  # the gate word
    lease_end_ns: int = 0  # 0 = open end
    bound_ns: int = 0
    neighbour_waits: bool = False
    watch: int = 0  # WATCH_*
    gang_veto: bool = False  # a gang: it is to stop on its other devices, for its maximum or for others on this one
    entitlement_ppm: int = 0  # in parts of a million of the device
    # the gate, and the drain behind it
    state: State = State.SHUT
    overran: bool = False  # has been counted as an overrun since the gate was closed
    cut_off: bool = False  # work was outstanding when the gate was closed, and it has not been opened since
    grant_ns: int = 0
    close_ns: int = 0
    late_ns: int = 0  # the longest that work has outlasted the gate; fades with each close
    rescue_ns: int = 0  # when the gate is opened or closed again for a moment: gates.rescue(), device.is_rescued()
    renewed_ns: int = 0  # token bucket of open words: the time at which it is full again
    served: int = 0  # order of grants, for ties
    # account of a saturating slice in the slot
    virtual_ns: int = 0
    unpaid_ns: int = 0  # half of the completed work that it reports, less what it has been charged
    over_cap_ns: int = 0  # all of it, less what its maximum has been charged
    # a free slice's deficit, and what that gives it
    free_lag_ns: int = 0  # entitlement minus usage; what a slice that leaves the slot takes along
    owed_ns: int = 0  # minimum minus usage
    overdrawn: bool = False  # latency class: it has used more than its guarantee and has no precedence
    has_precedence: bool = False  # latency class: it is the slice that is served before all others now
    throttled: bool = False  # the gate is closed: for its maximum, or since it has used more than its entitlement
    holds: bool = False  # the gates of others are closed for it
    deadline_ns: int = 0  # latency class: of its present burst
    # a turn that keeps others waiting, and the token bucket of turns without work
    turn_credit_ns: int = TURN_CREDITS * TURN_CREDIT_NS
    turn_least_ns: int = 0  # the least that the present turn costs
    turn_used_ns: int = 0  # charged for it so far
    # token buckets
    cap_ns: int = 0  # of the maximum
    guarantee_ns: int = 0  # of the minimum; usage beyond it is borrowed
    limited: bool = False  # cap_ns was empty and is not nearly full yet
    # provisional account of a free slice since settled_ns, when completed work last corrected its charge
    settled_ns: int = 0
    done_seen_ns: int = 0  # completed work that has been settled
    provisional_ns: int = 0  # charged: its contexts' part of the time with work outstanding
    outstanding_ns: int = 0  # all time with work outstanding: upper bound of what that charge may be revised to
    alone_ns: int = 0  # of it, while no other slice had work outstanding or could have
    beside_slot: bool = False  # some of it while the slot was occupied
    # completed work as reported, and how far that is believed
    reportable_ns: int = 0  # time with work outstanding that has not been reported as completed work yet
    reported_total_ns: int = 0  # done_total_ns as of the last step
    done_ns: int = 0  # completed work that is possible in the time that there was
    done_reported_ns: int = 0  # done_ns as of the last step
    reported_at_ns: int = 0  # when done_ns grew last, or nothing ran
    reported_after_ns: int = 0  # how long it had not grown before that
    recent_run_ns: int = 0  # recent time with work outstanding; saturating: while no other slice had any
    recent_reported_ns: int = 0  # completed work reported for that time
    # demand: work / (work + idle), measured once in a window
    demand_ppm: int = PPM
    work_ns: int = 0  # averaged over recent windows
    idle_ns: int = 0  # averaged over recent windows
    window_work_ns: int = 0  # in the present window
    window_idle_ns: int = 0
    # the present step, and what the last one saw
    busy_ns: int = 0  # time with work outstanding in this step
    contexts: int = 0  # that ran in this step
    busy_seen_ns: int = 0  # busy_total_ns as of the last step
    active_seen_ns: int = 0  # active_total_ns as of the last step
    was_outstanding: bool = False
    was_running: bool = False  # some of it on this device
    was_active: bool = False  # to see a burst begin
    last_active_ns: int = 0
    # counted
    charged_ns: int = 0
    borrowed_ns: int = 0
    grants: int = 0
    early_releases: int = 0
    overruns: int = 0

    @property
    def is_open(self) -> bool:
        return self.word & STATE_MASK != CLOSED

    @property
    def drains(self) -> bool:
        """Its gate is closed, and work is outstanding behind it."""
        return self.state in (State.DRAINING, State.OVERLAP)

    @property
    def wants_to_run(self) -> bool:
        """A paused slice wants nothing, even if threads wait at its gate."""
        return self.wants and not self.params.paused

    @property
    def active(self) -> bool:
        return self.attached and (self.outstanding or self.wants_to_run)

    @property
    def leads(self) -> bool:
        return self.params.gang == GANG_LEADER

    @property
    def follows(self) -> bool:
        """The arbiter of another device decides for it."""
        return self.params.gang == GANG_FOLLOWER

    @property
    def leads_or_follows(self) -> bool:
        """Of a gang whose devices run together."""
        return self.leads or self.follows

    @property
    def is_uncapped(self) -> bool:
        return self.params.max_milli >= MILLI

    @property
    def is_counted(self) -> bool:
        """Also when it is alone: of a gang for its collectives, of one that rotates to see it idle."""
        return not self.is_uncapped or self.params.gang != GANG_NONE or self.params.rotates

    @property
    def weight(self) -> int:
        return max(1, self.params.weight or self.params.min_milli)


def least_ppm(params: SliceParams) -> int:
    """The entitlement of an idle slice."""
    return max(MILLI, params.min_milli * MILLI)


def clamp_ns(ns: int, most_ns: int) -> int:
    return max(-most_ns, min(ns, most_ns))


def scale_ns(ns: int, milli: int) -> int:
    return ns * milli // MILLI


def part_of(ns: int, ppm: int) -> int:
    return ns * ppm // PPM


def divide_towards_zero(dividend: int, divisor: int) -> int:
    """A quotient rounded towards zero, as in C."""
    return dividend // divisor if dividend >= 0 else -(-dividend // divisor)


def due_time(lag_ns: int, entitlement_ppm: int) -> int:
    """The time that an entitlement takes for a lag, rounded towards zero."""
    time_ns = abs(lag_ns) * PPM // entitlement_ppm
    return time_ns if lag_ns >= 0 else -time_ns


def time_behind_ns(s: Slice) -> int:
    return due_time(s.free_lag_ns, s.entitlement_ppm)
