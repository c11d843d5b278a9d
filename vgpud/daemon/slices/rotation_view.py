"""What the memory of slices is moved by: who holds what, what others leave, what a move costs.

Part of the composition root. It reads; rotation.py moves.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from vgpud.core.model import AWAY, EVICTION, Process, Slice
from vgpud.core.observed import SliceStats
from vgpud.core.slices.rotation import RATE_BYTES_PER_S, Cost, Load, Member, RotationStats, estimate_cost
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.arbiters import Arbiters
from vgpud.devices.memory_mover import MemoryMover

_SECOND_NS = 1_000_000_000
#: a move of fewer bytes measures the helper's start, not the link; nor does one say anything of a size that is more
#: than so many times its own
MEASURED_BYTES, MEASURED_PARTS = 64 << 20, 4
#: no slower one is believed: turns would be the longest that there are
LEAST_BYTES_PER_S = 1 << 30
#: the cost of a device is computed again after this time
COST_NS = _SECOND_NS // 4


@dataclass(slots=True)
class Record:
    """What is known of a slice beyond its state."""

    resident_since_ns: int
    program: Process | None = None
    program_since_ns: int = 0
    returns_until_ns: int = 0  # it was away when the daemon started: its program may not have attached again yet
    checks_until_ns: int = 0  # the same: each program that attaches again is asked for, it may be the one that is away
    checked_ids: set[int] = field(default_factory=set)  # processes that were
    stays_until_ns: int = 0  # it is not asked to move again before
    asked_back_until_ns: int = 0  # it is there but its memory is not: it is asked for that again from then on
    refusals: set[str] = field(default_factory=set)  # by kind: said already
    lacks_since_ns: int = 0  # others have borrowed what it waits for; later than now: they are asked again then
    measure: Load | None = None  # its last move off the device of which the rate says something
    failures: int = 0  # since it came back in time: moves that were slow, or after which it was not known where it is


def _is_measure_of(load: Load, claim_bytes: int) -> bool:
    """Whether a rate is one of moves of so much: else it is that of what each move takes, however small."""
    return load.size_bytes * MEASURED_PARTS >= claim_bytes


def _claim_bytes(slice_: Slice, uuid: str, now: SliceStats) -> int:
    share = slice_.share(uuid)
    return max(share.mem_min_bytes if share else 0, now.mem_held_bytes)


@dataclass(frozen=True, slots=True)
class Sight:
    """The slices of a device whose memory may move, at one moment, and what all others leave to them."""

    members: Sequence[Member]
    capacity_bytes: int  # what others are guaranteed, or hold, is theirs
    lent_bytes: int  # of that they have borrowed


class RotationView:
    """What is known of the slices whose memory may move, and of their devices."""

    def __init__(self, machine: SliceMachine, arbiters: Arbiters, mover: MemoryMover) -> None:
        self._machine = machine
        self._arbiters = arbiters
        self._mover = mover
        self._records: dict[str, Record] = {}  # by the slice's uid
        self._costs: dict[str, tuple[int, Cost]] = {}  # until when they are valid, by device, as is:
        self._held_back_until_ns: dict[str, int] = {}  # see hold_back()

    def forget(self, slice_: Slice) -> None:
        """A slice that has gone."""
        self._records.pop(slice_.uid, None)

    def hold_back(self, uuid: str, until_ns: int) -> None:
        """A program on this device was asked to leave and has not answered, for which all others waited. Until then
        none that has not answered before is asked again, and none is put to sleep: for that one no other waits."""
        self._held_back_until_ns[uuid] = until_ns

    def keep_rate(self, slice_: Slice, uuid: str, stats: SliceStats, passed_ns: int) -> None:
        """Of a move off the device that succeeded. What comes back may have been there in part: it is not measured.
        stats: before it."""
        moved = Load(self.moved_bytes(stats), self.moved_bytes(stats) * _SECOND_NS // max(1, passed_ns))
        if moved.size_bytes >= MEASURED_BYTES and _is_measure_of(moved, _claim_bytes(slice_, uuid, stats)):
            self.record(slice_).measure = moved._replace(bytes_per_s=self.limit_rate(moved.bytes_per_s, uuid))

    def limit_rate(self, bytes_per_s: int, uuid: str) -> int:
        """What may be true on a device: how much was moved, a program's page says."""
        least = max(bytes_per_s, LEAST_BYTES_PER_S)
        return min(self._machine.state.devices[uuid].link_bytes_per_s or least, least)

    def _list_measures(self, uuid: str) -> list[Load]:
        return [moved for slice_ in self.list_rotating(uuid) if (moved := self.record(slice_).measure)]

    def _choose_rate(self, own: Load | None, measures: Sequence[Load], claim_bytes: int, uuid: str) -> int:
        """Its own; before it was measured, what the device's others had, the middle one. Of moves that say something of
        its size."""
        if own and _is_measure_of(own, claim_bytes):
            return own.bytes_per_s
        rates = [moved.bytes_per_s for moved in measures if _is_measure_of(moved, claim_bytes)]
        return statistics.median_low(rates) if rates else self.limit_rate(RATE_BYTES_PER_S, uuid)

    def rate(self, slice_: Slice | None, uuid: str, claim_bytes: int) -> int:
        """Bytes per second of the moves of a slice that claims so much. None: of one that is not there yet."""
        own = self.record(slice_).measure if slice_ else None
        return self._choose_rate(own, self._list_measures(uuid), claim_bytes, uuid)

    def list_rotating(self, uuid: str) -> list[Slice]:
        """The slices of a device whose memory may move."""
        state = self._machine.state
        return [
            slice_
            for slice_ in state.slices.values()
            if slice_.rotates
            and slice_.share(uuid)
            and slice_.name not in state.waiting
            and slice_.suspended not in EVICTION
        ]

    def record(self, slice_: Slice) -> Record:
        """What is known of it, from now on. Of one that has gone nothing is kept."""
        there = self._machine.state.slices.get(slice_.name)
        record = self._records.get(slice_.uid) or Record(time.monotonic_ns())
        if there and there.uid == slice_.uid:
            self._records[slice_.uid] = record
        return record

    def record_of(self, name: str) -> Record:
        return self.record(self._machine.state.slices[name])

    def program(self, name: str) -> Process | None:
        """The first of a slice's programs: one with several is not moved."""
        return next(iter(self._machine.state.processes_of(name)), None)

    def _member(
        self, slice_: Slice, uuid: str, running: Sequence[Process], now_ns: int, measures: Sequence[Load]
    ) -> Member:
        share = slice_.share(uuid)
        assert share
        record, now = self.record(slice_), self._arbiters.slice_stats(slice_.serial, uuid)
        program = running[0] if running else None
        if program != record.program:
            record.program, record.stays_until_ns = program, 0
            record.failures = min(record.failures, 1)  # those of the one before, though it may be the same again
            record.refusals.clear()
            if program:
                record.program_since_ns, record.returns_until_ns = now_ns, 0
        is_away = slice_.residency == AWAY
        is_held = now_ns < self._held_back_until_ns.get(uuid, 0)
        stays = now_ns < record.stays_until_ns or (is_held and record.failures and not is_away)
        asks = now.waiting_calls or now.processes_in_driver or not (slice_.spec.mem_swap or slice_.spec.idle_after_ns)
        return Member(
            name=slice_.name,
            mem_min_bytes=share.mem_min_bytes,
            held_bytes=now.mem_held_bytes,
            used_bytes=self.moved_bytes(now),
            stays_bytes=now.mem_used_bytes - self.moved_bytes(now) if running else 0,
            residency=slice_.residency,
            waits=bool(is_away and running and asks and not slice_.suspended),
            min_milli=share.min_milli,
            weight=slice_.spec.weight,
            mem_swap=slice_.spec.mem_swap,
            is_movable=not stays and (is_away or len(running) < 2),
            is_empty=not running and now_ns >= record.returns_until_ns,
            idle_after_ns=0 if is_held else slice_.spec.idle_after_ns or 0,
            last_work_ns=max(now.last_work_ns, record.program_since_ns),
            resident_since_ns=max(record.resident_since_ns, record.program_since_ns),
            failures=record.failures,
            bytes_per_s=self._choose_rate(record.measure, measures, _claim_bytes(slice_, uuid, now), uuid),
        )

    def moved_bytes(self, now: SliceStats) -> int:
        """What leaves the device. Of programs that say it themselves, no more than they use."""
        return min(now.movable_bytes, now.mem_used_bytes) if self._mover.moves_itself else now.mem_used_bytes

    def look(self, uuid: str, now_ns: int) -> Sight:
        """What the turns are decided by. No minimum is more than what the others leave to it, where they leave all that
        they can."""
        running: dict[str, list[Process]] = {}
        for process in self._machine.state.processes.values():
            if not process.holder:
                running.setdefault(process.slice_name, []).append(process)
        slices, measures = self.list_rotating(uuid), self._list_measures(uuid)
        members = [self._member(one, uuid, running.get(one.name, []), now_ns, measures) for one in slices]
        capacity, lent = self._read_others(uuid, {member.name for member in members})
        stays = sum(member.stays_bytes for member in members)
        if stays:
            members = [
                replace(m, mem_min_bytes=max(0, min(m.mem_min_bytes, capacity - stays + m.stays_bytes)))
                for m in members
            ]
        return Sight(members, capacity, lent)

    def _read_others(self, uuid: str, members: Collection[str]) -> tuple[int, int]:
        """As the last two of Sight."""
        state = self._machine.state
        left, lent = state.devices[uuid].memory_bytes, 0
        for slice_ in state.slices.values():
            kept = slice_.find_reserved_share(uuid)
            if (
                slice_.name in members
                or slice_.name in state.waiting
                or not slice_.keeps_memory
                or not slice_.share(uuid)
            ):
                continue
            held = self._arbiters.slice_stats(slice_.serial, uuid).mem_held_bytes
            kept_bytes = kept.mem_min_bytes if kept else 0
            left -= max(kept_bytes, held)
            lent += max(0, held - kept_bytes)
        return left, lent

    def cost_with(self, uuid: str, more_bytes: Sequence[int] = ()) -> Cost:
        """What the turns on a device cost, with further slices that claim so much."""
        sight = self.look(uuid, time.monotonic_ns())
        claims = [Load(member.claim_bytes, member.bytes_per_s) for member in sight.members if member.mem_swap]
        claims += (Load(size, self.rate(None, uuid, size)) for size in more_bytes)
        return estimate_cost(claims, sight.capacity_bytes)

    def stats(self, slice_: Slice) -> RotationStats | None:
        """What its turns cost; None: its memory is never moved."""
        if not slice_.rotates or not slice_.shares:
            return None
        uuid = slice_.shares[0].device_uuid
        now_ns = time.monotonic_ns()
        until_ns, cost = self._costs.get(uuid, (0, Cost(0, 0)))
        if now_ns >= until_ns:  # a list shows many slices of one device
            cost = self.cost_with(uuid)
            self._costs[uuid] = now_ns + COST_NS, cost
        now = self._arbiters.slice_stats(slice_.serial, uuid)
        stays = now.mem_used_bytes - self.moved_bytes(now)
        waiting = now.waiting_calls if slice_.residency else 0
        rate = self.rate(slice_, uuid, _claim_bytes(slice_, uuid, now))
        return RotationStats(cost, rate, now.moves, now.moved_bytes, self._mover.way, stays, waiting)

    def is_lost(self, uuid: str) -> bool:
        """Whether the device has gone: memory on the host stays there until it is back."""
        taken = self._machine.state.taken_devices.get(uuid)
        return bool(taken and taken.is_lost)

    def is_asking(self, uuid: str) -> bool:
        """Whether a slice on the device still has time to give memory back."""
        return any(of == uuid and now.remaining_bytes for (_, of), now in self._arbiters.reclaims().items())

    def on_device_bytes(self, slice_: Slice, uuid: str) -> int:
        """What a slice has of a device now: of one that is away, what does not leave it."""
        now = self._arbiters.slice_stats(slice_.serial, uuid)
        return now.mem_used_bytes - self.moved_bytes(now) if slice_.residency == AWAY else now.mem_held_bytes
