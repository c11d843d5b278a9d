"""Drains: which devices are offered, not drained ones (by an operator or a fault), and not what others hold of them.
Pure.

Nothing new is placed on a device that is not offered. Slices that are there keep running and keep what they have.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from vgpud.core.events import (
    Answer,
    Command,
    DevicesTaken,
    DrainDevice,
    ForgetDrain,
    Log,
    SaveDrain,
    UndrainDevice,
)
from vgpud.core.model import ANYONE, Denied, Device, Drain, Reason, Share, Slice, Spec, State

REASON_BYTES_MAX = 200


def find(name: str, state: State) -> Device | Denied:
    """The device with this UUID or index."""
    by_index = {str(device.index): device for device in state.devices.values()}
    found = state.devices.get(name) or by_index.get(name)
    if found:
        return found
    have = ", ".join(f"{d.index} ({d.uuid})" for d in state.devices.values()) or "none"
    return Denied(Reason.NOT_FOUND, f"no device {name!r} on this node: it has {have}", field="device_uuids")


def with_uuids(spec: Spec, state: State) -> Spec:
    """The same spec with UUIDs for indices. Names of no device, and too many of them, are left to admission to
    refuse."""
    if len(spec.device_uuids) > len(state.devices):
        return spec
    found = [(name, find(name, state)) for name in spec.device_uuids]
    uuids = tuple(device.uuid if isinstance(device, Device) else name for name, device in found)
    return spec if uuids == spec.device_uuids else replace(spec, device_uuids=uuids)


def refusal(
    devices: Collection[Device], state: State, *, claim: bool = False, tolerates_drain: bool = False
) -> Denied | None:
    """Why none of these is offered, or to claims of Kubernetes (`claim`); None when one is. tolerates_drain: a drained
    one is."""
    found = ((device, state.closed(device.uuid, claim=claim, tolerates_drain=tolerates_drain)) for device in devices)
    closed = [(device, why) for device, why in found if why]
    if len(closed) < len(devices) or not closed:
        return None
    if not claim and all(state.of_kubernetes(device.uuid) for device in devices):
        return Denied(Reason.PRECONDITION, kubernetes_text(devices), subject=closed[0][0].uuid)
    said = "; ".join(f"device {device.index} is {why}" for device, why in closed)
    return Denied(Reason.PRECONDITION, f"{said}: see `vgpu gpu ls`", subject=closed[0][0].uuid)


def kubernetes_text(devices: Collection[Device]) -> str:
    """Why only claims are placed on these, and what to do."""
    names, many = ", ".join(str(device.index) for device in devices), len(devices) > 1
    belong, them = ("s {} belong", "them") if many else (" {} belongs", "it")
    text = f"device{belong.format(names)} to Kubernetes here (devices.kubernetes in vgpud.toml):"
    return f"{text} ask for {them} with a ResourceClaim, for example `vgpu claim 0.5`"


def growth_refusal(old: Slice, shares: Collection[Share], state: State) -> Denied | None:
    """Why a slice that is no claim's does not grow to these shares, or None: it may have been on a device before that
    was given to Kubernetes, and the scheduler gives away what it does not have."""
    for share in shares:
        had = old.share(share.device_uuid)
        more = had is None or share.min_milli > had.min_milli or share.mem_min_bytes > had.mem_min_bytes
        if more and state.of_kubernetes(share.device_uuid):
            text = f"slice {old.name} keeps what it has there: {kubernetes_text([state.devices[share.device_uuid]])}"
            return Denied(Reason.PRECONDITION, text, subject=share.device_uuid)
    return None


def on_drain(state: State, event: DrainDevice, now_ns: int) -> list[Command]:
    """An operator's reason replaces an earlier one; a fault's does not."""
    device = find(event.device, state)
    if isinstance(device, Denied):
        return [Answer(device)]
    reason = event.reason.strip()
    if not reason or len(reason.encode()) > REASON_BYTES_MAX or not reason.isprintable():
        text = f"reason {reason!r} does not tell why: write one line of at most {REASON_BYTES_MAX} bytes (--reason)"
        return [Answer(Denied(Reason.INVALID, text, field="reason"))]
    drain = Drain(device.uuid, reason, event.by_fault)
    known = state.drains.get(device.uuid)
    if known == drain or (known and event.by_fault):
        return [Answer(None)]
    state.drains[device.uuid] = drain
    text = f"device {device.index} is drained: {reason}; nothing new is placed there, running programs continue"
    log = Log("device.drained", text, device_uuid=device.uuid, owner_uid=ANYONE)
    return [SaveDrain(drain), log, Answer(None)]


def on_undrain(state: State, event: UndrainDevice, now_ns: int) -> list[Command]:
    device = find(event.device, state)
    if isinstance(device, Denied):
        return [Answer(device)]
    known = state.drains.pop(device.uuid, None)
    if known is None:
        return [Answer(None)]
    text = f"device {device.index} is offered again: it was drained ({known.reason})"
    log = Log("device.undrained", text, device_uuid=device.uuid, owner_uid=ANYONE)
    return [ForgetDrain(device.uuid), log, Answer(None)]


def on_devices_taken(state: State, event: DevicesTaken, now_ns: int) -> list[Command]:
    """Takes over what other programs use of all devices now. Logged are devices that are taken as a whole, and the end
    of that."""
    before, state.taken_devices = state.taken_devices, {one.device_uuid: one for one in event.taken_devices}
    commands: list[Command] = []
    for device in state.devices.values():
        old, new = before.get(device.uuid), state.taken_devices.get(device.uuid)
        was, now = (str(one) if one and one.is_whole_device else "" for one in (old, new))
        if now and now != was:
            text = f"device {device.index} is {now}: nothing new is placed there"
            kind = "device.lost" if new and new.is_lost else "device.taken"
            commands.append(Log(kind, text, device_uuid=device.uuid, owner_uid=ANYONE))
        elif was and not now:
            text = f"device {device.index} is offered again: it was {was}"
            commands.append(Log("device.free", text, device_uuid=device.uuid, owner_uid=ANYONE))
    return commands
