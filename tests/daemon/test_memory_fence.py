"""The driver's memory limits behind the ledger, on the simulated driver: programs that bypass the hook meet them in
each kind of slice that has a cgroup of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attach import client
from tests.daemon.engine import Engine, end
from tests.daemon.node import Node, wait_until
from tests.own_cgroup import enter, find_mount, own_cgroup
from vgpud import paths
from vgpud.core.devices.fence import reserve_bytes
from vgpud.core.model import Device
from vgpud.host import cgroup_tree
from vgpud.simdevice.process import SimulatedDevice
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(
    not (paths.sim_lib_dir() / "libcuda.so.1").exists(), reason="the simulated driver is not built: run make"
)
MIB, GIB = 1 << 20, 1 << 30
CONTEXT_BYTES = 256 * MIB
RESERVE_BYTES = reserve_bytes(Device("", 0, "", "", 0, 0, True, CONTEXT_BYTES, 2 * MIB), 0)
LIMITED = Path(__file__).parents[1] / "sim" / "limited.py"
OUT_OF_MEMORY = "2"


@pytest.fixture
def device(node: Node) -> Iterator[SimulatedDevice]:
    find_mount()
    config = {"memory_bytes": 32 * GIB, "context_bytes": CONTEXT_BYTES, "memory_limits": 1}
    with SimulatedDevice(node.directory / "sim", config) as started:
        yield started


def serve(node: Node, device: SimulatedDevice) -> None:
    node.start("--device", "sim", "--sim-dir", str(device.directory))


def serve_with_fence(node: Node, device: SimulatedDevice) -> None:
    serve(node, device)
    wait_until(lambda: read_node(node).memory_fence, "the fence")


def read_node(node: Node) -> pb.Node:
    return node.nodes.GetNode(pb.GetNodeRequest()).node


def bypass_command() -> list[str]:
    """A program that opens the simulated driver itself."""
    lib = paths.sim_lib_dir()
    return [sys.executable, str(LIMITED), str(lib / "libcuda.so.1"), str(lib / "libnvidia-ml.so.1")]


class Bypass:
    """That program; `command` before it, in a cgroup or in ours."""

    def __init__(self, device: SimulatedDevice, *command: str, group: Path | None = None, **env: str) -> None:
        self.process = subprocess.Popen(
            [*command, *bypass_command()],
            env=device.environment(os.environ) | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=enter(group) if group else None,
        )

    def __enter__(self) -> Bypass:
        assert self.read() == ["0"]
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Twice does no harm."""
        if self.process.poll() is None:
            self.process.communicate("end\n")

    def read(self) -> list[str]:
        assert self.process.stdout
        return self.process.stdout.readline().split()

    def ask(self, line: str) -> list[str]:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.read()

    def total_mib(self) -> int:
        """What the driver shows it of the device."""
        return int(self.ask("info")[2]) // MIB


def hard_mib(max_bytes: int) -> int:
    return (max_bytes + RESERVE_BYTES) // MIB


def run_vgpu(node: Node, device: SimulatedDevice) -> Bypass:
    """`vgpu run` of that program, with half a device and 4 GiB, past the hook."""
    words = [sys.executable, "-m", "vgpud.cli.main", "run", "--gpus", "0.5", "--mem", "4GiB", "-q", "--"]
    words += ["env", "-u", "LD_PRELOAD"]
    return Bypass(device, *words, VGPU_HOST=f"unix:{node.runtime / 'vgpud.sock'}")


def resize(node: Node, name: str, mem_max_bytes: int) -> None:
    spec = pb.SliceSpec(mem_max_bytes=mem_max_bytes)
    node.slices.UpdateSlice(pb.UpdateSliceRequest(name=name, spec=spec, update_mask={"paths": ["mem_max_bytes"]}))


def test_vgpu_run_has_a_group_with_the_slices_maximum(node: Node, device: SimulatedDevice) -> None:
    serve_with_fence(node, device)
    mount = find_mount()
    before = set(cgroup_tree.own_folders(mount))
    with run_vgpu(node, device) as program:
        wait_until(lambda: program.total_mib() == hard_mib(4 * GIB), "the limit")
        assert program.ask(f"alloc {hard_mib(4 * GIB)}") == [OUT_OF_MEMORY]
        assert program.ask("alloc 3072") == ["0"]
        (name,) = node.names()
        resize(node, name, 8 * GIB)
        wait_until(lambda: program.total_mib() == hard_mib(8 * GIB), "the new limit")
        (made,) = set(cgroup_tree.own_folders(mount)) - before
        assert made.name == f"vgpu-run-{node.get(name).uid}"
    wait_until(lambda: not made.exists(), "the end of the group")
    assert node.messages("fence.none") == []


def test_limits_are_set_again_after_a_restart(node: Node, device: SimulatedDevice) -> None:
    """By a daemon that was killed: one slice goes on, another has ended meanwhile."""
    node.settings["grace_s"] = "5"
    serve_with_fence(node, device)
    mount = find_mount()
    with run_vgpu(node, device) as program, run_vgpu(node, device) as other:
        wait_until(lambda: program.total_mib() == other.total_mib() == hard_mib(4 * GIB), "the limits")
        folder = mount / cgroup_tree.unified_path(program.process.pid).lstrip("/")
        old_folder = mount / cgroup_tree.unified_path(other.process.pid).lstrip("/")
        node.stop(signal.SIGKILL)
        other.end()
        serve_with_fence(node, device)
        wait_until(lambda: not old_folder.exists(), "the end of the other's group")
        (name,) = [each for each in node.names() if node.get(each).uid in folder.name]
        resize(node, name, 6 * GIB)
        wait_until(lambda: program.total_mib() == hard_mib(6 * GIB), "the limit of the second daemon")
        assert cgroup_tree.unified_path(program.process.pid).endswith(folder.name), "it was not moved again"


def test_a_container_is_held_from_its_first_program_on(node: Node, device: SimulatedDevice) -> None:
    """The hook that waits for the daemon returns when the limit is set; it goes with the slice."""
    serve_with_fence(node, device)
    engine = Engine(str(node.runtime / "runtime.sock"), node.directory / "bundles")
    with own_cgroup() as group:
        init = engine.start_container(group, "VGPU=0.5", "VGPU_MEM=4g")
        with Bypass(device, group=group) as program:
            assert program.total_mib() == hard_mib(4 * GIB)
            assert program.ask(f"alloc {hard_mib(4 * GIB)}") == [OUT_OF_MEMORY]
            end(init)
            engine.hook("stopped")
            wait_until(lambda: node.names() == [], "the end of the slice")
            wait_until(lambda: program.total_mib() == 32 << 10, "the end of the limit")
        engine.close()


def test_off_says_so_and_clears(node: Node, device: SimulatedDevice) -> None:
    serve_with_fence(node, device)
    with run_vgpu(node, device) as program:
        wait_until(lambda: program.total_mib() == hard_mib(4 * GIB), "the limit")
        node.stop()
        node.settings["memory_fence"] = '"off"'
        serve(node, device)
        assert not read_node(node).memory_fence
        assert read_node(node).memory_fence_problem == 'memory_fence is "off"'


def test_a_driver_without_limits_is_said(node: Node) -> None:
    find_mount()
    with SimulatedDevice(node.directory / "sim", {"memory_bytes": 4 * GIB}) as device:
        serve(node, device)
        wait_until(lambda: "r615" in read_node(node).memory_fence_problem, "the reason")
        assert not read_node(node).memory_fence
        node.create()
        assert client.attach(node.socket()).status == client.OK
