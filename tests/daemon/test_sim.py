"""The daemon on the simulated device: found through its NVML, said to be simulated everywhere, never by accident."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.attach import client
from tests.daemon.node import Node, wait_until
from vgpud import paths
from vgpud.errors import ExitCode
from vgpud.simdevice.process import SimulatedDevice
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(
    not (paths.sim_lib_dir() / "libcuda.so.1").exists(), reason="the simulated driver is not built: run make"
)


@pytest.fixture
def device(node: Node) -> Iterator[SimulatedDevice]:
    config = {"devices": 2, "memory_bytes": 8 << 30, "context_bytes": 256 << 20}
    with SimulatedDevice(node.directory / "sim", config) as started:
        yield started


def test_simulated_devices_are_found_and_named(node: Node, device: SimulatedDevice) -> None:
    node.start("--device", "sim", "--sim-dir", str(device.directory))
    reply = node.nodes.GetNode(pb.GetNodeRequest()).node
    assert reply.simulated
    assert reply.sim_dir == str(device.directory)
    assert reply.driver == str(paths.sim_lib_dir() / "libcuda.so.1")
    devices = node.nodes.ListDevices(pb.ListDevicesRequest()).devices
    assert [(d.index, d.simulated, d.context_bytes) for d in devices] == [(0, True, 256 << 20), (1, True, 256 << 20)]
    assert all(d.name.startswith("SIMULATED") for d in devices)
    assert devices[0].mem_total_bytes == 8 << 30
    node.create(milli=1500)
    answer = client.attach(node.socket())
    assert [row[1] for row in answer.devices] == [1000, 500]
    assert answer.devices[0][5:] == (256 << 20, devices[0].granule_bytes)


def test_simulated_driver_is_not_taken_by_accident(node: Node, device: SimulatedDevice) -> None:
    """A shell set up for the simulated device does not lead the daemon to it; naming the library does not, either."""
    library = paths.sim_lib_dir()
    node.env = {k: v for k, v in device.environment({}).items() if k != "LD_LIBRARY_PATH"}
    node.settings |= {"driver": f'"{library}/libcuda.so.1"', "nvml": f'"{library}/libnvidia-ml.so.1"'}
    done = node.run()
    assert done.returncode in (ExitCode.USAGE, ExitCode.UNREACHABLE)
    assert "sim" in done.stderr
    assert not node.runtime.exists()


def command_line(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"VGPU_HOST": f"unix://{node.runtime / 'vgpud.sock'}"}
    command = [sys.executable, "-m", "vgpud.cli.main", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_devices_of_a_simulator_that_ended_are_not_offered_until_it_is_back(
    node: Node, device: SimulatedDevice
) -> None:
    def devices() -> list[pb.Device]:
        return list(node.nodes.ListDevices(pb.ListDevicesRequest()).devices)

    node.start("--device", "sim", "--sim-dir", str(device.directory))
    node.create()
    assert node.process
    refused = command_line(node, "sim", "stop", "--dir", str(device.directory))
    assert refused.returncode == ExitCode.CONFLICT
    assert f"a vgpud (pid {node.process.pid} (" in refused.stderr
    offers = f"API socket {node.runtime / 'vgpud.sock'}) offers device 0 of {device.directory}"
    assert f"{offers}: stop it first, or use --force" in refused.stderr
    assert all(d.offered for d in devices())
    stopped = command_line(node, "sim", "stop", "--force", "--dir", str(device.directory))
    assert stopped.returncode == ExitCode.OK, stopped
    device.stop()
    wait_until(lambda: not any(d.offered for d in devices()), "the loss")
    why = f"lost: its simulator has ended: run `vgpu sim start --dir {device.directory}`"
    assert [d.taken_by for d in devices()] == [why] * 2
    assert [text.split(": ")[0] for text in node.messages("device.lost")] == ["device 0 is lost", "device 1 is lost"]
    assert f"no: {why}" in command_line(node, "gpu", "ls").stdout
    with pytest.raises(grpc.RpcError, match="lost: its simulator has ended"):
        node.create("b", 100)
    device.start()
    wait_until(lambda: all(d.offered for d in devices()), "the return")
    assert len([text for text in node.messages("device.free") if "lost" in text]) == 2
    assert node.create("b", 100).name == "b"
    assert command_line(node, "doctor").stdout.count("lost:") == 0


def test_server_that_has_gone_is_no_fault(node: Node, device: SimulatedDevice) -> None:
    node.start("--device", "sim", "--sim-dir", str(device.directory))
    node.create()
    os.kill(device.pid, 9)
    assert node.names() == ["a"]
    assert client.attach(node.socket()).status == client.OK
    assert Path(node.socket()).exists()


def test_cdi_files_of_a_simulated_device_end_with_the_daemon(node: Node, device: SimulatedDevice) -> None:
    """Engines would offer its devices for ever."""
    file = node.directory / "cdi/vgpu.dev-gpu.json"
    node.settings["cdi_dir"] = f'"{file.parent}"'
    node.start("--device", "sim", "--sim-dir", str(device.directory))
    wait_until(file.exists)
    node.stop()
    assert not file.exists()
