"""Residency of a slice: whether its memory is on the device, on the host, or on its way. Pure.

The daemon moves the memory of slices that rotate or are idle (rotation.py decides), their users do nothing. It is apart
from suspending, which users and the queue do (suspend.py): an away slice keeps its guaranteed time, and its next call
brings it back. The steps in between are saved before they are carried out: a daemon that finds `leaving` or `coming`
after a crash asks the driver how far it got.
"""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.events import Answer, ApplySlice, Command, Log, MoveMemory, SaveSlice
from vgpud.core.model import AWAY, COMING, EVICTION, LEAVING, Denied, Reason, Slice, State
from vgpud.core.slices.make import unknown

#: from where one may go where
STEPS = {
    "": {LEAVING},
    LEAVING: {"", AWAY},
    AWAY: {COMING},
    COMING: {"", AWAY},
}


def on_move_memory(state: State, event: MoveMemory, now_ns: int) -> list[Command]:
    """All of its steps, or none. The answer is the first slice as it is then."""
    for name, to in event.steps:
        wrong = _step_refusal(state.slices.get(name), name, to)
        if wrong:
            return [Answer(wrong)]
    commands: list[Command] = []
    for name, to in event.steps:
        old = state.slices[name]
        asleep = event.wall_ns * event.falls_asleep if to == LEAVING else old.asleep_wall_ns if to else 0
        away = event.wall_ns if (old.residency, to) == (LEAVING, AWAY) else old.away_wall_ns if to else 0
        new = replace(old, residency=to, asleep_wall_ns=asleep, away_wall_ns=away, revision=old.revision + 1)
        state.slices[name] = new
        commands += [SaveSlice(new), ApplySlice(new)]
        if to == AWAY and old.residency == LEAVING and asleep:
            commands.append(
                Log("slice.asleep", f"slice {name} is asleep: it was idle, its memory is on the host", name)
            )
        elif not to and old.asleep_wall_ns and old.residency == COMING and state.processes_of(name):
            commands.append(Log("slice.awake", f"slice {name} is awake: its memory is on the device again", name))
    return [*commands, Answer(state.slices[event.steps[0][0]])]


def _step_refusal(old: Slice | None, name: str, to: str) -> Denied | None:
    if old is None:
        return unknown(name)
    if old.suspended in EVICTION or old.pending:
        text = f"slice {name} is {old.suspended or 'pending'}: it has no memory to move"
        return Denied(Reason.PRECONDITION, text)
    if to not in STEPS[old.residency]:
        text = f"slice {name} is {old.residency or 'resident'}, from which it cannot become {to or 'resident'}"
        return Denied(Reason.PRECONDITION, text)
    return None


def removal_refusal(state: State, slice_: Slice) -> Denied | None:
    """Why a slice with programs is not taken from them now: no other would bring their memory back."""
    running = state.processes_of(slice_.name)
    if not slice_.residency or not running:
        return None
    text = f"slice {slice_.name} is {slice_.residency}: pid {running[0].pid} has its memory on the host: end it first"
    return Denied(Reason.PRECONDITION, text)
