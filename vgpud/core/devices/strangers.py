"""Strangers: processes that use a device outside vgpud, found by comparing the driver's account with the ledger and the
attached programs (DESIGN D10).

Pure: readings go in; out come entries for the event log, each once, the charges of slices beyond their ledgers, and
what is to be done about which process.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from vgpud.core.devices.enforce import EXCESS, LOG, STRANGER, Act
from vgpud.core.events import Log
from vgpud.core.model import Process, State
from vgpud.core.observed import Credit, Seen
from vgpud.core.slices.containers import container_of, id_in
from vgpud.core.slices.make import short
from vgpud.core.units import format_bytes

#: looks in a row (one a second) that must show a stranger: a program that is just ending is none
PATIENCE = 2
#: the same for a process older than the daemon: after a restart attached programs need a moment to attach again
RETURN_PATIENCE = 3
#: looks at one that was there before us and ran, not stopped, before anything is done to it
RETURN_MERCY = 30
#: looks in a row that must show more than is charged for the charge to rise, or less for it to fall: the two accounts
#: are not read at one moment
EXCESS_PATIENCE = 3
#: strangers reported as new in one look, and as gone; the rest is reported with the next looks
REPORTED_MAX = 10
#: per process; the driver's figure also holds what an estimate of a context's cost may miss
SLACK_BYTES = 128 << 20

#: types of events
CAME, GONE = "device.stranger", "stranger.gone"

#: by device UUID: pid -> bytes, as reported by the driver
Running = Mapping[str, Mapping[int, int]]
#: by pid: the lives of attached programs, the oldest first (one for each copy of the hook in it)
Attached = Mapping[int, list[Process]]
#: by pid: listed processes that are not attached
Strangers = Mapping[int, Seen]
_Key = TypeVar("_Key")
_UNKNOWN_PROCESS = Seen("?", ())


class Ledger(Protocol):
    """What has been charged."""

    def of_life(self, process_id: int, device_uuid: str) -> Credit: ...
    def of_slice(self, slice_name: str, device_uuid: str) -> int: ...


@dataclass(slots=True)
class Findings:
    """What a look showed."""

    log: list[Log] = field(default_factory=list)
    #: bytes beyond the ledger by (slice, device), complete: a slice that is not named has none
    charges: dict[tuple[str, str], int] = field(default_factory=dict)
    #: the same by (device, process_id), for attached programs: at the oldest life of each
    process_charges: dict[tuple[str, int], int] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)
    #: by device: (number, bytes) of processes in no container of a slice; those that may still attach are not counted
    foreign: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Stranger:
    """A process that is listed and not attached, on one device."""

    who: Seen
    returning: bool  # was there at the first look at the device
    looks: int = 0
    looks_awake: int = 0
    slice_name: str | None = None  # container; "": none; None: not reported yet


@dataclass(slots=True)
class _Excess:
    """What the driver lately counted beyond a ledger, nothing where it is within the slack."""

    recent: deque[int] = field(default_factory=lambda: deque([0] * EXCESS_PATIENCE, EXCESS_PATIENCE))
    charged_bytes: int = 0

    def add(self, found_bytes: int) -> None:
        self.recent.append(found_bytes if found_bytes > SLACK_BYTES else 0)
        self.charged_bytes = max(min(self.recent), min(self.charged_bytes, max(self.recent)))


def attached_by_pid(processes: Iterable[Process], stale_process_ids: Collection[int] = ()) -> dict[int, list[Process]]:
    """Without processes that only hold a slice, which have no ledger. `stale_process_ids`: those whose pid now belongs
    to another process."""
    found: dict[int, list[Process]] = {}
    for process in processes:
        if not process.holder and process.process_id not in stale_process_ids:
            found.setdefault(process.pid, []).append(process)
    return found


def _limit(state: State, slice_name: str, uuid: str) -> int:
    made = state.slices.get(slice_name)
    share = made.share(uuid) if made else None
    return share.mem_max_bytes if share else 0


class Watch:
    """Remembers what was reported already; look() is called with every reading of the driver's lists."""

    def __init__(self) -> None:
        self._strangers: dict[str, dict[int, _Stranger]] = {}  # by device and pid
        self._credit: dict[tuple[str, int], Credit] = {}  # by device and process_id, as of the last look
        # by device and pid: a program that attaches again is still the same one
        self._excess: dict[tuple[str, int], _Excess] = {}
        self._hidden: dict[tuple[str, str], _Excess] = {}  # by slice and device: what its programs have together
        self._last = Findings()
        self._past: set[tuple[str, str]] = set()
        self._acted: set[tuple[str, int]] = set()

    def look(
        self,
        state: State,
        running: Running,
        attached_programs: Attached,
        ledger: Ledger,
        unattached_processes: Strangers,
    ) -> Findings:
        """`running`: without the devices that could not be read now, of which what was found last stays."""
        found = Findings()
        for uuid, users in running.items():
            self._look_for_strangers(state, uuid, users, attached_programs, unattached_processes, found)
        strangers = dict(found.charges)
        used = self._compare(state, running, attached_programs, ledger, found)
        self._look_for_hidden(state, running, attached_programs, used, ledger, found)
        found.foreign |= {u: now for u, now in self._last.foreign.items() if u not in running}
        for key, size in self._last.charges.items():
            if key[1] not in running and key[0] in state.slices:
                found.charges[key] = size
        for (name, uuid), size in sorted(found.charges.items()):
            if (name, uuid) not in self._last.charges:
                text = f"by the driver's account slice {name} uses {format_bytes(size)} beyond its ledger;"
                text += " this is charged to the slice"
                found.log.append(Log("memory.unattributed", text, name, uuid))
        self._look_for_excess(state, running, used, strangers, ledger, found)
        self._acted = {(act.device_uuid, act.pid) for act in found.acts}
        self._last = found
        return found

    # ---- programs that are not attached ----

    def _look_for_strangers(
        self,
        state: State,
        uuid: str,
        users: Mapping[int, int],
        attached_programs: Attached,
        unattached_processes: Strangers,
        findings: Findings,
    ) -> None:
        before, now = self._strangers.get(uuid), {}
        for pid in sorted(users):
            if pid in attached_programs:
                continue
            who = unattached_processes.get(pid, _UNKNOWN_PROCESS)
            known = before.get(pid) if before else None
            # 0: it has ended, and is still listed
            if known is None or who.start_ticks not in (0, known.who.start_ticks):
                known = _Stranger(who, returning=before is None)
            elif who.start_ticks:
                known.who = who
            now[pid] = known
            self._judge(state, uuid, pid, users[pid], known, findings)
        for pid, known in sorted((before or {}).items()):
            if known.slice_name is not None and now.get(pid) is not known and not self._is_flood(findings, GONE):
                end = "has attached" if pid in attached_programs else "is gone"
                text = f"pid {pid} ({known.who.program}), which used the device without a slice, {end}"
                findings.log.append(Log(GONE, text, known.slice_name, uuid))
        self._strangers[uuid] = now

    @staticmethod
    def _is_flood(findings: Findings, kind: str) -> bool:
        return sum(entry.kind == kind for entry in findings.log) >= REPORTED_MAX

    def _judge(self, state: State, uuid: str, pid: int, used_bytes: int, one: _Stranger, findings: Findings) -> None:
        """Reports, charges and acts, in this order over successive looks."""
        one.looks += 1
        one.looks_awake += not one.who.is_stopped
        if one.looks < (RETURN_PATIENCE if one.returning else PATIENCE):
            return
        inside = container_of(state, one.who.cgroups)
        slice_name = inside.slice_name if inside else ""
        if one.slice_name is None and not self._is_flood(findings, CAME):
            container_id = inside.container_id if inside else id_in(one.who.cgroups)
            where = f" in container {short(container_id)}" if container_id else ""
            text = f"pid {pid} ({one.who.program}){where} uses {format_bytes(used_bytes)} and is attached to no slice"
            findings.log.append(Log(CAME, text, slice_name, uuid))
            one.slice_name = slice_name
        self._charge(findings, slice_name, uuid, used_bytes)
        if not inside and (not one.returning or one.looks_awake >= RETURN_MERCY):
            count, size = findings.foreign.get(uuid, (0, 0))
            findings.foreign[uuid] = count + 1, size + used_bytes
        if not one.returning or one.looks_awake >= RETURN_MERCY:
            self._act(findings, state.policy.on_stranger, STRANGER, pid, slice_name, uuid, one.who.start_ticks)

    # ---- programs that are ----

    def _compare(
        self, state: State, running: Running, attached_programs: Attached, ledger: Ledger, findings: Findings
    ) -> Counter[tuple[str, str]]:
        """Charges what the driver counts beyond the ledger to the slice of the program's oldest attachment: the driver
        counts a pid once, however often it attached. Returns what the driver counts for each slice's programs,
        unattached ones in its containers included: all that is charged so far."""
        before, credit, used = self._excess, self._credit, Counter(findings.charges)
        self._excess = {k: e for k, e in before.items() if k[0] not in running and k[1] in attached_programs}
        self._credit = {k: c for k, c in credit.items() if k[0] not in running and k[1] in state.processes}
        for uuid, users in running.items():
            limits = {name: _limit(state, name, uuid) for name in state.slices}
            for pid in users.keys() & attached_programs.keys():
                lives, slice_name = attached_programs[pid], attached_programs[pid][0].slice_name
                may_use = elsewhere = 0
                for life in lives:
                    now, last = ledger.of_life(life.process_id, uuid), credit.get((uuid, life.process_id), Credit())
                    # the same object: a thousand new ones a look would keep the garbage collector busy
                    self._credit[uuid, life.process_id] = last if now == last else now
                    most = self._find_max_held_bytes(now, last, limits.get(life.slice_name, 0))
                    may_use += most
                    elsewhere += most if life.slice_name != slice_name else 0
                used[slice_name, uuid] += max(0, users[pid] - elsewhere)
                beyond = self._follow((uuid, pid), users[pid] - may_use, before, self._excess)
                self._charge(findings, slice_name, uuid, beyond)
        findings.process_charges = {
            (uuid, attached_programs[pid][0].process_id): excess.charged_bytes
            for (uuid, pid), excess in self._excess.items()
            if excess.charged_bytes
        }
        return used

    @staticmethod
    def _find_max_held_bytes(now: Credit, last: Credit, limit_bytes: int) -> int:
        """The most that a program may have had in its ledger at any moment since the last look: the driver was read at
        one of them, and a program may allocate and free memory a thousand times between two looks."""
        given = now.granted_bytes - last.granted_bytes
        return max(now.held_bytes, last.held_bytes, min(last.held_bytes + given, limit_bytes))

    def _look_for_hidden(
        self,
        state: State,
        running: Running,
        attached_programs: Attached,
        used: Counter[tuple[str, str]],
        ledger: Ledger,
        findings: Findings,
    ) -> None:
        """Credit that moves between programs lets each of them have had memory up to the limit, but all programs of a
        slice together no more than that. What they have beyond it is charged to the slice, though it cannot be
        attributed to one of them."""
        before = self._hidden
        self._hidden = {k: e for k, e in before.items() if k[1] not in running and k[0] in state.slices}
        programs = Counter(
            (attached_programs[pid][0].slice_name, uuid)
            for uuid, users in running.items()
            for pid in users.keys() & attached_programs.keys()
        )
        for (name, uuid), count in programs.items():
            known = max(_limit(state, name, uuid), ledger.of_slice(name, uuid)) + findings.charges.get((name, uuid), 0)
            size = used[name, uuid] - known - (count - 1) * SLACK_BYTES
            self._charge(findings, name, uuid, self._follow((name, uuid), size, before, self._hidden))

    @staticmethod
    def _follow(key: _Key, size: int, old_excesses: Mapping[_Key, _Excess], now: dict[_Key, _Excess]) -> int:
        """What is to be charged after this reading; the reading is remembered as long as it matters."""
        if size <= SLACK_BYTES and key not in old_excesses:
            return 0
        excess = old_excesses.get(key) or _Excess()
        excess.add(size)
        if any(excess.recent):
            now[key] = excess
        return excess.charged_bytes

    @staticmethod
    def _charge(findings: Findings, slice_name: str, uuid: str, size: int) -> None:
        if slice_name and size:
            findings.charges[slice_name, uuid] = findings.charges.get((slice_name, uuid), 0) + size

    def _look_for_excess(
        self,
        state: State,
        running: Running,
        used: Counter[tuple[str, str]],
        strangers: Mapping[tuple[str, str], int],
        ledger: Ledger,
        findings: Findings,
    ) -> None:
        """Slices that exceed their limit by memory outside their ledgers. The program that causes it is dealt with;
        attached programs are not charged for strangers.

        Lowering a limit below what the ledger holds is no excess: nothing is taken by force.
        """
        past, by_attached = {key for key in self._past if key[1] not in running}, set()
        for (name, uuid), size in sorted(findings.charges.items()):
            limit, in_ledger = _limit(state, name, uuid), ledger.of_slice(name, uuid)
            in_all, theirs = used[name, uuid], strangers.get((name, uuid), 0)
            if uuid not in running or in_all <= limit or (in_ledger > limit and size <= limit):
                continue
            past.add((name, uuid))
            if in_all - theirs > limit and (in_ledger <= limit or size - theirs > limit):
                by_attached.add((name, uuid))
            if (name, uuid) not in self._past:
                text = f"slice {name} uses {format_bytes(in_all)} by the driver's account"
                findings.log.append(Log("memory.past_ledger", text, name, uuid))
        self._past = past
        for uuid, process_id in sorted(findings.process_charges):
            process = state.processes[process_id]
            if (process.slice_name, uuid) in by_attached:
                self._act(findings, state.policy.on_excess, EXCESS, process.pid, process.slice_name, uuid, 0)

    def _act(
        self, findings: Findings, verb: str, cause: str, pid: int, slice_name: str, uuid: str, start_ticks: int
    ) -> None:
        if verb != LOG:
            findings.acts.append(Act(verb, cause, pid, slice_name, uuid, (uuid, pid) not in self._acted, start_ticks))
