"""What is published, and when: on changes only, whole pools, and never again what the server cannot store."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.k8s.parts import allocated
from vgpud.core.model import SLICES_MAX
from vgpud.k8s.core.claim_objects import read_claim
from vgpud.k8s.core.model import Gpu, Ref
from vgpud.k8s.core.published import (
    Policy,
    Write,
    changes,
    devices,
    differences,
    generate_name,
    not_stored,
    offers,
    specs,
)
from vgpud.k8s.core.quantities import parse_quantity

MIB = 1 << 20
NODE = "n1"


def gpus(count: int = 1, **fields: Any) -> list[Gpu]:
    return [Gpu(f"GPU-{n}", n, "NVIDIA H200", 140_400 * MIB, 2 * MIB, **fields) for n in range(count)]


def store_slices(writes: Sequence[Write]) -> list[dict[str, Any]]:
    """As an API server keeps them."""
    made = []
    for write in writes:
        name = write.name or generate_name(write.index, NODE) + "abcde"
        made.append({"metadata": {"name": name}, "spec": copy.deepcopy(write.spec)})
    return made


def publish_gpus(count: int = 1, **fields: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    wanted = specs(gpus(count, **fields), NODE, Policy())
    return wanted, store_slices(changes(wanted, [], NODE, ()).writes)


# ---- what ----


def test_a_gpu_is_one_device_of_amounts_and_sixteen_fixed_ones() -> None:
    names = [offer.name for offer in devices(gpus(), Policy())]
    assert names[:3] == ["gpu-0", "gpu-0-half-0", "gpu-0-half-1"] and len(names) == 1 + 2 + 4 + 10
    assert [offer.name for offer in devices(gpus(), Policy(fixed_sizes=False))] == ["gpu-0"]


def test_capacities_are_whole_numbers_and_the_maxima_never_bind() -> None:
    (spec,) = specs(gpus(), NODE, Policy(slices_max=50, fixed_sizes=False))
    capacity = spec["devices"][0]["capacity"]
    assert capacity["sm"]["value"] == "1000" and capacity["slices"]["value"] == "50"
    assert capacity["memory"]["requestPolicy"]["default"] == "140400Mi"
    assert capacity["memory"]["requestPolicy"]["validRange"] == {"min": "2Mi", "max": "140400Mi", "step": "2Mi"}
    for name, most in (("smMax", 1000), ("memoryMax", 140_400 * MIB)):
        policy = capacity[name]["requestPolicy"]
        assert policy["default"] == policy["validRange"]["min"] == "0"
        assert parse_quantity(policy["validRange"]["max"]) == most
        assert parse_quantity(capacity[name]["value"]) == 50 * most, "as many as there can be claims"


@pytest.mark.parametrize(("count", "each"), [(1, 96), (2, 64), (3, 42), (8, 16), (16, 8), (200, 1)])
def test_a_node_promises_no_more_slices_than_it_has(count: int, each: int) -> None:
    made = [one for spec in specs(gpus(count), NODE, Policy()) for one in spec.get("devices", [])]
    free = [one["capacity"] for one in made if one.get("allowMultipleAllocations")]
    assert {one["slices"]["value"] for one in free} == {str(each)} and len(free) == count
    assert {one["smMax"]["value"] for one in free} == {str(1000 * each)}
    assert each * count <= max(SLICES_MAX, count)


def test_gpus_that_are_not_given_to_kubernetes_take_no_slices_from_those_that_are() -> None:
    others = [replace(one, is_for_kubernetes=one.index == 0) for one in gpus(8)]
    (spec,) = specs(others, NODE, Policy(slices_max=128, fixed_sizes=False))
    assert [one["capacity"]["slices"]["value"] for one in spec["devices"]] == ["128"]


@pytest.mark.parametrize(
    ("context_mib", "least_memory"), [(0, "2Mi"), (1, "4Mi"), (559, "562Mi"), (560, "562Mi"), (140_396, "140398Mi")]
)
def test_the_least_memory_is_that_of_one_programs_context_and_a_granule(context_mib: int, least_memory: str) -> None:
    (spec,) = specs(gpus(context_bytes=context_mib * MIB), NODE, Policy(fixed_sizes=False))
    policy = spec["devices"][0]["capacity"]["memory"]["requestPolicy"]
    assert policy["validRange"] == {"min": least_memory, "max": "140400Mi", "step": "2Mi"}


def test_a_device_that_holds_one_context_alone_is_given_away_as_a_whole() -> None:
    (spec,) = specs(gpus(context_bytes=140_398 * MIB), NODE, Policy())[1:]
    (device,) = spec["devices"]
    policy = device["capacity"]["memory"]["requestPolicy"]
    assert policy["validRange"] == {"min": "140400Mi", "max": "140400Mi"}, "the API refuses a step beyond the value"


def test_parts_that_are_too_small_for_a_program_are_not_published() -> None:
    small = replace(gpus()[0], memory_bytes=4096 * MIB, context_bytes=512 * MIB)
    names = [one["name"] for one in specs([small], NODE, Policy())[1]["devices"]]
    assert len(names) == 1 + 2 + 4 and not [name for name in names if "tenth" in name]
    assert specs([replace(small, memory_bytes=512 * MIB)], NODE, Policy()) == []


def test_fixed_and_free_devices_of_a_gpu_consume_its_counters() -> None:
    counters, devices = specs(gpus(), NODE, Policy())
    assert counters["sharedCounters"][0]["counters"]["sm"]["value"] == "1000"
    used = {one["name"]: one["consumesCounters"][0]["counters"]["sm"]["value"] for one in devices["devices"]}
    assert (used["gpu-0"], used["gpu-0-half-1"], used["gpu-0-tenth-9"]) == ("1000", "500", "100")
    memory = [parse_quantity(one["consumesCounters"][0]["counters"]["memory"]["value"]) for one in devices["devices"]]
    assert 10 * memory[-1] <= 140_400 * MIB


@pytest.mark.parametrize("memory_mib", [140_400, 81_558, 81_559, 24_576])
@pytest.mark.parametrize("granule", [2 * MIB, 64 << 10, 32 * MIB])
def test_a_fixed_part_is_prepared_with_the_memory_that_is_published_in_whole_granules(
    memory_mib: int, granule: int
) -> None:
    gpu = replace(gpus()[0], memory_bytes=memory_mib * MIB - memory_mib * MIB % granule, granule_bytes=granule)
    _, devices = specs([gpu], NODE, Policy())
    for one in devices["devices"][1:]:
        amount = parse_quantity(one["capacity"]["memory"]["value"])
        assert amount == parse_quantity(one["consumesCounters"][0]["counters"]["memory"]["value"])
        assert 0 < amount <= gpu.memory_bytes * int(one["capacity"]["sm"]["value"]) // 1000 and amount % granule == 0
        claim = allocated("fixed", (one["name"], {}))
        ref = Ref(claim["metadata"]["uid"], "team", "fixed")
        (granted,) = read_claim(claim, ref, offers([gpu]), NODE, 0).granted
        assert granted.mem_min_bytes == granted.mem_max_bytes == amount


def test_attributes_say_which_gpu_it_is() -> None:
    known = {"compute_capability": "9.0", "pci_root": "pci0000:00", "numa_node": 0, "driver_version": "580.95.05"}
    known["nvlink_group"] = 0
    (spec,) = specs(gpus(**known), NODE, Policy(fixed_sizes=False))
    assert spec["devices"][0]["attributes"] == {
        "uuid": {"string": "GPU-0"},
        "index": {"int": 0},
        "type": {"string": "gpu"},
        "size": {"string": "free"},
        "productName": {"string": "NVIDIA H200"},
        "simulated": {"bool": False},
        "cudaComputeCapability": {"version": "9.0.0"},  # a semantic version, as CEL compares it
        "driverVersion": {"version": "580.95.5"},  # without the zero, which is none of a semantic version's
        "nvlinkGroup": {"int": 0},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        "resource.kubernetes.io/numaNode": {"int": 0},
    }
    (unknown,) = specs(gpus(), NODE, Policy(fixed_sizes=False))
    assert set(unknown["devices"][0]["attributes"]) == {"uuid", "index", "type", "size", "productName", "simulated"}


@pytest.mark.parametrize(
    ("version", "published_version"), [("999.1", "999.1.0"), ("1", "1.0.0"), ("", ""), ("unknown", ""), ("1.2.3.4", "")]
)
def test_a_driver_version_is_published_where_it_is_a_version(version: str, published_version: str) -> None:
    (spec,) = specs(gpus(driver_version=version), NODE, Policy(fixed_sizes=False))
    assert spec["devices"][0]["attributes"].get("driverVersion", {}).get("version", "") == published_version


def test_the_bounds_of_the_api_are_kept() -> None:
    made = specs(gpus(16, compute_capability="9.0", pci_root="pci0000:00"), NODE, Policy())
    sets = [len(one["sharedCounters"]) for one in made if "sharedCounters" in one]
    devices = [len(one["devices"]) for one in made if "devices" in one]
    assert sets == [8, 8] and sum(devices) == 16 * 17 and max(devices) <= 64
    assert all(("devices" in one) != ("sharedCounters" in one) for one in made)
    assert all(len(one["attributes"]) + len(one["capacity"]) <= 32 for one in made[2]["devices"])


@pytest.mark.parametrize(
    ("state", "policy", "taint"),
    [
        ({"drained": "a fan: broken!"}, Policy(), ("vgpu.dev/drained", "a-fan--broken", "NoSchedule")),
        ({"fault": "Xid 79"}, Policy(), ("vgpu.dev/faulty", "Xid-79", "NoSchedule")),
        ({"fault": "Xid 79"}, Policy(evict_on_fault=True, monitors=True), ("vgpu.dev/faulty", "Xid-79", "NoExecute")),
        ({"taken_by": "MPS"}, Policy(), ("vgpu.dev/taken", "MPS", "NoSchedule")),
    ],
)
def test_a_device_that_is_not_offered_is_tainted(
    state: dict[str, Any], policy: Policy, taint: tuple[str, str, str]
) -> None:
    made = specs(gpus(**state), NODE, policy)[-1]["devices"]
    made = [one for one in made if not one["name"].endswith("monitor")]
    assert {tuple(one["taints"][0].values()) for one in made} == {taint} and len(made[0]["taints"]) == 1


def test_the_device_for_monitors_has_nothing_that_is_used_up() -> None:
    given = [*gpus(drained="a fan"), replace(gpus()[0], uuid="MIG-0", index=100, profile="1g.18gb")]
    made = [one for spec in specs(given, NODE, Policy(monitors=True)) for one in spec.get("devices", [])]
    monitors = [one for one in made if one["attributes"]["size"]["string"] == "monitor"]
    assert [one["name"] for one in monitors] == ["gpu-0-monitor", "mig-100-monitor"]
    assert all(one.keys() == {"name", "attributes"} for one in monitors)
    assert [one["attributes"]["uuid"]["string"] for one in monitors] == ["GPU-0", "MIG-0"]
    names = [offer.name for offer in devices(given, Policy())]
    assert not [name for name in names if "monitor" in name], "unless the site wants it"


# ---- when ----


def test_an_empty_server_gets_the_whole_pool_in_one_generation() -> None:
    wanted = specs(gpus(4), NODE, Policy())
    found = changes(wanted, [], NODE, ())
    pools = [write.spec["pool"] for write in found.writes]
    assert pools == [{"name": NODE, "generation": 1, "resourceSliceCount": len(wanted)}] * len(wanted)
    assert not found.deletions


def test_nothing_is_written_while_nothing_changes() -> None:
    wanted, there = publish_gpus(3)
    assert not changes(wanted, there, NODE, ())


def test_quantities_in_another_form_and_times_of_taints_are_no_change() -> None:
    wanted, there = publish_gpus(drained="x")
    device = there[1]["spec"]["devices"][0]
    device["capacity"]["sm"]["value"] = "1k"
    device["taints"][0]["timeAdded"] = "2026-11-01T00:00:00Z"
    assert not changes(wanted, there, NODE, ())


@pytest.mark.parametrize("what", ["value", "taint gone", "device gone", "name", "generation", "missing", "extra"])
def test_every_difference_is_a_new_generation_of_the_whole_pool(what: str) -> None:
    wanted, there = publish_gpus(drained="x")
    device = there[1]["spec"]["devices"][0]
    if what == "value":
        device["capacity"]["sm"]["value"] = "900"
    elif what == "taint gone":
        del device["taints"]
    elif what == "device gone":
        there[1]["spec"]["devices"].pop()
    elif what == "name":
        device["name"] = "gpu-7"
    elif what == "generation":
        there[1]["spec"]["pool"]["generation"] = 7
    elif what == "missing":
        there.pop()
    else:
        there.append({"metadata": {"name": "9-x"}, "spec": {"pool": {"generation": 12}}})
    found = changes(wanted, there, NODE, ())
    assert len(found.writes) == 2 and len({str(write.spec["pool"]) for write in found.writes}) == 1
    assert found.writes[0].spec["pool"]["generation"] > 1
    assert found.deletions == (("9-x",) if what == "extra" else ())
    after = store_slices(found.writes)
    assert not changes(wanted, after, NODE, ())


def test_a_taint_that_ends_is_a_change() -> None:
    _, there = publish_gpus(drained="x")
    assert changes(specs(gpus(), NODE, Policy()), there, NODE, ())


def test_fields_that_the_server_drops_are_reported_and_not_written_for_ever() -> None:
    wanted, there = publish_gpus()
    for device in there[1]["spec"]["devices"]:
        del device["consumesCounters"]
        device.pop("allowMultipleAllocations", None)
        for capacity in device["capacity"].values():
            capacity.pop("requestPolicy", None)
    sent = {**wanted[1], "pool": there[1]["spec"]["pool"]}
    dropped = not_stored(sent, there[1]["spec"])
    assert "devices.allowMultipleAllocations" in dropped and "devices.capacity.sm.requestPolicy" in dropped
    assert changes(wanted, there, NODE, ()) and not changes(wanted, there, NODE, dropped)


def test_a_server_that_adds_something_is_noticed() -> None:
    assert differences({"a": "1"}, {"a": "1", "b": "2"}) == ["b"]
    assert differences({"a": ["x"]}, {"a": ["x", "y"]}) == ["a"]


def test_names_begin_with_the_index_that_schedulers_go_by() -> None:
    writes = changes(specs(gpus(8), NODE, Policy()), [], NODE, ()).writes
    assert [generate_name(write.index, NODE)[:2] for write in writes] == ["0-", "1-", "2-", "3-"]
    there = store_slices(writes)
    again = changes(specs([replace(gpus(8)[0], drained="x"), *gpus(8)[1:]], NODE, Policy()), there, NODE, ())
    assert [write.name for write in again.writes] == [one["metadata"]["name"] for one in there]
