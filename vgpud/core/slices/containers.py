"""Containers: created, started, ended, and the container that a cgroup belongs to. Pure; machine.step() calls the
handlers.

A container is known from its creation by the engine until its cgroup is empty, so its slice exists before its first
program and is not given away before the last one has ended. Nothing that a container reports about itself is used: its
id comes from the engine, its cgroup from the kernel.

A container that its engine starts again keeps its slice while it is away: restart_grace_ns together, until it has once
stayed up for as long. So one that ends again and again holds nothing for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vgpud.core.events import (
    Answer,
    Command,
    ContainerCreated,
    ContainerEnded,
    ContainerStarted,
    CreateSlice,
    ForgetContainer,
    Log,
    SaveContainer,
    SaveSlice,
)
from vgpud.core.model import Asker, Container, Denied, Reason, Restart, Slice, State
from vgpud.core.origins import Allocation, Claim, SlurmStep, User
from vgpud.core.slices import allocations, bounds, pending, queue_quota
from vgpud.core.slices.make import end, format_container, in_use, make, owner_refusal, short, unknown

#: engines' ids: runc allows more signs, none of which may end up in a path or a log
_ID_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+")
ID_BYTES_MAX = 256
_HEX = frozenset("0123456789abcdef")
_NS_PER_S = 1_000_000_000


def id_error(container_id: str) -> Denied | None:
    """Why this is no container's id, or None. Ids become file names."""
    fits = 0 < len(container_id) <= ID_BYTES_MAX and _ID_SIGNS.issuperset(container_id) and container_id[0] not in ".-"
    return None if fits else Denied(Reason.INVALID, f"{container_id[:80]!r} is not a container id", field="id")


def container_of(state: State, cgroups: Iterable[str]) -> Container | None:
    """The container that a process with these cgroup paths is in: the innermost one, None outside of all.

    If hierarchies disagree, the first one decides: a program that can write a later one could move to another's path
    there.
    """
    for path in cgroups:
        found = [c for c in state.containers.values() if c.cgroup and (path + "/").startswith(c.cgroup + "/")]
        if found:
            return max(found, key=lambda c: len(c.cgroup))
    return None


def id_in(cgroups: Iterable[str]) -> str:
    """The id that engines put into a cgroup's name (64 hexadecimal digits), the innermost one; "" for none."""
    for path in cgroups:
        parts = path.replace("-", "/").replace(".", "/").replace(":", "/").split("/")
        found = [part for part in parts if len(part) == 64 and _HEX.issuperset(part)]
        if found:
            return found[-1]
    return ""


def on_created(state: State, event: ContainerCreated, now_ns: int) -> list[Command]:
    """Gives the container its slice, or answers why not. A known id means that the former container has ended: by
    itself, then its slice was kept for it, or by its user (`docker restart`)."""
    wrong = id_error(event.container_id)
    if wrong:
        return [Answer(wrong)]
    old = state.containers.get(event.container_id)
    away = state.restarts.get(event.container_id)
    kept = _find_kept_slice(state, old, event) if old and away and away.is_away else None
    before = _forget(state, old) if old and kept else release(state, old, "it is created again") if old else []
    if not kept and len(state.containers) >= state.policy.containers_max:
        text = f"this node has {state.policy.containers_max} containers with slices, which is its limit: end one"
        return [*before, Answer(Denied(Reason.NO_CAPACITY, text))]
    is_new_step = isinstance(event.origin, SlurmStep) and not kept
    full = bounds.step_refusal(state, _owner_uid(event)) if is_new_step else None
    answer = full or ((kept, []) if kept else _join_slice(state, event) if event.join else _own(state, event))
    if isinstance(answer, Denied):
        # the DRA driver watches for this event and reads the claim again
        unknown_pod = [Log("claim.pod_unknown", answer.message, answer.subject)] if answer.field == "pod" else []
        return [*before, *unknown_pod, Answer(answer)]
    used, commands = answer
    state.grace_ns.pop(used.name, None)
    container = Container(
        container_id=event.container_id,
        slice_name=used.name,
        own_slice=not event.join,
        pid=event.pid,
        pid_start=event.pid_start,
        cgroup="",
        created_wall_ns=event.wall_ns,
        engine_name=event.engine_name,
        engine_dir=event.engine_dir,
    )
    state.containers[container.container_id] = container
    if away and away.is_away:
        used_ns = away.used_ns + now_ns - away.since_ns
        state.restarts[container.container_id] = Restart(used_ns, now_ns, is_away=False)
    log = Log("container.created", f"container {format_container(container)} has slice {used.name}", used.name)
    return [*before, *commands, SaveContainer(container), log, Answer(used)]


def _find_kept_slice(state: State, old: Container, event: ContainerCreated) -> Slice | None:
    """The slice that was kept for a container that is created again, as it has been resized meanwhile; None if the
    container asks for another one now, or the slice has lost its device."""
    name = event.join or (event.origin.slice_name() if old.own_slice else "")
    return state.slices[name] if name == old.slice_name and name not in state.waiting else None


def _join_slice(state: State, event: ContainerCreated) -> tuple[Slice, list[Command]] | Denied:
    """The slice that the container names, if its caller may use it."""
    found = state.slices.get(event.join)
    if found is None:
        return unknown(event.join)
    stranger = owner_refusal(found, event.caller_uid, state.policy)
    if stranger:
        return stranger
    if found.name in state.waiting:
        text = (
            f"slice {found.name} is waiting for its device: repair the device, resize the slice or choose another one"
        )
        return Denied(Reason.PRECONDITION, text)
    if found.pending:
        return pending.change_refusal(found)
    origin = found.origin
    if isinstance(origin, Allocation):
        return allocations.join(state, found, origin, event.pod)
    if isinstance(origin, Claim):
        return origin.refuse_pod(event.pod) or (found, [])
    if not isinstance(origin, User) or not origin.cdi_device:
        return found, []
    if origin.cdi_used:
        text = f"CDI device vgpu.dev/gpu={found.name} is for one container and was used: make another (`vgpu alloc`)"
        return Denied(Reason.PRECONDITION, text)
    used = replace(found, origin=replace(origin, cdi_used=True))
    state.slices[used.name] = used
    return used, [SaveSlice(used)]


def _own(state: State, event: ContainerCreated) -> tuple[Slice, list[Command]] | Denied:
    """A slice of the container's own, which ends with it."""
    if event.spec is None:
        return Denied(Reason.INVALID, "the container asks for no share: set VGPU, for example VGPU=0.5", field="spec")
    if event.origin.slice_name() in state.slices:
        return _refuse_taken_name(state, event.origin.slice_name())
    quota = state.quotas.get(event.queue)
    if event.open_queue and quota and queue_quota.members(state.quotas, quota):
        text = f"VGPU_QUEUE={event.queue}: it has members, and an image's ENV cannot be told from -e:"
        text += (
            f" ask by --annotation dev.vgpu/queue={event.queue} (docker), or join a slice of that queue by VGPU_SLICE"
        )
        return Denied(Reason.DENIED, text, field="queue")
    caller = event.caller_uid
    asker = event.owner or Asker(caller, admin=caller in (0, state.policy.daemon_uid))
    wanted = CreateSlice(
        request_id="",
        origin=event.origin,
        spec=event.spec,
        owner_uid=_owner_uid(event),
        uid=event.uid,
        wall_ns=event.wall_ns,
        queue=event.queue,
        asker=asker,
    )
    return make(state, wanted)


def _owner_uid(event: ContainerCreated) -> int:
    if event.owner is not None:
        return event.owner.uid
    return event.caller_uid if event.owner_uid is None else event.owner_uid


def _refuse_taken_name(state: State, name: str) -> Denied:
    owner = next((format_container(c) for c in state.containers_of(name)), "")
    whose = f"is the slice of container {owner}" if owner else "exists already"
    text = f"slice {name} {whose}: choose another VGPU_NAME, or join it with VGPU_SLICE={name}"
    return Denied(Reason.EXISTS, text, field="name")


def on_started(state: State, event: ContainerStarted, now_ns: int) -> list[Command]:
    """Its first process exists: from now on its cgroup identifies its programs, and that process stands for it."""
    known = state.containers.get(event.container_id)
    if known is None:
        text = f"container {short(event.container_id)} has no slice: create it again"
        return [Answer(Denied(Reason.NOT_FOUND, text, field="id"))]
    same = next((c for c in state.containers.values() if c.cgroup == event.cgroup != "" and c is not known), None)
    if same and same.slice_name != known.slice_name:
        text = f"container {format_container(same)} has the cgroup {event.cgroup} as well, and another slice:"
        return [Answer(Denied(Reason.PRECONDITION, f"{text} give each a cgroup of its own", field="cgroup"))]
    cgroup = "" if same else event.cgroup
    now = replace(known, pid=event.pid, pid_start=event.pid_start, cgroup=cgroup, started=True)
    made = state.slices[now.slice_name]
    if now == known:
        return [Answer(made)]
    state.containers[now.container_id] = now
    name = format_container(now)
    logs = [Log("container.started", f"container {name} started as pid {now.pid}", now.slice_name)]
    if not cgroup:
        text = f"container {name} has no cgroup of its own: its programs are known by their uid alone"
        logs.append(Log("container.warning", text, now.slice_name))
    return [SaveContainer(now), *logs, Answer(made)]


def on_ended(state: State, event: ContainerEnded, now_ns: int) -> list[Command]:
    """It has ended, or was never started. An unknown id has no effect: engines report an end twice."""
    known = state.containers.get(event.container_id)
    if known is None:
        return []
    if not (event.restarts and known.started):
        return release(state, known, event.why)
    before = state.restarts.get(known.container_id)
    if before and before.is_away:
        return []
    most_ns = state.policy.restart_grace_ns
    was_up = before is None or now_ns - before.since_ns >= most_ns
    used_ns = 0 if before is None or was_up else before.used_ns
    if used_ns >= most_ns:
        text = "; its slice is not kept again" if most_ns else ""
        return release(state, known, event.why + text)
    state.restarts[known.container_id] = Restart(used_ns, now_ns, is_away=True)
    state.containers[known.container_id] = replace(known, cgroup="")  # the engine may give it to another one
    text = (
        f"container {format_container(known)}: {event.why}; its slice is kept for {(most_ns - used_ns) // _NS_PER_S} s,"
    )
    return [Log("container.away", f"{text} since its engine starts it again", known.slice_name)]


def on_tick(state: State, now_ns: int) -> list[Command]:
    """Ends the containers whose engine has not started them again in time."""
    most_ns = state.policy.restart_grace_ns
    away = [(key, one.used_ns + now_ns - one.since_ns) for key, one in state.restarts.items() if one.is_away]
    commands: list[Command] = []
    for container_id in [key for key, used_ns in away if used_ns >= most_ns]:
        if container_id in state.containers:  # else it has gone with another's slice
            commands += release(state, state.containers[container_id], "its engine did not start it again in time")
    return commands


def _forget(state: State, old: Container) -> list[Command]:
    """Forgets a container, and keeps its slice."""
    del state.containers[old.container_id]
    state.restarts.pop(old.container_id, None)
    for process in [p for p in state.processes.values() if p.container_id == old.container_id]:
        state.processes[process.process_id] = replace(process, container_id="")  # its own end will be noticed, too
    return [ForgetContainer(old.container_id)]


def release(state: State, old: Container, why: str) -> list[Command]:
    """Forgets a container; a slice of its own goes with it unless another container is in there."""
    commands = _forget(state, old)
    commands.append(Log("container.ended", f"container {format_container(old)}: {why}", old.slice_name))
    left = state.slices.get(old.slice_name)
    if left is None or state.containers_of(left.name):
        return commands
    if old.own_slice or (left.origin.ephemeral and not in_use(state, left.name)):
        commands += end(state, left, f"container {format_container(old)} ended")
    return commands
