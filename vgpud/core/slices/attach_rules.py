"""What the daemon's attach thread may answer without asking: which accounts may attach to which slices, and how many
more of their programs find places. Pure; the counting there is that of bounds.which(), so that a sequence of attaches
is admitted by these numbers exactly when the core would admit it.

Left to the core: processes that have a connection already, that come back or only hold a slice, slices that are
pending, and accounts that are not known before they ask.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from vgpud.core.events import Event, ProcessAttached, ProcessDisconnected, ProcessGone, Tick
from vgpud.core.model import ANYONE, Container, Process, Slice, State
from vgpud.core.slices import bounds, suspend
from vgpud.core.slices.make import owner_refusal

#: a slice whose grace time ends within this time may end by the next tick
GRACE_MARGIN_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """An account that may attach to a slice. draws: (index into Rules.users, places), all of which an attach takes."""

    slice_name: str
    account: str
    uid: int  # of the account; -1: it is a container
    draws: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Rules:
    """tables: (places free, of these for users with many). users: (index of the table, places free for this user, how
    many of these are few). slices: those that may be attached to; serials: of all slices. containers: (account,
    cgroup)."""

    tables: list[tuple[int, int]] = field(default_factory=list)
    users: list[tuple[int, int, int]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    serials: set[int] = field(default_factory=set)
    containers: list[tuple[str, str]] = field(default_factory=list)


class _Draws:
    """Puts tables into rules, and each user of a table once."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._users: dict[tuple[int, str], int] = {}
        self._tables: list[bounds.Table] = []

    def add(self, table: bounds.Table) -> int:
        self._tables.append(table)
        self._rules.tables.append((table.free, table.free_for_large))
        return len(self._tables) - 1

    def user(self, index: int, account: str) -> int:
        key = index, account
        if key not in self._users:
            table = self._tables[index]
            held = table.held[account]
            self._users[key] = len(self._rules.users)
            self._rules.users.append((index, table.own_max - held, table.small - held))
        return self._users[key]


def attach_rules(state: State) -> Rules:
    """The rules as of now."""
    rules = Rules(containers=[(bounds.account(0, c.container_id), c.cgroup) for c in _known_containers(state)])
    rules.serials = {found.serial for found in state.slices.values()}
    known = list(state.processes.values())
    members: dict[str, list[Process]] = defaultdict(list)
    for process in known:
        members[process.slice_name].append(process)
    draws = _Draws(rules)
    descriptors = draws.add(bounds.descriptor_table(state, known))
    devices = {uuid: draws.add(bounds.device_table(state, uuid, known)) for uuid in state.devices}
    closed = {p.account for p in known if p.disconnected_ns}
    full = {account for account in closed if bounds.closed_fill(state, account, 0)}
    for found in state.slices.values():
        if found.pending or found.name in state.waiting or suspend.attach_refusal(found):
            continue
        rules.slices.append(found)
        own = draws.add(bounds.slice_table(state, found, members[found.name]))
        cost = bounds.DESCRIPTORS_EACH + len(found.shares)
        for account, uid in _accounts(state, found, members[found.name]).items():
            if account in full:
                continue
            taken = [(own, 1), (descriptors, cost), *((devices[s.device_uuid], 1) for s in found.shares)]
            drawn = tuple((draws.user(table, account), places) for table, places in taken)
            rules.entries.append(Entry(found.name, account, uid, drawn))
    return rules


def _known_containers(state: State) -> list[Container]:
    return [c for c in state.containers.values() if c.cgroup]


def _accounts(state: State, slice_: Slice, members: list[Process]) -> dict[str, int]:
    """Accounts that may attach, with their uids: the owner, users who have programs there, and containers."""
    uids = {p.uid for p in members if p.account == bounds.account(p.uid, "")}
    if slice_.owner_uid != ANYONE:
        uids.add(slice_.owner_uid)
    allowed = {bounds.account(uid, ""): uid for uid in uids if not owner_refusal(slice_, uid, state.policy)}
    inside = [c for c in _known_containers(state) if c.slice_name == slice_.name]
    return allowed | {bounds.account(0, c.container_id): -1 for c in inside}


def may_keep_rules(state: State, event: Event, now_ns: int) -> bool:
    """Whether the thread may continue by its rules during this event: no slice can end by it, nor a bound be reached
    that the thread does not count."""
    match event:
        case ProcessAttached():
            return event.is_admitted
        case ProcessGone():
            process = state.processes.get(event.process_id)
            made = state.slices.get(process.slice_name) if process else None
            return not (made and made.origin.ephemeral and len(state.processes_of(made.name, holders=True)) == 1)
        case ProcessDisconnected():
            process = state.processes.get(event.process_id)
            return not (process and bounds.closed_fill(state, process.account))
        case Tick():
            return all(until_ns > now_ns + GRACE_MARGIN_NS for until_ns in state.grace_ns.values())
    return False
