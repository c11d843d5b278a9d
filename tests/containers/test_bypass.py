"""Programs in a container that bypass a preloaded library: still held to the slice, or reported as a stranger."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import engine
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem

from .helpers import GIB, HALF, Engine, at, events, half_a_gpu_is_seen, own_name, until, until_attached, view

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = "/usr/lib/x86_64-linux-gnu" if os.uname().machine == "x86_64" else "/usr/lib/aarch64-linux-gnu"
COMPAT = "/usr/local/cuda/compat"
REAL = "/usr/lib/vgpu/real/libcuda.so.1"
#: within the device, above the slice
TOO_MUCH = str(2 * GIB)
#: (how, file) for programs/way.c
WAYS = {
    "soname": ("open", "libcuda.so.1"),
    "development-name": ("open", "libcuda.so"),
    "absolute-path": ("open", f"{LIBRARIES}/libcuda.so.1"),
    "versioned-file": ("open", f"{LIBRARIES}/libcuda.so.580.1"),
    "compat-path": ("open", f"{COMPAT}/libcuda.so.550.1"),
    "private-path": ("open", REAL),
    "deepbind": ("deepbind", "libcuda.so.1"),
    "deepbind-path": ("deepbind", f"{LIBRARIES}/libcuda.so.580.1"),
    "namespace": ("namespace", "libcuda.so.1"),
    "namespace-path": ("namespace", f"{LIBRARIES}/libcuda.so.580.1"),
    "namespace-compat": ("namespace", f"{COMPAT}/libcuda.so.1"),
    "namespace-private": ("namespace", REAL),
    # with libc's own functions, not the preloaded library's: the mounts hold these
    "libc-path": ("libc-open", f"{LIBRARIES}/libcuda.so.580.1"),
    "libc-compat": ("libc-open", f"{COMPAT}/libcuda.so.1"),
    "libc-namespace": ("libc-namespace", "libcuda.so.1"),
    "libc-namespace-path": ("libc-namespace", f"{COMPAT}/libcuda.so.550.1"),
    "rtld-default": ("default", "libcuda.so.1"),
    "rtld-next": ("next", "libcuda.so.1"),
}
#: what a program is started with
STARTS = {
    "as-it-is": (),
    "empty-environment": ("env", "-i"),
    "preload-unset": ("env", "-u", "LD_PRELOAD"),
    "compat-first": ("env", f"LD_LIBRARY_PATH={COMPAT}"),
}
#: an image that brings its own driver, as CUDA's images bring a compat one
DRIVER_FILES = f"""FROM {engine.BASE}
RUN mkdir -p {COMPAT}
COPY driver {COMPAT}/libcuda.so.550.1
COPY driver {LIBRARIES}/libcuda.so.580.1
RUN ln -s libcuda.so.550.1 {COMPAT}/libcuda.so.1 && ln -sf libcuda.so.580.1 {LIBRARIES}/libcuda.so.1 && \\
    ln -sf libcuda.so.1 {LIBRARIES}/libcuda.so
"""


def compile_way(folder: Path, *flags: str | Path) -> None:
    """way.c, not linked to any driver, as folder/way."""
    source = Path(__file__).with_name("programs") / "way.c"
    command = [os.environ.get("CC", "gcc"), "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run([*command, "-o", folder / "way", source, "-ldl"], check=True)


@pytest.fixture(scope="module")
def ways(programs: Path) -> Path:
    compile_way(programs)
    return programs


@pytest.fixture(scope="module")
def own_driver(plain_docker: engine.Docker) -> str:
    """An image with drivers that work, in the places where images and package managers put them."""
    return plain_docker.build("vgpu-test/own-driver", DRIVER_FILES, {"driver": paths.sim_lib_dir() / "libcuda.so.1"})


def read_answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def is_held(facts: dict[str, Any]) -> None:
    """One device of 1 GiB, and out of memory above it."""
    assert (facts.get("count"), facts.get("total"), facts.get("info"), facts.get("alloc")) == (1, GIB, GIB, 2), facts


def script_of(ways: Iterable[str], *start: str) -> str:
    """Shell commands: the ways one after another, each in a process of its own, which `start` begins."""
    lines = [shlex.join([*start, "/programs/way", *WAYS[way], TOO_MUCH]) for way in ways]
    return "\n".join(["set -e", *lines])


def check_all_held(done: subprocess.CompletedProcess[str], ways: Iterable[str]) -> None:
    """What a script_of() these ways has printed."""
    assert done.returncode == 0, done.stderr
    for way, line in zip(ways, done.stdout.splitlines(), strict=True):
        is_held({**json.loads(line), "way": way})


def test_every_way_leads_to_the_slice(docker: engine.Docker, ways: Path, own_driver: str) -> None:
    check_all_held(docker.run(*HALF, *at(ways), own_driver, "sh", "-c", script_of(WAYS)), WAYS)


@pytest.mark.parametrize("start", STARTS)
def test_the_environment_decides_nothing(docker: engine.Docker, ways: Path, own_driver: str, start: str) -> None:
    names = ("soname", "versioned-file", "namespace")
    script = script_of(names, *STARTS[start])
    check_all_held(docker.run(*HALF, *at(ways), own_driver, "sh", "-c", script), names)


@pytest.mark.parametrize("image", ["its own driver", "none"])
def test_a_linked_client_without_lookup(docker: engine.Docker, programs: Path, own_driver: str, image: str) -> None:
    """Linked to libcuda.so.1, it does not use cuGetProcAddress; nvmlDeviceGetMemoryInfo agrees with CUDA."""
    name = own_driver if image != "none" else engine.BASE
    found = view(docker.run(*HALF, *at(programs), name, "/programs/view", TOO_MUCH))
    half_a_gpu_is_seen(found)
    assert found["alloc"] == 2


def test_an_image_whose_environment_puts_its_driver_first(docker: engine.Docker, ways: Path, own_driver: str) -> None:
    words = ("-e", f"LD_LIBRARY_PATH={COMPAT}:/usr/local/lib", *at(ways), own_driver)
    is_held(read_answer(docker.run(*HALF, *words, "/programs/way", "open", "libcuda.so.1", TOO_MUCH)))
    half_a_gpu_is_seen(view(docker.run(*HALF, *words, "/programs/view")))


def test_an_image_whose_environment_preloads_its_driver(docker: engine.Docker, ways: Path, own_driver: str) -> None:
    """LD_PRELOAD comes before /etc/ld.so.preload: what it names is mounted over, wherever the image has it."""
    place = "/opt/vendor/libcuda.so.1"
    lines = f"FROM {own_driver}\nRUN mkdir /opt/vendor && cp {COMPAT}/libcuda.so.1 {place}\nENV LD_PRELOAD={place}\n"
    image = docker.build("vgpu-test/preloads", lines)
    half_a_gpu_is_seen(view(docker.run(*HALF, *at(ways), image, "/programs/view")))
    is_held(read_answer(docker.run(*HALF, *at(ways), image, "/programs/way", "default", "libcuda.so.1", TOO_MUCH)))
    done = docker.run(*HALF, "-e", f"LD_PRELOAD=/lib/x.so:{REAL}", image, "true")
    assert done.returncode == docker.REFUSED and f"LD_PRELOAD={REAL} would load the driver outside" in done.stderr, done


@pytest.mark.parametrize("way", ["soname", "namespace"])
def test_privileged_is_held_all_the_same(either: Engine, ways: Path, way: str) -> None:
    words = ("--privileged", *at(ways), engine.BASE)
    if isinstance(either, engine.Docker) and either.run(*words, "true", runtime="runc").returncode:
        pytest.skip("dockerd cannot run --privileged here without us either: this machine lacks capabilities")
    is_held(read_answer(either.run(*HALF, *words, "/programs/way", *WAYS[way], TOO_MUCH)))


def test_a_setuid_program_is_held(plain_docker: engine.Docker, docker: engine.Docker, ways: Path) -> None:
    """The loader drops LD_PRELOAD there and asks no variable of ours; /etc/ld.so.preload and the mounts stay."""
    lines = f"FROM {engine.BASE}\nCOPY way /way\nRUN chmod 4755 /way\n"
    image = plain_docker.build("vgpu-test/setuid", lines, {"way": ways / "way"})
    for name in ("soname", "namespace"):
        is_held(read_answer(docker.run(*HALF, "--user", "1000", image, "/way", *WAYS[name], TOO_MUCH)))


# ---- two copies in one process ----


def test_two_copies_in_one_process_share_one_limit(docker: engine.Docker, ways: Path, system: OwnSystem) -> None:
    """dlopen and dlmopen: contexts and allocations of both count, and the first keeps working beside the second."""
    options = ("-e", "VGPU=1", "-e", "VGPU_MEM=1792m", *at(ways), engine.BASE)
    first, second, again = read_answer(docker.run(*options, "/programs/way", "both", "libcuda.so.1", str(GIB)))
    assert [found["total"] for found in (first, second, again)] == [7 * GIB // 4] * 3
    # two contexts of half a GiB and what the first copy took leave a quarter for the second, which wants half a GiB
    assert [first["alloc"], second["alloc"], again["alloc"]] == [0, 2, 0]


def test_two_copies_come_back_to_a_restarted_daemon(docker: engine.Docker, ways: Path, system: OwnSystem) -> None:
    options = ("-e", "VGPU=1", "-e", "VGPU_MEM=3g", *at(ways), engine.BASE)
    container = docker.start_container(*options, "/programs/way", "both", "libcuda.so.1", "4096", "hold")
    name = own_name(container)
    before = until_attached(system, name, 2)
    assert before[0] == before[1] == docker.pid(container)
    assert system.daemon
    system.daemon.kill()
    system.start_daemon()
    assert until_attached(system, name, 2) == before
    count = len(events(system, "process.attached"))
    time.sleep(1)  # time for either to end the other's life, were that so
    assert until_attached(system, name, 2) == before
    assert len(events(system, "process.attached")) == count


# ---- what is not held is reported ----


@pytest.mark.parametrize("how", ["open", "namespace", "libc-open"])
@pytest.mark.parametrize("options", [(), ("--privileged",)], ids=["plain", "privileged"])
def test_a_driver_under_no_known_name_is_reported(
    podman: engine.Podman, ways: Path, system: OwnSystem, options: Sequence[str], how: str
) -> None:
    """Nothing recognises such a file as a driver; the unattached process is reported, with the container's id."""
    file = "/tmp/innocent.so" if how != "libc-open" else REAL
    script = f"cp {REAL} /tmp/innocent.so && exec /programs/way {how} {file} {TOO_MUCH} hold"
    container = podman.start_container(*HALF, *options, *at(ways), engine.BASE, "sh", "-c", script)
    until("the program's line", lambda: "alloc" in podman.cli("logs", container).stdout)
    assert json.loads(podman.cli("logs", container).stdout)["alloc"] == 0, "it was held: then this test has no sense"

    def is_reported() -> bool:
        return any(container[:12] in message for message in events(system, "device.stranger"))

    until("the report", is_reported)
