"""Bounds on tables that all users share: processes on a device, and slices. Pure.

Three bounds keep a user from shutting others out: one process has few connections, one user has a part of a table, and
the last places of a table are reserved for users who have few. They apply to root, too, since programs in containers
often run as root. A container counts as a user of its own, since its programs can choose their uids.

What is allowed does not depend on the order: after a restart of the daemon all attached processes are admitted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from vgpud.core.model import ANYONE, Denied, Process, Reason, Slice, State

#: connections of one process, one for each copy of the hook in it: dlmopen(3) makes 16 at most
PER_PROCESS_MAX = 32
#: part of a table that is reserved for users who have at most the second part of it
RESERVED_PART, SMALL_PART = 4, 32
#: descriptors of the daemon for a connection without pages (its socket and a pidfd); one more for each device
DESCRIPTORS_EACH = 2
#: which bound refuses: of the table, of a user, or the part that is kept for others
ALL, OWN, RESERVED = "all", "own", "reserved"
_User = TypeVar("_User", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Table:
    """Places that users share: `held` now, by user; a user may take `own_max` of `capacity`."""

    capacity: int
    own_max: int
    held: Counter[str]

    @property
    def small(self) -> int:
        """Places that a user may take of those that are reserved for users with few."""
        return max(1, self.capacity // SMALL_PART)

    @property
    def free(self) -> int:
        return self.capacity - self.held.total()

    @property
    def free_for_large(self) -> int:
        """Places that users may still take beyond their small parts."""
        reserved = min(self.capacity // RESERVED_PART, self.capacity - self.own_max)
        return self.capacity - reserved - sum(max(0, places - self.small) for places in self.held.values())


def which(capacity: int, own_max: int, held: Mapping[_User, int], who: _User, cost: int = 1) -> str:
    """The bound that keeps a user from taking `cost` more places of a table: ALL, OWN or RESERVED; "" when none does.

    held: places taken now, by user; own_max: how many one user may take.
    """
    own = held.get(who, 0) + cost
    if sum(held.values()) + cost > capacity:
        return ALL
    if own > own_max:
        return OWN
    small = max(1, capacity // SMALL_PART)
    if own <= small:
        return ""
    beyond = sum(max(0, places - small) for user, places in held.items() if user != who) + own - small
    return RESERVED if beyond > capacity - min(capacity // RESERVED_PART, capacity - own_max) else ""


def account(uid: int, container_id: str) -> str:
    """The user whose places a process takes: the owner of its user namespace, if it is in one of its own, else
    `uid`."""
    return f"container {container_id}" if container_id else f"uid {uid}"


def format_account(whose: str) -> str:
    """An account for messages: of a container's id what engines show."""
    return whose[: len("container ") + 12]


def _full(message: str) -> Denied:
    return Denied(Reason.NO_CAPACITY, message)


def attach_refusal(state: State, slice_: Slice, process: Process) -> Denied | None:
    """Why this program finds no place, or None: which bound, its value and what helps."""
    known = list(state.processes.values())
    here = sum(p.pid == process.pid for p in known)
    if here >= PER_PROCESS_MAX:
        text = f"pid {process.pid} has {here} connections to vgpud, the limit of a process is {PER_PROCESS_MAX}:"
        return _full(f"{text} close some, or start further processes")
    return (
        _slice_refusal(state, slice_, process)
        or _idle_refusal(state, process, known)
        or _device_refusal(state, slice_, process, known)
        or _descriptor_refusal(state, slice_, process, known)
    )


def _held(processes: Iterable[Process]) -> Counter[str]:
    """How many there are of each user."""
    return Counter(p.account for p in processes)


def slice_table(state: State, slice_: Slice, members: Iterable[Process]) -> Table:
    """Places of a slice's programs, of holders as well. `members`: all processes of the slice."""
    limit = state.policy.processes_per_slice_max
    held = _held(p for p in members if not p.disconnected_ns)
    shared = slice_.owner_uid == ANYONE or len(state.containers_of(slice_.name)) > 1
    return Table(limit, limit - limit // RESERVED_PART if shared else limit, held)


def device_table(state: State, device_uuid: str, processes: Iterable[Process]) -> Table:
    """Places of programs on a device."""
    capacity = state.policy.processes_per_device_max
    there = {name for name, made in state.slices.items() if made.share(device_uuid)}
    held = _held(p for p in processes if p.slice_name in there and not p.holder and not p.disconnected_ns)
    return Table(capacity, min(state.policy.processes_per_user_max, capacity), held)


def descriptor_table(state: State, processes: Iterable[Process]) -> Table:
    """The daemon's descriptors for programs' connections."""
    capacity = state.policy.attach_descriptors_max
    devices = {name: len(made.shares) for name, made in state.slices.items()}
    held: Counter[str] = Counter()
    for p in processes:
        held[p.account] += _descriptors(p, devices.get(p.slice_name, 0))
    return Table(capacity, capacity // 2, held)


def closed_fill(state: State, account: str, extra_count: int = 1) -> bool:
    """Whether a user's programs that closed their connections and still run reach their bound with so many more."""
    closed = sum(p.disconnected_ns > 0 and p.account == account for p in state.processes.values())
    return closed + extra_count >= state.policy.processes_per_user_max


def _slice_refusal(state: State, slice_: Slice, process: Process) -> Denied | None:
    table = slice_table(state, slice_, state.processes_of(slice_.name, holders=True))
    limit, held = table.capacity, table.held
    bound = which(limit, table.own_max, held, process.account)
    if bound == ALL:
        text = (
            f"slice {slice_.name} has {limit} programs, which is the limit: end some or raise processes_per_slice_max"
        )
        return _full(text)
    if bound:
        whose = process.account
        text = f"{format_account(whose)} has {held[whose]} of the {limit} places"
        text += f" of slice {slice_.name}, which others share:"
        return _full(f"{text} end some, use a slice of your own, or raise processes_per_slice_max")
    return None


def _idle_refusal(state: State, process: Process, processes: list[Process]) -> Denied | None:
    """Processes without a place on a device are bounded as well: those that only hold a slice, or closed their
    socket."""
    limit = state.policy.processes_per_user_max
    whose = process.account
    closed = sum(p.disconnected_ns > 0 and p.account == whose for p in processes)
    if closed >= limit:
        text = f"{format_account(whose)} has {closed} programs that closed their connection to vgpud and still run,"
        text += " and may have"
        return _full(f"{text} {limit}: end some or raise processes_per_user_max")
    holders = sum(p.holder and p.account == whose for p in processes) if process.holder else 0
    if holders >= limit:
        text = f"{format_account(whose)} has {holders} commands under `vgpu run`, and a user may have {limit}: end some"
        return _full(f"{text} or raise processes_per_user_max")
    return None


def _device_refusal(state: State, slice_: Slice, process: Process, processes: list[Process]) -> Denied | None:
    if process.holder:
        return None
    own_max = state.policy.processes_per_user_max
    whose = process.account
    for share in slice_.shares:
        table = device_table(state, share.device_uuid, processes)
        capacity, held = table.capacity, table.held
        bound = which(capacity, table.own_max, held, whose)
        if not bound:
            continue
        device = state.devices.get(share.device_uuid)
        where = f"device {device.index}" if device else share.device_uuid
        if bound == ALL:
            return _full(f"{where} has {capacity} programs, which is its limit: end some")
        if bound == OWN:
            text = f"{format_account(whose)} has {held[whose]} programs on {where},"
            text += f" and a user may have {own_max}: end some"
            return _full(f"{text} or raise processes_per_user_max")
        text = f"{where} has {held.total()} of {capacity} programs, the rest is reserved for users with few, and"
        return _full(f"{text} {format_account(whose)} has {held[whose]}: end some")
    return None


def _descriptor_refusal(state: State, slice_: Slice, process: Process, processes: list[Process]) -> Denied | None:
    table = descriptor_table(state, processes)
    capacity, held = table.capacity, table.held
    whose = process.account
    bound = which(capacity, table.own_max, held, whose, _descriptors(process, len(slice_.shares)))
    if not bound:
        return None
    who, count = ("all programs", held.total()) if bound == ALL else (format_account(whose), held[whose])
    text = f"the connections of {who} take {count} of the {capacity} descriptors that vgpud has for programs:"
    return _full(f"{text} end some or raise the daemon's LimitNOFILE")


def _descriptors(process: Process, devices: int) -> int:
    if process.disconnected_ns:
        return 1  # its pidfd
    return DESCRIPTORS_EACH + (0 if process.holder else devices)


def slice_refusal(state: State, uid: int) -> Denied | None:
    """Why a user who is no admin gets no further slice, or None. Slices of jobs are bounded by their queues."""
    policy = state.policy
    held = Counter(made.owner_uid for made in state.slices.values() if not made.origin.queue_job_id)
    own_max = min(policy.slices_per_user_max, policy.slices_max)
    bound = which(policy.slices_max, own_max, held, uid)
    if bound == OWN:
        text = f"uid {uid} has {held[uid]} slices, which is the limit of a user: remove one, or ask an admin to raise"
        return _full(f"{text} slices_per_user_max")
    if bound == RESERVED:
        text = f"this node has {held.total()} of {policy.slices_max} slices, the rest is reserved for users with few,"
        return _full(f"{text} and uid {uid} has {held[uid]}: remove one")
    return None


def step_refusal(state: State, uid: int) -> Denied | None:
    """Why a step of a user's Slurm job is not accepted, or None: a batch script may start any number of them, and each
    takes one of the places that all containers share."""
    capacity = state.policy.containers_max
    held = Counter(state.slices[known.slice_name].owner_uid for known in state.containers.values())
    if which(capacity, max(1, capacity // 2), held, uid) not in (OWN, RESERVED):
        return None
    text = f"uid {uid} has {held[uid]} steps and containers with slices here, of {capacity} for all users:"
    return _full(f"{text} end some, or start fewer steps at once")
