"""MIG instances among a node's devices: what is placed on them, and how they are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.test_machine import GIB, answer, denial, device
from vgpud.core import events as ev
from vgpud.core.model import (
    Denied,
    Device,
    Reason,
    Share,
    SiteLimits,
    Slice,
    Spec,
    State,
    gpu_of,
    instance_index,
)
from vgpud.core.origins import Claim, User
from vgpud.core.slices import admission, invariants
from vgpud.core.slices.machine import step


def instance(gpu: int, number: int, gibibytes: int = 10) -> Device:
    return replace(
        device(gpu),
        uuid=f"MIG-{gpu}-{number}",
        index=instance_index(gpu, number),
        memory_bytes=gibibytes * GIB,
        parent_uuid=f"GPU-{gpu}",
        profile=f"1g.{gibibytes}gb",
    )


def make_mig_state(*devices: Device, **policy: Any) -> State:
    state = State()
    step(state, ev.Started(SiteLimits(**policy), devices, (), ()), 0)
    return state


def create_slice(state: State, name: str, milli: int, *devices: str) -> Slice:
    result = answer(step(state, _create_event(name, milli, devices), 0))
    assert isinstance(result, Slice), result
    invariants.check(state)
    return result


def _create_event(name: str, milli: int, devices: tuple[str, ...], spread: int = 0) -> ev.CreateSlice:
    spec = Spec(milli, device_uuids=devices, spread=spread)
    return ev.CreateSlice("", User(name, "spare"), spec, 1000, f"uid-{name}", 1)


@pytest.mark.parametrize(("gpu", "number", "index"), [(0, 0, 100), (1, 3, 203), (15, 6, 1606)])
def test_an_index_says_which_gpu_and_which_instance_it_is(gpu: int, number: int, index: int) -> None:
    assert instance_index(gpu, number) == index
    assert gpu_of(index) == (str(gpu), str(number))
    assert gpu_of(gpu) == (str(gpu), "")


def test_an_instance_whose_index_would_be_another_gpus_is_refused() -> None:
    assert instance_index(0, 99) == 199
    with pytest.raises(ValueError, match="MIG instance 100 of GPU 0"):
        instance_index(0, 100)


def test_half_of_an_instance_is_half_of_its_memory() -> None:
    state = make_mig_state(device(1), instance(0, 0), instance(0, 1))
    for name in ("101", "MIG-0-1"):
        share = create_slice(state, f"on-{name.lower()}", 500, name).shares[0]
        assert (share.device_uuid, share.min_milli, share.mem_max_bytes) == ("MIG-0-1", 500, 5 * GIB)
    assert "no device has min 0.1" in denial(step(state, _create_event("more", 100, ("101",)), 0), Reason.NO_CAPACITY)


def test_a_slice_without_a_named_device_is_placed_on_a_gpu() -> None:
    state = make_mig_state(device(1), instance(0, 0))
    assert [create_slice(state, name, 500).shares[0].device_uuid for name in ("a", "b")] == ["GPU-1", "GPU-1"]
    assert "no device has min 0.5" in denial(step(state, _create_event("c", 500, ()), 0), Reason.NO_CAPACITY)
    alone = make_mig_state(instance(0, 0))
    assert create_slice(alone, "a", 500).shares[0].device_uuid == "MIG-0-0", "there are no GPUs"


@pytest.mark.parametrize("names", [("100", "101"), ("1", "100"), ("100", "1")])
def test_an_instance_has_a_slice_alone(names: tuple[str, ...]) -> None:
    state = make_mig_state(device(1), instance(0, 0), instance(0, 1))
    said = denial(step(state, _create_event("two", 1000, names, spread=2), 0), Reason.INVALID)
    assert said.endswith("sees one of these and no other device: make a slice on it alone")
    assert "is a MIG instance (1g.10gb)" in said


def test_instances_are_not_divided_over_where_there_are_no_gpus() -> None:
    state = make_mig_state(instance(0, 0), instance(0, 1))
    assert "is a MIG instance" in denial(step(state, _create_event("two", 2000, ()), 0), Reason.INVALID)
    assert "this node has 2" in denial(step(state, _create_event("three", 3000, ()), 0), Reason.INVALID)


def test_shares_that_were_chosen_elsewhere_are_held_to_it_too() -> None:
    state = make_mig_state(device(1), instance(0, 0))
    shares = tuple(Share(uuid, 100, 100, GIB, GIB) for uuid in ("GPU-1", "MIG-0-0"))
    refused = admission.check_shares(shares, state, claim=True)
    assert isinstance(refused, Denied) and "is a MIG instance" in refused.message
    uid = "0b9f4f6e-7a3e-4f5e-8d1a-52d0c3b5c111"
    kubernetes = make_mig_state(device(1), instance(0, 0), kubernetes_devices=("all",))
    claim = Claim(uid, "team", "two", ("aaaaaaaa-0000-1111-2222-333333333333",), shares, "boot")
    result = answer(step(kubernetes, ev.PrepareClaim(claim, "batch", 0, 0, "uid", 1), 0))
    assert isinstance(result, Denied) and "is a MIG instance" in result.message and not kubernetes.slices


@pytest.mark.parametrize(
    ("names", "uuids"),
    [
        (("0",), {"MIG-0-0", "MIG-0-1"}),
        (("GPU-0",), {"MIG-0-0", "MIG-0-1"}),
        (("101",), {"MIG-0-1"}),
        (("MIG-0-0", "1"), {"MIG-0-0", "GPU-1"}),
        (("all",), {"MIG-0-0", "MIG-0-1", "GPU-1"}),
    ],
)
def test_a_gpus_name_in_the_configuration_stands_for_its_instances(names: tuple[str, ...], uuids: set[str]) -> None:
    state = make_mig_state(device(1), instance(0, 0), instance(0, 1), kubernetes_devices=names)
    assert {uuid for uuid in state.devices if state.of_kubernetes(uuid)} == uuids
