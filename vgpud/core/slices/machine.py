"""The core's single entry point: step(state, event, now_ns) -> [command]. Only the modules that have its
handlers change the state: this one, allocations.py, claims.py, containers.py, drains.py, make.py, programs.py,
residency.py and suspend.py.

No IO, no clock, no randomness: times and ids come with the events, so the same events always give the same commands. A
step that refuses changes nothing. The shells execute the commands in order; daemon/slices/machine.py runs steps that
must be saved on a copy and drops the copy if the store refuses, so nothing is ever half-created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from vgpud.core.events import (
    Answer,
    ApplySlice,
    Command,
    ContainerCreated,
    ContainerEnded,
    ContainerStarted,
    CreateSlice,
    DeleteSlice,
    DevicesReserved,
    DevicesTaken,
    DrainDevice,
    Event,
    ForgetContainer,
    Log,
    MoveMemory,
    OpenDevice,
    OpenSocket,
    PolicyChanged,
    PrepareClaim,
    ProcessAttached,
    ProcessDisconnected,
    ProcessGone,
    QuotasChanged,
    SaveRequest,
    SaveSlice,
    Started,
    SuspendSlice,
    Tick,
    UndrainDevice,
    UnprepareClaim,
    UpdateSlice,
)
from vgpud.core.model import Denied, Reason, Remembered, Share, Slice, Spec, State
from vgpud.core.origins import KubernetesOrigin, User
from vgpud.core.slices import (
    admission,
    claims,
    containers,
    drains,
    pending,
    programs,
    queue_quota,
    residency,
    suspend,
    swap_rules,
)
from vgpud.core.slices.make import changes, describe, end, format_container, make, name_device, unknown
from vgpud.core.units import MILLI_PER_DEVICE

REQUEST_ID_BYTES_MAX = 128


def step(state: State, event: Event, now_ns: int) -> list[Command]:
    """Applies one event to the state and returns what the shells are to do. `now_ns`: CLOCK_MONOTONIC."""
    return _HANDLERS[type(event)](state, event, now_ns)


# ---- start and time ----


def _on_started(state: State, event: Started, now_ns: int) -> list[Command]:
    """Takes over the slices of the store. A slice that does not fit the present devices keeps its name and waits."""
    state.policy = event.policy
    state.devices = {d.uuid: d for d in sorted(event.devices, key=lambda d: d.index)}
    state.drains = {drain.device_uuid: drain for drain in event.drains}
    commands = _known_containers(state, event)
    for stored in event.slices:
        kept = replace(stored, serial=state.next_serial)
        state.next_serial += 1
        misfit = next((s for s in kept.shares if not _still_fits(state, kept, s)), None)
        state.slices[kept.name] = kept
        if kept.origin.ephemeral and not state.containers_of(kept.name):
            state.grace_ns[kept.name] = now_ns + state.policy.grace_ns
        if kept.origin.cdi_device:
            commands.append(OpenDevice(kept.name))
        given_shares = [s for s in kept.shares if state.of_kubernetes(s.device_uuid)]
        if given_shares and not kept.origin.is_from_kubernetes:
            commands.append(_beside_claims(state, kept, given_shares))
        if misfit is None:
            commands += [ApplySlice(kept), OpenSocket(kept.name)]
            continue
        state.waiting.add(kept.name)
        where = name_device(misfit.device_uuid, state)
        text = f"slice {kept.name} is waiting: {where} is missing or has too little free capacity;"
        text += " repair the device, resize the slice or remove it"
        commands.append(OpenSocket(kept.name))  # it refuses: without it programs would run without limits
        commands.append(Log("slice.waiting", text, kept.name, misfit.device_uuid))
    for request_id, remembered in event.requests:
        state.requests[request_id] = replace(remembered, until_ns=now_ns + state.policy.request_memory_ns)
    return commands


def _beside_claims(state: State, slice_: Slice, kubernetes_shares: Sequence[Share]) -> Log:
    """A slice that was there before its device was given to Kubernetes stays, and no claim is placed beside it."""
    indices = ", ".join(str(state.devices[share.device_uuid].index) for share in kubernetes_shares)
    text = f"slice {slice_.name} has a part of device {indices}, which belongs to Kubernetes now (devices.kubernetes):"
    text += " no claim is placed there until it ends"
    return Log("slice.beside_claims", text, slice_.name, kubernetes_shares[0].device_uuid)


def _known_containers(state: State, event: Started) -> list[Command]:
    """Takes the store's containers over; one without its slice (a database from a backup) is forgotten."""
    names = {s.name for s in event.slices}
    state.containers = {c.container_id: c for c in event.containers if c.slice_name in names}
    return [ForgetContainer(c.container_id) for c in event.containers if c.slice_name not in names]


def _still_fits(state: State, slice_: Slice, share: Share) -> bool:
    """Whether a stored share still fits its device. Of a suspended slice only what it keeps is checked."""
    device = state.devices.get(share.device_uuid)
    if device is None:
        return False
    milli, size = state.reserved(share.device_uuid, mem_swap=slice_.spec.mem_swap)
    milli += share.min_milli if slice_.keeps_time else 0
    size += share.mem_min_bytes if slice_.keeps_memory else 0
    fits = milli <= MILLI_PER_DEVICE and size <= device.memory_bytes
    least = admission.smallest_limit_bytes(device.context_bytes, device.granule_bytes)
    return fits and least <= share.mem_max_bytes <= device.memory_bytes


def _on_policy_changed(state: State, event: PolicyChanged, now_ns: int) -> list[Command]:
    state.policy = event.policy
    return [Log("config.reloaded", "the configuration was read again")]


def _on_quotas_changed(state: State, event: QuotasChanged, now_ns: int) -> list[Command]:
    state.quotas = {quota.name: quota for quota in event.quotas}
    return []


def _on_devices_reserved(state: State, event: DevicesReserved, now_ns: int) -> list[Command]:
    state.reservations = {uuid: (queue, what) for uuid, queue, what in event.reserved}
    return []


def _on_tick(state: State, event: Tick, now_ns: int) -> list[Command]:
    """Ends ephemeral slices to which no program attached in time, containers that were not started again in time, and
    forgets old request ids."""
    while state.requests and next(iter(state.requests.values())).until_ns <= now_ns:
        state.requests.popitem(last=False)
    commands = containers.on_tick(state, now_ns)
    for name in [name for name, until_ns in state.grace_ns.items() if until_ns <= now_ns]:
        commands += end(state, state.slices[name], "no program attached to it in time")
    return commands


# ---- requests of users ----


def _deny_request(reason: Reason, message: str, field: str = "") -> list[Command]:
    return [Answer(Denied(reason, message, field=field))]


def request_key(uid: int, request_id: str) -> str:
    """The key under which a user's request is remembered, "" for a request without an id. Users' ids are separate."""
    return f"{uid}/{request_id}" if request_id else ""


def _repeat_answer(state: State, uid: int, request_id: str, fingerprint: str) -> list[Command] | None:
    """The first answer again if this request was answered before; None for a new one."""
    if len(request_id.encode()) > REQUEST_ID_BYTES_MAX:
        return _deny_request(
            Reason.INVALID, f"request_id is longer than {REQUEST_ID_BYTES_MAX} bytes: use a UUID", "request_id"
        )
    known = state.requests.get(request_key(uid, request_id))
    if known is None:
        return None
    if known.fingerprint != fingerprint:
        return _deny_request(
            Reason.INVALID, f"request_id {request_id!r} was used for another request: use a new one", "request_id"
        )
    return [Answer(known.answer)]


def _remember(
    state: State, uid: int, request_id: str, fingerprint: str, answer: Slice | None, now_ns: int
) -> list[Command]:
    """Only successes are remembered: a refusal changed nothing, and asking again may succeed."""
    key = request_key(uid, request_id)
    if not key:
        return []
    if len(state.requests) >= state.policy.requests_max:
        own = (known for known in state.requests if known.startswith(f"{uid}/"))
        del state.requests[next(own, next(iter(state.requests)))]  # a user with many forgets their own first
    remembered = Remembered(fingerprint, answer, now_ns + state.policy.request_memory_ns)
    state.requests[key] = remembered
    return [SaveRequest(key, remembered)]


def _make_creation_fingerprint(event: CreateSlice) -> str:
    """What a repeated request has in common with the first: not the spare name. Only users' requests have an id."""
    origin = event.origin if isinstance(event.origin, User) else User(event.origin.slice_name())
    asked = (origin.name, event.spec, origin.ephemeral, event.owner_uid, origin.cdi_device, event.queue)
    return repr(("create", *asked, event.asker.uid, *(["pending"] if event.pending else [])))


def _on_create_slice(state: State, event: CreateSlice, now_ns: int) -> list[Command]:
    fingerprint = _make_creation_fingerprint(event)
    repeated = _repeat_answer(state, event.asker.uid, event.request_id, fingerprint)
    if repeated is not None:
        return repeated
    answer = make(state, event)
    if isinstance(answer, Denied):
        return [Answer(admission.name_unused_slices(answer, state, now_ns))]
    made, commands = answer
    if made.origin.ephemeral:
        state.grace_ns[made.name] = now_ns + state.policy.grace_ns
    return [*commands, *_remember(state, event.asker.uid, event.request_id, fingerprint, made, now_ns), Answer(made)]


def _on_update_slice(state: State, event: UpdateSlice, now_ns: int) -> list[Command]:
    """Live resize. A slice with processes stays on its devices; an idle one may move to where it fits."""
    fingerprint = repr(("update", event.name, event.patch, event.fields))
    repeated = _repeat_answer(state, event.asker_uid, event.request_id, fingerprint)
    if repeated is not None:
        return repeated
    old = state.slices.get(event.name)
    if old is None:
        return [Answer(unknown(event.name))]
    fixed = old.origin.refuse_change(event.job_id)
    if fixed:
        return [Answer(fixed)]
    if old.pending:
        return [Answer(pending.change_refusal(old))]
    merged = admission.merge(old.spec, event.patch, event.fields)
    if isinstance(merged, Denied):
        return [Answer(merged)]
    spec = swap_rules.keep_site_default(drains.with_uuids(merged, state), event.fields, state.policy)
    shares = _changed_shares(state, old, spec, event)
    if isinstance(shares, Denied):
        return [Answer(admission.name_unused_slices(shares, state, now_ns))]
    if (spec, shares) != (old.spec, old.shares):
        no_host = swap_rules.host_refusal(state, spec, shares, old.name)
        if no_host:
            return [Answer(no_host)]
    new = replace(old, spec=spec, shares=shares, revision=old.revision + 1)
    if queue_quota.width_milli(new) > queue_quota.width_milli(old):
        full = queue_quota.limit_refusal(state, old.queue, queue_quota.width_milli(new), excluded_slice=old.name)
        if full:
            return [Answer(full)]
    state.slices[new.name] = new
    kept = {s.device_uuid for s in shares}
    moved: list[Command] = [OpenDevice(new.name)] if new.origin.cdi_device else []
    state.waiting.discard(new.name)
    return [
        SaveSlice(new),
        *_remember(state, event.asker_uid, event.request_id, fingerprint, new, now_ns),
        ApplySlice(new, tuple(s.device_uuid for s in old.shares if s.device_uuid not in kept)),
        *moved,
        Log("slice.updated", f"slice {new.name}: {describe(new, state)}{changes(old.spec, new.spec)}", new.name),
        Answer(new),
    ]


def _changed_shares(state: State, old: Slice, spec: Spec, event: UpdateSlice) -> tuple[Share, ...] | Denied:
    """The shares of a slice whose spec becomes this one."""
    if isinstance(old.origin, KubernetesOrigin):
        granules = {device.uuid: device.granule_bytes for device in state.devices.values()}
        chosen = claims.resize_shares(old.origin, spec, event.fields, granules)
        if isinstance(chosen, Denied):
            return chosen
        return admission.check_shares(chosen, state, old, claim=True, spec=spec)
    parts = admission.parts_of(spec, state.policy)
    if isinstance(parts, Denied):
        return parts
    shares = (
        admission.check_shares(event.shares, state, old, spec=spec)
        if event.shares
        else _place_resized_slice(state, old, spec)
    )
    if isinstance(shares, Denied):
        return shares
    return old.origin.refuse_shares(old.shares, shares) or drains.growth_refusal(old, shares, state) or shares


def _place_resized_slice(state: State, old: Slice, spec: Spec) -> tuple[Share, ...] | Denied:
    busy = bool(state.processes_of(old.name) or state.containers_of(old.name))
    here = tuple(s.device_uuid for s in old.shares)
    same_count = len(spec.pieces) == len(here)  # the spec has been checked: this is short
    same_names = not spec.device_uuids or set(spec.device_uuids) == set(here)
    if busy and not (same_count and same_names):
        text = f"slice {old.name} is in use on {len(here)} device(s) and cannot move:"
        text += " end its programs and containers first or keep to its devices"
        return Denied(Reason.PRECONDITION, text)
    kept = (
        admission.place(spec, state, excluded_slice=old.name, allowed_devices=here)
        if same_count and same_names
        else None
    )
    if busy and kept is not None:
        return kept
    if kept is None or isinstance(kept, Denied):
        return admission.place(spec, state, excluded_slice=old.name)
    return kept


def _on_delete_slice(state: State, event: DeleteSlice, now_ns: int) -> list[Command]:
    fingerprint = repr(("delete", event.name, event.force))
    repeated = _repeat_answer(state, event.asker_uid, event.request_id, fingerprint)
    if repeated is not None:
        return repeated
    old = state.slices.get(event.name)
    if old is None:
        return [Answer(unknown(event.name))]
    kept = old.origin.refuse_end(event.job_id)
    if kept:
        return [Answer(kept)]
    running = state.processes_of(old.name)
    if running and not event.force:
        text = f"slice {old.name} has {len(running)} program(s), the first is pid {running[0].pid}: stop them,"
        text += f" or detach them with `vgpu slice rm --force {old.name}`"
        return _deny_request(Reason.PRECONDITION, text)
    away = None if event.job_id else residency.removal_refusal(state, old)
    if away:
        return [Answer(away)]
    inside = state.containers_of(old.name)
    if inside and not event.force:
        text = f"slice {old.name} is that of container {format_container(inside[0])}: end it,"
        text += f" or detach it with `vgpu slice rm --force {old.name}`"
        return _deny_request(Reason.PRECONDITION, text)
    ended = end(state, old, "removed")
    return [*ended, *_remember(state, event.asker_uid, event.request_id, fingerprint, None, now_ns), Answer(None)]


_HANDLERS: dict[type, Callable[[State, Any, int], list[Command]]] = {
    Started: _on_started,
    PolicyChanged: _on_policy_changed,
    QuotasChanged: _on_quotas_changed,
    DevicesReserved: _on_devices_reserved,
    CreateSlice: _on_create_slice,
    UpdateSlice: _on_update_slice,
    DeleteSlice: _on_delete_slice,
    SuspendSlice: suspend.on_suspend,
    MoveMemory: residency.on_move_memory,
    PrepareClaim: claims.on_prepare,
    UnprepareClaim: claims.on_unprepare,
    ProcessAttached: programs.on_attached,
    ProcessGone: programs.on_gone,
    ProcessDisconnected: programs.on_disconnected,
    ContainerCreated: containers.on_created,
    ContainerStarted: containers.on_started,
    ContainerEnded: containers.on_ended,
    DrainDevice: drains.on_drain,
    UndrainDevice: drains.on_undrain,
    DevicesTaken: drains.on_devices_taken,
    Tick: _on_tick,
}
