"""A gang alone on two devices: an arbiter each, model and core at once, and the board between them (arbiter/gang.c).

Threads launch kernels on either device and wait for them; a kernel that meets makes progress only while its partner on
the other device runs as well. An arbiter steps when it asked to, and when something rings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from models.arbiter.model import GANG_FOLLOWER, GANG_LEADER, MS, Slice, SliceParams, State
from tests.arbiter.pair import Pair

TICK_NS = MS // 20
#: so long after a close, a device that is behind lets launches of collectives through
LETS_THROUGH_NS = 16 * MS
HEARTBEAT_NS = 20 * MS
DEVICES = (0, 1)


@dataclass(eq=False)
class Kernel:
    length_ns: int
    meets: int = 0  # the number of a meeting, the same as that of its partner; 0: it meets none
    left_ns: int = 0

    def __post_init__(self) -> None:
        self.left_ns = self.length_ns


@dataclass(frozen=True)
class Launch:
    """What a thread does next: a launch, which waits at the gate and for the bound."""

    device: int
    length_ns: int
    meets: int = 0


@dataclass(frozen=True)
class Wait:
    """For all work of a device (or of all), then so much longer."""

    device: int | None = None
    pause_ns: int = 0


Thread = Iterator[Launch | Wait]


@dataclass(eq=False)
class Part:
    """The gang on one device."""

    row: Slice
    pair: Pair
    queue: deque[Kernel] = field(default_factory=deque)
    waiting: int = 0  # threads at the closed gate
    last_meeting: int = 0  # of those that were launched
    computed_ns: int = 0
    due_ns: int = 0
    known_state: tuple[object, ...] = ()  # what the last step knew


class GangWorld:
    """knows_names: collectives are known by name. beyond_ns: by device, the most that it computed beyond its maximum.
    closed_ns: the longest time for which a gate was closed to a thread while both devices were idle and below the
    maximum."""

    def __init__(self, maximum: int, *threads: Thread, knows_names: bool = True) -> None:
        self.maximum = maximum
        self.knows_names = knows_names
        self.now_ns = MS
        self.begin_ns = MS
        self.steps = 0
        self.parts = [self._part(role) for role in (GANG_LEADER, GANG_FOLLOWER)]
        self.beyond_ns = [0, 0]
        self.closed_ns = 0
        self._closed_since_ns = 0
        self._level_ns = [self._depth_ns] * 2
        self._threads: dict[Thread, Launch | Wait | None] = {thread: next(thread) for thread in threads}
        self._until_ns: dict[Thread, int] = {}

    @property
    def _depth_ns(self) -> float:
        return 15 * MS * self.maximum / 1000

    def _part(self, role: int) -> Part:
        pair = Pair()
        row = pair.set(1, SliceParams(self.maximum, self.maximum, gang=role))
        row.attached = True
        return Part(row, pair)

    def share(self, device: int) -> float:
        """What it computed there, of the time."""
        return self.parts[device].computed_ns / (self.now_ns - self.begin_ns)

    @property
    def has_ended(self) -> bool:
        """All threads have."""
        return all(action is None for action in self._threads.values())

    def run(self, passed_ns: int) -> None:
        """Until all threads have ended, at most so long."""
        end_ns = self.now_ns + passed_ns
        while self.now_ns < end_ns and not self.has_ended:
            self.now_ns += TICK_NS
            self._compute()
            for thread in self._threads:
                self._advance(thread)
            self._arbitrate()
            self._check()

    # ---- the devices ----

    def _runs(self, part: Part) -> bool:
        meets = part.queue[0].meets
        return not meets or all(other.queue and other.queue[0].meets == meets for other in self.parts)

    def _compute(self) -> None:
        busy = [part for part in self.parts if part.queue]
        running = [part for part in busy if self._runs(part)]
        for part in busy:
            part.computed_ns += TICK_NS  # also when it spins
            part.row.busy_total_ns += TICK_NS
            part.row.done_total_ns += TICK_NS
            if part in running:
                part.queue[0].left_ns -= TICK_NS
        for part in running:
            if part.queue[0].left_ns <= 0:
                part.queue.popleft()

    # ---- the threads ----

    def _advance(self, thread: Thread) -> None:
        while (action := self._threads[thread]) is not None and self._may(thread, action):
            self._until_ns.pop(thread, None)
            if isinstance(action, Launch):
                part = self.parts[action.device]
                part.queue.append(Kernel(action.length_ns, action.meets))
                part.last_meeting = max(part.last_meeting, action.meets)
            self._threads[thread] = next(thread, None)

    def _may(self, thread: Thread, action: Launch | Wait) -> bool:
        if isinstance(action, Launch):
            part = self.parts[action.device]
            outstanding_ns = sum(kernel.left_ns for kernel in part.queue)
            return self._passes(part) and (not part.queue or outstanding_ns < part.row.bound_ns)
        if any(part.queue for i, part in enumerate(self.parts) if action.device in (None, i)):
            return False
        return self.now_ns >= self._until_ns.setdefault(thread, self.now_ns + action.pause_ns)

    def _passes(self, part: Part) -> bool:
        if part.row.is_open:
            return True
        lets_through = self.knows_names and self.now_ns < part.row.close_ns + LETS_THROUGH_NS
        return lets_through and part.last_meeting < max(other.last_meeting for other in self.parts)

    # ---- the arbiters ----

    def _report(self, index: int) -> None:
        part, row = self.parts[index], self.parts[index].row
        launches = [a for a in self._threads.values() if isinstance(a, Launch) and a.device == index]
        row.outstanding, row.running = bool(part.queue), int(bool(part.queue))
        row.wants = bool(launches) and not row.is_open
        row.active_total_ns += TICK_NS * (row.outstanding or row.wants)
        row.noticed = not row.is_open
        row.quiet = not row.is_open and not part.queue
        row.drain_expected_ns = 0
        if part.queue and not row.is_open:
            row.drain_expected_ns = self.now_ns + sum(kernel.left_ns for kernel in part.queue)
        row.drained_ns = row.drained_ns if row.quiet and row.drained_ns > row.close_ns else self.now_ns

    def _read_board(self, index: int) -> None:
        row, other = self.parts[index].row, self.parts[1 - index].row
        outstanding = bool(self.parts[1 - index].queue)
        wants = other.wants and not other.is_open
        row.gang_stop = other.gang_veto
        if row.leads:
            row.gang_busy = outstanding
            row.quiet = row.quiet and not (row.is_open and (wants or outstanding))
            row.wants = row.wants or (wants and not row.is_open)
            row.outstanding = row.outstanding or (outstanding and row.is_open)
        else:
            row.gang_turns, row.gang_go = other.saturating, other.is_open

    def _arbitrate(self) -> None:
        for index in DEVICES:
            self._report(index)
        for index, part in enumerate(self.parts):
            self._read_board(index)
            row = part.row
            state = (row.outstanding, row.wants, row.quiet, row.gang_stop, row.gang_turns, row.gang_go, row.gang_busy)
            if self.now_ns < part.due_ns and state == part.known_state:
                continue
            part.known_state = state
            part.due_ns = min(part.pair.step(self.now_ns), self.now_ns + HEARTBEAT_NS)
            self.steps += 1

    # ---- what must hold ----

    def _check(self) -> None:
        for index, part in enumerate(self.parts):
            allowed_ns = self.maximum * (self.now_ns - self.begin_ns) // 1000
            self.beyond_ns[index] = max(self.beyond_ns[index], part.computed_ns - allowed_ns)
            level_ns = self._level_ns[index] + TICK_NS * (self.maximum / 1000 - bool(part.queue))
            self._level_ns[index] = min(self._depth_ns, level_ns)
        needed_ns = min(MS, self._depth_ns / 2) + TICK_NS
        kept = any(part.row.wants and part.row.state != State.OPEN for part in self.parts)
        idle = not any(part.queue for part in self.parts)
        if not (kept and idle and min(self._level_ns) > needed_ns):
            self._closed_since_ns = self.now_ns
        self.closed_ns = max(self.closed_ns, self.now_ns - self._closed_since_ns)
