"""Who uses a device past us: the driver's account against the ledger and the programs that have attached (DESIGN D10).

Pure: readings come in; entries for the event log come out, each once, with what slices are to be charged for beyond
their ledgers and what is to be done about whom.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from vgpud.core.containers import container_of, id_in
from vgpud.core.enforce import EXCESS, LOG, STRANGER, Act
from vgpud.core.events import Log
from vgpud.core.model import State
from vgpud.core.observed import Seen
from vgpud.core.slices import short
from vgpud.core.units import format_bytes

#: readings in a row (one every READ_S) that must show a stranger: a program that is just ending is none
PATIENCE = 2
#: the same for one that was there before us: after a restart of the daemon its programs need a moment to come back
RETURN_PATIENCE = 4
#: the same before anything is done to it
RETURN_MERCY = 60
#: the same for memory beyond the ledger: the two accounts are not read at one moment, and the least of all counts
EXCESS_PATIENCE = 4
#: per process; the driver's figure also holds what an estimate of a context's cost may miss
SLACK_BYTES = 128 << 20

#: by device UUID: pid -> bytes, as the driver says or as the ledger has it
Running = Mapping[str, Mapping[int, int]]
#: by pid: who it is, for those that are listed and not attached
Strangers = Mapping[int, Seen]
_NOBODY = Seen("?", ())


@dataclass(slots=True)
class Findings:
    """What a reading showed."""

    log: list[Log] = field(default_factory=list)
    #: bytes beyond the ledger by (slice, device), all of them: who is not named has none
    charges: dict[tuple[str, str], int] = field(default_factory=dict)
    #: the same by (device, pid), for attached programs
    beyond: dict[tuple[str, int], int] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)


class Watch:
    """Remembers what was reported already; look() is called with every reading of the driver."""

    def __init__(self) -> None:
        self._strangers: dict[tuple[str, int], int] = {}
        self._were_there: dict[str, set[int]] = {}  # by device: since its first reading
        self._beyond: dict[tuple[str, int], deque[int]] = {}
        self._charged: dict[tuple[str, str], int] = {}
        self._past: set[tuple[str, str]] = set()
        self._acted: set[tuple[str, int]] = set()

    def look(self, state: State, running: Running, ledger: Running, seen: Strangers) -> Findings:
        """`running`: without the devices that could not be read now. `ledger`: what each attached pid has been charged
        with, all its lives together."""
        found = Findings()
        self._look_for_strangers(state, running, seen, found)
        self._compare(state, running, ledger, found)
        self._look_for_excess(state, running, ledger, found)
        self._acted = {(act.device_uuid, act.pid) for act in found.acts}
        return found

    # ---- programs that are not attached ----

    def _look_for_strangers(self, state: State, running: Running, seen: Strangers, found: Findings) -> None:
        ours = {p.pid for p in state.processes.values() if not p.holder}  # to hold a slice is not to be in its ledger
        listed = {(uuid, pid) for uuid, users in running.items() for pid in users if pid not in ours}
        unread = {key: count for key, count in self._strangers.items() if key[0] not in running}
        self._strangers = {key: self._strangers.get(key, 0) + 1 for key in listed}
        for uuid, users in running.items():
            self._were_there[uuid] = self._were_there.get(uuid, set(users)) & {pid for pid in users if pid not in ours}
        for (uuid, pid), count in sorted(self._strangers.items()):
            returning = pid in self._were_there[uuid]
            patience = RETURN_PATIENCE if returning else PATIENCE
            if count < patience:
                continue
            used_bytes, who = running[uuid][pid], seen.get(pid, _NOBODY)
            entry = self._stranger(state, uuid, pid, used_bytes, who)
            if count == patience:
                found.log.append(entry)
            self._charge(found, entry.slice_name, uuid, used_bytes)
            if count >= (RETURN_MERCY if returning else patience):
                self._act(found, state.policy.on_stranger, STRANGER, pid, entry.slice_name, uuid)
        self._strangers |= unread

    @staticmethod
    def _stranger(state: State, uuid: str, pid: int, used_bytes: int, who: Seen) -> Log:
        """Names the process and its container: a known one, or by the id in its cgroup's name."""
        inside = container_of(state, who.cgroups)
        container_id = inside.container_id if inside else id_in(who.cgroups)
        where = f" in container {short(container_id)}" if container_id else ""
        text = f"pid {pid} ({who.program}){where} uses {format_bytes(used_bytes)} and is attached to no slice"
        return Log("device.stranger", text, inside.slice_name if inside else "", uuid)

    # ---- programs that are ----

    @staticmethod
    def _users(state: State, running: Running) -> Iterator[tuple[str, str, int]]:
        """(slice, device, pid) of the attached programs that the driver lists, each once: a pid may have several lives
        here (one for each copy of the hook in it), and the driver counts it once."""
        for slice_name, pid in sorted({(p.slice_name, p.pid) for p in state.processes.values() if not p.holder}):
            yield from ((slice_name, uuid, pid) for uuid, users in running.items() if pid in users)

    def _compare(self, state: State, running: Running, ledger: Running, found: Findings) -> None:
        """What the driver counts beyond the ledger is charged to the slice, all of it once it is beyond the slack."""
        before, self._beyond = self._beyond, {}
        for slice_name, uuid, pid in self._users(state, running):
            recent = before.get((uuid, pid)) or deque(maxlen=EXCESS_PATIENCE)
            recent.append(running[uuid][pid] - ledger.get(uuid, {}).get(pid, 0))
            self._beyond[uuid, pid] = recent
            if len(recent) == EXCESS_PATIENCE and min(recent) > SLACK_BYTES:
                found.beyond[uuid, pid] = min(recent)
                self._charge(found, slice_name, uuid, min(recent))
        for (name, uuid), size in sorted(found.charges.items()):
            if (name, uuid) not in self._charged:
                text = f"slice {name} uses {format_bytes(size)} past its ledger by the driver's account: charged to it"
                found.log.append(Log("memory.unattributed", text, name, uuid))
        self._charged = found.charges

    @staticmethod
    def _charge(found: Findings, slice_name: str, uuid: str, size: int) -> None:
        if slice_name and size:
            found.charges[slice_name, uuid] = found.charges.get((slice_name, uuid), 0) + size

    def _look_for_excess(self, state: State, running: Running, ledger: Running, found: Findings) -> None:
        """Slices that are above their limit by what is not in their ledgers. Who does it is dealt with.

        A limit that was lowered below what the ledger has makes no little more an offence: nothing is taken by force.
        """
        in_ledger: dict[tuple[str, str], int] = {}
        used = dict(found.charges)
        users = list(self._users(state, running))
        for name, uuid, pid in users:
            key = name, uuid
            used[key] = used.get(key, 0) + running[uuid][pid] - found.beyond.get((uuid, pid), 0)
            in_ledger[key] = in_ledger.get(key, 0) + ledger.get(uuid, {}).get(pid, 0)
        past = {
            key
            for key, size in found.charges.items()
            if used[key] > (limit := self._limit(state, key)) and (in_ledger.get(key, 0) <= limit or size > limit)
        }
        for name, uuid in sorted(past - self._past):
            text = f"slice {name} uses {format_bytes(used[name, uuid])} by the driver's account"
            found.log.append(Log("memory.past_ledger", text, name, uuid))
        self._past = past
        for name, uuid, pid in users:
            if (name, uuid) in past and (uuid, pid) in found.beyond:
                self._act(found, state.policy.on_excess, EXCESS, pid, name, uuid)

    @staticmethod
    def _limit(state: State, key: tuple[str, str]) -> int:
        made = state.slices.get(key[0])
        share = made.share(key[1]) if made else None
        return share.mem_max_bytes if share else 0

    def _act(self, found: Findings, verb: str, cause: str, pid: int, slice_name: str, uuid: str) -> None:
        if verb != LOG:
            found.acts.append(Act(verb, cause, pid, slice_name, uuid, (uuid, pid) not in self._acted))
