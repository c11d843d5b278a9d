"""Which cgroup may have how much of which device, behind the ledger."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import make_device, make_slice
from vgpud.core.devices.fence import fences, reserve_bytes
from vgpud.core.model import Container, Process, Share, State

MIB, GIB = 1 << 20, 1 << 30


def make_container(slice_name: str, cgroup: str) -> Container:
    return Container(f"id{cgroup}", slice_name, False, 1, 1, cgroup, 0, started=bool(cgroup))


def make_state(*names: str, profile: str = "") -> State:
    device = replace(make_device(0), profile=profile)
    share = Share(device.uuid, 500, 500, 2 * GIB, 4 * GIB)
    return State(devices={device.uuid: device}, slices={name: make_slice(name, share) for name in names})


def test_each_group_of_a_slice_has_its_maximum_and_the_reserve() -> None:
    state = make_state("a", "b")
    (device,) = state.devices.values()
    one, two = make_container("a", "/one"), make_container("a", "/two")
    state.containers = {each.container_id: each for each in (one, two, make_container("b", ""))}
    hard_bytes = 4 * GIB + reserve_bytes(device, 0)
    expected = {(group, device.uuid): hard_bytes for group in ("/one", "/two", "/run")}
    assert fences(state, {"b": ["/run"], "gone": ["/x"]}) == expected


def test_a_slice_that_waits_or_has_an_instance_has_none() -> None:
    state = make_state("a")
    state.waiting.add("a")
    assert fences(state, {"a": ["/a"]}) == {}
    assert fences(make_state("a", profile="1g.18gb"), {"a": ["/a"]}) == {}


def test_the_reserve_grows_in_steps_and_is_never_short() -> None:
    """What the ledger does not count is up to 128 MiB for each process, and a context more is free for a stranger."""
    device = make_device(0)
    sizes = [reserve_bytes(device, count) for count in range(300)]
    assert sizes == sorted(sizes) and len(set(sizes)) < 9
    assert all(size >= device.context_bytes + 2 * count * 128 * MIB for count, size in enumerate(sizes))


def test_holders_are_no_processes() -> None:
    state = make_state("a")
    for number in range(20):
        state.processes[number] = Process(number, "a", number, 0, "vgpu run", 0, False, holder=True)
    (device,) = state.devices.values()
    assert fences(state, {"a": ["/a"]})["/a", device.uuid] == 4 * GIB + reserve_bytes(device, 0)
