"""Suspending a slice: paused (its gates are closed), or evicted (its device memory is moved to the host as well). Pure.

What a suspended slice gives up is offered to other slices: of a paused one its share of time, of an evicted one its
memory, too. So resuming needs free capacity again, on the same devices. The steps in between are saved before they are
carried out: a daemon that finds `evicting` or `restoring` after a crash asks the driver how far it got.
"""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.events import Answer, ApplySlice, Command, Log, SaveSlice, SuspendSlice
from vgpud.core.model import AWAY, EVICTED, EVICTING, EVICTION, PAUSED, RESTORING, Denied, Reason, Slice, State
from vgpud.core.slices import pending, queue_quota
from vgpud.core.slices.make import unknown
from vgpud.core.units import MILLI_PER_DEVICE, format_bytes, format_gpus

#: from where one may go where
STEPS = {
    "": {PAUSED, EVICTING},
    PAUSED: {"", EVICTING},
    EVICTING: {"", PAUSED, EVICTED},
    EVICTED: {RESTORING},
    RESTORING: {"", EVICTED},
}
_DONE = {"": "is resumed", PAUSED: "is paused", EVICTED: "is evicted: its memory is on the host"}


def on_suspend(state: State, event: SuspendSlice, now_ns: int) -> list[Command]:
    """One step of it. The answer is the slice as it is then; a step that changes nothing is answered as well."""
    old = state.slices.get(event.name)
    if old is None:
        return [Answer(unknown(event.name))]
    if event.to == old.suspended:
        return [Answer(old)]
    wrong = (
        _step_refusal(old, event) or _eviction_refusal(state, old, event.to) or _capacity_refusal(state, old, event.to)
    )
    if wrong:
        return [Answer(wrong)]
    new = _take_step(old, event.to, event.wall_ns)
    state.slices[new.name] = new
    said = _DONE.get(new.suspended)
    log: list[Command] = []
    if said and (old.suspended, event.to) != (EVICTING, ""):
        text = f"slice {new.name} {said}" + (f": {event.why}" if event.why else "")
        log.append(Log(f"slice.{new.suspended or 'resumed'}", text, new.name))
    return [SaveSlice(new), ApplySlice(new), *log, Answer(new)]


def _take_step(old: Slice, to: str, wall_ns: int) -> Slice:
    """Memory that the daemon has moved to the host is evicted at once; of a slice with mem_swap it comes back in its
    turn (rotation.py)."""
    if to == EVICTING and old.residency == AWAY:
        to, old = EVICTED, replace(old, residency="", asleep_wall_ns=0)
    elif to == RESTORING and old.spec.mem_swap:
        to, old = "", replace(old, residency=AWAY)
    elif to == EVICTED and old.suspended == EVICTING:
        old = replace(old, away_wall_ns=wall_ns)
    away = old.away_wall_ns if to in (EVICTED, RESTORING) or old.residency else 0
    return replace(old, suspended=to, away_wall_ns=away, revision=old.revision + 1)


def attach_refusal(slice_: Slice) -> Denied | None:
    """Why no further program may join: its memory would be a part that is not away. A paused slice's waits."""
    if slice_.suspended not in EVICTION:
        return None
    text = f"slice {slice_.name} is evicted: `vgpu slice resume {slice_.name}` first"
    return Denied(Reason.PRECONDITION, text)


def _step_refusal(old: Slice, event: SuspendSlice) -> Denied | None:
    kept = old.origin.refuse_suspension(event.job_id)
    if kept:
        return kept
    if old.pending:
        return pending.change_refusal(old)
    if event.to == EVICTING and old.residency not in ("", AWAY):
        text = f"slice {old.name} is {old.residency}: wait until its memory has been moved"
        return Denied(Reason.PRECONDITION, text)
    if event.to in STEPS[old.suspended]:
        return None
    if old.suspended in (EVICTING, RESTORING):
        text = f"slice {old.name} is being {'evicted' if old.suspended == EVICTING else 'restored'}: wait for its end"
    elif event.to in (PAUSED, EVICTING):
        text = f"slice {old.name} is {old.suspended} already"
    else:
        text = f"slice {old.name} is {old.suspended or 'not suspended'}: there is nothing to restore"
    return Denied(Reason.PRECONDITION, text)


def _eviction_refusal(state: State, old: Slice, to: str) -> Denied | None:
    """The driver moves one process at a time, and one that waits for a locked one hangs (DESIGN D11)."""
    if to != EVICTING:
        return None
    running = state.processes_of(old.name)
    if len(running) > 1:
        text = f"slice {old.name} has {len(running)} programs, and only a single one can be evicted: pause it instead"
        return Denied(Reason.PRECONDITION, text)
    return None


def _capacity_refusal(state: State, old: Slice, to: str) -> Denied | None:
    """Others may have taken what it gave up."""
    needs_time = to in ("", RESTORING) and old.suspended != RESTORING
    if not needs_time or old.name in state.waiting:
        return None
    for share in old.shares:
        device = state.devices[share.device_uuid]
        milli, size = state.reserved(share.device_uuid, excluded_slice=old.name, mem_swap=old.spec.mem_swap)
        left_milli, left_bytes = MILLI_PER_DEVICE - milli, device.memory_bytes - size
        if share.min_milli <= left_milli and share.mem_min_bytes <= left_bytes:
            continue
        wanted = format_gpus(share.min_milli)
        has = format_gpus(max(0, left_milli))
        if to == RESTORING:
            wanted += f" and memory {format_bytes(share.mem_min_bytes)}"
            has += f" and {format_bytes(max(0, left_bytes))}"
        text = f"slice {old.name} needs {wanted} of device {device.index} to resume, which has {has} left now:"
        text += " lower its minimum, or end or pause another slice there"
        return Denied(Reason.NO_CAPACITY, text, subject=share.device_uuid)
    width_milli = sum(share.min_milli for share in old.shares)
    if old.origin.queue_job_id:
        return None
    return queue_quota.limit_refusal(state, old.queue, width_milli, excluded_slice=old.name)
