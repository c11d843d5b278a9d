"""Records the history: takes samples on the loop, and saves and reads them in a thread, one after the other.

Nothing waits for it: a disk that hangs costs the history, and neither the loop nor a decision. Between two saves the
points are in memory; a daemon that is killed loses those.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from vgpud.api.backend import Course, TimeSpan
from vgpud.core import events as ev
from vgpud.core.history.fold import Folded
from vgpud.core.history.levels import LEVELS, SAMPLE_S, SAVE_S, choose, is_recordable
from vgpud.core.history.sampling import DeviceNow, QueueBounds, Sampler, subject_of
from vgpud.core.history.unsaved import Series, Unsaved
from vgpud.core.model import ANYONE
from vgpud.daemon.slices.counters import Counters
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.errors import StoreError
from vgpud.store.history import Found, HistoryFile

log = logging.getLogger("vgpud")

#: time for the last save when the daemon ends
LAST_SAVE_S = 5.0

T = TypeVar("T")


class HistoryRecorder:
    """`file` None: there is no history, by the configuration. `list_queues`: the queues' bounds now."""

    def __init__(
        self,
        file: HistoryFile | None,
        machine: SliceMachine,
        counters: Counters,
        list_queues: Callable[[], Sequence[QueueBounds]],
        note: Callable[[ev.Log], None],
        wall_s: Callable[[], float] = lambda: time.time_ns() / 1e9,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._file = file
        self._machine = machine
        self._counters = counters
        self._list_queues = list_queues
        self._note = note
        self._wall_s = wall_s
        self._monotonic_ns = monotonic_ns
        self._sampler = Sampler()
        self._unsaved = Unsaved()
        self._busy: dict[str, list[float]] = {}  # utilisation by device since the last sample
        self._slot = 0  # number of the last sample's step
        self._save_ns = monotonic_ns() + SAVE_S * 10**9
        self._saving: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()  # the file is for one thread at a time
        self._fault = ""

    @property
    def is_on(self) -> bool:
        return self._file is not None

    # ---- writing ----

    def tick(self) -> None:
        """Once a second: looks at the devices, takes a sample when a step of the clock has passed, and saves at times.

        Steps are those of the wall clock, so a clock that was set gives a sample at once, and none is lost.
        """
        if self._file is None:
            return
        for uuid in self._machine.state.devices:
            ratio = self._counters.reading(uuid).utilization_ratio
            if ratio is not None:
                self._busy.setdefault(uuid, []).append(ratio)
        now_s = self._wall_s()
        slot = int(now_s // SAMPLE_S)
        if slot != self._slot:
            before, self._slot = self._slot, slot
            if before and is_recordable(int(now_s) - SAMPLE_S):
                self._sample((slot - 1) * SAMPLE_S)  # counters are those of the step that has ended
        if self._monotonic_ns() >= self._save_ns:
            self._save_ns = self._monotonic_ns() + SAVE_S * 10**9
            if self._saving is None or self._saving.done():
                self._saving = asyncio.create_task(self._save())
            else:  # the disk hangs
                self._unsaved.take()

    def _sample(self, at_s: int) -> None:
        busy, self._busy = self._busy, {}
        state = self._machine.state
        devices = []
        for device in state.devices.values():
            ratios = busy.get(device.uuid)
            mean_ratio = sum(ratios) / len(ratios) if ratios else None
            used_bytes = self._counters.reading(device.uuid).used_bytes or 0
            devices.append(DeviceNow(device.uuid, device.index, mean_ratio, used_bytes, device.memory_bytes))
        slices = [(made, self._counters.of_slice(made)) for made in state.slices.values()]
        self._unsaved.add(at_s, self._sampler.take(self._monotonic_ns(), devices, slices, self._list_queues()))

    async def _save(self) -> None:
        file = self._file
        if file is None:
            return
        async with self._lock:
            taken = self._unsaved.take()
            try:
                await asyncio.to_thread(file.save, taken)
                self._fault = ""
            except StoreError as error:
                self._report(str(error))

    def _report(self, fault: str) -> None:
        """One line and one event for each cause."""
        if fault != self._fault:
            self._fault = fault
            self._note(ev.Log("history.failed", f"{fault}: some minutes of the history are lost, nothing else"))

    async def stop(self) -> None:
        """Saves what is left, if the disk answers in time."""
        if self._file is None:
            return
        try:
            await asyncio.wait_for(self._save(), LAST_SAVE_S)
            self._file.close()
        except asyncio.TimeoutError:
            log.error("the disk does not answer: the last minutes of the history are lost")

    # ---- reading (api.backend.History) ----

    async def read(self, kind: str, name: str, uid: int | None, span: TimeSpan) -> Course | None:
        """None: there is no history of it that this user may see. Raises StoreError where the file cannot be read and
        nothing is in memory."""
        file = self._file
        if file is None:
            return None
        kind, name = subject_of(kind, name)
        since_s, until_s = span.since_s, span.until_s
        index, step_s = choose(since_s, until_s, span.step_s, self._wall_s())
        folded = Folded(LEVELS[index].step_s, step_s, since_s, until_s)

        def read_file(key: str) -> tuple[Found | None, int]:
            before_ns = time.thread_time_ns()
            found = file.find(kind, key or name, uid)
            if found:
                file.read(found.series, index, since_s, until_s, folded)
            return found, time.thread_time_ns() - before_ns

        async with self._lock:
            live = self._find_unsaved(kind, name, uid)
            points = dict(live[1].points) if live else {}
            reading = asyncio.ensure_future(asyncio.to_thread(read_file, live[0] if live else ""))
            try:
                found, spent_ns = await asyncio.shield(reading)
            except asyncio.CancelledError:
                await asyncio.wait({reading})  # until then the file is that thread's
                raise
            except StoreError as error:
                self._report(str(error))
                if not live:
                    raise
                found, spent_ns = None, 0
        if not live and found:
            unsaved = self._unsaved.series.get((kind, found.key))
            points = dict(unsaved.points) if unsaved else {}
        if not live and not found:
            return None
        for (level, slot), point in points.items():
            if level == index:
                folded.add_point(slot, point)
        return Course(live[1].name if live else found.name if found else "", step_s, folded.points(), spent_ns)

    def _find_unsaved(self, kind: str, name: str, uid: int | None) -> tuple[str, Series] | None:
        """(key, series) of the last one with this name, or key, that the user may see."""
        for (its_kind, key), series in reversed(self._unsaved.series.items()):
            if its_kind == kind and name in (key, series.name) and (uid is None or series.owner_uid in (uid, ANYONE)):
                return key, series
        return None
