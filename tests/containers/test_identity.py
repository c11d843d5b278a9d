"""Containers are known by what the kernel says of them, never by what they say; each has its own slice only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import engine
from tests.shares import check_shares_sum
from vgpud.cli.demo.private_system import OwnSystem

from .helpers import HALF, Engine, at, events, half_a_gpu_is_seen, own_name, slices, until, until_attached, view

SYSTEMDS = Path("/sys/fs/cgroup/systemd")
OnBase = Callable[[str, str], str]


def test_another_containers_socket_is_refused(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    """Root in a container, with the other's socket and the shared one at hand and a program of its own to ask them."""
    other = docker.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    socket = Path(slices(system)[own_name(other)].attach_socket)
    mounted = ("-v", f"{socket.parent}:/other", *at(programs))
    done = docker.run("-e", "VGPU=0.25", *mounted, engine.BASE, "/programs/ask", "/other/attach.sock")
    assert done.stdout.startswith("3 ") and f"cannot use slice {own_name(other)}" in done.stdout, done
    assert slices(system)[own_name(other)].processes == 0
    until("the refusal", lambda: any(own_name(other) in text for text in events(system, "attach.refused")))


@pytest.mark.skipif(not SYSTEMDS.is_dir(), reason="no cgroups of version 1 here")
def test_a_hierarchy_that_a_container_may_write_decides_nothing(
    docker: engine.Docker, system: OwnSystem, programs: Path
) -> None:
    """As podman gives it to a systemd in a container: root moves to the other's path there, and asks for its slice."""
    other = docker.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    folder = Path(slices(system)[own_name(other)].attach_socket).parent
    words = ("-e", "VGPU=0.25", *at(programs), "-v", f"{folder}:/other", "-v", f"{SYSTEMDS}:/systemds", engine.BASE)
    script = f"echo $$ > /systemds/docker/{other}/cgroup.procs && exec /programs/ask /other/attach.sock"
    done = docker.run(*words, "sh", "-c", script)
    assert done.stdout.startswith("3 ") and f"cannot use slice {own_name(other)}" in done.stdout, done


def test_what_an_image_says_leads_nowhere_else(docker: engine.Docker, programs: Path, on_base: OnBase) -> None:
    """An image's ENV is not the user's: with it every program would run without limits."""
    words = "VGPU_SOCKET=/nowhere VGPU_DRIVER=/nowhere VGPU_NVML=/nowhere VGPU_MODE=open"
    image = on_base("astray", f"ENV {words}")
    half_a_gpu_is_seen(view(docker.run(*HALF, *at(programs), image, "/programs/view")))


def test_what_a_container_says_changes_nothing(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    container = docker.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    said = ("-e", "VGPU=2", "-e", "VGPU_MEM=8g", "-e", "VGPU_SLICE=other", "-e", "NVIDIA_VISIBLE_DEVICES=all")
    half_a_gpu_is_seen(view(docker.cli("exec", *said, container, "/programs/view")))


def test_any_user_of_the_container_may_use_its_slice(either: Engine, programs: Path) -> None:
    container = either.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    for user in ("0", "1000", "65534"):
        half_a_gpu_is_seen(view(either.cli("exec", "--user", user, container, "/programs/view")))


def test_a_container_finds_its_own_socket_and_no_other(docker: engine.Docker, system: OwnSystem) -> None:
    docker.start_container("-e", "VGPU=0.25", engine.BASE, "sleep", "600")
    done = docker.run(*HALF, engine.BASE, "find", "/run/vgpu", "/run/vgpud", "-name", "*.sock")
    assert done.stdout.split() == ["/run/vgpu/attach.sock"], done
    done = docker.run(*HALF, engine.BASE, "sh", "-c", "touch /run/vgpu/x /usr/lib/vgpu/x; echo over")
    assert done.stderr.count("Read-only file system") == 2 and done.stdout == "over\n", done


def test_two_containers_see_what_each_was_given(either: Engine, programs: Path) -> None:
    first = either.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    second = either.start_container("-e", "VGPU=0.25", "-e", "VGPU_MEM=2g", *at(programs), engine.BASE, "sleep", "600")
    half_a_gpu_is_seen(view(either.cli("exec", first, "/programs/view")))
    assert view(either.cli("exec", second, "/programs/view"))["nvml_bytes"] == [2 << 30]


def test_shares_hold_and_move_live(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    """Wide bounds; the exact figures are a benchmark's."""
    pids = []
    names = []
    for amount in ("0.25", "0.75"):
        options = ("-e", f"VGPU={amount}", "-e", "VGPU_MEM=1g", *at(programs))
        names.append(own_name(docker.start_container(*options, engine.BASE, "/programs/tenant")))
        pids += until_attached(system, names[-1])
    check_shares_sum(system, pids, 2, lambda small, big: 2 * small < big < 4.5 * small)
    system.vgpu("slice", "set", names[1], "--gpus", "0.25")
    system.vgpu("slice", "set", names[0], "--gpus", "0.75")
    check_shares_sum(system, pids, 2, lambda big, small: 2 * small < big < 4.5 * small)
