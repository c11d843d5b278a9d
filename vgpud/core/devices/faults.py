"""Faults that the driver reports of a device, by their numbers (XIDs), in words for the event log. Pure."""

from __future__ import annotations

from vgpud.core.events import DrainDevice, Log
from vgpud.core.model import State

#: faults that an operator meets, in the words of NVIDIA's list of XIDs
_KNOWN = {
    13: "graphics engine exception: a program's illegal instruction or access",
    31: "memory page fault: a program's illegal access",
    43: "a program's work stopped",
    45: "clean-up after a program that ended or faulted",
    48: "double-bit ECC error",
    63: "row remapping or page retirement",
    64: "row remapping or page retirement failed",
    74: "NVLink error",
    79: "the device has fallen off the bus",
    92: "many single-bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP does not answer",
    120: "GSP error",
}
#: what a program's own fault leaves as it was for others on the device
_OF_PROGRAMS = frozenset((13, 31, 43, 45))

#: after these a device gets no new work before an operator has looked at it
_DRAINING = frozenset((48, 64, 74, 79, 95, 119, 120))


def in_words(xid: int) -> str:
    return _KNOWN.get(xid, "see NVIDIA's list of XIDs")


def is_devices(xid: int) -> bool:
    """Whether the fault concerns the device, and not only one program on it."""
    return xid not in _OF_PROGRAMS


def fault_drain(uuid: str, xid: int) -> DrainDevice | None:
    """What a fault does to its device: it is drained, unless the fault concerns a program only."""
    if not uuid or xid not in _DRAINING:
        return None
    return DrainDevice(
        uuid, f"XID {xid} ({_KNOWN[xid]}); see dmesg, repair or reset it, then undrain it", by_fault=True
    )


def fault_entry(state: State, uuid: str, xid: int) -> Log:
    """The entry for the event log, with the slices that were active there: the driver does not report which one caused
    it."""
    device = state.devices.get(uuid)
    where = f"device {device.index}" if device else "a device"
    there = sorted(
        {p.slice_name for p in state.processes.values() if not p.holder and _is_on(state, p.slice_name, uuid)}
    )
    whom = f"; programs there are of {', '.join(there)}" if there else ""
    remedy = "; see dmesg" if is_devices(xid) else ""
    return Log(
        "device.xid", f"XID {xid} on {where} ({in_words(xid)}){whom}{remedy}", there[0] if len(there) == 1 else "", uuid
    )


def _is_on(state: State, slice_name: str, uuid: str) -> bool:
    made = state.slices.get(slice_name)
    return made is not None and made.share(uuid) is not None
