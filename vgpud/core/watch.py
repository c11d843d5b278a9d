"""Who uses a device past us: the driver's list of processes against the programs that have attached (DESIGN D10).

Pure: readings come in, entries for the event log come out, each once. Nothing is stopped here.
"""

from __future__ import annotations

from collections.abc import Mapping

from vgpud.core.containers import container_of, id_in
from vgpud.core.events import Log
from vgpud.core.model import State
from vgpud.core.observed import Seen
from vgpud.core.slices import short
from vgpud.core.units import format_bytes

#: readings in a row (one every READ_S) that must show a stranger: a program that is just ending is none
PATIENCE = 2
#: the same for one that was there before us: after a restart of the daemon its programs need a moment to come back
RETURN_PATIENCE = 4
#: the same for a slice that uses too much: the driver's figures come late, and programs come and go
EXCESS_PATIENCE = 6
#: per process; the driver's figure also holds what an estimate of a context's cost may miss
SLACK_BYTES = 128 << 20

#: by device UUID: pid -> bytes that the driver says it uses
Running = Mapping[str, Mapping[int, int]]
#: by pid: who it is, for those that are listed and not attached
Strangers = Mapping[int, Seen]
_NOBODY = Seen("?", ())


class Watch:
    """Remembers who was reported already; look() is called with every reading of the driver."""

    def __init__(self) -> None:
        self._strangers: dict[tuple[str, int], int] = {}
        self._were_there: set[tuple[str, int]] | None = None  # since the first reading; None before it
        self._over: dict[tuple[str, str], int] = {}

    def look(self, state: State, running: Running, seen: Strangers) -> list[Log]:
        """Entries for strangers (no slice) and for slices that use more than their limit, when they are first sure."""
        return self._look_for_strangers(state, running, seen) + self._look_for_excess(state, running)

    def _look_for_strangers(self, state: State, running: Running, seen: Strangers) -> list[Log]:
        ours = {p.pid for p in state.processes.values()}
        found = {(uuid, pid) for uuid, users in running.items() for pid in users if pid not in ours}
        self._strangers = {key: self._strangers.get(key, 0) + 1 for key in found}
        were_there = self._were_there = found if self._were_there is None else self._were_there & found
        return [
            self._stranger(state, uuid, pid, running[uuid][pid], seen.get(pid, _NOBODY))
            for (uuid, pid), count in sorted(self._strangers.items())
            if count == (RETURN_PATIENCE if (uuid, pid) in were_there else PATIENCE)
        ]

    @staticmethod
    def _stranger(state: State, uuid: str, pid: int, used_bytes: int, who: Seen) -> Log:
        """Names the process and its container: a known one, or by the id in its cgroup's name."""
        inside = container_of(state, who.cgroups)
        container_id = inside.container_id if inside else id_in(who.cgroups)
        where = f" in container {short(container_id)}" if container_id else ""
        text = f"pid {pid} ({who.program}){where} uses {format_bytes(used_bytes)} and is attached to no slice"
        return Log("device.stranger", text, inside.slice_name if inside else "", uuid)

    def _look_for_excess(self, state: State, running: Running) -> list[Log]:
        used: dict[tuple[str, str], tuple[int, int]] = {}
        # a pid may have several lives here (one for each copy of the hook in it), and the driver counts it once
        for slice_name, pid in {(p.slice_name, p.pid) for p in state.processes.values() if not p.holder}:
            for uuid, users in running.items():
                if pid in users:
                    size, count = used.get((slice_name, uuid), (0, 0))
                    used[slice_name, uuid] = size + users[pid], count + 1
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
            if count == EXCESS_PATIENCE
        ]

    @staticmethod
    def _limit(state: State, key: tuple[str, str]) -> int:
        made = state.slices.get(key[0])
        share = made.share(key[1]) if made else None
        return share.mem_max_bytes if share else 0
