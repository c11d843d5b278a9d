"""Claims on MIG instances: the driver between a vgpud on a simulated GPU in MIG mode, an API server and a kubelet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.k8s.parts import MIB, allocated
from tests.k8s.test_driver import POD, FakeCluster, registered_cluster
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.k8s.core.quantities import parse_quantity

SIM = {"devices": "2", "memory_bytes": "8G", "context_bytes": "32M", "device.0.mig": "1g.2gb, 3g.4gb"}


@pytest.fixture
def cluster(short_dir: Path, make_system: Callable[..., OwnSystem]) -> Iterator[FakeCluster]:
    with registered_cluster(short_dir, make_system, SIM) as made:
        yield made


def test_instances_are_published_and_claims_on_them_prepared(cluster: FakeCluster) -> None:
    counters, published = cluster.wait_for_slices(2)
    devices = {one["name"]: one for one in published["spec"]["devices"]}
    assert {name for name in devices if name.count("-") == 1} == {"gpu-1", "mig-100", "mig-101"}
    assert [one["name"] for one in counters["spec"]["sharedCounters"]] == ["gpu-1"]
    attributes = devices["mig-101"]["attributes"]
    assert (attributes["profile"], attributes["size"]) == ({"string": "3g.4gb"}, {"string": "mig"})
    assert parse_quantity(devices["mig-101"]["capacity"]["memory"]["value"]) == 4096 * MIB
    claim = cluster.add(allocated("part", ("mig-101", {"sm": "250", "memory": "1Gi", "smMax": "1000"}), pods=(POD,)))
    (answer,) = cluster.kubelet.prepare(claim).values()
    uid = claim["metadata"]["uid"]
    assert not answer.error and list(answer.devices[0].cdi_device_ids) == [f"vgpu.dev/gpu=k-{uid}"]
    (device,) = cluster.slices()[f"k-{uid}"].devices
    assert device.device_uuid == attributes["uuid"]["string"]
    assert (device.min_milli, device.max_milli, device.mem_max_bytes) == (250, 1000, 1024 * MIB)


def test_two_instances_in_a_claim_are_refused_with_the_reason(cluster: FakeCluster) -> None:
    amounts = {"sm": "1000", "memory": "1Gi"}
    claim = cluster.add(allocated("two", ("mig-100", amounts), ("mig-101", amounts), pods=(POD,)))
    (answer,) = cluster.kubelet.prepare(claim).values()
    assert "a CUDA program sees one of these and no other device" in answer.error and not cluster.slices()
