"""`vgpu slice set` on a claim's slice, by the command and the real API, and what the claim then says."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.command_line import ask, call
from tests.daemon.node import wait_until
from tests.k8s.parts import MIB, allocated
from tests.k8s.test_driver import POD, FakeCluster, cluster  # noqa: F401  a fixture
from vgpud.v1alpha1 import vgpud_pb2 as pb

GIB = 1 << 30
Numbers = tuple[int, int, int, int]


class Resized:
    """A prepared claim and its slice."""

    def __init__(self, node: FakeCluster, *devices: tuple[str, dict[str, str]]) -> None:
        self.node = node
        self.claim = node.add(allocated("half", *devices, pods=(POD,)))
        self.name = f"k-{self.claim['metadata']['uid']}"
        assert not self.prepare().error

    def prepare(self) -> Any:
        (answer,) = self.node.kubelet.prepare(self.claim).values()
        return answer

    def set(self, *words: str) -> None:
        done = call(self.node.system, "slice", "set", self.name, *words)
        assert done.returncode == 0, done.stderr

    def refusal(self, *words: str) -> str:
        done = call(self.node.system, "slice", "set", self.name, *words)
        assert done.returncode, done.stdout
        return done.stderr

    @property
    def numbers(self) -> list[Numbers]:
        made = self.node.slices()[self.name]
        return [(d.min_milli, d.max_milli, d.mem_min_bytes // MIB, d.mem_max_bytes // MIB) for d in made.devices]

    def read_status_numbers(self) -> list[Numbers]:
        """The numbers in the claim's status."""
        path = self.node.api.claim_path("team", "half")
        data = [one["data"] for one in self.node.api.objects[path]["status"].get("devices", [])]
        sizes = [(one["smMilli"], one["memoryBytes"]) for one in data]
        return [(sm["min"], sm["max"], size["min"] // MIB, size["max"] // MIB) for sm, size in sizes]

    def becomes(self, *numbers: Numbers) -> None:
        assert self.numbers == list(numbers)
        wait_until(lambda: self.read_status_numbers() == list(numbers), f"{numbers} in the claim's status")


@pytest.fixture
def one(cluster: FakeCluster) -> Resized:  # noqa: F811
    return Resized(cluster, ("gpu-0", {"sm": "500", "memory": "1Gi"}))


@pytest.fixture
def two(cluster: FakeCluster) -> Resized:  # noqa: F811
    whole = {"sm": "1k", "memory": "2Gi"}
    return Resized(cluster, ("gpu-0", whole), ("gpu-1", {"sm": "500", "memory": "1Gi"}))


def test_maximum_and_minimum_down_and_up_again(one: Resized) -> None:
    one.becomes((500, 500, 1024, 1024))
    one.set("--max", "0.9")
    one.becomes((500, 900, 1024, 1024))
    one.set("--min", "0.2", "--mem-min", "512M")
    one.becomes((200, 900, 512, 1024))
    one.set("--min", "0.5", "--mem-min", "1G", "--mem-max", "2G")
    one.becomes((500, 900, 1024, 2048))
    assert "min 0.501 is above the 0.5 of the ResourceClaim team/half, which was allocated once" in one.refusal(
        "--min", "0.501"
    )
    assert "mem-min 1.5GiB is above the 1GiB of the ResourceClaim team/half" in one.refusal("--mem-min", "1.5G")
    assert "make another claim to get more" in one.refusal("--min", "1")
    assert "gpus_milli of slice" in one.refusal("--gpus", "0.7")
    one.set("--max", "default", "--mem-min", "default", "--mem-max", "default")
    one.becomes((500, 500, 1024, 1024))


def test_weight_and_class_are_free(one: Resized) -> None:
    one.set("--weight", "7", "--class", "latency", "--priority", "3")
    made = one.node.slices()[one.name]
    assert (made.spec.weight, made.spec.priority, made.spec.service_class) == (7, 3, pb.SERVICE_CLASS_LATENCY)
    assert "class latency" in one.refusal("--min", "0")
    one.becomes((500, 500, 1024, 1024))


def test_over_two_devices_in_proportion(two: Resized) -> None:
    two.becomes((1000, 1000, 2048, 2048), (500, 500, 1024, 1024))
    two.set("--min", "0.75", "--mem-min", "1536M", "--mem-max", "3G", "--max", "1.8")
    two.becomes((500, 1000, 1024, 2048), (250, 800, 512, 1024))
    assert "min 1.6 is above the 1.5 of the ResourceClaim" in two.refusal("--min", "1.6")
    assert "is more than the 2 device(s) of the claim have" in two.refusal("--max", "2.1")


def test_what_was_resized_stays_so_when_all_start_again(one: Resized) -> None:
    one.set("--max", "0.8", "--min", "0.3")
    one.becomes((300, 800, 1024, 1024))
    before = one.prepare()
    writes = len(one.node.api.writes)
    assert one.node.system.daemon
    one.node.system.daemon.kill()
    one.node.system.start_daemon()
    one.node.stop()
    one.node.start()
    one.node.kubelet.register()
    assert one.prepare() == before
    time.sleep(3)  # for a write, if there were any
    assert [write for write in one.node.api.writes[writes:] if write[0] == "patch"] == []
    one.becomes((300, 800, 1024, 1024))


def test_what_is_shown_of_a_claims_slice(one: Resized) -> None:
    shown = ask(one.node.system, "slice", "show", one.name)["slice"]["claim"]
    uid = one.claim["metadata"]["uid"]
    assert shown == {"namespace": "team", "name": "half", "uid": uid, "pods": [POD]}
    assert f"claim         team/half ({uid})" in call(one.node.system, "slice", "show", one.name).stdout
    assert "ends with its claim" in call(one.node.system, "slice", "show", one.name).stdout
    for words in (("slice", "ls"), ("status",)):
        assert "team/half" in call(one.node.system, *words).stdout
