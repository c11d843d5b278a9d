"""`podman run --device vgpu.dev/gpu=0.5`: a slice without our runtime, and one-time devices of any size."""

from __future__ import annotations

from pathlib import Path

from benchmarks import engine
from vgpud.cli.demo.private_system import OwnSystem

from .helpers import GIB, at, own_name, slices, until, until_attached, until_free, vgpu, view

PLAIN = engine.LOW_LEVEL


def test_half_a_gpu(podman: engine.Podman, system: OwnSystem, programs: Path) -> None:
    done = podman.run("--device", "vgpu.dev/gpu=0.5", *at(programs), engine.BASE, "/programs/view", runtime=PLAIN)
    seen = view(done)
    assert (seen["count"], seen["nvml_bytes"]) == (1, [2 * GIB]), seen
    until_free(system)


def test_the_slice_is_the_containers(podman: engine.Podman, system: OwnSystem, programs: Path) -> None:
    device = ("--device", "vgpu.dev/gpu=0.25")
    container = podman.start_container(*device, *at(programs), engine.BASE, "/programs/tenant", runtime=PLAIN)
    name = own_name(container)
    until_attached(system, name)
    assert [c.id for c in slices(system)[name].containers] == [container]
    podman.cli("kill", container)
    until_free(system)


def test_under_our_runtime_it_is_not_done_twice(podman: engine.Podman, system: OwnSystem, programs: Path) -> None:
    seen = view(podman.run("--device", "vgpu.dev/gpu=0.5", *at(programs), engine.BASE, "/programs/view"))
    assert (seen["count"], seen["nvml_bytes"]) == (1, [2 * GIB]), seen
    until_free(system)


def test_a_refusal_in_the_hook_reaches_the_user(podman: engine.Podman, system: OwnSystem) -> None:
    system.vgpu("slice", "create", "most", "--gpus", "1.75", "--mem", "7G")
    done = podman.run("--device", "vgpu.dev/gpu=0.5", engine.BASE, "true", runtime=PLAIN)
    assert done.returncode == podman.REFUSED, done.stderr
    assert "no device has min 0.5" in done.stderr, done.stderr


def test_an_unlisted_size_is_unknown(podman: engine.Podman) -> None:
    done = podman.run("--device", "vgpu.dev/gpu=0.35", engine.BASE, "true", runtime=PLAIN)
    assert done.returncode == podman.REFUSED
    assert "unresolvable CDI devices vgpu.dev/gpu=0.35" in done.stderr


def test_a_one_time_device(podman: engine.Podman, system: OwnSystem, programs: Path) -> None:
    """`vgpu alloc 0.35` prints its name; the container that uses it gets that slice, which ends with it."""
    device = vgpu(system, "alloc", "0.35", "--mem", "1G").strip()
    assert device.startswith("vgpu.dev/gpu="), device
    (name,) = slices(system)
    container = podman.start_container("--device", device, *at(programs), engine.BASE, "sleep", "600", runtime=PLAIN)
    assert view(podman.cli("exec", container, "/programs/view"))["nvml_bytes"] == [GIB]
    assert [c.id for c in slices(system)[name].containers] == [container]
    podman.remove(container)
    until("its end", lambda: not slices(system))
    done = podman.run("--device", device, engine.BASE, "true", runtime=PLAIN)
    assert done.returncode == podman.REFUSED
