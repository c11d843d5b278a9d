"""Tolerations: a claim that the scheduler has placed on a drained GPU, since it tolerates that, is prepared there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.test_containers import send
from tests.core.test_machine import answer, device, make_state
from tests.k8s.core.test_allocator import make_gpus, prepare
from tests.k8s.parts import allocated
from vgpud.core import events as core
from vgpud.core.model import ALL_DEVICES, Denied, Slice
from vgpud.k8s.core.model import Gpu
from vgpud.k8s.core.taints import taints_of, tolerates_drain

DRAINED = {"key": "vgpu.dev/drained", "operator": "Exists", "effect": "NoSchedule"}
FAULTY = {"key": "vgpu.dev/faulty", "operator": "Exists"}


def gpu(**fields: Any) -> Gpu:
    return replace(make_gpus([device(0)])[0], **fields)


@pytest.mark.parametrize(
    ("state", "tolerations", "is_tolerated"),
    [
        ({}, [DRAINED], False),  # nothing is to be tolerated
        ({"drained": "a fan"}, [DRAINED], True),
        ({"drained": "a fan"}, [{"operator": "Exists"}], True),
        ({"drained": "a fan"}, [{"key": "vgpu.dev/drained", "value": "a-fan"}], True),
        ({"drained": "a fan"}, [{"key": "vgpu.dev/drained", "operator": "Equal", "value": "a-disk"}], False),
        ({"drained": "a fan"}, [{"key": "vgpu.dev/drained", "operator": "Maybe", "value": "a-fan"}], False),
        ({"drained": "a fan"}, [FAULTY], False),
        ({"drained": "a fan"}, [], False),
        ({"drained": "a fan"}, None, False),
        ({"drained": "a fan"}, ["Exists", 7, {}], False),
        ({"drained": "Xid 79", "fault": "Xid 79"}, [FAULTY], True),
        ({"drained": "Xid 79", "fault": "Xid 79"}, [DRAINED], False),
    ],
)
def test_a_drain_is_tolerated_by_its_taint(state: dict[str, Any], tolerations: Any, is_tolerated: bool) -> None:
    assert tolerates_drain([({"tolerations": tolerations}, gpu(**state))]) is is_tolerated


def test_each_device_of_a_claim_is_tolerated_by_its_own_request() -> None:
    tolerant, strict = {"tolerations": [DRAINED]}, {"tolerations": []}
    drained = gpu(drained="a fan")
    assert tolerates_drain([(tolerant, drained), (strict, gpu())])
    assert not tolerates_drain([(tolerant, drained), (strict, drained)])


def test_taints_are_published_as_labels() -> None:
    (taint,) = taints_of(gpu(drained="a fan: broken!"), evict_on_fault=False)
    assert taint == {"key": "vgpu.dev/drained", "value": "a-fan--broken", "effect": "NoSchedule"}


@pytest.mark.parametrize("tolerations", [[], [DRAINED]], ids=["strict", "tolerant"])
def test_the_node_takes_a_claim_on_a_drained_gpu_that_tolerates_it(tolerations: list[dict[str, Any]]) -> None:
    """Otherwise it would hold its capacity, and its pod be refused for ever."""
    state = make_state(1, kubernetes_devices=(ALL_DEVICES,))
    send(state, core.DrainDevice("0", "a fan"))
    claim = allocated("c", ("gpu-0", {"sm": "500", "memory": "1Gi"}), pods=("pod",), tolerations=tolerations)
    _, result = prepare(state, claim, [gpu(drained="a fan")])
    if tolerations:
        assert isinstance(result, Slice)
    else:
        assert isinstance(result, Denied) and "drained: a fan" in result.message


def test_a_tolerated_drain_opens_no_device_that_is_taken() -> None:
    assert "not given to Kubernetes" in make_state(1).closed("GPU-0", claim=True, tolerates_drain=True)
    state = make_state(1, kubernetes_devices=(ALL_DEVICES,))
    send(state, core.DrainDevice("0", "a fan"))
    assert state.closed("GPU-0", claim=True) == "drained: a fan"
    assert (
        state.closed("GPU-0", claim=True, tolerates_drain=True) == ""
        and answer(send(state, core.UndrainDevice("0"))) is None
    )
