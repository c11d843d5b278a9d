"""Devices that are drained, or that others have: nothing new is placed there, what is there stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_machine import GIB, answer, create, denial, make_state
from vgpud.core import events as ev
from vgpud.core.devices.faults import fault_drain
from vgpud.core.model import ANYONE, Denied, Drain, Reason, Share, Slice, Spec, State, Taken
from vgpud.core.origins import User
from vgpud.core.slices import admission, drains, invariants
from vgpud.core.slices.drains import REASON_BYTES_MAX
from vgpud.core.slices.machine import step


def drain(state: State, device: str = "0", reason: str = "a fan is broken") -> list[ev.Command]:
    return step(state, ev.DrainDevice(device, reason), 0)


def take_devices(state: State, *taken_devices: Taken) -> list[ev.Command]:
    return step(state, ev.DevicesTaken(taken_devices), 0)


def create_slice(state: State, name: str, milli: int, **spec: Any) -> Slice:
    event = ev.CreateSlice("", User(name, "x"), Spec(milli, **spec), 0, f"uid-{name}", 1)
    result = answer(step(state, event, 0))
    assert isinstance(result, Slice), result
    invariants.check(state)
    return result


def test_nothing_new_on_a_drained_device_and_what_is_there_stays() -> None:
    state = make_state(2)
    first = create_slice(state, "a", 300)
    assert first.shares[0].device_uuid == "GPU-0"
    commands = drain(state)
    assert [type(c) for c in commands] == [ev.SaveDrain, ev.Log, ev.Answer]
    (log,) = (c for c in commands if isinstance(c, ev.Log))
    assert (log.kind, log.device_uuid, log.owner_uid) == ("device.drained", "GPU-0", ANYONE)
    assert log.message == (
        "device 0 is drained: a fan is broken; nothing new is placed there, running programs continue"
    )
    assert create_slice(state, "b", 300).shares[0].device_uuid == "GPU-1", "best fit would be the fuller one"
    assert state.slices["a"] == first
    resized = answer(step(state, ev.UpdateSlice("", "a", Spec(600), ("gpus_milli",)), 0))
    assert isinstance(resized, Slice), "it is there already"
    assert resized.shares[0].device_uuid == "GPU-0"


def test_a_refusal_names_the_reason() -> None:
    state = make_state(2)
    drain(state)
    for spec in (Spec(300, device_uuids=("0",)), Spec(300, device_uuids=("GPU-0",))):
        refused = admit_refusal(state, spec)
        assert refused.reason is Reason.PRECONDITION
        assert refused.message == "device 0 is drained: a fan is broken: see `vgpu gpu ls`"
    both = admit_refusal(state, Spec(2000))
    assert both.reason is Reason.PRECONDITION
    assert both.message.startswith("2 devices are needed, 1 offered: device 0 is drained: a fan is broken")
    drain(state, "1", "so is another")
    neither = admit_refusal(state, Spec(1000))
    assert "device 0 is drained: a fan is broken; device 1 is drained: so is another" in neither.message


def admit_refusal(state: State, spec: Spec) -> Denied:
    result = answer(step(state, ev.CreateSlice("", User("x", "x"), spec, 0, "u", 1), 0))
    assert isinstance(result, Denied), result
    return result


def test_undrained_it_is_offered_again() -> None:
    state = make_state(1)
    drain(state)
    commands = step(state, ev.UndrainDevice("GPU-0"), 0)
    assert commands[0] == ev.ForgetDrain("GPU-0")
    create_slice(state, "a", 500)
    assert step(state, ev.UndrainDevice("0"), 0) == [ev.Answer(None)], "twice does no harm"


def test_draining_again() -> None:
    state = make_state(1)
    drain(state)
    assert drain(state) == [ev.Answer(None)]
    drain(state, reason="another")
    assert state.drains["GPU-0"] == Drain("GPU-0", "another")
    step(state, ev.DrainDevice("0", "XID 79", by_fault=True), 0)
    assert state.drains["GPU-0"].reason == "another", "an operator knows better than a number"


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "x" * (REASON_BYTES_MAX + 1)])
def test_a_reason_that_says_nothing(reason: str) -> None:
    state = make_state(1)
    assert "(--reason)" in denial(drain(state, reason=reason), Reason.INVALID)
    assert not state.drains


@pytest.mark.parametrize("event", [ev.DrainDevice("7", "x"), ev.UndrainDevice("GPU-7")])
def test_no_such_device(event: ev.DrainDevice | ev.UndrainDevice) -> None:
    said = denial(step(make_state(1), event, 0), Reason.NOT_FOUND)
    assert said == f"no device {event.device!r} on this node: it has 0 (GPU-0)"


def test_drains_outlive_the_daemon() -> None:
    old = make_state(2)
    drain(old)
    state = State()
    devices, drains = tuple(old.devices.values()), tuple(old.drains.values())
    step(state, ev.Started(old.policy, devices, (), (), (), drains), 0)
    assert state.closed("GPU-0") == "drained: a fan is broken"


def test_faults_of_a_device_drain_it_and_those_of_programs_do_not() -> None:
    for xid in (13, 31, 43, 45, 63, 94, 777):
        assert fault_drain("GPU-0", xid) is None
    event = fault_drain("GPU-0", 79)
    assert event is not None
    state = make_state(1)
    step(state, event, 0)
    assert state.drains["GPU-0"].by_fault
    assert state.closed("GPU-0").startswith("drained: XID 79 (the device has fallen off the bus); see dmesg")
    assert fault_drain("", 79) is None, "the driver does not say which"


def test_a_device_that_something_else_has() -> None:
    state = make_state(2)
    commands = take_devices(state, Taken("GPU-0", "MIG mode"))
    assert [c.kind for c in commands if isinstance(c, ev.Log)] == ["device.taken"]
    assert take_devices(state, Taken("GPU-0", "MIG mode")) == [], "told once"
    assert "device 0 is taken by MIG mode" in admit_refusal(state, Spec(300, device_uuids=("0",))).message
    assert create_slice(state, "a", 300).shares[0].device_uuid == "GPU-1"
    assert [c.kind for c in take_devices(state) if isinstance(c, ev.Log)] == ["device.free"]
    assert create_slice(state, "b", 300, device_uuids=("0",)).shares[0].device_uuid == "GPU-0"


def test_memory_of_programs_outside_slices_is_not_offered() -> None:
    state = make_state(1)
    first = create_slice(state, "a", 100, mem_min_bytes=10 * GIB, mem_max_bytes=10 * GIB)
    take_devices(state, Taken("GPU-0", "a program", is_whole_device=False, memory_bytes=30 * GIB))
    refused = admit_refusal(state, Spec(100, mem_min_bytes=41 * GIB, mem_max_bytes=41 * GIB))
    assert "40GiB (programs outside slices hold 30GiB)" in refused.message
    create_slice(state, "b", 100, mem_min_bytes=40 * GIB, mem_max_bytes=40 * GIB)
    take_devices(state, Taken("GPU-0", "a program", is_whole_device=False, memory_bytes=60 * GIB))
    less = Spec(100, mem_min_bytes=5 * GIB, mem_max_bytes=5 * GIB)
    for name, patch in ((first.name, less), (first.name, Spec(50))):
        fields = ("mem_min_bytes", "mem_max_bytes") if patch is less else ("gpus_milli",)
        result = answer(step(state, ev.UpdateSlice("", name, patch, fields), 0))
        assert isinstance(result, Slice), "who takes less, or no more, is not refused for what others have"


def test_a_job_is_not_put_where_nothing_is_offered() -> None:
    state = make_state(1)
    share = Share("GPU-0", 300, 300, GIB, GIB)
    drain(state)
    refused = admission.check_shares((share,), state)
    assert isinstance(refused, Denied)
    assert refused.reason is Reason.PRECONDITION


@given(
    st.lists(
        st.one_of(
            st.builds(ev.DrainDevice, st.sampled_from("012"), st.just("why")),
            st.builds(ev.UndrainDevice, st.sampled_from("012")),
            st.builds(
                ev.DevicesTaken,
                st.lists(
                    st.builds(
                        Taken,
                        st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]),
                        st.just("it"),
                        st.booleans(),
                        st.integers(0, 80 * GIB),
                    ),
                    max_size=3,
                    unique_by=lambda one: one.device_uuid,
                ).map(tuple),
            ),
            st.integers(100, 3000),
        ),
        max_size=25,
    )
)
def test_what_is_new_is_on_offered_devices_alone(events: list[ev.Event | int]) -> None:
    state = make_state(3)
    for number, event in enumerate(events):
        if not isinstance(event, int):
            step(state, event, 0)
            continue
        closed = {uuid for uuid in state.devices if state.closed(uuid)}
        result = answer(step(state, create(f"s{number}", event, uid=f"u{number}"), 0))
        if isinstance(result, Slice):
            assert not closed & {share.device_uuid for share in result.shares}
            for share in result.shares:
                held = state.reserved(share.device_uuid)[1] + state.foreign_bytes(share.device_uuid)
                assert held <= state.devices[share.device_uuid].memory_bytes or not share.mem_min_bytes
        invariants.check(state)


def test_more_names_than_devices_are_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request can hold a hundred thousand, and the daemon has one loop."""
    state = make_state(2)
    monkeypatch.setattr(drains, "find", lambda *_: pytest.fail("it was looked up"))
    spec = Spec(1000, device_uuids=("0",) * 3)
    assert drains.with_uuids(spec, state) is spec
