"""`docker run --runtime=vgpu -e VGPU=0.5 -e VGPU_MEM=1g IMAGE` with an unmodified image, and the same on podman."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks import engine
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls

from .helpers import (
    GIB,
    HALF,
    Engine,
    at,
    half_a_gpu_is_seen,
    own_name,
    slices,
    until,
    until_attached,
    until_free,
    view,
)


def test_half_a_gpu(either: Engine, programs: Path) -> None:
    half_a_gpu_is_seen(view(either.run(*HALF, *at(programs), engine.BASE, "/programs/view")))


def test_memory_is_held_to_the_limit(docker: engine.Docker, programs: Path) -> None:
    command = (*HALF, *at(programs), engine.BASE, "/programs/view")
    assert view(docker.run(*command, str(256 << 20)))["alloc"] == 0
    assert view(docker.run(*command, str(GIB)))["alloc"] == 2  # CUDA_ERROR_OUT_OF_MEMORY, as on a smaller device


def test_an_empty_environment_changes_nothing(docker: engine.Docker, programs: Path) -> None:
    done = docker.run(*HALF, *at(programs), engine.BASE, "env", "-i", "/programs/view")
    half_a_gpu_is_seen(view(done))


def test_a_container_that_asks_for_nothing_is_as_without_us(either: Engine, system: OwnSystem) -> None:
    done = either.run(engine.BASE, "sh", "-c", "ls -d /run/vgpu /usr/lib/vgpu /etc/ld.so.preload; echo over")
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
    assert not slices(system)


def test_one_and_a_half_devices(docker: engine.Docker, programs: Path) -> None:
    seen = view(docker.run("-e", "VGPU=1.5", *at(programs), engine.BASE, "/programs/view"))
    assert (seen["count"], seen["nvml_bytes"]) == (2, [4 * GIB, 2 * GIB]), seen


def test_the_slice_is_listed_with_its_container_and_ends_with_it(
    either: Engine, system: OwnSystem, programs: Path
) -> None:
    container = either.start_container(*HALF, *at(programs), engine.BASE, "/programs/hold", "4096")
    name = own_name(container)
    (pid,) = until_attached(system, name)
    made = slices(system)[name]
    assert [(c.id, c.pid) for c in made.containers] == [(container, either.pid(container))]
    assert pid == either.pid(container)
    assert container in made.containers[0].cgroup
    with system.client() as client:
        assert [process.container for process in client.all(calls.processes())] == [container]
    either.remove(container)
    until_free(system)


def test_minimum_maximum_and_name(docker: engine.Docker, system: OwnSystem) -> None:
    amounts = ["VGPU=0.5", "VGPU_MAX=0.75", "VGPU_MEM=2g", "VGPU_MEM_MIN=1g", "VGPU_NAME=mine"]
    options = [word for amount in amounts for word in ("-e", amount)]
    docker.start_container(*options, engine.BASE, "sleep", "600")
    until("the slice", lambda: "mine" in slices(system))
    made = slices(system)["mine"]
    (share,) = made.devices
    assert (share.min_milli, share.max_milli) == (500, 750)
    assert (share.mem_min_bytes, share.mem_max_bytes) == (GIB, 2 * GIB)


def test_class_and_priority_go_by_annotation_only(podman: engine.Podman, docker: engine.Docker) -> None:
    """An image's ENV cannot be distinguished from the user's -e, nor its annotation from the user's under podman."""
    for own, option in ((docker, "-e"), (podman, "--annotation")):
        words = ("VGPU_CLASS=latency", "VGPU_PRIORITY=1") if option == "-e" else ("dev.vgpu/class=latency",)
        for word in words:
            done = own.run("-e", "VGPU=0.5", option, word, engine.BASE, "true")
            assert done.returncode == own.REFUSED and f"{word} is more than a container may ask for" in done.stderr


def test_annotations_win_over_the_environment(podman: engine.Podman, programs: Path) -> None:
    options = ("--annotation", "dev.vgpu/gpus=0.5", "--annotation", "dev.vgpu/mem=1g", "-e", "VGPU=1")
    half_a_gpu_is_seen(view(podman.run(*options, *at(programs), engine.BASE, "/programs/view")))


def test_containers_share_a_slice_that_is_there(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    system.vgpu("slice", "create", "both", "--gpus", "0.5", "--mem", "2G")
    words = ("-e", "VGPU_SLICE=both", *at(programs), engine.BASE)
    pair = [docker.start_container(*words, "/programs/hold", "4096") for _ in range(2)]
    until_attached(system, "both", 2)
    assert sorted(c.id for c in slices(system)["both"].containers) == sorted(pair)
    assert view(docker.run(*words, "/programs/view"))["nvml_bytes"] == [2 * GIB]
    docker.remove(*pair)
    until("the containers' end", lambda: not slices(system)["both"].containers)


def test_exec_shares_the_slice(either: Engine, system: OwnSystem, programs: Path) -> None:
    container = either.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    half_a_gpu_is_seen(view(either.cli("exec", container, "/programs/view")))
    assert list(slices(system)) == [own_name(container)]


def test_an_image_with_its_own_driver_files(
    docker: engine.Docker, on_base: Callable[[str, str], str], programs: Path
) -> None:
    """The shim lies over every one of them, so that a path which names one gets the slice too."""
    folder = "/usr/local/cuda/compat"
    made = f"echo no library > {folder}/libcuda.so.550.1 && ln -s libcuda.so.550.1 {folder}/libcuda.so.1"
    lines = f"RUN mkdir -p {folder} && {made}"
    image = on_base("compat", f"{lines}\nENV LD_LIBRARY_PATH={folder}")
    half_a_gpu_is_seen(view(docker.run(*HALF, *at(programs), image, "/programs/view")))
