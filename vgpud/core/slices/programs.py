"""Programs: a process attaches to a slice, loses its connection, ends. Pure; machine.step() calls the handlers.

After a restart of the daemon the programs that ran on attach again, and say what they hold (`is_resumed`).
"""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.events import (
    AdmitProcess,
    Answer,
    ApplySlice,
    Command,
    DropProcess,
    Log,
    ProcessAttached,
    ProcessDisconnected,
    ProcessGone,
    SaveSlice,
)
from vgpud.core.model import Denied, Reason, Slice, State
from vgpud.core.slices import bounds, pending, suspend
from vgpud.core.slices.make import attach_refusal, describe, end, in_use, unknown
from vgpud.core.units import format_bytes


def on_attached(state: State, event: ProcessAttached, now_ns: int) -> list[Command]:
    process = event.process
    found = state.slices.get(process.slice_name)
    wrong = _attach_refusal(state, found, event)
    if wrong or found is None:
        return [Answer(wrong)]
    before = found
    if found.pending and not process.holder:
        bound = pending.bind(state, found, event.named_uuids)
        if isinstance(bound, Denied):
            return [Answer(bound)]
        found = bound
    full = None if event.is_admitted else bounds.attach_refusal(state, found, process)
    if full:
        return [Answer(full)]
    if process.container_id not in state.containers:
        process = replace(process, container_id="")
    state.processes[process.process_id] = process
    state.grace_ns.pop(found.name, None)
    if process.holder:
        return [AdmitProcess(process, found, ())]
    # one that comes back to a slice whose binding was not saved: no other process holds anything of it
    free_bytes = dict(event.free_bytes) if found is before else {s.device_uuid: s.mem_max_bytes for s in found.shares}
    held = tuple((uuid, min(claimed, free_bytes.get(uuid, 0))) for uuid, claimed in event.held if found.share(uuid))
    commands: list[Command] = [*_save_binding(state, before, found), AdmitProcess(process, found, held)]
    for uuid, claimed in event.held:
        if claimed > free_bytes.get(uuid, 0):
            text = f"pid {process.pid} says it holds {format_bytes(claimed)}, its slice may hold"
            text += f" {format_bytes(free_bytes.get(uuid, 0))}: it gets no more memory until it is below"
            commands.append(Log("memory.over_limit", text, found.name, uuid, process.process_id))
    verb = "came back" if process.is_resumed else "attached"
    text = f"pid {process.pid} ({process.program}) {verb}"
    return [*commands, Log("process.attached", text, found.name, process_id=process.process_id)]


def _attach_refusal(state: State, slice_: Slice | None, event: ProcessAttached) -> Denied | None:
    process = event.process
    if slice_ is None:
        return unknown(process.slice_name)
    stranger = attach_refusal(state, slice_, process.uid, process.container_id)
    away = None if process.is_resumed or process.holder else suspend.attach_refusal(slice_)
    if stranger or away:
        return stranger or away
    if slice_.name in state.waiting:
        text = (
            f"slice {slice_.name} is waiting for its device: an administrator resizes it (vgpu slice set) or removes it"
        )
        return Denied(Reason.PRECONDITION, text)
    return None


def _save_binding(state: State, old_slice: Slice, new_slice: Slice) -> list[Command]:
    """Keeps a slice that was pending on its devices from now on."""
    if new_slice is old_slice:
        return []
    state.slices[new_slice.name] = new_slice
    log = Log(
        "slice.bound",
        f"slice {new_slice.name}: {describe(new_slice, state)}",
        new_slice.name,
        new_slice.shares[0].device_uuid,
    )
    return [SaveSlice(new_slice), ApplySlice(new_slice), log]


def on_disconnected(state: State, event: ProcessDisconnected, now_ns: int) -> list[Command]:
    process = state.processes.get(event.process_id)
    if process is None:
        return []
    state.processes[process.process_id] = replace(process, disconnected_ns=max(1, now_ns))
    return []  # no event: a program that ends closes its connection a moment before


def on_gone(state: State, event: ProcessGone, now_ns: int) -> list[Command]:
    process = state.processes.pop(event.process_id, None)
    if process is None:
        return []
    commands: list[Command] = [DropProcess(process.process_id)]
    if not process.holder:
        text = f"pid {process.pid} ({process.program}) ended"
        commands.append(Log("process.detached", text, process.slice_name, process_id=process.process_id))
    left = state.slices.get(process.slice_name)
    if left is not None and left.origin.ephemeral and not in_use(state, left.name):
        commands += end(state, left, "its holder ended" if process.holder else "its last program ended")
    return commands
