"""Pauses, evicts and resumes slices: the core decides each step, the driver's helper moves the memory.

Part of the composition root. A slice is never left half way: what the driver refuses is undone, a driver that no
longer answers is reported, and a step that a crash of the daemon cut short is completed or undone at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from vgpud.core import events as ev
from vgpud.core.model import COMING, EVICTED, EVICTING, LEAVING, PAUSED, RESTORING, Denied, Process, Reason, Slice
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices import checkpoint_runner
from vgpud.devices.checkpoint_runner import AWAY, RUNS, Moved
from vgpud.devices.memory_mover import MemoryMover

log = logging.getLogger("vgpud.suspend")

#: what moving a process may take: a device's whole memory over a slow link, and some
DEADLINE_S = 120.0
#: how often writing is tried again
AGAIN_S = 1.0


class SuspendController:
    """One operation at a time for each slice: the core refuses a second one while the driver works on the first."""

    def __init__(
        self,
        machine: SliceMachine,
        events: EventRecorder,
        mover: MemoryMover,
        refuse_eviction: Callable[[Slice], Denied | None],
    ) -> None:
        """`refuse_eviction`: why the host has no RAM for a slice's memory."""
        self._machine = machine
        self._events = events
        self._mover = mover
        self._refuse_eviction = refuse_eviction
        self._moving: dict[str, asyncio.Task[Slice | Denied]] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}

    async def suspend(self, name: str, evict: bool, job_id: int = 0, deadline_s: float = DEADLINE_S) -> Slice | Denied:
        """Paused or evicted, or refused and unchanged."""
        return await self._run_exclusively(name, job_id, lambda: self._suspend(name, evict, job_id, deadline_s))

    async def resume(self, name: str, job_id: int = 0, deadline_s: float = DEADLINE_S) -> Slice | Denied:
        """Resumed where it was, or refused and unchanged."""
        return await self._run_exclusively(name, job_id, lambda: self._resume(name, job_id, deadline_s))

    async def _run_exclusively(
        self, name: str, job_id: int, work: Callable[[], Coroutine[Any, Any, Slice | Denied]]
    ) -> Slice | Denied:
        """Runs to its end even if the caller goes away: the driver is moving memory."""
        if settling := self._settling.get(name):
            await asyncio.wait({settling})
        while moving := self._moving.get(name):
            if not job_id:
                text = f"slice {name} is being suspended or resumed by another request: wait for its end"
                return Denied(Reason.PRECONDITION, text)
            await asyncio.wait({moving})  # the queue's own requests wait their turn; only users' are refused
        task = self._moving[name] = asyncio.create_task(work())
        task.add_done_callback(lambda _: self._moving.pop(name))
        return await asyncio.shield(task)

    async def _suspend(self, name: str, evict: bool, job_id: int, deadline_s: float) -> Slice | Denied:
        if evict:
            await self._wait_for_rotation(name, deadline_s)
        before = self._machine.state.slices.get(name)
        if evict and before is not None and before.suspended in ("", PAUSED):
            refusal = self._refuse_eviction(before)
            if refusal:
                return refusal
        answer = await self._step(name, EVICTING if evict else PAUSED, job_id)
        if isinstance(answer, Denied) or not evict or answer.suspended == EVICTED:
            return answer
        moved = await self._move("evict", name, deadline_s)
        if moved.state == AWAY:
            return await self._save_outcome(name, EVICTED, job_id)
        return await self._undone(name, before.suspended if before else "", job_id, moved)

    async def _resume(self, name: str, job_id: int, deadline_s: float) -> Slice | Denied:
        found = self._machine.state.slices.get(name)
        if found is None or found.suspended != EVICTED:
            return await self._step(name, "", job_id)
        answer = await self._step(name, RESTORING, job_id)
        if isinstance(answer, Denied) or not answer.suspended:
            return answer  # one with mem_swap comes back in its turn
        moved = await self._move("restore", name, deadline_s)
        if moved.state == RUNS:
            return await self._save_outcome(name, "", job_id)
        return await self._undone(name, EVICTED, job_id, moved)

    async def _wait_for_rotation(self, name: str, deadline_s: float) -> None:
        """Until its memory is where rotation moves it."""
        until_s = asyncio.get_running_loop().time() + deadline_s
        while asyncio.get_running_loop().time() < until_s:
            found = self._machine.state.slices.get(name)
            if found is None or found.residency not in (LEAVING, COMING):
                return
            await asyncio.sleep(0.05)

    def settle(self) -> None:
        """At start: waits until programs attach again, then asks the driver how far it got with them."""
        for made in list(self._machine.state.slices.values()):
            if made.suspended in (EVICTING, RESTORING):
                task = asyncio.create_task(self._settle(made))
                self._settling[made.name] = task
                task.add_done_callback(partial(self._forget_settling, made.name))

    def _forget_settling(self, name: str, _: asyncio.Task[None]) -> None:
        del self._settling[name]

    async def stop(self) -> None:
        """What is cut short is repaired by the next daemon."""
        tasks: list[asyncio.Task[Any]] = [*self._settling.values(), *self._moving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle(self, slice_: Slice) -> None:
        name = slice_.name
        # a locked program attaches again all the same: its hook's own thread calls no driver for that
        for _ in range(50):
            if self._program(name) or name not in self._machine.state.slices:
                break
            await asyncio.sleep(0.1)
        moved = await self._move("settle", name, DEADLINE_S)
        # to bring it back is asked for again: the driver may have it locked yet
        is_away = moved.state == AWAY or (moved.state != RUNS and slice_.suspended == RESTORING)
        job_id = slice_.origin.queue_job_id
        await self._save_outcome(name, EVICTED if is_away else "", job_id, "vgpud was restarted")

    async def _undone(self, name: str, old_state: str, job_id: int, move_result: Moved) -> Denied:
        """The driver refused or failed; the slice becomes what the process is, or `old_state` where that is unknown."""
        wholly = move_result.state in (AWAY, RUNS)
        now = EVICTED if move_result.state == AWAY else "" if wholly and old_state == EVICTED else old_state
        came = await self._save_outcome(name, now, job_id)
        words = "still evicted" if now == EVICTED else "as before"
        if isinstance(came, Slice) and came.suspended != now:
            words = "paused, as others have its time now"
        text = f"slice {name} is {words}: {move_result.refusal}"
        if not wholly:
            program = self._program(name)
            text = f"slice {name}: pid {program.pid if program else '?'} is {move_result.state} and does not come back:"
            text += f" end it ({move_result.refusal})"
            self._events.note(ev.Log("slice.broken", text, name))
        return Denied(Reason.PRECONDITION, text)

    async def _save_outcome(self, name: str, to: str, job_id: int, why: str = "") -> Slice | Denied:
        """Retried until the store has it: the driver has already done it. A slice whose time was given to others
        meanwhile is paused instead of resumed."""
        while True:
            answer = await self._step(name, to, job_id, why)
            if isinstance(answer, Denied) and answer.reason is Reason.UNAVAILABLE:
                await asyncio.sleep(AGAIN_S)
            elif isinstance(answer, Denied) and answer.reason is Reason.NO_CAPACITY and to == "":
                to = PAUSED
            else:
                return answer

    async def _step(self, name: str, to: str, job_id: int, why: str = "") -> Slice | Denied:
        answer = await self._machine.submit(ev.SuspendSlice(name, to, why, job_id, time.time_ns()))
        assert answer is not None
        return answer

    def _program(self, name: str) -> Process | None:
        return next(iter(self._machine.state.processes_of(name)), None)

    async def _move(self, action: str, name: str, deadline_s: float) -> Moved:
        program = self._program(name)
        if program is None:  # nothing on the device, nothing to move
            return Moved(AWAY if action == "evict" else RUNS)
        slice_ = self._machine.state.slices[name]
        try:
            moved = await self._mover.move_suspended(action, slice_, program, deadline_s)
        except OSError as error:
            moved = Moved(checkpoint_runner.UNKNOWN if action != "evict" else RUNS, f"cannot start the helper: {error}")
        if self._program(name) != program and moved.state not in (AWAY, RUNS):
            return Moved(RUNS, "its program has ended meanwhile")
        return moved
