"""What every path to a slice shares: making one, ending one, who may use it, and how it is put in words. Pure.

machine.py (requests of users, programs) and containers.py call these with the state that they are changing.
"""

from __future__ import annotations

from vgpud.core import admit
from vgpud.core.events import (
    ApplySlice,
    CloseDevice,
    CloseSocket,
    Command,
    DropProcess,
    ForgetContainer,
    ForgetSlice,
    Log,
    OpenDevice,
    OpenSocket,
    RemoveSlice,
    SaveSlice,
)
from vgpud.core.model import ANYONE, Denied, Policy, Reason, Slice, Spec, State
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


def make(
    state: State, name: str, uid: str, spec: Spec, owner_uid: int, wall_ns: int, *, ephemeral: bool, cdi: bool = False
) -> tuple[Slice, list[Command]] | Denied:
    """Makes a slice, or says why not and changes nothing. An ephemeral one needs a grace or a user from the caller."""
    wrong = name_error(name, state.policy.name_bytes_max)
    if wrong:
        return wrong
    if owner_uid < ANYONE:
        text = f"owner_uid {owner_uid} is no user: write a uid or -1 for anyone"
        return Denied(Reason.INVALID, text, field="owner_uid")
    if cdi and _SIZE_SIGNS.issuperset(name):
        text = f"{name!r} is the CDI device of that size: choose a name with a letter in it"
        return Denied(Reason.INVALID, text, field="name")
    if name in state.slices:
        text = f"slice {name} exists already: choose another name or remove it"
        return Denied(Reason.EXISTS, text, field="name")
    if len(state.slices) >= state.policy.slices_max:
        text = f"this node has {state.policy.slices_max} slices, which is its limit: remove one or raise slices_max"
        return Denied(Reason.NO_CAPACITY, text)
    shares = admit.place(spec, state)
    if isinstance(shares, Denied):
        return shares
    made = Slice(name, uid, state.next_serial, spec, shares, ephemeral, owner_uid, wall_ns, cdi_device=cdi)
    state.next_serial += 1
    state.slices[name] = made
    device: list[Command] = [OpenDevice(name)] if cdi else []
    log = Log("slice.created", f"slice {name}: {describe(made)}", name)
    return made, [SaveSlice(made), ApplySlice(made), OpenSocket(name), *device, log]


def end(state: State, old: Slice, why: str) -> list[Command]:
    """Takes a slice and whatever uses it away."""
    commands: list[Command] = [ForgetSlice(old.uid)]
    for process in state.processes_of(old.name, holders=True):
        del state.processes[process.process_id]
        commands.append(DropProcess(process.process_id))
    for container in state.containers_of(old.name):
        del state.containers[container.container_id]
        text = f"container {short(container.container_id)} has lost its slice: {why}"
        commands += [ForgetContainer(container.container_id), Log("container.warning", text, old.name)]
    del state.slices[old.name]
    state.grace_ns.pop(old.name, None)
    state.waiting.discard(old.name)
    if old.cdi_device:
        commands.append(CloseDevice(old.name))
    log = Log("slice.deleted", f"slice {old.name}: {why}", old.name)
    return [*commands, CloseSocket(old.name), RemoveSlice(old), log]


def in_use(state: State, name: str) -> bool:
    """Whether a program, a command that holds it or a container has this slice."""
    return bool(state.processes_of(name, holders=True) or state.containers_of(name))


def unknown(name: str) -> Denied:
    """There is no such slice; "" = nobody's: somebody came to the socket that containers share, from none of them."""
    if not name:
        text = "this program is in no container that has a slice: start it with --device vgpu.dev/gpu=0.5"
        return Denied(Reason.NOT_FOUND, text, field="name")
    return Denied(Reason.NOT_FOUND, f"no slice {name!r} on this node: `vgpu slice ls` lists them", field="name")


def owner_refusal(found: Slice, uid: int, policy: Policy) -> Denied | None:
    """Why this user may not use the slice, or None: root, the daemon's user and the owner may."""
    if found.owner_uid == ANYONE or uid in (0, policy.daemon_uid, found.owner_uid):
        return None
    text = f"slice {found.name} belongs to uid {found.owner_uid}, not to uid {uid}: make a slice of your own"
    return Denied(Reason.DENIED, text)


def attach_refusal(state: State, found: Slice, uid: int, container_id: str) -> Denied | None:
    """Why a program may not attach to the slice, or None. In a container its cgroup decides, whatever its uid."""
    container = state.containers.get(container_id)
    if container is None:
        return owner_refusal(found, uid, state.policy)
    if container.slice_name == found.name:
        return None
    text = f"container {short(container_id)} has slice {container.slice_name}, it cannot use slice {found.name}:"
    return Denied(Reason.DENIED, text + f" start it with VGPU_SLICE={found.name}")


def short(container_id: str) -> str:
    """An id as engines show it: its first 12 characters."""
    return container_id[:12]


def describe(given: Slice) -> str:
    """The four numbers per device in one line, for people."""
    return "; ".join(
        f"{s.device_uuid} min {format_gpus(s.min_milli)} max {format_gpus(s.max_milli)} memory"
        f" {format_bytes(s.mem_min_bytes)} to {format_bytes(s.mem_max_bytes)}"
        for s in given.shares
    )
