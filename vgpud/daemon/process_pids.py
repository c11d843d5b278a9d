"""Which processes are attached, by the pid that the driver lists."""

from __future__ import annotations

import time

from vgpud.attach.server import Tenants
from vgpud.core.devices.strangers import attached_by_pid
from vgpud.core.model import Process
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.host import processes

#: a program that closed its connection attaches again by itself in about a second; one that has not after this time is
#: treated as a program without a slice
RETURN_S = 30.0


class AttachedProcesses:
    """May be asked from any thread."""

    def __init__(self, machine: SliceMachine, tenants: Tenants) -> None:
        self._machine = machine
        self._tenants = tenants
        #: argument and result of by_pid(): lists made each time keep the garbage collector busy
        self._last: tuple[tuple[list[Process], set[int]], dict[int, list[Process]]] = ([], set()), {}

    def by_pid(self) -> dict[int, list[Process]]:
        """One that has ended is kept while a child holds its socket, as the driver may then still list it. One that
        closed its connection is a stranger unless it soon attaches again."""
        by_id = self._machine.state.processes
        known = list(by_id.values())
        dead = [process for process_id in self._tenants.dead() if (process := by_id.get(process_id))]
        lost = {process.process_id for process in dead if processes.runs(process.pid)}
        since_ns = time.monotonic_ns() - int(RETURN_S * 1e9)
        lost |= {p.process_id for p in known if 0 < p.disconnected_ns < since_ns}
        made_of, made = self._last
        if made_of != (known, lost):
            made = attached_by_pid(known, lost)
            self._last = (known, lost), made
        return made
