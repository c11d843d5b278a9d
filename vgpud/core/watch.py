"""Who uses a device past us: the driver's list of processes against the programs that have attached (DESIGN D10).

Pure: readings come in, entries for the event log come out, each once. Nothing is stopped here.
"""

from __future__ import annotations

from collections.abc import Mapping

from vgpud.core.events import Log
from vgpud.core.model import State
from vgpud.core.units import format_bytes

#: readings in a row that must show a stranger: programs that are just starting or ending are none
PATIENCE = 3
#: per process; the driver's figure also holds what an estimate of a context's cost may miss
SLACK_BYTES = 128 << 20

#: by device UUID: pid -> bytes that the driver says it uses
Running = Mapping[str, Mapping[int, int]]


class Watch:
    """Remembers who was reported already; look() is called with every reading of the driver."""

    def __init__(self) -> None:
        self._strangers: dict[tuple[str, int], int] = {}
        self._over: dict[tuple[str, str], int] = {}

    def look(self, state: State, running: Running) -> list[Log]:
        """Entries for strangers (no slice) and for slices that use more than their limit, when they are first sure."""
        return self._look_for_strangers(state, running) + self._look_for_excess(state, running)

    def _look_for_strangers(self, state: State, running: Running) -> list[Log]:
        ours = {p.pid for p in state.processes.values()}
        found = {(uuid, pid) for uuid, users in running.items() for pid in users if pid not in ours}
        self._strangers = {key: self._strangers.get(key, 0) + 1 for key in found}
        return [
            Log("device.stranger", f"pid {pid} uses {format_bytes(running[uuid][pid])} without a slice", "", uuid)
            for (uuid, pid), count in sorted(self._strangers.items())
            if count == PATIENCE
        ]

    def _look_for_excess(self, state: State, running: Running) -> list[Log]:
        used: dict[tuple[str, str], tuple[int, int]] = {}
        for process in state.processes.values():
            for uuid, users in running.items():
                if process.pid in users and not process.holder:
                    size, count = used.get((process.slice_name, uuid), (0, 0))
                    used[process.slice_name, uuid] = size + users[process.pid], count + 1
        over = {
            key: size for key, (size, count) in used.items() if size > self._limit(state, key) + count * SLACK_BYTES
        }
        self._over = {key: self._over.get(key, 0) + 1 for key in over}
        return [
            Log(
                "memory.past_ledger",
                f"slice {name} uses {format_bytes(over[name, uuid])} by the driver's account",
                name,
                uuid,
            )
            for (name, uuid), count in sorted(self._over.items())
            if count == PATIENCE
        ]

    @staticmethod
    def _limit(state: State, key: tuple[str, str]) -> int:
        made = state.slices.get(key[0])
        share = made.share(key[1]) if made else None
        return share.mem_max_bytes if share else 0
