"""vgpud-k8s --device-plugin as a process between a real vgpud and a kubelet that counts devices."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.daemon.node import wait_until
from tests.k8s.device_plugin_parts import DeviceManager, device_manager
from tests.k8s.fake_api import FakeApi
from tests.k8s.parts import NODE, Cluster, kubeconfig
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.k8s.core.names import RESOURCE
from vgpud.v1alpha1 import vgpud_pb2 as pb

PLUGIN = "--device-plugin"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as made:
        made.add_node(NODE)
        yield made


@pytest.fixture
def node(short_dir: Path, make_system: Callable[..., OwnSystem], api: FakeApi) -> Iterator[Cluster]:
    """A node with two devices."""
    system = make_system(config=[f'cdi_dir = "{short_dir / "cdi"}"', "[devices]", 'kubernetes = ["all"]'])
    made = Cluster(short_dir, system, kubeconfig(short_dir, api.url))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def kubelet(node: Cluster) -> Iterator[DeviceManager]:
    """A kubelet with which the plugin has registered."""
    with device_manager(node.kubelet.directory) as made:
        node.start(PLUGIN)
        made.registration()
        yield made


def tenths(kubelet: DeviceManager, count: int) -> list[str]:
    return kubelet.get_preferred_ids(sorted(kubelet.devices), count)


def test_it_registers_ten_devices_for_each_gpu_and_publishes_nothing(node: Cluster, api: FakeApi) -> None:
    node.start()
    node.kubelet.register()
    wait_until(lambda: len(api.slices()) == 2, "the ResourceSlices")
    node.stop()
    with device_manager(node.kubelet.directory) as kubelet:
        node.start(PLUGIN)
        request = kubelet.registration()
        assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
        assert request.options.get_preferred_allocation_available and not request.options.pre_start_required
        assert list(kubelet.devices.values()) == ["Healthy"] * 20
        wait_until(lambda: not api.slices(), "no ResourceSlices any more")
        assert not node.kubelet.registration.exists()


def test_tenths_of_one_gpu_become_one_slice_with_its_cdi_device(node: Cluster, kubelet: DeviceManager) -> None:
    answer = kubelet.allocate(tenths(kubelet, 3))
    ((name, made),) = node.slices().items()
    (share,) = made.devices
    assert (share.min_milli, share.max_milli) == (300, 300) and share.mem_min_bytes == share.mem_max_bytes
    assert [device.name for device in answer.cdi_devices] == [f"vgpu.dev/gpu={name}"]
    assert dict(answer.annotations) == {f"cdi.k8s.io/vgpud_{name}": f"vgpu.dev/gpu={name}"}
    cdi = json.loads((node.directory / "cdi" / f"vgpu.dev-gpu_{name}.json").read_text())
    assert cdi["devices"][0]["containerEdits"]["env"] == [f"VGPU_SLICE={name}"]
    assert len(made.claim.device_ids) == 3 and not made.claim.pod_uids


def test_tenths_of_two_gpus_are_refused_with_the_reason(node: Cluster, kubelet: DeviceManager) -> None:
    ids = sorted(kubelet.devices)
    with pytest.raises(grpc.RpcError) as caught:
        kubelet.allocate([*ids[:3], *ids[-4:]])
    assert "0.7 GPUs are free on this node only as 0.4 + 0.3 of 2 GPUs" in str(caught.value)
    assert not node.slices()


def test_a_drained_device_is_unhealthy(node: Cluster, kubelet: DeviceManager) -> None:
    node.nodes.DrainDevice(pb.DrainDeviceRequest(device_uuid="0", reason="a fan is broken"))
    wait_until(lambda: list(kubelet.devices.values()).count("Unhealthy") == 10, "ten unhealthy devices")


def test_kubelet_that_starts_again_gets_the_plugin_and_slices_stay(node: Cluster, kubelet: DeviceManager) -> None:
    kubelet.allocate(tenths(kubelet, 3))
    before = node.slices().keys()
    for _ in range(2):
        kubelet.stop()
        kubelet.devices = {}
        kubelet.start()
        kubelet.registration()
        assert len(kubelet.devices) == 20 and node.slices().keys() == before


def test_the_plugin_that_was_killed_comes_back_and_ids_are_allocated_again(
    node: Cluster, kubelet: DeviceManager
) -> None:
    ids = tenths(kubelet, 6)
    first = kubelet.allocate(ids)
    node.stop(signal.SIGKILL)
    kubelet.devices = {}
    node.start(PLUGIN)
    kubelet.registration()
    second = kubelet.allocate(ids)
    assert second.cdi_devices[0].name != first.cdi_devices[0].name
    assert sorted(made.devices[0].min_milli for made in node.slices().values()) == [0, 600]


def test_one_of_the_two_runs_on_a_node_and_says_so_to_the_other(node: Cluster, kubelet: DeviceManager) -> None:
    first, node.process = node.process, None
    node.start()
    assert node.process and node.process.wait(30) == 8
    assert "another driver of gpu.vgpu.dev runs on this node" in node.log.read_text()
    node.process = first
    assert node.stop() == 0
    assert not list(kubelet.plugins.glob("vgpu-*.sock"))


def test_vgpud_is_told_what_is_counted(node: Cluster, kubelet: DeviceManager) -> None:
    told = wait_until(lambda: node.publication() if node.publication().devices else None, "a report")
    assert (told.resource, told.pool, told.problem) == (RESOURCE, "", "")
    uuids = [device.uuid for device in node.nodes.ListDevices(pb.ListDevicesRequest()).devices]
    assert [(one.device_uuid, one.capacities[0].value) for one in told.devices] == [(uuid, "10") for uuid in uuids]
