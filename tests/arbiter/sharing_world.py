"""A device, tenants and their shims around an arbiter, event by event under a fake clock.

The device runs one context at a time, round robin, in slices; a change of context costs. Tenants are like
benchmarks/tenants/load.c: bursts of equal kernels, some in flight, or each waited for and followed by a pause or due in
a period. The shim: bounds what is outstanding, sees edges, reports drains and forecasts, each some microseconds late.
The arbiter is the reference model (models.arbiter.policy) or anything with its interface.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from models.arbiter.model import CLOSED, MS, NEVER, STATE_MASK, WATCH_EDGES, WATCH_USAGE, Slice, SliceParams, State
from models.arbiter.policy import Arbiter

US = 1000
SECOND = 1000 * MS
HEARTBEAT_NS = 20 * MS


@dataclass
class Load:
    """What a process does; times in ns. gap_ns or period_ns: each burst is waited for. attach_ns: when its process
    comes, if that is before it begins. lie: what its page says (busy, active, done) for what is true."""

    kernel_ns: int = 200 * US
    burst: int = 16
    depth: int = 3
    gap_ns: int = 0
    period_ns: int = 0
    begin_ns: int = 0
    end_ns: int = NEVER
    attach_ns: int = NEVER
    active_ns: int = 0
    idle_ns: int = 0
    forecast_max_ns: int = NEVER  # the most that its shim forecasts, for work whose cost it cannot know
    lie: Callable[[str, int], int] | None = None


@dataclass(eq=False)
class Process:
    tenant: Tenant
    load: Load
    submitted_ns: int = 0  # cumulative
    executed_ns: int = 0
    launch_count: int = 0  # of the present burst
    bursts: int = 0
    issuing: bool = False
    begun_ns: int = 0  # of the present burst
    due_ns: int = 0
    phase_ns: int = 0
    waiting: bool = False  # at the gate
    word: int = 0  # in its control page
    has_turn: bool = False
    turns_ns: int = 0  # leases that it had to itself
    given_up: int = -1
    drained: int = -1
    noticed_word: int = -1
    drained_at_ns: int = 0
    busy_total_ns: int = 0
    busy_since_ns: int = 0
    active_total_ns: int = 0
    active_since_ns: int = 0
    dry_ns: int = 0  # when the device had done all of its work, by the device's clock
    reported_ns: int = 0
    is_ahead: bool = False  # its time is counted already
    ahead_ns: int = 0  # time with work outstanding that need not be counted
    read_busy: bool = False  # when it was last read
    seen_busy: bool = False
    looking: bool = False  # the helper is about to see that nothing is outstanding
    is_attached: bool = False
    has_ended: bool = False
    is_stopped: bool = False
    missed_calls: list[Callable[[], None]] = field(default_factory=list)  # what it would have done while it was stopped
    counted_ns: dict[str, int] = field(default_factory=dict)  # what the arbiter believes
    read_ns: int = 0
    latencies_ns: list[int] = field(default_factory=list)

    @property
    def left_ns(self) -> int:
        return self.submitted_ns - self.executed_ns

    @property
    def completed(self) -> int:
        return self.executed_ns // self.load.kernel_ns

    @property
    def is_open(self) -> bool:
        return self.word & STATE_MASK != CLOSED

    @property
    def in_flight(self) -> int:
        """Bursts begun that have not completed."""
        per = self.load.kernel_ns * self.load.burst
        return self.bursts - self.executed_ns // per


@dataclass(eq=False)
class Tenant:
    """min/max in milli."""

    ident: int
    params: SliceParams
    loads: list[Load]
    processes: list[Process] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    takes_turns: bool = False  # the lease is one process's alone, as arbiter/turns.c gives it
    together_until_ns: int = 0
    turns_ns: int = 0

    def share(self, begin_ns: int, end_ns: int) -> float:
        return sum(max(0, min(b, end_ns) - max(a, begin_ns)) for a, b in self.spans) / (end_ns - begin_ns)


def tenant(ident: int, minimum: int, maximum: int | None = None, *loads: Load, **params: Any) -> Tenant:
    made = SliceParams(minimum, minimum if maximum is None else maximum, **params)
    return Tenant(ident, made, list(loads) or [Load()])


class World:
    """arbiter=None: no arbiter, all gates are open and nothing is bounded."""

    def __init__(
        self,
        tenants: list[Tenant],
        arbiter: Arbiter | None,
        *,
        slice_ns: int = 1_024_000,
        switch_ns: int = 20 * US,
        late_ns: int = 20 * US,
        wake_ns: int = 25 * US,
        helper_late_ns: int = 0,
    ) -> None:
        self.arbiter = arbiter
        self.slice_ns, self.switch_ns, self.late_ns, self.wake_ns = slice_ns, switch_ns, late_ns, wake_ns
        self.helper_late_ns = helper_late_ns  # until a helper thread has a processor, to notice that a gate was closed
        self.now_ns = MS  # a time of zero means never in places
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._running: Process | None = None
        self._last: Process | None = None
        self._begun_ns = 0
        self._slice_end_ns = 0
        self._version = 0
        self._step_at_ns = NEVER
        self._stalled_until_ns = 0
        self._rows: dict[int, Slice] = {}
        self.steps = 0
        self.log: list[tuple[int, int, int]] = []  # (time, tenant, gate) of each new word
        self.everyone: list[Process] = []
        self.tenants: list[Tenant] = []
        for t in tenants:
            self.add(t)

    # ---- what happens to it ----

    def add(self, t: Tenant) -> None:
        self.tenants.append(t)
        if self.arbiter:
            self._rows[t.ident] = self.arbiter.set(t.ident, t.params)
        for load in t.loads:
            self.start(t, load)

    def start(self, t: Tenant, load: Load) -> Process:
        """Another process of a tenant."""
        made = Process(t, load)
        t.processes.append(made)
        self.everyone.append(made)
        self._at(min(load.attach_ns, load.begin_ns), partial(self._attach, made))
        if load.begin_ns < NEVER:
            self._call_later(made, load.begin_ns, partial(self._start, made))
        return made

    def _attach(self, p: Process) -> None:
        p.is_attached = True
        p.read_ns = self.now_ns
        if self.arbiter:
            p.word = self._row(p).word
        self._step_later(0)

    def detach(self, p: Process) -> None:
        """The process ends, and its work with it."""
        self._settle()
        self._edge(p, False)
        p.waiting = p.is_attached = False
        self._edge_active(p)
        p.has_ended = True
        p.submitted_ns = p.executed_ns
        if self._running is p:
            self._dispatch()
        self._step_later(0)

    def change(self, t: Tenant, **params: Any) -> None:
        assert self.arbiter
        t.params = replace(t.params, **params)
        self.arbiter.set(t.ident, t.params)
        self._step_later(0)

    def remove(self, t: Tenant) -> None:
        assert self.arbiter
        for p in t.processes:
            if not p.has_ended:
                self.detach(p)
        self.arbiter.remove(t.ident)
        self.tenants.remove(t)
        self._step_later(0)

    def stop(self, p: Process) -> None:
        """As SIGSTOP: what it has launched continues."""
        p.is_stopped = True

    def resume(self, p: Process) -> None:
        p.is_stopped = False
        missed, p.missed_calls = p.missed_calls, []
        for what in missed:
            what()

    def stall(self, for_ns: int) -> None:
        """The arbiter decides nothing for so long."""
        self._stalled_until_ns = self.now_ns + for_ns

    # ---- events ----

    def _at(self, time_ns: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time_ns, self.now_ns), next(self._order), what))

    def _call_later(self, p: Process, time_ns: int, what: Callable[[], None]) -> None:
        self._at(time_ns, partial(self._do, p, what))

    def _do(self, p: Process, what: Callable[[], None]) -> None:
        """What a process does: nothing any more when it has ended, later when it is stopped."""
        if p.is_stopped:
            p.missed_calls.append(what)
        elif not p.has_ended:
            what()

    def run(self, until_ns: int) -> None:
        while self._events and self._events[0][0] <= until_ns:
            self.now_ns, _, what = heapq.heappop(self._events)
            what()
        self.now_ns = until_ns
        self._settle()

    # ---- device ----

    def _settle(self) -> None:
        """Brings the running process's executed work up to now."""
        p = self._running
        if p and self.now_ns > self._begun_ns:
            ran = min(self.now_ns - self._begun_ns, p.left_ns)
            spans = p.tenant.spans
            if spans and spans[-1][1] == self._begun_ns:
                spans[-1] = (spans[-1][0], self._begun_ns + ran)
            else:
                spans.append((self._begun_ns, self._begun_ns + ran))
            p.executed_ns += ran
            self._begun_ns += ran
            if p.left_ns == 0:
                p.dry_ns = self._begun_ns

    def _dispatch(self) -> None:
        p = self._running
        if not (p and p.left_ns > 0 and self.now_ns < self._slice_end_ns):
            index = self.everyone.index(self._last) + 1 if self._last else 0
            order = self.everyone[index:] + self.everyone[:index]
            p = next((q for q in order if q.left_ns > 0), None)
            if p is None:
                self._running = None
                return
            self._begun_ns = self.now_ns + (self.switch_ns if self._last not in (None, p) else 0)
            self._slice_end_ns = self._begun_ns + self.slice_ns
            self._running = self._last = p
        self._version += 1
        version, end_ns = self._version, min(self._slice_end_ns, self._begun_ns + self._until_news(p))
        self._at(end_ns, partial(self._portion_ends, version))

    def _until_news(self, p: Process) -> int:
        """Work until a burst that a thread waits for is complete, or there is none left."""
        per = p.load.kernel_ns * p.load.burst
        return min(p.left_ns, per - p.executed_ns % per)

    def _portion_ends(self, version: int) -> None:
        if version != self._version:
            return
        p = self._running
        self._settle()
        self._dispatch()
        if p and p.executed_ns % (p.load.kernel_ns * p.load.burst) == 0:
            self._call_later(p, self.now_ns + self.wake_ns, partial(self._burst_done, p))
        if p and p.left_ns == 0:
            self._do(p, partial(self._ran_dry, p))

    def _submit(self, p: Process) -> None:
        self._settle()
        was_idle = p.left_ns == 0
        p.submitted_ns += p.load.kernel_ns
        p.launch_count += 1
        if was_idle:
            self._edge(p, True)
        if self._running is None:
            self._dispatch()

    # ---- programs ----

    def _start(self, p: Process) -> None:
        p.due_ns = self.now_ns
        p.phase_ns = self.now_ns + p.load.active_ns
        self._begin_burst(p)

    def _begin_burst(self, p: Process) -> None:
        if self.now_ns >= p.load.end_ns:
            return
        p.bursts += 1
        p.launch_count = 0
        p.begun_ns = p.due_ns if p.load.period_ns else self.now_ns
        p.issuing = True
        self._issue(p)

    def _waited_for(self, p: Process) -> bool:
        return bool(p.load.gap_ns or p.load.period_ns)

    def _burst_done(self, p: Process) -> None:
        load = p.load
        if self._waited_for(p):
            p.latencies_ns.append(self.now_ns - p.begun_ns)
            if load.period_ns:
                p.due_ns += ((self.now_ns - p.begun_ns) // load.period_ns + 1) * load.period_ns
                begin_ns = p.due_ns
            else:
                begin_ns = self.now_ns + load.gap_ns
            self._call_later(p, begin_ns, partial(self._begin_burst, p))
        elif not p.issuing:
            self._next_burst(p)

    def _next_burst(self, p: Process) -> None:
        load = p.load
        if load.active_ns and self.now_ns >= p.phase_ns:
            if p.in_flight == 0:
                p.phase_ns = self.now_ns + load.idle_ns + load.active_ns
                self._call_later(p, self.now_ns + load.idle_ns, partial(self._begin_burst, p))
        elif p.in_flight < load.depth and not p.issuing:
            self._begin_burst(p)

    def _issue(self, p: Process) -> None:
        """Launches until the burst is issued, the gate is closed or the bound is reached."""
        while p.launch_count < p.load.burst:
            if self.arbiter:
                row = self._row(p)
                if not p.is_open or p.given_up == p.word:
                    self._wait_at_gate(p)
                    return
                left_ns = p.submitted_ns - p.completed * p.load.kernel_ns
                if left_ns >= row.bound_ns:
                    self._settle()
                    pause_ns = min(max(p.left_ns - row.bound_ns // 2, 20 * US), row.bound_ns // 2)
                    self._call_later(p, self.now_ns + pause_ns, partial(self._issue, p))
                    return
            self._submit(p)
        p.issuing = False
        if not self._waited_for(p):
            self._next_burst(p)

    # ---- shim ----

    def _row(self, p: Process) -> Slice:
        return self._rows[p.tenant.ident]

    def _wait_at_gate(self, p: Process) -> None:
        if not p.waiting:
            p.waiting = True
            self._edge_active(p)
        self._step_later(self.late_ns)

    def _edge_active(self, p: Process) -> None:
        active = p.waiting or p.seen_busy
        if active and not p.active_since_ns:
            p.active_since_ns = self.now_ns or 1
        elif not active and p.active_since_ns:
            p.active_total_ns += self.now_ns - p.active_since_ns
            p.active_since_ns = 0

    def _edge(self, p: Process, busy: bool, at_ns: int = NEVER) -> None:
        if p.seen_busy == busy:
            return
        p.seen_busy = busy
        if busy:
            p.busy_since_ns = self.now_ns or 1
        else:
            p.busy_total_ns += max(0, min(at_ns, self.now_ns) - p.busy_since_ns)
        self._edge_active(p)
        if self.arbiter and self._row(p).watch & WATCH_EDGES:
            self._step_later(self.late_ns)

    def _ran_dry(self, p: Process) -> None:
        if not self.arbiter:
            return
        row = self._row(p)
        if not p.is_open:
            self._maybe_drained(p)
        elif self._waited_for(p) or row.watch & WATCH_USAGE:  # seen at the synchronisation, or by the helper's probe
            self._look(p, self.wake_ns if self._waited_for(p) else 400 * US)

    def _look(self, p: Process, late_ns: int) -> None:
        if not p.looking:
            p.looking = True
            self._call_later(p, self.now_ns + late_ns, partial(self._end_look, p))

    def _end_look(self, p: Process) -> None:
        p.looking = False
        self._settle()
        if p.left_ns == 0:
            self._edge(p, False)
            if not p.waiting and p.is_open and self._row(p).neighbour_waits:
                p.given_up = p.word
                self._step_later(self.late_ns)

    def _maybe_drained(self, p: Process) -> None:
        self._settle()
        if p.left_ns or p.drained == p.word or p.noticed_word != p.word:
            return
        p.drained = p.word
        p.drained_at_ns = p.dry_ns if self.helper_late_ns else self.now_ns
        self._edge(p, False, p.drained_at_ns)
        self._step_later(self.late_ns)

    def _notice_close(self, p: Process, word: int) -> None:
        if p.word != word:
            return
        p.noticed_word = word
        self._maybe_drained(p)
        self._step_later(self.late_ns)

    # ---- arbiter ----

    def _step_later(self, late_ns: int) -> None:
        at_ns = max(self.now_ns + late_ns, self._stalled_until_ns)
        if self.arbiter and at_ns < self._step_at_ns:
            self._step_at_ns = at_ns
            self._at(at_ns, partial(self._step, at_ns))

    def _read(self, p: Process) -> None:
        """Totals as arbiter/pages.c takes them from a page: they never fall, and rise no faster than time goes by."""
        true_ns = {
            "busy": p.busy_total_ns + (self.now_ns - p.busy_since_ns) * p.seen_busy,
            "active": p.active_total_ns + (self.now_ns - p.active_since_ns if p.active_since_ns else 0),
            "done": p.completed * p.load.kernel_ns,
        }
        for name, value_ns in true_ns.items():
            reported_ns = p.load.lie(name, value_ns) if p.load.lie else value_ns
            before_ns = p.counted_ns.get(name, 0)
            most_ns = p.counted_ns["busy"] if name == "done" else before_ns + self.now_ns - p.read_ns
            p.counted_ns[name] = max(before_ns, min(reported_ns, most_ns))
            if name == "busy":
                self._note_ahead(p, reported_ns, p.counted_ns[name] - before_ns)
        p.read_ns, p.read_busy = self.now_ns, p.seen_busy

    def _note_ahead(self, p: Process, reported_ns: int, more_ns: int) -> None:
        """Whether its time has been counted earlier, see is_counted_ahead() of arbiter/pages.c."""
        p.ahead_ns = min(p.ahead_ns + 2 * more_ns, 100 * MS)
        passed_ns = self.now_ns - p.read_ns
        p.is_ahead = p.read_busy and not more_ns and p.reported_ns != reported_ns and p.ahead_ns >= passed_ns
        p.ahead_ns -= passed_ns * p.is_ahead
        p.reported_ns = reported_ns

    def _report(self, t: Tenant) -> None:
        row = self._rows[t.ident]
        live = [p for p in t.processes if p.is_attached]
        for p in live:
            self._read(p)
        row.attached = bool(live)
        row.wants = any(p.waiting for p in live)
        row.running = sum(p.seen_busy for p in live)
        row.counted_ahead = any(p.is_ahead for p in live)
        row.outstanding = row.running > 0
        row.busy_total_ns = sum(p.counted_ns.get("busy", 0) for p in t.processes)
        row.active_total_ns = sum(p.counted_ns.get("active", 0) for p in t.processes)
        row.done_total_ns = sum(p.counted_ns.get("done", 0) for p in t.processes)
        word = row.word
        row.drained_ns = row.close_ns
        row.drain_expected_ns = 0
        row.gave_up_while_waiting = row.noticed = False
        if row.is_open:
            admitted = [p for p in live if p.is_open]
            row.quiet = bool(live) and all(p.given_up == word for p in admitted)
            row.quiet &= not any(p.waiting for p in live if not p.is_open)
            row.gave_up_while_waiting = any(p.given_up == word and p.waiting for p in admitted)
        else:
            row.quiet = bool(live) and all(p.drained == word for p in live)
            row.noticed = any(p.noticed_word == word for p in live)
            row.drained_ns = max([row.close_ns, *(p.drained_at_ns for p in live if p.drained == word)])
            left_ns = sum(min(p.left_ns, p.load.forecast_max_ns) for p in live if p.noticed_word == word)
            row.drain_expected_ns = self.now_ns + left_ns if left_ns else 0

    def _step(self, at_ns: int) -> None:
        if at_ns != self._step_at_ns:
            return
        assert self.arbiter
        self._step_at_ns = NEVER
        self._settle()
        for t in self.tenants:
            self._report(t)
        before = {t.ident: self._rows[t.ident].word for t in self.tenants}
        deadline_ns = self.arbiter.step(self.now_ns)
        self.steps += 1
        assert deadline_ns > self.now_ns, "the arbiter would spin"
        for t in self.tenants:
            row = self._rows[t.ident]
            if row.word != before[t.ident]:
                self.log.append((self.now_ns, t.ident, row.word & 3))
            if row.word != before[t.ident] or self._turn_is_over(t, row):
                self._publish(t, row)
            self._ring(t, self._rows[t.ident])
        self._step_later(min(deadline_ns - self.now_ns, HEARTBEAT_NS))

    def _gave_up(self, t: Tenant) -> bool:
        return all(p.given_up == p.word for p in t.processes if p.is_attached and p.has_turn)

    def _turn_is_over(self, t: Tenant, row: Slice) -> bool:
        is_long = self.now_ns >= row.grant_ns + 50 * MS
        return t.takes_turns and row.is_open and (not row.lease_end_ns or is_long or self._gave_up(t))

    def _give_turn(self, t: Tenant, row: Slice) -> Process | None:
        """As vg_turn_give() of arbiter/turns.c: the process that alone is to have the word; None: all."""
        live = [p for p in t.processes if p.is_attached]
        if t.takes_turns:
            holder = next((p for p in live if p.has_turn), None)
            over = self._turn_is_over(t, row)
            if row.is_open and not over:
                return holder
            if over and row.lease_end_ns and self._gave_up(t):
                t.together_until_ns = self.now_ns + 200 * MS
            if holder:
                holder.turns_ns += (self.now_ns if over else row.close_ns) - row.grant_ns
                holder.has_turn = False
            return None
        if any(p.is_open for p in live) or not row.is_open or not row.lease_end_ns:
            return None
        if row.overran:
            t.together_until_ns = self.now_ns + SECOND
        waiting = [p for p in live if p.waiting]
        if self.now_ns < t.together_until_ns or len(waiting) < 2:
            return None
        for p in waiting:
            p.turns_ns = max(p.turns_ns, t.turns_ns)
        chosen = min(waiting, key=lambda p: p.turns_ns)
        t.turns_ns = chosen.turns_ns
        chosen.has_turn = True
        return chosen

    def _publish(self, t: Tenant, row: Slice) -> None:
        alone = self._give_turn(t, row)
        t.takes_turns = alone is not None
        for p in t.processes:
            if p.word == row.word or (alone and p is not alone):
                continue
            p.word = row.word
            if not p.is_open:
                at_ns = self.now_ns + self.late_ns + self.helper_late_ns
                self._call_later(p, at_ns, partial(self._notice_close, p, row.word))
            elif p.waiting:
                self._call_later(p, self.now_ns + self.wake_ns, partial(self._woken, p))

    def _ring(self, t: Tenant, row: Slice) -> None:
        """The helpers of processes with nothing to run look when the arbiter wants to know or another slice waits."""
        for p in t.processes:
            curious = p.seen_busy if row.watch & WATCH_USAGE else False
            gives_up = row.neighbour_waits and p.given_up != p.word
            if p.is_attached and p.is_open and p.left_ns == 0 and not p.issuing and (curious or gives_up):
                self._look(p, 400 * US)

    def _woken(self, p: Process) -> None:
        if p.waiting and p.is_open:
            p.waiting = False
            self._issue(p)
            self._edge_active(p)

    # ---- what came of it ----

    def worst_second(self, t: Tenant, share: float, begin_ns: int) -> float:
        """The worst distance of a sliding one-second window from a share, every 100 ms."""
        starts = range(begin_ns, self.now_ns - SECOND + 1, 100 * MS)
        return max(abs(t.share(at, at + SECOND) - share) for at in starts)

    def total(self, begin_ns: int, end_ns: int) -> float:
        return sum(t.share(begin_ns, end_ns) for t in self.tenants)


__all__ = ["MS", "NEVER", "SECOND", "US", "Load", "Process", "State", "Tenant", "World", "tenant"]
