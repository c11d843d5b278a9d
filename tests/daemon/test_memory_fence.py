"""The driver's memory limits behind the ledger, on the simulated driver: programs that bypass the hook meet them in
each kind of slice that has a cgroup of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.attach import client
from tests.builders import make_device, make_slice
from tests.daemon.engine import Engine, end
from tests.daemon.jobs.queue_node import QueueNode, end_jobs
from tests.daemon.node import Node, wait_until
from tests.own_cgroup import enter, find_mount, own_cgroup
from vgpud import paths
from vgpud.core.devices.fence import reserve_bytes
from vgpud.core.events import Log
from vgpud.core.model import Process, State
from vgpud.core.origins import User
from vgpud.daemon import memory_fence
from vgpud.daemon.jobs.cgroups import JobCgroups
from vgpud.daemon.memory_fence import MemoryFence
from vgpud.daemon.slices.changes import ChangeSignal
from vgpud.devices import memory_limits
from vgpud.devices.memory_limits import LimitError
from vgpud.host import cgroup_tree
from vgpud.simdevice.process import SimulatedDevice
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (paths.sim_lib_dir() / "libcuda.so.1").exists(), reason="the simulated driver is not built: run make"
    ),
]
MIB, GIB = 1 << 20, 1 << 30
CONTEXT_BYTES = 256 * MIB
RESERVE_BYTES = reserve_bytes(make_device(context_bytes=CONTEXT_BYTES), 0)
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


def run_vgpu(node: Node, device: SimulatedDevice, *begin: str) -> Bypass:
    """`vgpu run` of that program, with half a device and 4 GiB. `begin`: how its command begins, by default past the
    hook."""
    words = [sys.executable, "-m", "vgpud.cli.main", "run", "--gpus", "0.5", "--mem", "4GiB", "-q", "--"]
    words += begin or ("env", "-u", "LD_PRELOAD")
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


def test_a_program_with_the_hook_sees_its_slice_and_nothing_twice(node: Node, device: SimulatedDevice) -> None:
    """The driver's numbers are those of the fence there, which is looser than the slice."""
    serve_with_fence(node, device)
    with run_vgpu(node, device, "env") as honest:
        folder = find_mount() / cgroup_tree.unified_path(honest.process.pid).lstrip("/")
        assert wait_until(lambda: list(cgroup_tree.own_folders(folder.parent)), "its group")
        folder = find_mount() / cgroup_tree.unified_path(honest.process.pid).lstrip("/")
        with Bypass(device, group=folder) as stranger:
            wait_until(lambda: stranger.total_mib() == hard_mib(4 * GIB), "the limit")
            assert honest.ask("alloc 1024") == ["0"]
            used = GIB + CONTEXT_BYTES
            assert honest.ask("info") == ["0", str(4 * GIB - used), str(4 * GIB)]
            assert honest.ask("nvml") == [str(4 * GIB), str(used), str(4 * GIB - used)]
            assert honest.ask("alloc 3072") == [OUT_OF_MEMORY], "by the ledger"
            assert honest.ask("alloc 2560") == ["0"]


def test_limits_are_set_again_after_a_restart(node: Node, device: SimulatedDevice) -> None:
    """By a daemon that was killed: one slice stays, another has ended meanwhile."""
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


def test_each_member_of_a_job_has_its_own(node: Node, device: SimulatedDevice) -> None:
    """In the leaf that its supervisor has made; those of a job share nothing."""
    serve_with_fence(node, device)
    queue = QueueNode(node, device)
    (job_id,) = queue.submit("sleep 600", 250, members=2, slice={"mem_max_bytes": 4 * GIB})
    try:
        queue.until(job_id, "running")
        (begun,) = wait_until(lambda: list((node.state / "jobs").glob("[!.]*/begun")), "the attempt")
        lines = dict(line.partition(" ")[::2] for line in begun.read_text().splitlines())
        leaves = [Path(lines["cgroup"]) / member for member in "01"]
        if not leaves[0].is_relative_to(find_mount()):
            pytest.skip("jobs have cgroups of version 1 here")
        with Bypass(device, group=leaves[0]) as first, Bypass(device, group=leaves[1]) as second:
            wait_until(lambda: first.total_mib() == second.total_mib() == hard_mib(4 * GIB), "the limits")
            assert first.ask("alloc 4096") == second.ask("alloc 4096") == ["0"]
            assert first.ask("alloc 2048") == [OUT_OF_MEMORY]
    finally:
        node.stop(signal.SIGKILL)
        end_jobs(node.state / "jobs")


class FakeDaemon:
    """What a MemoryFence asks of the daemon: one `vgpu run` with a slice of its own, and where events go."""

    def __init__(self, pid: int) -> None:
        made = replace(make_slice(), origin=User("a", ephemeral=True))
        holder = Process(1, "a", pid, os.getuid(), "vgpu run", 0, False, holder=True)
        self.state = State(slices={"a": made}, processes={1: holder}, devices={"GPU-0": make_device()})
        self.events: list[str] = []

    def note_bounded(self, _key: str, entry: Log) -> None:
        self.events.append(entry.message)

    def handle(self, uuid: str) -> str:
        return uuid


def test_a_program_without_a_group_stays_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the kernel's controller cannot be handed down to a group of its own: it is said once."""
    asyncio.run(place_twice(monkeypatch))


async def place_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    mount = find_mount()

    def refuse(_mount: Path, folder: Path) -> None:
        raise cgroup_tree.CgroupError(f"cgroup {folder.parent} cannot hand the controller dmem down: busy")

    monkeypatch.setattr(cgroup_tree, "hand_down_dmem", refuse)
    with own_cgroup() as group:
        script = "sleep 600 & echo $!; wait"
        program = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, preexec_fn=enter(group))
        assert program.stdout
        child = int(program.stdout.readline())
        fake: Any = FakeDaemon(program.pid)
        fence = MemoryFence("auto", fake, fake, fake, fake)
        fence._mount = mount
        for _ in range(2):
            await fence._place_runs()
        (said,) = fake.events
        assert said.startswith(f"slice a has no memory limit of the driver: cgroup {group} cannot hand")
        assert said.endswith("start it by `systemd-run --user --scope vgpu run ...`") and fence.why == said
        assert set(cgroup_tree.pids_in(group)) == {program.pid, child} and not list(cgroup_tree.own_folders(group))
        monkeypatch.undo()
        fence._run_cgroups.clear()
        await fence._place_runs()
        assert cgroup_tree.pids_in(group) == [], "it was moved with all that it had started"
        (folder,) = cgroup_tree.own_folders(group)
        assert set(cgroup_tree.pids_in(folder)) == {program.pid, child}
        os.kill(child, signal.SIGKILL)
        program.communicate()
        await fence.stop()
        assert cgroup_tree.remove_all([folder]) == []


def test_off_says_so_and_clears(node: Node, device: SimulatedDevice) -> None:
    serve_with_fence(node, device)
    with run_vgpu(node, device) as program:
        wait_until(lambda: program.total_mib() == hard_mib(4 * GIB), "the limit")
        folder = find_mount() / cgroup_tree.unified_path(program.process.pid).lstrip("/")
        node.stop()
        node.settings["memory_fence"] = '"off"'
        serve(node, device)
        assert not read_node(node).memory_fence
        assert read_node(node).memory_fence_problem == 'memory_fence is "off"'
        wait_until(lambda: program.total_mib() == 32 << 10, "the end of the limit")
    wait_until(lambda: not folder.exists(), "the end of the group")


class FlakyLimits:
    """A driver that refuses the first call."""

    def __init__(self) -> None:
        self.calls = 0

    def set_limit(self, *_: object) -> None:
        self.calls += 1
        if self.calls == 1:
            raise LimitError("not now")


def test_a_limit_that_was_not_cleared_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asyncio.run(clear_twice(monkeypatch, tmp_path))


async def clear_twice(monkeypatch: pytest.MonkeyPatch, mount: Path) -> None:
    limits = FlakyLimits()
    monkeypatch.setattr(memory_limits, "set_limit", limits.set_limit)
    fake: Any = FakeDaemon(os.getpid())
    fake.state.processes.clear()
    fence = MemoryFence("auto", fake, fake, fake, fake)
    fence._mount = mount
    (mount / "old").mkdir()
    fence._set = {("/old", "GPU-0"): 1, ("/gone", "GPU-0"): 1}
    await fence._settle()
    assert list(fence._set) == [("/old", "GPU-0")]
    await fence._settle()
    assert not fence._set and limits.calls == 2
    await fence.stop()


def test_a_probe_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asyncio.run(probe_thrice(monkeypatch, tmp_path))


async def probe_thrice(monkeypatch: pytest.MonkeyPatch, mount: Path) -> None:
    fake: Any = FakeDaemon(os.getpid())
    fake.state.processes.clear()
    fence = MemoryFence("auto", fake, fake, fake, ChangeSignal())
    fence._mount = mount
    answers = [KeyError("GPU-0"), "not now", ""]
    seen: list[str] = []

    def probe() -> str:
        seen.append(fence.why)
        answer = answers.pop(0)
        if isinstance(answer, KeyError):
            raise answer
        return str(answer)

    monkeypatch.setattr(fence, "_probe", probe)
    monkeypatch.setattr(memory_fence, "RETRY_S", 0.01)
    fence.begin(JobCgroups(list, lambda key: ""))
    for _ in range(1000):
        if fence.is_on:
            break
        await asyncio.sleep(0.01)
    assert fence.is_on and fence.why == ""
    assert "KeyError" in seen[1] and seen[2] == "not now"
    await fence.stop()


def test_no_fault_here_keeps_a_container_from_its_start(caplog: pytest.LogCaptureFixture) -> None:
    """As a device that has just gone."""
    asyncio.run(settle_without_device())
    assert "the memory fence of a container could not be set" in caplog.text


async def settle_without_device() -> None:
    fake: Any = FakeDaemon(os.getpid())
    fence = MemoryFence("auto", fake, fake, fake, fake)
    fence.is_on = True

    async def fail() -> None:
        raise KeyError("GPU-0")

    fence._settle = fail  # type: ignore[method-assign]
    await fence.settle_start()
    await fence.stop()


def test_a_group_of_the_users_own_making_is_not_taken() -> None:
    """With the name of one of ours: a limit on it would be the maker's to change."""
    asyncio.run(place_in_a_users_group())


async def place_in_a_users_group() -> None:
    with own_cgroup() as parent:
        fake: Any = FakeDaemon(0)
        uid = fake.state.slices["a"].uid
        theirs = parent / f"vgpu-run-{uid}"
        theirs.mkdir()
        os.chown(theirs, 65534, 65534)
        program = subprocess.Popen(["sleep", "600"], preexec_fn=enter(theirs))
        fake.state.processes[1] = replace(fake.state.processes[1], pid=program.pid)
        fence = MemoryFence("auto", fake, fake, fake, fake)
        fence._mount = find_mount()
        made = theirs / theirs.name
        try:
            await fence._place_runs()
            assert fence._folder(fence._run_cgroups[uid]) == made and cgroup_tree.pids_in(made) == [program.pid]
        finally:
            program.kill()
            program.wait()
            await fence.stop()
            assert cgroup_tree.remove_all([made, theirs]) == []


def test_a_driver_without_limits_is_said(node: Node) -> None:
    find_mount()
    with SimulatedDevice(node.directory / "sim", {"memory_bytes": 4 * GIB}) as device:
        serve(node, device)
        wait_until(lambda: "r615" in read_node(node).memory_fence_problem, "the reason")
        assert not read_node(node).memory_fence
        node.create()
        assert client.attach(node.socket()).status == client.OK


def test_a_driver_that_comes_back_gets_them_again(node: Node, device: SimulatedDevice) -> None:
    """As after a reset of the device: it has forgotten its limits."""
    serve_with_fence(node, device)
    engine = Engine(str(node.runtime / "runtime.sock"), node.directory / "bundles")
    with own_cgroup() as group:
        engine.start_container(group, "VGPU=0.5", "VGPU_MEM=4g")
        device.stop()
        taken = "its simulator has ended"
        wait_until(lambda: taken in node.nodes.ListDevices(pb.ListDevicesRequest()).devices[0].taken_by, "the loss")
        device.start()
        with Bypass(device, group=group) as program:
            wait_until(lambda: program.total_mib() == hard_mib(4 * GIB), "the limit")
        engine.close()


def test_what_keeps_the_fence_off_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each in a line of its own; nothing is left behind."""
    fake: Any = FakeDaemon(os.getpid())
    whys = asyncio.run(probe_everywhere(fake, monkeypatch, tmp_path))
    assert whys == [
        "vgpud is not root: the driver lets root alone set memory limits",
        "no cgroups of version 2 are mounted",
        f"{tmp_path} does not show the host's cgroups: run vgpud in the host's cgroup namespace",
        "the devices are MIG instances, on which the driver has no memory limits",
    ]


async def probe_everywhere(fake: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    fence = MemoryFence("auto", fake, fake, fake, fake)
    whys = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    whys.append(fence._probe())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cgroup_tree, "mount_point", lambda: None)
    whys.append(fence._probe())
    monkeypatch.setattr(cgroup_tree, "mount_point", lambda: tmp_path)
    whys.append(fence._probe())
    monkeypatch.setattr(cgroup_tree, "sees_all", lambda mount: True)
    fake.state.devices = {"MIG-0": make_device(profile="1g.18gb")}
    whys.append(fence._probe())
    await fence.stop()
    assert list(tmp_path.iterdir()) == []
    return whys
