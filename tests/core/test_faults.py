"""Faults of a device as the event log reports them."""

from __future__ import annotations

from vgpud.core.devices.faults import fault_entry
from vgpud.core.model import Device, Process, Share, Slice, Spec, State
from vgpud.core.origins import User

GIB = 1 << 30


def node(*slices: str) -> State:
    device = Device("GPU-0", 3, "FAKE", "", 8 * GIB, 132, False, 0, 2 << 20)
    made = {n: Slice(User(n), n, 1, Spec(500), (Share("GPU-0", 500, 500, GIB, GIB),), -1, 0) for n in ("a", "b")}
    processes = {i: Process(i, n, 100 + i, 0, "p", 0, False) for i, n in enumerate(slices)}
    return State(devices={"GPU-0": device}, slices=made, processes=processes)


def test_who_was_there_is_named() -> None:
    entry = fault_entry(node("a", "a"), "GPU-0", 31)
    assert (entry.kind, entry.slice_name, entry.device_uuid) == ("device.xid", "a", "GPU-0")
    assert (
        entry.message == "XID 31 on device 3 (memory page fault: a program's illegal access); programs there are of a"
    )
    both = fault_entry(node("a", "b"), "GPU-0", 79)
    assert both.slice_name == "", "nobody knows whose it is"
    assert both.message.endswith("; programs there are of a, b; see dmesg")


def test_what_is_not_known() -> None:
    assert fault_entry(node(), "GPU-9", 777).message == "XID 777 on a device (see NVIDIA's list of XIDs); see dmesg"
