"""Pending slices: nothing is reserved until a program names its device, and then all that is promised, or a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.test_machine import GIB, S, answer, command_types, create, denial, device, make_state, process
from vgpud.core import events as ev
from vgpud.core.model import ALL_DEVICES, PAUSED, Denied, Quota, Reason, SiteLimits, Slice, Spec, State
from vgpud.core.origins import Container, User
from vgpud.core.slices import invariants
from vgpud.core.slices.attach_rules import attach_rules
from vgpud.core.slices.machine import step


def pending(name: str = "a", milli: int = 500, **options: Any) -> ev.CreateSlice:
    return create(name, milli, ephemeral=True, pending=True, **options)


def attach_process(
    state: State, *named_uuids: str, number: int = 1, name: str = "a", **fields: Any
) -> list[ev.Command]:
    event = ev.ProcessAttached(replace(process(number, name), **fields), named_uuids=named_uuids)
    commands = step(state, event, 0)
    invariants.check(state)
    return commands


def node(count: int = 2, **policy: Any) -> State:
    """A node on which slice a is pending, for half a device."""
    state = make_state(count, **policy)
    assert isinstance(answer(step(state, pending(), 0)), Slice)
    invariants.check(state)
    return state


def test_it_reserves_nothing_until_it_is_bound() -> None:
    state = node()
    assert state.slices["a"].pending and state.reserved("GPU-0") == state.reserved("GPU-1") == (0, 0)
    commands = attach_process(state, "GPU-1")
    assert command_types(commands)[:4] == [ev.SaveSlice, ev.ApplySlice, ev.Log, ev.AdmitProcess], (
        "saved, then carried out"
    )
    made = state.slices["a"]
    assert [s.device_uuid for s in made.shares] == ["GPU-1"] and made.spec.device_uuids == ("GPU-1",)
    assert state.reserved("GPU-1") == (500, 40 * GIB) and state.reserved("GPU-0") == (0, 0)
    (admitted,) = [c for c in commands if isinstance(c, ev.AdmitProcess)]
    assert admitted.slice == made


def test_further_programs_join_it_where_it_is() -> None:
    state = node()
    attach_process(state, "GPU-1")
    commands = attach_process(state, "GPU-0", number=2)
    assert ev.SaveSlice not in command_types(commands) and ev.AdmitProcess in command_types(commands)
    assert [s.device_uuid for s in state.slices["a"].shares] == ["GPU-1"]


def test_whole_devices() -> None:
    state = make_state(3)
    step(state, pending(milli=2000), 0)
    assert "for 2 device(s): CUDA_VISIBLE_DEVICES names 1" in denial(
        attach_process(state, "GPU-0"), Reason.PRECONDITION
    )
    attach_process(state, "GPU-2", "GPU-0")
    assert [s.device_uuid for s in state.slices["a"].shares] == ["GPU-0", "GPU-2"]


@pytest.mark.parametrize(
    ("named_uuids", "reason", "message"),
    [
        ((), Reason.PRECONDITION, "names no device by its UUID"),
        (("GPU-0", "GPU-1"), Reason.PRECONDITION, "names 2"),
        (("GPU-9",), Reason.PRECONDITION, "no device 'GPU-9'"),
        (("GPU-0",), Reason.PRECONDITION, "device 0 has the most free: 0.4 GPU"),
    ],
)
def test_refusals_change_nothing_and_say_why(named_uuids: tuple[str, ...], reason: Reason, message: str) -> None:
    state = node()
    step(state, ev.CreateSlice("", User("other", "x"), Spec(600, device_uuids=("0",)), 0, "u", 1), 0)
    before = state.copy()
    text = denial(attach_process(state, *named_uuids), reason)
    assert message in text and len(text.encode()) < 256, "it fits an answer of the attach socket"
    assert state == before
    attach_process(state, "GPU-1")
    assert not state.slices["a"].pending, "the program may choose another device and try again"


def test_closed_devices_and_quotas_count_when_it_is_bound() -> None:
    state = node(direct="quota")
    step(state, ev.DrainDevice("0", "fans"), 0)
    assert "drained: fans" in denial(attach_process(state, "GPU-0"), Reason.PRECONDITION)
    step(state, ev.QuotasChanged((Quota("default", limit_milli=400),)), 0)
    assert "queue default has a limit of 0.4" in denial(attach_process(state, "GPU-1"), Reason.PRECONDITION)
    step(state, ev.QuotasChanged((Quota("default"),)), 0)
    step(state, ev.DevicesReserved((("GPU-1", "vision", "reserved for queue vision"),)), 0)
    assert "reserved for queue vision" in denial(attach_process(state, "GPU-1"), Reason.PRECONDITION)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (pending(cdi_device=True), "no CDI device"),
        (replace(pending(), spec=Spec(500, device_uuids=("0",))), "leave the devices"),
        (replace(pending(), spec=Spec(500, mem_max_bytes=90 * GIB)), "90GiB is more"),
        (replace(pending(), spec=Spec(500, max_milli=400)), "above max"),
        (replace(pending(), spec=Spec(3000)), "this node has 2"),
    ],
    ids=["cdi", "devices", "memory", "max", "count"],
)
def test_what_can_never_be_is_refused_at_once(event: ev.CreateSlice, message: str) -> None:
    state = make_state(2)
    result = answer(step(state, event, 0))
    assert isinstance(result, Denied) and message in result.message
    assert not state.slices


def test_on_a_full_node_it_may_wait() -> None:
    state = make_state(1)
    step(state, create("full", 1000), 0)
    assert isinstance(answer(step(state, pending(), 0)), Slice)
    text = denial(attach_process(state, "GPU-0"), Reason.PRECONDITION)
    assert (
        text.startswith("slice a cannot be bound: no device has min 0.5")
        and "device 0 has the most free: 0 GPU" in text
    )
    step(state, ev.DeleteSlice("", "full", False), 0)
    assert ev.AdmitProcess in command_types(attach_process(state, "GPU-0"))


def test_where_all_is_given_to_kubernetes_there_is_none() -> None:
    state = make_state(2, kubernetes_devices=(ALL_DEVICES,))
    assert "belong to Kubernetes" in denial(step(state, pending(), 0), Reason.PRECONDITION)


def test_only_programs_use_it() -> None:
    state = node()
    said = "slice a is pending"
    assert said in denial(step(state, ev.UpdateSlice("", "a", Spec(200), ("gpus_milli",)), 0), Reason.PRECONDITION)
    assert said in denial(step(state, ev.SuspendSlice("a", PAUSED), 0), Reason.PRECONDITION)
    joins = ev.ContainerCreated("c1", None, "a", Container(""), 0, 1, 1, "u", 1)
    assert said in denial(step(state, joins, 0), Reason.PRECONDITION)
    assert not attach_rules(state).entries, "the attach thread knows no device for it"
    attach_process(state, "GPU-0")
    assert [entry.slice_name for entry in attach_rules(state).entries] == ["a"]
    assert isinstance(answer(step(state, ev.UpdateSlice("", "a", Spec(200), ("gpus_milli",)), 0)), Slice)
    assert [s.device_uuid for s in state.slices["a"].shares] == ["GPU-0"]


def test_it_ends_with_what_holds_it() -> None:
    state = node()
    step(state, ev.ProcessAttached(process(1, holder=True)), 0)
    assert state.slices["a"].pending, "one that only holds it binds nothing"
    attach_process(state, "GPU-0", number=2)
    step(state, ev.ProcessGone(2), 0)
    assert state.slices["a"].shares, "another program of the worker finds it bound"
    step(state, ev.ProcessGone(1), 0)
    assert not state.slices and state.reserved("GPU-0") == (0, 0)
    step(state, pending(), 0)
    step(state, ev.Tick(), 61 * S)
    assert not state.slices, "nothing attached in time"


def restart_state(state: State) -> State:
    fresh = State()
    devices = tuple(device(index) for index in range(2))
    step(fresh, ev.Started(SiteLimits(), devices, tuple(state.slices.values()), ()), 0)
    invariants.check(fresh)
    return fresh


def test_it_outlives_the_daemon() -> None:
    state = restart_state(node())
    assert state.slices["a"].pending and not state.waiting
    attach_process(state, "GPU-1")
    assert [s.device_uuid for s in restart_state(state).slices["a"].shares] == ["GPU-1"]


def test_a_program_comes_back_to_a_slice_whose_binding_was_not_saved() -> None:
    state = restart_state(node())
    back = replace(process(), is_resumed=True)
    commands = step(state, ev.ProcessAttached(back, (("GPU-1", GIB),), named_uuids=("GPU-1",)), 0)
    (admitted,) = [c for c in commands if isinstance(c, ev.AdmitProcess)]
    assert admitted.held == (("GPU-1", GIB),), "what it holds is charged"


def test_a_request_id_tells_pending_ones_apart() -> None:
    state = make_state(2)
    step(state, create(request_id="r", ephemeral=True), 0)
    assert "'r'" in denial(step(state, pending(request_id="r"), 0), Reason.INVALID)
