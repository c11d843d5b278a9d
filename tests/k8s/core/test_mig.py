"""MIG instances as devices of Kubernetes: amounts of the instance, no fixed parts, and claims on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.k8s.core.test_published import gpus
from tests.k8s.parts import MIB, NODE, allocated
from vgpud.k8s.core.claim_objects import ClaimError, read_claim
from vgpud.k8s.core.model import Gpu, Ref
from vgpud.k8s.core.published import Policy, devices, offers, specs
from vgpud.k8s.core.tenths import list_devices

INSTANCE = replace(
    gpus()[0],
    uuid="MIG-0",
    index=100,
    product="NVIDIA H200 MIG 1g.18gb",
    memory_bytes=16_384 * MIB,
    parent_uuid="GPU-0",
    profile="1g.18gb",
)
NODE_GPUS: tuple[Gpu, ...] = (replace(gpus()[0], uuid="GPU-1", index=1), INSTANCE)


def test_an_instance_is_published_by_amounts_alone() -> None:
    assert [offer.name for offer in devices([INSTANCE], Policy())] == ["mig-100"]
    (made,) = specs([INSTANCE], NODE, Policy())
    (device,) = made["devices"]
    assert device["allowMultipleAllocations"] and "consumesCounters" not in device
    assert device["capacity"]["sm"]["value"] == "1000", "thousandths of the instance"
    assert device["capacity"]["memory"]["value"] == "16384Mi"
    assert device["capacity"]["memory"]["requestPolicy"]["validRange"]["max"] == "16384Mi"
    assert device["capacity"].keys() == {"sm", "memory", "slices", "smMax", "memoryMax"}
    expected = {"type": "mig", "size": "mig", "profile": "1g.18gb", "parentUUID": "GPU-0", "uuid": "MIG-0"}
    assert {name: device["attributes"][name] for name in expected} == {
        name: {"string": value} for name, value in expected.items()
    }


def test_gpus_beside_instances_keep_their_counters_and_parts() -> None:
    counters, published = specs(NODE_GPUS, NODE, Policy())
    assert [one["name"] for one in counters["sharedCounters"]] == ["gpu-1"]
    names = [one["name"] for one in published["devices"]]
    assert len(names) == 18 and [name for name in names if name.startswith("mig")] == ["mig-100"]


def test_amounts_of_a_claim_are_of_the_instance() -> None:
    claim = allocated("part", ("mig-100", {"sm": "500", "memory": "8Gi"}), pods=("p",))
    ref = Ref(claim["metadata"]["uid"], "team", "part")
    (granted,) = read_claim(claim, ref, offers(NODE_GPUS), NODE, 0).granted
    assert (granted.uuid, granted.min_milli, granted.mem_max_bytes) == ("MIG-0", 500, 8192 * MIB)
    whole = allocated("whole", ("mig-100", {}), pods=("p",))
    (granted,) = read_claim(whole, Ref(whole["metadata"]["uid"], "team", "whole"), offers(NODE_GPUS), NODE, 0).granted
    assert (granted.min_milli, granted.mem_max_bytes) == (1000, INSTANCE.memory_bytes)


def test_there_are_no_fixed_parts_of_an_instance() -> None:
    claim = allocated("fixed", ("mig-100-half-0", {}), pods=("p",))
    with pytest.raises(ClaimError, match="which this node does not have: it has gpu-1, mig-100"):
        read_claim(claim, Ref(claim["metadata"]["uid"], "team", "fixed"), offers(NODE_GPUS), NODE, 0)
    assert {uuid.rpartition("-tenth-")[0] for uuid, _ in list_devices(NODE_GPUS)} == {"GPU-1"}
