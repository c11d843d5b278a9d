"""Rotation: slices whose memory together is more than the device are resident in turn. Which leaves, which comes. Pure.

One device at a time, and one move at a time on it. The rules are those of docs/design/rotation.md: none leaves while
all fit; an idle one leaves first; one at work leaves when its turn has lasted 20 times as long as the moves of a
turn take, so that at most 5 % of the time is lost; and turns are in proportion to the slices' minima of SM time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vgpud.core.model import AWAY, COMING, LEAVING

_SECOND_NS = 1_000_000_000
#: of a turn, and of a slice without work before others may take its place
QUANTUM_MIN_NS = 2 * _SECOND_NS
#: no slice waits longer for a turn of one other, however slow moves are
QUANTUM_MAX_NS = 600 * _SECOND_NS
IDLE_MIN_NS = _SECOND_NS
#: a turn lasts so many times as long as its moves take
QUANTUM_MOVES = 20
#: no slice's turns are longer than another's by more than this: it would wait for hours
WEIGHTS_MAX = 8
#: units of residency per weight
_UNIT = 1 << 20
#: assumed where nothing was measured
RATE_BYTES_PER_S = 8 << 30


@dataclass(frozen=True, slots=True)
class Member:
    """A slice of the device whose memory the daemon may move."""

    name: str
    mem_min_bytes: int
    held_bytes: int = 0  # the credit of its programs
    used_bytes: int = 0  # what is moved
    residency: str = ""
    waits: bool = False  # one of its threads waits for it to come
    min_milli: int = 0
    weight: int = 0
    mem_swap: bool = True  # it leaves for others
    is_movable: bool = True  # the driver moved it, or was not asked yet; of AWAY: can come
    is_empty: bool = False  # it has no program
    idle_after_ns: int = 0  # 0 = never
    last_work_ns: int = 0
    resident_since_ns: int = 0
    stays_bytes: int = 0  # of held_bytes: what stays on the device when it leaves
    bytes_per_s: int = RATE_BYTES_PER_S  # of its moves
    failures: int = 0  # how often it did not answer, or was slow, since it was moved as it should

    @property
    def claim_bytes(self) -> int:
        """What it needs of the device to be there."""
        return max(self.mem_min_bytes, self.held_bytes)

    @property
    def freed_bytes(self) -> int:
        """What others have of its claim when it leaves."""
        return self.claim_bytes - self.stays_bytes

    @property
    def move_ns(self) -> int:
        """How long it takes out, or in."""
        return _move_ns(self.used_bytes, self.bytes_per_s)

    @property
    def on_device(self) -> bool:
        """Whether its claim counts: from the moment that it begins to come until it has left."""
        return self.residency != AWAY

    @property
    def taken_bytes(self) -> int:
        """Of the device, now."""
        return self.claim_bytes if self.on_device else self.stays_bytes

    @property
    def kept_bytes(self) -> int:
        """What is guaranteed to one that is away, beside what it has on the device."""
        return 0 if self.on_device or self.mem_swap else max(0, self.mem_min_bytes - self.stays_bytes)

    @property
    def is_resident(self) -> bool:
        return not self.residency

    def idle_ns(self, now_ns: int) -> int:
        """For how long it has been without work on the device."""
        return now_ns if self.is_empty else now_ns - max(self.last_work_ns, self.resident_since_ns)


@dataclass(frozen=True, slots=True)
class Move:
    """`name` leaves, or comes. waiter: for whom it leaves; is_asleep: for no other one, it was idle for long enough;
    is_turn: it was at work."""

    name: str
    to: str  # LEAVING or COMING
    waiter: str = ""
    is_asleep: bool = False
    is_turn: bool = False


def compute_quantum_ns(moves_ns: int) -> int:
    """How long a turn lasts whose moves take so long."""
    return min(QUANTUM_MAX_NS, max(QUANTUM_MIN_NS, QUANTUM_MOVES * moves_ns))


def _move_ns(moved_bytes: int, bytes_per_s: int) -> int:
    return moved_bytes * _SECOND_NS // bytes_per_s


class Load(NamedTuple):
    """Memory that is moved at once."""

    size_bytes: int
    bytes_per_s: int

    @property
    def move_ns(self) -> int:
        return _move_ns(self.size_bytes, self.bytes_per_s)


def _fill(loads: Iterable[Load], free_bytes: int) -> Iterator[Load]:
    """As many of them as fit, the last one in part."""
    for size_bytes, bytes_per_s in loads:
        part_bytes = max(0, min(size_bytes, free_bytes))
        yield Load(part_bytes, bytes_per_s)
        free_bytes -= part_bytes


def turn_weights(members: Iterable[Member]) -> dict[str, int]:
    """In what proportion slices are resident: that of their minima of SM time, where all are 0 of their weights."""
    known = list(members)
    by_minimum = any(member.min_milli for member in known)
    weights = {m.name: m.min_milli if by_minimum else m.weight or 1 for m in known}
    least = -(-max(weights.values(), default=1) // WEIGHTS_MAX)
    return {name: max(weight, least) for name, weight in weights.items()}


class Turns:
    """How long the slices of one device have been there, and when a slice at work left last."""

    def __init__(self) -> None:
        self.comes_next = ""  # for whom others are leaving
        self._turn_ns: int | None = None  # when the last turn began
        self._in_turn = False  # one at work has left, and the next one is not there yet
        self._spent: dict[str, int] = {}  # time on the device per weight
        self._active: set[str] = set()  # resident and at work, or waiting
        self._last_ns = 0

    def spent(self, name: str) -> int:
        """Time of a slice on the device, per weight."""
        return self._spent.get(name, 0)

    def begun_ns(self, waiter: str) -> int:
        """When the present turn began; 0: others are leaving for this one already, or there was none."""
        return 0 if self._in_turn and self.comes_next == waiter else self._turn_ns or 0

    def update(self, members: Sequence[Member], now_ns: int) -> None:
        """Counts the time since the last call, also that of moves: no other slice has the place meanwhile. Who begins
        to wait or to work has no claim to earlier turns."""
        weights = turn_weights(members)
        passed_ns = now_ns - self._last_ns if self._last_ns else 0
        self._last_ns = now_ns
        self._spent = {m.name: self._spent.get(m.name, 0) for m in members}
        for member in members:
            if member.on_device:
                self._spent[member.name] += passed_ns * _UNIT // weights[member.name]
        active = {m.name for m in members if _is_active(m, now_ns)}
        others = [self._spent[name] for name in active & self._active]
        if others:
            for name in active - self._active:
                self._spent[name] = max(self._spent[name], min(others))
        self._active = active
        if self.comes_next not in active:
            self.comes_next, self._in_turn = "", False

    def end_move(self, move: Move, now_ns: int) -> None:
        """A move is done, or the driver refused it."""
        if move.waiter:
            self._in_turn = move.is_turn or (self._in_turn and self.comes_next == move.waiter)
            self.comes_next = move.waiter
        if move.is_turn or (move.name == self.comes_next and self._in_turn):
            self._turn_ns = now_ns
        if move.name == self.comes_next:
            self.comes_next, self._in_turn = "", False


def _is_active(member: Member, now_ns: int) -> bool:
    if member.is_resident:
        return not member.is_empty and member.idle_ns(now_ns) < IDLE_MIN_NS
    return member.waits or member.residency in (LEAVING, COMING)


class _Device:
    """The slices of a device at one moment, and what the device has for them all."""

    def __init__(self, members: Sequence[Member], capacity_bytes: int, turns: Turns, now_ns: int) -> None:
        self.members, self.capacity_bytes, self.turns, self.now_ns = members, capacity_bytes, turns, now_ns
        # each member is looked at for each one that waits, 20 times a second
        self.resident_bytes = sum(member.taken_bytes for member in members)
        self._kept_bytes = sum(member.kept_bytes for member in members)
        self._stays_bytes = sum(member.stays_bytes for member in members)

    def free_for(self, comer: Member) -> int:
        """Bytes that no slice claims."""
        return self.capacity_bytes - self.kept_from(comer) - (self.resident_bytes - comer.taken_bytes)

    def kept_from(self, comer: Member) -> int:
        """Bytes that others which are away are guaranteed. What a sleeper without mem_swap has given back is lent, but
        its minimum is not given to those that come; only to one that takes no more than its own minimum."""
        if not comer.mem_swap and comer.claim_bytes == comer.mem_min_bytes:
            return 0
        return self._kept_bytes - comer.kept_bytes

    def may_fit(self, member: Member) -> bool:
        """Whether it fits when all others have left."""
        return member.claim_bytes <= self.capacity_bytes - (self._stays_bytes - member.stays_bytes)

    def order_leavers(self) -> tuple[list[Member], list[Member]]:
        """Those that may leave for others: the idle ones, longest first, and those at work, longest resident first."""
        able = [m for m in self.members if m.is_resident and m.mem_swap and m.is_movable]
        idle = [m for m in able if self._is_idle(m)]
        busy = [m for m in able if m not in idle]
        idle.sort(key=lambda m: (-m.idle_ns(self.now_ns), m.name))
        busy.sort(key=lambda m: (-self.turns.spent(m.name), m.name))
        return idle, busy

    def _is_idle(self, member: Member) -> bool:
        """Not before the time that moving it takes: one that works every few seconds would only be moved."""
        least_ns = max(IDLE_MIN_NS, 2 * member.move_ns)
        return member.idle_ns(self.now_ns) >= (0 if member.is_empty else least_ns)

    def choose_leavers(self, waiter: Member, waiters: Sequence[Member]) -> _Leavers:
        """Whose places are enough for this one, the first of those that wait, and when they are free for it."""
        need = waiter.claim_bytes - self.free_for(waiter)
        idle, busy = self.order_leavers()
        spent = self.turns.spent(waiter.name)
        behind = [m for m in busy if self.turns.spent(m.name) < spent]
        chosen: list[Member] = []
        for member in [*idle, *(m for m in busy if m not in behind), *behind]:
            if sum(m.freed_bytes for m in chosen) >= need:
                break
            chosen.append(member)
        if sum(m.freed_bytes for m in chosen) < need:
            return _Leavers((), None)
        for member in list(chosen):  # a large one may be enough without those before it
            if sum(m.freed_bytes for m in chosen) - member.freed_bytes >= need:
                chosen.remove(member)
        at_work = [m for m in chosen if m in busy]
        if not at_work:
            return _Leavers(tuple(chosen), self.now_ns)
        freed = sum(m.freed_bytes for m in chosen) + max(0, self.free_for(waiter))
        comers = _fill((Load(m.used_bytes, m.bytes_per_s) for m in waiters), max(waiter.used_bytes, freed))
        quantum_ns = compute_quantum_ns(sum(m.move_ns for m in chosen) + sum(load.move_ns for load in comers))
        begun_ns = max([*(m.resident_since_ns for m in at_work), self.turns.begun_ns(waiter.name)])
        weights = turn_weights(self.members)
        # a turn more for each that is not ahead of the waiter: until it has used its part
        debt_ns = [(spent - self.turns.spent(m.name)) * weights[m.name] // _UNIT for m in at_work if m in behind]
        return _Leavers(tuple(chosen), max(begun_ns + quantum_ns, self.now_ns + max(debt_ns, default=0)), at_work)


@dataclass(frozen=True, slots=True)
class _Leavers:
    members: tuple[Member, ...]
    ready_ns: int | None  # None: however long it waits, those that may leave are not enough
    at_work: Sequence[Member] = ()


def choose_move(members: Sequence[Member], capacity_bytes: int, turns: Turns, now_ns: int) -> Move | None:
    """The next move on a device, None: nothing moves now. capacity_bytes: what the device has for these slices
    together."""
    if any(member.residency in (LEAVING, COMING) for member in members):
        return None
    device = _Device(members, capacity_bytes, turns, now_ns)
    if device.resident_bytes > capacity_bytes:  # another slice was given a minimum, or a resident one a larger one
        idle, busy = device.order_leavers()
        first = next(iter([*idle, *busy]), None)
        return Move(first.name, LEAVING, is_turn=first in busy) if first else None
    away = [m for m in members if m.residency == AWAY]
    waiters = [m for m in away if m.waits and m.is_movable and device.may_fit(m)]
    waiters.sort(key=lambda m: (m.name != turns.comes_next, turns.spent(m.name), m.name))
    if waiters:
        return _serve(device, waiters) or _put_to_sleep(device)
    for member in away:
        if member.is_empty and member.claim_bytes <= device.free_for(member):
            return Move(member.name, COMING)
    return _put_to_sleep(device)


@dataclass(frozen=True, slots=True)
class Shortage:
    """What others have borrowed of a device while slices were away that wait for it now."""

    space_bytes: int = 0  # to be free beyond all claims of slices that are there, so that the one that needs most comes
    missing_bytes: dict[str, int] = field(default_factory=dict)  # by slice that waits: what others hold of that
    guaranteed_bytes: dict[str, int] = field(
        default_factory=dict
    )  # and what others are guaranteed of it: none is asked


def find_shortage(
    members: Sequence[Member], capacity_bytes: int, lent_bytes: int, pausing_names: Collection[str] = ()
) -> Shortage:
    """Of those that wait: memory that is not free, and would not be if all that leave for others had left for it. One
    without mem_swap has a claim to its memory: it does not wait for turns. lent_bytes: what slices beside
    the members hold beyond their minima. pausing_names: for whom none is asked now, as that did not help."""
    device = _Device(members, capacity_bytes, Turns(), 0)
    turns_bytes = sum(m.freed_bytes for m in members if m.is_resident and m.mem_swap and m.is_movable)
    kept_bytes = sum(m.mem_min_bytes for m in members if m.on_device and not m.mem_swap)
    borrowed_bytes = lent_bytes + sum(m.claim_bytes - m.mem_min_bytes for m in members if m.on_device)
    space_bytes, missing_bytes, guaranteed_bytes = 0, {}, {}
    for waiter in members:
        if waiter.residency != AWAY or not waiter.waits or not waiter.is_movable:
            continue
        guaranteed = waiter.claim_bytes + device.kept_from(waiter) + kept_bytes - capacity_bytes - lent_bytes
        if guaranteed > 0:
            guaranteed_bytes[waiter.name] = guaranteed
            continue
        in_turn_bytes = turns_bytes if waiter.mem_swap else 0
        missing = min(borrowed_bytes, waiter.claim_bytes - device.free_for(waiter) - in_turn_bytes)
        if missing > 0:
            missing_bytes[waiter.name] = missing
            if waiter.name not in pausing_names:
                space_bytes = max(space_bytes, waiter.freed_bytes + device.kept_from(waiter) - in_turn_bytes)
    return Shortage(space_bytes, missing_bytes, guaranteed_bytes)


def _serve(device: _Device, waiters: Sequence[Member]) -> Move | None:
    """The first one in order comes, or makes others leave. A later one comes only where the first is not delayed."""
    first = waiters[0]
    if first.claim_bytes <= device.free_for(first):
        return Move(first.name, COMING)
    leavers = device.choose_leavers(first, waiters)
    if leavers.ready_ns is not None and leavers.ready_ns <= device.now_ns:
        leaver = leavers.members[0]
        return Move(leaver.name, LEAVING, first.name, is_turn=leaver in leavers.at_work)
    for later in waiters[1:]:
        free = device.free_for(later)
        if later.claim_bytes > free:
            continue
        made = sum(m.freed_bytes for m in leavers.members)
        arrival_ns = device.now_ns + later.move_ns
        delays = first.claim_bytes > device.free_for(first) + made - later.claim_bytes
        if leavers.ready_ns is None or not (delays or arrival_ns > leavers.ready_ns):
            return Move(later.name, COMING)
    return None


def _put_to_sleep(device: _Device) -> Move | None:
    """The one that has been idle for longer than it may be, longest first; last those that may not answer."""
    sleepers = [
        m
        for m in device.members
        if m.is_resident
        and m.is_movable
        and not m.is_empty
        and m.idle_after_ns
        and m.idle_ns(device.now_ns) >= m.idle_after_ns
    ]
    last = max(sleepers, key=lambda m: (-m.failures, m.idle_ns(device.now_ns), m.name), default=None)
    return Move(last.name, LEAVING, is_asleep=True) if last else None


@dataclass(frozen=True, slots=True)
class Cost:
    """What rotation costs on a device."""

    claims_bytes: int  # of all its slices together
    capacity_bytes: int  # what the device has for them
    quantum_ns: int = 0  # how long the longest turn lasts; 0: all fit, and none leaves
    lost_ratio: float = 0.0  # of the time, in moves
    host_bytes: int = 0  # RAM that they need when the smallest one is resident
    bytes_per_s: int = 0  # of the moves of that turn together


@dataclass(frozen=True, slots=True)
class RotationStats:
    """The cost on a slice's device, and how often the slice was moved since the daemon started."""

    cost: Cost
    bytes_per_s: int  # of its last move off the device; before that what is assumed
    moves: int = 0
    moved_bytes: int = 0
    moved_by: str = ""  # BY_CHECKPOINT or BY_HOOK
    stays_bytes: int = 0  # on the device, while it is away
    waiting_calls: int = 0  # threads that wait for its memory


def estimate_cost(claims: Sequence[Load], capacity_bytes: int) -> Cost:
    """For slices with these claims. In the longest turn the one leaves that takes longest, and the slowest come."""
    claims_bytes = sum(claim.size_bytes for claim in claims)
    if claims_bytes <= max(0, capacity_bytes):  # others may hold more than the device leaves to these
        return Cost(claims_bytes, capacity_bytes)
    longest, *others = sorted(claims, key=lambda claim: (-claim.move_ns, claim))
    others.sort(key=lambda claim: claim.bytes_per_s)
    moved = [longest, *_fill(others, capacity_bytes)]
    moves_ns = max(1, sum(load.move_ns for load in moved))
    quantum_ns = compute_quantum_ns(moves_ns)
    return Cost(
        claims_bytes,
        capacity_bytes,
        quantum_ns,
        lost_ratio=moves_ns / (moves_ns + quantum_ns),
        host_bytes=claims_bytes - min(filter(None, (claim.size_bytes for claim in claims))),
        bytes_per_s=sum(load.size_bytes for load in moved) * _SECOND_NS // moves_ns,
    )
