"""Acts on programs that use a device outside their slices, in threads of its own: each asks the driver once more."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from vgpud.core import events as ev
from vgpud.core.devices.enforce import EXCESS, Act
from vgpud.daemon.device_reader import call_on
from vgpud.daemon.process_pids import AttachedProcesses
from vgpud.daemon.slices.events import EventRecorder
from vgpud.devices import enforcement
from vgpud.devices.driver_faults import suspend_before_kill
from vgpud.devices.nvml import Devices
from vgpud.host import processes

#: threads that act on programs
ACTORS = 4


class Enforcer:
    """What is being done to programs now."""

    def __init__(self, devices: Devices, attached_processes: AttachedProcesses, events: EventRecorder) -> None:
        self._devices = devices
        self._attached = attached_processes
        self._events = events
        self._acting: set[tuple[str, int]] = set()  # (device, pid) that is being acted on: one action at a time
        self._actors = ThreadPoolExecutor(ACTORS, "enforce")  # of our own, as a driver may hang
        self._loop = asyncio.get_running_loop()

    def begin(self, act: Act) -> None:
        """Not while the same is being done: with a slow driver, what each reading asks for would pile up."""
        key = act.device_uuid, act.pid
        if key not in self._acting:
            self._acting.add(key)
            done = self._loop.run_in_executor(self._actors, self._carry_out, act)
            done.add_done_callback(lambda _: self._acting.discard(key))

    def close(self) -> None:
        """Nothing more is begun; a thread in which the driver hangs is left."""
        self._actors.shutdown(wait=False, cancel_futures=True)

    def _carry_out(self, act: Act) -> None:
        known = self._devices
        said = enforcement.carry_out(
            act,
            lambda: self._is_still(act),
            self._attached.by_pid(),
            lambda pid: suspend_before_kill(known.version, pid, known.driver, known.sim_dir),
        )
        if said and act.first:
            kind = f"{act.cause}.{act.verb}"
            entry = ev.Log(kind, said, act.slice_name, act.device_uuid)
            call_on(self._loop, self._events.note_bounded, kind, entry)

    def _is_still(self, act: Act) -> bool:
        """Whether the driver lists it and it is attached, or is not, as when that was decided: it may have attached
        since, or another program have its pid."""
        if act.pid not in (self._devices.running(act.device_uuid) or ()):
            return False
        lives = self._attached.by_pid().get(act.pid, ())
        if act.cause == EXCESS:
            return any(life.slice_name == act.slice_name for life in lives)
        return not lives and processes.start_time(act.pid) == act.start_ticks
