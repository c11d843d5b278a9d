"""The one door: step(state, event, now_ns) -> [command]. Everything that changes State is in this file.

No IO, no clock, no randomness: times and ids come with the events, so the same events always give the same commands.
A step that refuses changes nothing but what it says. The shells execute the commands in order; the composition root
runs steps that must be saved on a copy and drops the copy if the store refuses, so nothing is ever half-created.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vgpud.core import admit
from vgpud.core.events import (
    AdmitProcess,
    Answer,
    ApplySlice,
    CloseSocket,
    Command,
    CreateSlice,
    DeleteSlice,
    DropProcess,
    Event,
    ForgetSlice,
    Log,
    OpenSocket,
    PolicyChanged,
    ProcessAttached,
    ProcessGone,
    RemoveSlice,
    SaveRequest,
    SaveSlice,
    Started,
    Tick,
    UpdateSlice,
)
from vgpud.core.model import (
    ANYONE,
    Denied,
    Policy,
    Reason,
    Remembered,
    Share,
    Slice,
    Spec,
    State,
    whole_devices,
)
from vgpud.core.units import MILLI_PER_DEVICE, format_bytes, format_gpus

REQUEST_ID_BYTES_MAX = 128
_NAME_ENDS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_NAME_SIGNS = _NAME_ENDS | frozenset("._-")


def step(state: State, event: Event, now_ns: int) -> list[Command]:
    """Applies one event to the state and says what the shells shall do. `now_ns`: CLOCK_MONOTONIC."""
    return _HANDLERS[type(event)](state, event, now_ns)


# ---- start and time ----


def _started(state: State, event: Started, now_ns: int) -> list[Command]:
    """Takes the store's slices over. One that does not fit the devices of now keeps its name and waits."""
    state.policy = event.policy
    state.devices = {d.uuid: d for d in sorted(event.devices, key=lambda d: d.index)}
    commands: list[Command] = []
    for stored in event.slices:
        kept = replace(stored, serial=state.next_serial)
        state.next_serial += 1
        misfit = next((s for s in kept.shares if not _fits(state, s)), None)
        state.slices[kept.name] = kept
        if kept.ephemeral:
            state.grace_ns[kept.name] = now_ns + state.policy.grace_ns
        if misfit is None:
            commands += [ApplySlice(kept), OpenSocket(kept.name)]
            continue
        state.waiting.add(kept.name)
        text = f"slice {kept.name} waits: device {misfit.device_uuid} is not there or has too little left;"
        text += " mend the device, resize the slice or remove it"
        commands.append(Log("slice.waiting", text, kept.name, misfit.device_uuid))
    for request_id, remembered in event.requests:
        state.requests[request_id] = replace(remembered, until_ns=now_ns + state.policy.request_memory_ns)
    return commands


def _fits(state: State, share: Share) -> bool:
    """Whether a stored share still has a place on its device."""
    device = state.devices.get(share.device_uuid)
    if device is None:
        return False
    milli, size = state.reserved(share.device_uuid)
    room = milli + share.min_milli <= MILLI_PER_DEVICE and size + share.mem_min_bytes <= device.memory_bytes
    return room and admit.smallest_limit_bytes(device) <= share.mem_max_bytes <= device.memory_bytes


def _policy_changed(state: State, event: PolicyChanged, now_ns: int) -> list[Command]:
    state.policy = event.policy
    return [Log("config.reloaded", "the configuration was read again")]


def _tick(state: State, event: Tick, now_ns: int) -> list[Command]:
    """Ends ephemeral slices that nobody came for and forgets old request ids."""
    while state.requests and next(iter(state.requests.values())).until_ns <= now_ns:
        state.requests.popitem(last=False)
    commands: list[Command] = []
    for name in [name for name, until_ns in state.grace_ns.items() if until_ns <= now_ns]:
        commands += _end(state, state.slices[name], "nobody attached in time")
    return commands


# ---- requests of users ----


def _refused(reason: Reason, message: str, field: str = "") -> list[Command]:
    return [Answer(Denied(reason, message, field=field))]


def _repeated(state: State, request_id: str, fingerprint: str) -> list[Command] | None:
    """The first answer again if this request was answered before; None for a new one."""
    if len(request_id.encode()) > REQUEST_ID_BYTES_MAX:
        return _refused(
            Reason.INVALID, f"request_id is longer than {REQUEST_ID_BYTES_MAX} bytes: use a UUID", "request_id"
        )
    known = state.requests.get(request_id) if request_id else None
    if known is None:
        return None
    if known.fingerprint != fingerprint:
        return _refused(
            Reason.INVALID, f"request_id {request_id!r} was used for another request: use a new one", "request_id"
        )
    return [Answer(known.answer)]


def _remember(state: State, request_id: str, fingerprint: str, answer: Slice | None, now_ns: int) -> list[Command]:
    """Only successes are remembered: a refusal changed nothing, so asking again may find room."""
    if not request_id:
        return []
    while len(state.requests) >= state.policy.requests_max:
        state.requests.popitem(last=False)
    remembered = Remembered(fingerprint, answer, now_ns + state.policy.request_memory_ns)
    state.requests[request_id] = remembered
    return [SaveRequest(request_id, remembered)]


def name_error(name: str, bytes_max: int) -> Denied | None:
    """Why a slice cannot have this name, or None. Names become directories and labels."""
    if not name or not _NAME_SIGNS.issuperset(name) or not _NAME_ENDS.issuperset(name[0] + name[-1]):
        text = (
            f"{name!r} is not a slice name: use a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit"
        )
        return Denied(Reason.INVALID, text, field="name")
    if len(name) > bytes_max:
        return Denied(Reason.INVALID, f"{name!r} is longer than {bytes_max} characters: shorten it", field="name")
    return None


def _create_slice(state: State, event: CreateSlice, now_ns: int) -> list[Command]:
    fingerprint = repr(("create", event.name, event.spec, event.ephemeral, event.owner_uid))
    repeated = _repeated(state, event.request_id, fingerprint)
    if repeated is not None:
        return repeated
    name = event.name or event.spare_name
    wrong = name_error(name, state.policy.name_bytes_max)
    if wrong:
        return [Answer(wrong)]
    if event.owner_uid < ANYONE:
        return _refused(
            Reason.INVALID, f"owner_uid {event.owner_uid} is no user: write a uid or -1 for anyone", "owner_uid"
        )
    if name in state.slices:
        return _refused(Reason.EXISTS, f"slice {name} exists already: choose another name or remove it", "name")
    if len(state.slices) >= state.policy.slices_max:
        text = f"this node has {state.policy.slices_max} slices, which is its limit: remove one or raise slices_max"
        return _refused(Reason.NO_CAPACITY, text)
    shares = admit.place(event.spec, state)
    if isinstance(shares, Denied):
        return [Answer(shares)]
    made = Slice(
        name, event.uid, state.next_serial, event.spec, shares, event.ephemeral, event.owner_uid, event.wall_ns
    )
    state.next_serial += 1
    state.slices[name] = made
    if made.ephemeral:
        state.grace_ns[name] = now_ns + state.policy.grace_ns
    return [
        SaveSlice(made),
        *_remember(state, event.request_id, fingerprint, made, now_ns),
        ApplySlice(made),
        OpenSocket(name),
        Log("slice.created", f"slice {name}: {describe(made)}", name),
        Answer(made),
    ]


def _update_slice(state: State, event: UpdateSlice, now_ns: int) -> list[Command]:
    """Live resize. A slice with processes stays on its devices; an idle one may move to where it fits."""
    fingerprint = repr(("update", event.name, event.patch))
    repeated = _repeated(state, event.request_id, fingerprint)
    if repeated is not None:
        return repeated
    old = state.slices.get(event.name)
    if old is None:
        return _unknown(event.name)
    spec = admit.merge(old.spec, event.patch)
    parts = admit.parts_of(spec, state.policy)
    if isinstance(parts, Denied):
        return [Answer(parts)]
    busy = bool(state.processes_of(old.name))
    shares = _resized(state, old, spec, busy)
    if isinstance(shares, Denied):
        return [Answer(shares)]
    new = replace(old, spec=spec, shares=shares, revision=old.revision + 1)
    state.slices[new.name] = new
    kept = {s.device_uuid for s in shares}
    back = [OpenSocket(new.name)] if new.name in state.waiting else []
    state.waiting.discard(new.name)
    return [
        SaveSlice(new),
        *_remember(state, event.request_id, fingerprint, new, now_ns),
        ApplySlice(new, tuple(s.device_uuid for s in old.shares if s.device_uuid not in kept)),
        *back,
        Log("slice.updated", f"slice {new.name}: {describe(new)}", new.name),
        Answer(new),
    ]


def _resized(state: State, old: Slice, spec: Spec, busy: bool) -> tuple[Share, ...] | Denied:
    here = tuple(s.device_uuid for s in old.shares)
    same_count = len(whole_devices(spec.gpus_milli)) == len(here)  # the spec has been checked: this is short
    same_names = not spec.device_uuids or set(spec.device_uuids) == set(here)
    if busy and not (same_count and same_names):
        text = f"slice {old.name} has programs on {len(here)} device(s) and cannot move:"
        text += " end them first or keep to its devices"
        return Denied(Reason.PRECONDITION, text)
    kept = admit.place(spec, state, without=old.name, only=here) if same_count and same_names else None
    if busy and kept is not None:
        return kept
    if kept is None or isinstance(kept, Denied):
        return admit.place(spec, state, without=old.name)
    return kept


def _delete_slice(state: State, event: DeleteSlice, now_ns: int) -> list[Command]:
    fingerprint = repr(("delete", event.name, event.force))
    repeated = _repeated(state, event.request_id, fingerprint)
    if repeated is not None:
        return repeated
    old = state.slices.get(event.name)
    if old is None:
        return _unknown(event.name)
    running = state.processes_of(old.name)
    if running and not event.force:
        text = (
            f"slice {old.name} has {len(running)} program(s), the first is pid {running[0].pid}: end them or use force"
        )
        return _refused(Reason.PRECONDITION, text)
    ended = _end(state, old, "removed")
    return [*ended, *_remember(state, event.request_id, fingerprint, None, now_ns), Answer(None)]


def _unknown(name: str) -> list[Command]:
    return _refused(Reason.NOT_FOUND, f"no slice {name!r} on this node: `vgpu slice ls` lists them", "name")


def _end(state: State, old: Slice, why: str) -> list[Command]:
    """Takes a slice and whatever is attached to it away."""
    commands: list[Command] = [ForgetSlice(old.uid)]
    for process in state.processes_of(old.name, holders=True):
        del state.processes[process.process_id]
        commands.append(DropProcess(process.process_id))
    del state.slices[old.name]
    state.grace_ns.pop(old.name, None)
    state.waiting.discard(old.name)
    log = Log("slice.deleted", f"slice {old.name}: {why}", old.name)
    return [*commands, CloseSocket(old.name), RemoveSlice(old), log]


# ---- programs that come and go ----


def _process_attached(state: State, event: ProcessAttached, now_ns: int) -> list[Command]:
    process = event.process
    found = state.slices.get(process.slice_name)
    wrong = _attach_refusal(state, found, event)
    if wrong or found is None:
        return [Answer(wrong)]
    state.processes[process.process_id] = process
    state.grace_ns.pop(found.name, None)
    if process.holder:
        return [AdmitProcess(process, found, ())]
    room = dict(event.room)
    held = tuple((uuid, min(claimed, room.get(uuid, 0))) for uuid, claimed in event.held if found.share(uuid))
    commands: list[Command] = [AdmitProcess(process, found, held)]
    for uuid, claimed in event.held:
        if claimed > room.get(uuid, 0):
            text = f"pid {process.pid} says it holds {format_bytes(claimed)}, its slice has room for"
            text += f" {format_bytes(room.get(uuid, 0))}: it gets no more memory until it is below"
            commands.append(Log("memory.over_limit", text, found.name, uuid, process.process_id))
    verb = "came back" if process.resumed else "attached"
    text = f"pid {process.pid} ({process.program}) {verb}"
    return [*commands, Log("process.attached", text, found.name, process_id=process.process_id)]


def owner_refusal(found: Slice, uid: int, policy: Policy) -> Denied | None:
    """Why this user may not attach to the slice, or None: root, the daemon's user and the owner may."""
    if found.owner_uid == ANYONE or uid in (0, policy.daemon_uid, found.owner_uid):
        return None
    text = f"slice {found.name} belongs to uid {found.owner_uid}, not to uid {uid}: make a slice of your own"
    return Denied(Reason.DENIED, text)


def _attach_refusal(state: State, found: Slice | None, event: ProcessAttached) -> Denied | None:
    process = event.process
    if found is None:
        return Denied(Reason.NOT_FOUND, f"no slice {process.slice_name!r} on this node: `vgpu slice ls` lists them")
    stranger = owner_refusal(found, process.uid, state.policy)
    if stranger:
        return stranger
    limit = state.policy.processes_per_slice_max
    if len(state.processes_of(found.name, holders=True)) >= limit:
        text = f"slice {found.name} has {limit} programs, which is the limit: end some or raise processes_per_slice_max"
        return Denied(Reason.NO_CAPACITY, text)
    return None


def _process_gone(state: State, event: ProcessGone, now_ns: int) -> list[Command]:
    process = state.processes.pop(event.process_id, None)
    if process is None:
        return []
    commands: list[Command] = [DropProcess(process.process_id)]
    if not process.holder:
        text = f"pid {process.pid} ({process.program}) ended"
        commands.append(Log("process.detached", text, process.slice_name, process_id=process.process_id))
    left = state.slices.get(process.slice_name)
    if left is not None and left.ephemeral and not state.processes_of(left.name, holders=True):
        commands += _end(state, left, "its last program ended")
    return commands


def describe(given: Slice) -> str:
    """The four numbers per device in one line, for people."""
    return "; ".join(
        f"{s.device_uuid} min {format_gpus(s.min_milli)} max {format_gpus(s.max_milli)} memory"
        f" {format_bytes(s.mem_min_bytes)} to {format_bytes(s.mem_max_bytes)}"
        for s in given.shares
    )


_HANDLERS: dict[type, Callable[[State, Any, int], list[Command]]] = {
    Started: _started,
    PolicyChanged: _policy_changed,
    CreateSlice: _create_slice,
    UpdateSlice: _update_slice,
    DeleteSlice: _delete_slice,
    ProcessAttached: _process_attached,
    ProcessGone: _process_gone,
    Tick: _tick,
}
