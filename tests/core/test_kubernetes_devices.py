"""Devices given to Kubernetes: nothing but claims is placed there, whatever asks, and each refusal says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.placement.world import ask, job, node
from tests.core.test_claims import prepare_event, share
from tests.core.test_containers import asks, messages, send
from tests.core.test_machine import GIB, answer, create, denial, device, make_state
from vgpud.api.slice_messages import device_view
from vgpud.core import events as ev
from vgpud.core.model import ALL_DEVICES, Reason, SiteLimits, Slice, Spec, State
from vgpud.core.observed import Reading
from vgpud.core.origins import User
from vgpud.core.placement.cluster import Cluster
from vgpud.core.slices.machine import step

NOTHING = Reading(None, None)
ASK = "ask for it with a ResourceClaim, for example `vgpu claim 0.5`"
ONE = f"device 0 belongs to Kubernetes here (devices.kubernetes in vgpud.toml): {ASK}"
BOTH = "devices 0, 1 belong to Kubernetes here (devices.kubernetes in vgpud.toml): ask for them with a ResourceClaim"


def make_kubernetes_state(*names: str, devices: int = 2) -> State:
    return make_state(devices, kubernetes_devices=names)


def create_on_devices(state: State, event: ev.Event) -> list[str]:
    """The devices of the slice that is made."""
    made = answer(step(state, event, 0))
    assert isinstance(made, Slice), made
    return [one.device_uuid for one in made.shares]


# ---- slices and containers ----


@pytest.mark.parametrize(
    "event",
    [create("a", 500), create("a", 500, cdi_device=True), asks(), asks(milli=1000), create("a", 1, ephemeral=True)],
)
def test_all_of_them(event: ev.Event) -> None:
    assert denial(step(make_kubernetes_state(ALL_DEVICES, devices=1), event, 0), Reason.PRECONDITION) == ONE
    assert denial(step(make_kubernetes_state(ALL_DEVICES), event, 0), Reason.PRECONDITION).startswith(BOTH)


@pytest.mark.parametrize("name", ["0", "GPU-0"])
def test_a_list_leaves_the_others(name: str) -> None:
    state = make_kubernetes_state(name)
    assert create_on_devices(state, create("a", 500)) == ["GPU-1"]
    assert create_on_devices(state, asks(milli=400)) == ["GPU-1"]
    full = denial(step(state, create("b", 500), 0), Reason.NO_CAPACITY)
    assert "device 1 has the most free: 0.1 GPU and" in full and "(Kubernetes has device 0)" in full
    many = denial(step(state, create("c", 2000), 0), Reason.PRECONDITION)
    assert many == f"2 devices are needed, 1 offered: {ONE}"
    for wanted in ("0", "GPU-0"):
        named = ev.CreateSlice("", User("d", "x"), Spec(100, device_uuids=(wanted,)), 0, "u", 1)
        assert denial(step(state, named, 0), Reason.PRECONDITION) == ONE


def test_a_drained_one_beside_it_is_named_too() -> None:
    state = make_kubernetes_state("0")
    step(state, ev.DrainDevice("1", "a fan is broken"), 0)
    text = denial(step(state, create("a", 500), 0), Reason.PRECONDITION)
    assert text == (
        "device 0 is given to Kubernetes (devices.kubernetes); device 1 is drained: a fan is broken: see `vgpu gpu ls`"
    )


# ---- the setting was changed while slices were there ----


def restart_with_policy(old: State, **policy: Any) -> tuple[State, list[ev.Command]]:
    state = State()
    event = ev.Started(SiteLimits(**policy), tuple(old.devices.values()), tuple(old.slices.values()), ())
    return state, step(state, event, 0)


def test_slices_that_were_there_stay_do_not_grow_and_are_named() -> None:
    old = make_state(1)
    made = answer(step(old, create("a", 500), 0))
    state, commands = restart_with_policy(old, kubernetes_devices=(ALL_DEVICES,))
    assert "a" not in state.waiting
    (said,) = messages(commands, "slice.beside_claims")
    assert said == (
        "slice a has a part of device 0, which belongs to Kubernetes now (devices.kubernetes): no claim is placed"
        " there until it ends"
    )

    def update(**fields: Any) -> list[ev.Command]:
        return step(state, ev.UpdateSlice("", "a", replace(Spec(0), **fields), tuple(fields)), 0)

    for more in ({"gpus_milli": 600}, {"min_milli": 501, "max_milli": 501}, {"mem_min_bytes": 60 * GIB}):
        if "mem_min_bytes" in more:
            more |= {"mem_max_bytes": 60 * GIB}
        assert denial(update(**more), Reason.PRECONDITION) == f"slice a keeps what it has there: {ONE}"
    assert isinstance(made, Slice) and state.slices["a"].shares == made.shares
    assert isinstance(answer(update(max_milli=900, weight=3)), Slice)
    assert isinstance(answer(update(min_milli=200)), Slice)


def test_claims_that_were_there_stay_when_the_device_is_taken_back() -> None:
    old = make_kubernetes_state(ALL_DEVICES, devices=1)
    assert isinstance(answer(send(old, prepare_event(share(500)))), Slice)
    state, commands = restart_with_policy(old)
    assert not messages(commands, "slice.beside_claims")
    assert isinstance(answer(send(state, prepare_event(share(500)))), Slice), "kubelet asks again after a restart"
    other = prepare_event(share(100), uid="99999999-2222-3333-4444-555555555555")
    text = denial(send(state, other), Reason.PRECONDITION)
    assert "device 0 is not given to Kubernetes (devices.kubernetes)" in text
    assert create_on_devices(state, create("a", 500)) == ["GPU-0"]


# ---- the queue ----


def cluster(*names: str) -> Cluster:
    return Cluster([node("a", 2)], SiteLimits(kubernetes_devices=names))


@pytest.mark.parametrize(
    ("names", "new_job", "message"),
    [
        ((ALL_DEVICES,), job(500), "devices 0, 1 belong to Kubernetes here"),
        (("0",), job(500), ""),
        (("0",), job(ask(2000)), "2 devices are needed, 1 offered: device 0 belongs to Kubernetes here"),
        (("0",), job(ask(500, device_uuids=("a/0",))), "device 0 belongs to Kubernetes here"),
        (("a/1",), job(ask(500, device_uuids=("a/0",))), ""),
        (("0",), job(1000, 2), "2 members of 1 GPU each: this node holds 1 beside Kubernetes' devices"),
        ((ALL_DEVICES,), job(ask(0, 1000)), ""),
    ],
)
def test_a_job_that_needs_them_is_refused_for_ever(names: tuple[str, ...], new_job: Any, message: str) -> None:
    found = cluster(*names).never_fits_reason(new_job)
    assert found.startswith(message) and bool(found) == bool(message)


# ---- what is shown ----


def test_the_api_says_to_whom_a_device_is_offered() -> None:
    state = make_kubernetes_state("1")
    shown = [device_view(device(n), "n", state, NOTHING) for n in range(2)]
    assert [(one.offered, one.kubernetes) for one in shown] == [(True, False), (True, True)]
    step(state, ev.DrainDevice("1", "a fan is broken"), 0)
    assert not device_view(device(1), "n", state, NOTHING).offered
