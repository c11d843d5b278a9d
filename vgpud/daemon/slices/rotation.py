"""Moves the memory of slices that rotate or sleep: rotation.py of the core decides, the driver's helper moves it.

Part of the composition root. A device is watched only while a slice of it rotates or may sleep. Each step is saved
before the driver is asked, so what a crash of the daemon cut short is completed or undone at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from vgpud.core import events as ev
from vgpud.core.model import AWAY, COMING, LEAVING, Denied, Process, Reason, Slice
from vgpud.core.slices.rotation import Member, Move, Shortage, Turns, choose_move, find_shortage
from vgpud.core.units import format_bytes
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.daemon.slices.rotation_view import Record, RotationView, Sight
from vgpud.devices import checkpoint_runner
from vgpud.devices.arbiters import Arbiters
from vgpud.devices.checkpoint_runner import Moved
from vgpud.devices.memory_mover import MemoryMover

log = logging.getLogger("vgpud.rotation")

#: (slice, its residency after it)
Step = tuple[str, str]

_SECOND_NS = 1_000_000_000
#: how often it looks for waiting threads, and for idleness
WAITING_S, IDLE_S = 0.05, 0.25
#: time limit of a move, beside four times as long as it should take
DEADLINE_S = 15.0
#: the highest rate that time limits go by: pages of the host are made and pinned, and a helper that is killed at its
#: limit leaves a process half way. And the lowest that is expected, however slow the moves before were
LIMIT_BYTES_PER_S = 2 << 30
#: what a move takes beside its copies, on a busy host; one that takes so many times as long as it should is a failure
MOVE_NS, SLOW_TIMES = 2 * _SECOND_NS, 4
#: of a refusal: the driver leaves the process half way
_BROKEN = "broken"
#: of a return: others have borrowed the memory; it is said when they have kept it for so long, and are not asked now
_LENT, LENT_NS = "lent", _SECOND_NS
#: of a return: it had borrowed memory itself, of which others have a minimum now
_GUARANTEED = "guaranteed"
#: of one that has left, and comes back some time later
_SLOW = "slow"
#: of a slice that has several programs: none of them is moved
_SEVERAL = "several"
#: for how long a slice stays as it is after the driver, or the host, has refused to move it
REFUSED_NS, BROKEN_NS = 60 * _SECOND_NS, 600 * _SECOND_NS
AGAIN_NS, HOST_FULL_NS = _SECOND_NS, 10 * _SECOND_NS
#: for so many times as long as a program was waited for that did not answer, nothing is asked that may be so again
HELD_PARTS = 4
#: how long threads in the driver may take to leave it, and how long others may take to give credit back
DRAIN_S, ROOM_S = 1.0, 10.0
#: after a failure of the daemon's own
AGAIN_S = 1.0
#: programs of slices that were away when the daemon started may take as long to attach again
RETURN_NS = 60 * _SECOND_NS


def _lengthen_pause(record: Record, least_ns: int) -> int:
    """Until a program is asked again that has not answered: others wait while it is asked."""
    record.failures += 1
    return _compute_pause_ns(record, least_ns)


def _compute_pause_ns(record: Record, least_ns: int) -> int:
    return min(BROKEN_NS, least_ns << min(record.failures, 20))


def _choose(sight: Sight, turns: Turns, now_ns: int) -> Move | None:
    return choose_move(sight.members, sight.capacity_bytes, turns, now_ns)


class RotationController:
    """One move at a time on each device. Hears of changes to slices as an observer of the effects."""

    def __init__(
        self,
        machine: SliceMachine,
        events: EventRecorder,
        arbiters: Arbiters,
        mover: MemoryMover,
        refuse_eviction: Callable[[Slice], Denied | None],
    ) -> None:
        """`refuse_eviction`: why the host has no RAM for a slice's memory."""
        self._machine = machine
        self._events = events
        self._arbiters = arbiters
        self._mover = mover
        self._refuse_eviction = refuse_eviction
        self.view = RotationView(machine, arbiters, mover)
        self._watches: dict[str, asyncio.Task[None]] = {}  # by device
        self._is_stopped = True

    # ---- beginning and end ----

    def start(self) -> None:
        """Watches the devices. Slices whose memory was on its way are settled first."""
        self._is_stopped = False
        now_ns = time.monotonic_ns()
        for slice_ in self._machine.state.slices.values():
            if slice_.residency:
                record = self.view.record(slice_)
                record.returns_until_ns = record.checks_until_ns = now_ns + RETURN_NS
        self._watch_all()

    async def stop(self) -> None:
        """Away programs stay away; what is cut short is settled by the next daemon."""
        self._is_stopped = True
        watches = list(self._watches.values())
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    def slice_changed(self, slice_: Slice) -> None:
        if slice_.rotates:
            self._watch_all()

    def slice_goes(self, slice_: Slice) -> None:
        self.view.forget(slice_)

    def capacity_changed(self) -> None:
        """Moves go by what slices claim, not by what others take."""

    def _watch_all(self) -> None:
        if self._is_stopped:
            return
        for uuid in self._machine.state.devices:
            if uuid not in self._watches and self.view.list_rotating(uuid):
                self._mover.keep_ready(uuid)
                watch = self._watches[uuid] = asyncio.create_task(self._watch(uuid))
                watch.add_done_callback(partial(self._end_watch, uuid))

    def _end_watch(self, uuid: str, watch: asyncio.Task[None]) -> None:
        del self._watches[uuid]
        self._mover.release(uuid)
        fault = None if watch.cancelled() else watch.exception()
        if fault:
            log.error("device %s: its slices are not moved any more: %r", uuid, fault)
        else:
            self._watch_all()  # a slice may have been made at the last moment

    # ---- moves ----

    async def _watch(self, uuid: str) -> None:
        """While a slice of this device rotates."""
        turns = Turns()
        while self.view.list_rotating(uuid):
            try:
                await self._settle(uuid)
                await self._restore_late_programs(uuid)
                await self._take_turn(uuid, turns)
            except Exception:  # programs that are away would wait for ever if this watch ended
                log.exception("device %s: a turn failed, the next one is tried", uuid)
                await asyncio.sleep(AGAIN_S)
        self._arbiters.make_room(uuid, 0)

    async def _take_turn(self, uuid: str, turns: Turns) -> None:
        now_ns = time.monotonic_ns()
        sight = self.view.look(uuid, now_ns)
        turns.update(sight.members, now_ns)
        move = None if self.view.is_lost(uuid) else _choose(sight, turns, now_ns)
        if move is None:
            self._ask_back(uuid, sight, now_ns)
            self._note_several(uuid, sight, turns, now_ns)
            await asyncio.sleep(WAITING_S if any(member.residency for member in sight.members) else IDLE_S)
        elif move.to == LEAVING:
            await self._make_leave(move, uuid, turns)
        elif await self._step_to_coming(uuid, (move.name, COMING)):
            await self._bring(move, uuid, turns)

    async def _step_to_coming(self, uuid: str, step: Step, next_step: Step | None = None) -> bool:
        is_taken = await self._step(step, next_step=next_step)
        self._arbiters.make_room(uuid, 0)  # the arbiter has ended it with the step, if that was taken
        return is_taken

    def _ask_back(self, uuid: str, sight: Sight, now_ns: int) -> None:
        """Asks those that have borrowed memory for which others wait now. It is not taken from them."""
        shortage = Shortage()
        if not self.view.is_lost(uuid):
            waiting = [member.name for member in sight.members if member.waits]
            pausing = {name for name in waiting if self.view.record_of(name).lacks_since_ns > now_ns}
            shortage = find_shortage(sight.members, sight.capacity_bytes, sight.lent_bytes, pausing)
        self._arbiters.make_room(uuid, shortage.space_bytes)
        stays_bytes = sum(member.stays_bytes for member in sight.members)
        for member in sight.members:
            if member.mem_swap and member.waits:
                self._note_left_memory(member, stays_bytes - member.stays_bytes, sight.capacity_bytes)
            record, missing_bytes = self.view.record_of(member.name), shortage.missing_bytes.get(member.name, 0)
            guaranteed_bytes = shortage.guaranteed_bytes.get(member.name, 0)
            short_bytes = missing_bytes or guaranteed_bytes
            record.lacks_since_ns = (record.lacks_since_ns or now_ns) if short_bytes else 0
            if not short_bytes or now_ns - record.lacks_since_ns < LENT_NS:
                continue
            slice_, short = self._machine.state.slices[member.name], format_bytes(short_bytes)
            if guaranteed_bytes:
                why = f"of its {format_bytes(member.claim_bytes)} other slices are guaranteed {short} by now, it waits"
                self._note_stay(slice_, _GUARANTEED, f"{why} until they end or have less")
            elif not self.view.is_asking(uuid):
                why = f"others use {short} of the memory beyond their minima and do not give it back"
                self._note_stay(slice_, _LENT, f"{why}, it waits until they do")
                if member.claim_bytes > member.mem_min_bytes:  # it had borrowed, too: others may, until it asks again
                    record.lacks_since_ns = now_ns + REFUSED_NS

    def _note_several(self, uuid: str, sight: Sight, turns: Turns, now_ns: int) -> None:
        """One that would leave now, if it did not have several programs."""
        state = self._machine.state
        counts = {m.name: len(state.processes_of(m.name)) for m in sight.members if m.is_resident}
        several = {name for name, count in counts.items() if count > 1}
        if not several or self.view.is_lost(uuid):
            return
        alone = [replace(m, is_movable=True) if m.name in several else m for m in sight.members]
        move = _choose(replace(sight, members=alone), turns, now_ns)
        if move is None or move.to != LEAVING or move.name not in several:
            return
        why = f"it has {counts[move.name]} programs, and the driver moves a slice with one: keep it to one program"
        self._note_stay(state.slices[move.name], _SEVERAL, why)

    def _note_left_memory(self, member: Member, left_bytes: int, capacity_bytes: int) -> None:
        """One that cannot come however long it waits: others keep a part of what it has."""
        if not left_bytes or member.held_bytes <= capacity_bytes - left_bytes:
            return
        why = f"of {format_bytes(left_bytes)} that does not leave the device with others it needs a part"
        self._note_stay(self._machine.state.slices[member.name], _LENT, f"{why}, and waits for them")

    async def _make_leave(self, move: Move, uuid: str, turns: Turns) -> None:
        slice_ = self._machine.state.slices[move.name]
        full = self._refuse_eviction(slice_) if self.view.program(move.name) else None
        if full:
            self._let_stay(slice_, "host", full.message, HOST_FULL_NS)
            return
        if not await self._step((move.name, LEAVING), falls_asleep=move.is_asleep):
            return
        begun_ns = time.monotonic_ns()
        is_out = await self._drain(slice_, uuid)
        moved = Moved(checkpoint_runner.RUNS, "a thread of its program does not leave the driver")
        if is_out or not move.is_asleep:  # a thread that waits in the driver wakes no sleeper
            moved = await self._move("evict", slice_, uuid)
        now_ns = time.monotonic_ns()
        sight = self._end_move(move, uuid, turns, now_ns)
        if moved.state != checkpoint_runner.AWAY:
            if moved.refusal and self.view.program(move.name):
                self._let_refused_stay(slice_, uuid, moved, now_ns - begun_ns)
            await self._step((move.name, ""))
            return
        record = self.view.record(slice_)
        if record.failures:
            why = "it was slow, or did not answer, when it was to move"
            self._let_stay(replace(slice_, residency=AWAY), _SLOW, why, _compute_pause_ns(record, AGAIN_NS))
        members = [replace(m, residency=AWAY) if m.name == slice_.name else m for m in sight.members]
        following = _choose(replace(sight, members=members), turns, now_ns)
        if following is None or following.to != COMING:
            await self._step((move.name, AWAY))
        elif await self._step_to_coming(
            uuid, (move.name, AWAY), (following.name, COMING)
        ):  # no third one has the memory
            await self._bring(following, uuid, turns)

    def _let_refused_stay(self, slice_: Slice, uuid: str, answer: Moved, passed_ns: int) -> None:
        """After it was asked to leave for so long."""
        if answer.state == checkpoint_runner.RUNS:
            self._let_stay(slice_, "driver", answer.refusal, REFUSED_NS)
        elif self._mover.moves_itself:  # a slow program finishes by itself
            self._let_stay(slice_, "driver", answer.refusal, _lengthen_pause(self.view.record(slice_), REFUSED_NS))
            self.view.hold_back(uuid, time.monotonic_ns() + max(REFUSED_NS, HELD_PARTS * passed_ns))
        else:
            self._let_stay(slice_, _BROKEN, answer.refusal, BROKEN_NS)

    async def _bring(self, move: Move, uuid: str, turns: Turns) -> None:
        """One that is saved as coming: it may have ended, or have been evicted, before that was saved."""
        slice_ = self._machine.state.slices.get(move.name)
        if slice_ is None or slice_.residency != COMING:
            return
        await self._wait_for_room(slice_, uuid)
        moved = await self._move("restore", slice_, uuid)
        now_ns = time.monotonic_ns()
        self._end_move(move, uuid, turns, now_ns)
        record = self.view.record(slice_)
        record.resident_since_ns = now_ns
        if moved.state == checkpoint_runner.RUNS:
            await self._step((move.name, ""))
            return
        if moved.state == checkpoint_runner.AWAY:
            self._let_stay(slice_, "driver", moved.refusal, AGAIN_NS)
        else:
            self._let_stay(slice_, _BROKEN, moved.refusal, _lengthen_pause(record, 5 * AGAIN_NS))
        await self._step((move.name, AWAY))

    def _end_move(self, move: Move, uuid: str, turns: Turns, now_ns: int) -> Sight:
        """While it counts as on its way: the time is its own."""
        sight = self.view.look(uuid, now_ns)
        turns.update(sight.members, now_ns)
        turns.end_move(move, now_ns)
        return sight

    async def _drain(self, slice_: Slice, uuid: str) -> bool:
        """Whether no thread of its programs is in the driver: those are not seen to wait."""
        until_ns = time.monotonic_ns() + int(DRAIN_S * _SECOND_NS)
        while self._arbiters.slice_stats(slice_.serial, uuid).processes_in_driver and self.view.program(slice_.name):
            if time.monotonic_ns() >= until_ns:
                return False
            await asyncio.sleep(0.005)
        return True

    async def _wait_for_room(self, slice_: Slice, uuid: str) -> None:
        """Until others have given back what they borrowed: the arbiter grants them no more of it."""
        until_ns = time.monotonic_ns() + int(ROOM_S * _SECOND_NS)
        state = self._machine.state
        while time.monotonic_ns() < until_ns:
            there = [s for s in state.slices.values() if s.share(uuid) and s.keeps_memory]
            if sum(self.view.on_device_bytes(one, uuid) for one in there) <= state.devices[uuid].memory_bytes:
                return
            await asyncio.sleep(0.02)

    def _let_stay(self, slice_: Slice, kind: str, why: str, for_ns: int) -> None:
        """It is not asked again for a while; a reason of each kind is said once, until it was moved."""
        record = self.view.record(slice_)
        record.stays_until_ns = time.monotonic_ns() + for_ns
        if kind == _BROKEN and kind not in record.refusals:
            record.refusals.add(kind)
            program = self.view.program(slice_.name)
            text = f"slice {slice_.name}: the memory of pid {program.pid if program else '?'} cannot be moved: end it"
            self._events.note(ev.Log("slice.broken", f"{text} ({why})", slice_.name))
            return
        self._note_stay(slice_, kind, why)

    def _note_stay(self, slice_: Slice, kind: str, why: str) -> None:
        """Once, until it was moved or has another program."""
        record = self.view.record(slice_)
        if kind in record.refusals:
            return
        record.refusals.add(kind)
        where = "on the host" if slice_.residency in (AWAY, COMING) else "on the device"
        self._events.note(ev.Log("slice.stays", f"slice {slice_.name} stays {where}: {why}", slice_.name))

    async def _move(self, action: str, slice_: Slice, uuid: str) -> Moved:
        """Asks the driver, and measures how fast it is."""
        programs, record = self._machine.state.processes_of(slice_.name), self.view.record(slice_)
        done = checkpoint_runner.AWAY if action == "evict" else checkpoint_runner.RUNS
        if not programs:  # nothing on the device, nothing to move
            return Moved(done)
        if action == "evict":
            programs = programs[:1]
        record.checked_ids |= {program.process_id for program in programs}
        before = self._arbiters.slice_stats(slice_.serial, uuid)
        size = self.view.moved_bytes(before)
        rate = self.view.rate(slice_, uuid, size)
        deadline_s = DEADLINE_S + 4 * size / min(rate, LIMIT_BYTES_PER_S)
        expected_ns = MOVE_NS + size * _SECOND_NS // self.view.limit_rate(max(rate, LIMIT_BYTES_PER_S), uuid)
        begun_ns = time.monotonic_ns()
        moved = Moved(checkpoint_runner.RUNS)
        for program in programs:  # others than the one that is away run: the driver says so at once
            one = await self._move_program(action, slice_, program, deadline_s)
            moved = one if one.state != checkpoint_runner.RUNS or one.refusal else moved
        if moved.state == done:
            self._arbiters.count_move(slice_.serial, uuid, size)
            passed_ns = time.monotonic_ns() - begun_ns
            if action == "evict":
                self.view.keep_rate(slice_, uuid, before, passed_ns)
            if passed_ns > SLOW_TIMES * expected_ns:
                record.failures += 1
            else:
                record.refusals.clear()
                record.failures = record.failures if action == "evict" else 0
        return moved

    async def _move_program(self, action: str, slice_: Slice, program: Process, deadline_s: float) -> Moved:
        try:
            moved = await self._mover.move(action, slice_, program, deadline_s)
        except OSError as error:
            state = checkpoint_runner.RUNS if action == "evict" else checkpoint_runner.AWAY
            moved = Moved(state, f"cannot start the helper: {error}")
        whole = moved.state in (checkpoint_runner.AWAY, checkpoint_runner.RUNS)
        if not whole and program.process_id not in self._machine.state.processes:
            return Moved(checkpoint_runner.RUNS)  # it has ended meanwhile, and its memory with it
        return moved

    async def _restore_late_programs(self, uuid: str) -> None:
        """Programs that attach again after their slice was brought back without them: one may still be away. And those
        that did not answer in time, and have moved their memory after all."""
        for slice_ in self.view.list_rotating(uuid):
            record, now_ns = self.view.record(slice_), time.monotonic_ns()
            if slice_.residency:
                continue
            if now_ns >= max(record.stays_until_ns, record.asked_back_until_ns) and self._mover.is_out(slice_):
                record.asked_back_until_ns = now_ns + int(DEADLINE_S * _SECOND_NS) + _lengthen_pause(record, AGAIN_NS)
                self._mover.ask_back(slice_)  # others may wait: whether it has come is looked at the next time
            if now_ns >= record.checks_until_ns:
                continue
            for program in self._machine.state.processes_of(slice_.name):
                if program.is_resumed and program.process_id not in record.checked_ids:
                    record.checked_ids.add(program.process_id)
                    with contextlib.suppress(OSError):  # the helper does not start: it is the next daemon's
                        await self._mover.unlock(program, DEADLINE_S)

    async def _settle(self, uuid: str) -> None:
        """After a crash, or a turn that failed: waits until programs attach again, then asks the driver how far it got
        with them."""
        moving = [slice_ for slice_ in self.view.list_rotating(uuid) if slice_.residency in (LEAVING, COMING)]
        for slice_ in moving:
            for _ in range(50):
                if self.view.program(slice_.name) or slice_.name not in self._machine.state.slices:
                    break
                await asyncio.sleep(0.1)
            moved = await self._move("settle", slice_, uuid)
            is_away = moved.state == checkpoint_runner.AWAY
            if not self.view.program(slice_.name):  # it may attach again later, and then be brought back
                is_away = time.monotonic_ns() < self.view.record(slice_).returns_until_ns
            elif moved.state != checkpoint_runner.RUNS:  # to bring it back is tried again
                is_away |= slice_.residency == COMING
            await self._step((slice_.name, AWAY if is_away else ""))

    async def _step(self, step: Step, *, falls_asleep: bool = False, next_step: Step | None = None) -> bool:
        """Whether it was taken. Retried until the store has it: the driver has already done what it is about, or waits
        for it."""
        while True:
            steps = (step, next_step) if next_step else (step,)
            answer = await self._machine.submit(ev.MoveMemory(steps, time.time_ns(), falls_asleep))
            if isinstance(answer, Denied) and answer.reason is Reason.UNAVAILABLE:
                await asyncio.sleep(1.0)
                continue
            if isinstance(answer, Denied) and next_step:
                next_step = None  # the one that was to come has ended, or is evicted
                continue
            return not isinstance(answer, Denied)
