"""Operations that all paths to a slice share: creating and ending one, who may use it, and its description. Pure.

machine.py (requests of users, programs) and containers.py call these with the state that they are changing.
"""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.events import (
    ApplySlice,
    CloseDevice,
    CloseSocket,
    Command,
    CreateSlice,
    DropProcess,
    ForgetContainer,
    ForgetSlice,
    Log,
    OpenDevice,
    OpenSocket,
    RemoveSlice,
    SaveSlice,
)
from vgpud.core.model import ANYONE, UID_MAX, Container, Denied, Origin, Reason, Share, SiteLimits, Slice, Spec, State
from vgpud.core.origins import User
from vgpud.core.slices import admission, bounds, drains, pending, queue_quota, swap_rules
from vgpud.core.units import format_bytes, format_gpus

_NAME_ENDS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_NAME_SIGNS = _NAME_ENDS | frozenset("._-")
_SIZE_SIGNS = frozenset("0123456789.")


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


def make(state: State, request: CreateSlice) -> tuple[Slice, list[Command]] | Denied:
    """Creates a slice, or returns why not and changes nothing. The caller gives an ephemeral slice its grace or its
    first user."""
    name, owner_uid = request.origin.slice_name(), request.owner_uid
    wrong = name_error(name, state.policy.name_bytes_max)
    if wrong:
        return wrong
    if not ANYONE <= owner_uid <= UID_MAX:
        text = f"owner_uid {owner_uid} is not a user: write a uid, or every_user"
        return Denied(Reason.INVALID, text, field="owner_uid")
    if request.origin.cdi_device and _SIZE_SIGNS.issuperset(name):
        text = f"{name!r} is reserved for the CDI device of that size: choose a name with a letter in it"
        return Denied(Reason.INVALID, text, field="name")
    kept_name = request.origin.refuse_name()
    if kept_name:
        return kept_name
    if name in state.slices:
        text = f"slice {name} exists already: choose another name or remove it"
        return Denied(Reason.EXISTS, text, field="name")
    if len(state.slices) >= state.policy.slices_max:
        text = f"this node has {state.policy.slices_max} slices, which is its limit: remove one or raise slices_max"
        return Denied(Reason.NO_CAPACITY, text)
    asker = request.asker
    refusal = None if asker.admin else bounds.slice_refusal(state, asker.uid)
    if refusal:
        return refusal
    queue = _queue_for(state, request)
    if isinstance(queue, Denied):
        return queue
    spec = swap_rules.with_site_default(drains.with_uuids(request.spec, state), state.policy)
    for_claim = request.origin.is_from_kubernetes
    is_placed = for_claim or request.origin.queue_job_id  # by Kubernetes or the queue's machine
    seen = state if is_placed or not state.reservations else state.seen_by(queue)
    shares: tuple[Share, ...] | Denied
    if request.pending:
        shares = pending.creation_refusal(spec, seen, cdi_device=request.origin.cdi_device) or ()
    else:
        shares = (
            admission.check_shares(
                request.shares,
                state,
                claim=for_claim,
                tolerates_drain=request.tolerates_drain,
                spec=spec,
            )
            if request.shares
            else admission.place(spec, seen)
        )
    if isinstance(shares, Denied):
        return shares
    # what Kubernetes gives away is counted by its own quotas
    full = None if for_claim else queue_quota.limit_refusal(state, queue, sum(share.min_milli for share in shares))
    refused = full or swap_rules.host_refusal(state, spec, shares)
    if refused:
        return refused
    made = Slice(
        origin=_settle_end(request),
        uid=request.uid,
        serial=state.next_serial,
        spec=spec,
        shares=shares,
        owner_uid=owner_uid,
        created_wall_ns=request.wall_ns,
        queue=queue,
        residency=swap_rules.first_residency(state, spec, shares),
    )
    state.next_serial += 1
    state.slices[name] = made
    device: list[Command] = [OpenDevice(name)] if made.origin.cdi_device else []
    log = Log("slice.created", f"slice {name}: {describe(made, state)}", name)
    return made, [SaveSlice(made), ApplySlice(made), OpenSocket(name), *device, log]


def _settle_end(request: CreateSlice) -> Origin:
    """Its origin: a user's slice that has a CDI device, or no device yet, is for programs that come and ends with them,
    whether or not the user said so."""
    origin = request.origin
    if isinstance(origin, User) and (origin.cdi_device or request.pending):
        return replace(origin, ephemeral=True)
    return origin


def _queue_for(state: State, request: CreateSlice) -> str | Denied:
    """The queue that a new slice counts against. A job's has been chosen, and checked, when it was submitted."""
    if request.origin.queue_job_id:
        return request.queue
    return queue_quota.direct_refusal(state, request.asker) or queue_quota.choose(
        state.quotas, request.queue, request.asker
    )


def end(state: State, old: Slice, why: str) -> list[Command]:
    """Removes a slice, its processes and its containers."""
    commands: list[Command] = [ForgetSlice(old.uid)]
    for process in state.processes_of(old.name, holders=True):
        del state.processes[process.process_id]
        commands.append(DropProcess(process.process_id))
    for container in state.containers_of(old.name):
        del state.containers[container.container_id]
        state.restarts.pop(container.container_id, None)
        text = f"container {format_container(container)} has lost its slice: {why}"
        commands += [ForgetContainer(container.container_id), Log("container.warning", text, old.name)]
    del state.slices[old.name]
    state.grace_ns.pop(old.name, None)
    state.waiting.discard(old.name)
    if old.origin.cdi_device:
        commands.append(CloseDevice(old.name))
    log = Log("slice.deleted", f"slice {old.name}: {why}", old.name)
    return [*commands, CloseSocket(old.name), RemoveSlice(old), log]


def in_use(state: State, name: str) -> bool:
    """Whether a program, a command that holds it or a container has this slice."""
    return bool(state.processes_of(name, holders=True) or state.containers_of(name))


def unknown(name: str) -> Denied:
    """No slice has this name; "" = a program on the socket that containers share, in no container that has a slice."""
    if not name:
        text = "this program is in no container that has a slice: start it with --device vgpu.dev/gpu=0.5"
        return Denied(Reason.NOT_FOUND, text, field="name")
    return Denied(Reason.NOT_FOUND, f"no slice {name!r} on this node: `vgpu slice ls` lists them", field="name")


def owner_refusal(slice_: Slice, uid: int, policy: SiteLimits) -> Denied | None:
    """Why this user may not use the slice, or None: root, the daemon's user and the owner may."""
    if slice_.owner_uid == ANYONE or uid in (0, policy.daemon_uid, slice_.owner_uid):
        return None
    text = f"slice {slice_.name} belongs to uid {slice_.owner_uid}, not to uid {uid}: make a slice of your own"
    return Denied(Reason.DENIED, text)


def attach_refusal(state: State, slice_: Slice, uid: int, container_id: str) -> Denied | None:
    """Why a program may not attach to the slice, or None. In a container its cgroup decides, whatever its uid."""
    container = state.containers.get(container_id)
    if container is None:
        return owner_refusal(slice_, uid, state.policy)
    if container.slice_name == slice_.name:
        return None
    text = (
        f"container {format_container(container)} has slice {container.slice_name}, it cannot use slice {slice_.name}:"
    )
    return Denied(Reason.DENIED, text + f" start it with VGPU_SLICE={slice_.name}")


def format_container(container: Container) -> str:
    """A container for people: its name and its short id."""
    short_id = short(container.container_id)
    return f"{container.engine_name} ({short_id})" if container.engine_name else short_id


def short(container_id: str) -> str:
    """An id as engines show it: its first 12 characters."""
    return container_id[:12]


def changes(old: Spec, new: Spec) -> str:
    """What describe() leaves out: "; weight 0 -> 5", empty when nothing of it changed."""
    words = {"weight": "weight", "priority": "priority", "service_class": "class"}
    words |= {"copy_min_milli": "copy-min (milli)", "copy_max_milli": "copy-max (milli)"}
    values = ((word, getattr(old, name), getattr(new, name)) for name, word in words.items())
    return "".join(f"; {word} {before} -> {now}" for word, before, now in values if before != now)


def name_device(uuid: str, state: State) -> str:
    """A device in a message: "device 0", or by its UUID if it is missing."""
    device = state.devices.get(uuid)
    return f"device {device.index if device else uuid}"


def describe(slice_: Slice, state: State) -> str:
    """The four numbers per device in one line, for messages."""
    if slice_.pending:
        return f"{format_gpus(slice_.spec.gpus_milli)} GPUs, pending until a program attaches"
    return "; ".join(
        f"{name_device(s.device_uuid, state)} min {format_gpus(s.min_milli)} max {format_gpus(s.max_milli)} memory"
        f" {format_bytes(s.mem_min_bytes)} to {format_bytes(s.mem_max_bytes)}"
        for s in slice_.shares
    )
