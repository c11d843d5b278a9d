"""Engines for the container tests: private dockerd, podman and containerd, a base image, one system that they use.

Everything is started by the first test that asks for it and stopped by pid at the end of the session. Where no engine
can run the tests are skipped with the reason; with CI=true in the environment that is a failure instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from benchmarks import engine
from benchmarks.base_image import ImageError, base_tar
from tests import mandatory
from tests.daemon.forked import ForkedSystem
from vgpud.cli.demo.private_system import OwnSystem, PartError
from vgpud.client import calls

#: two devices: small enough that a test can fill them, large enough for 1 GiB in half of one
SIM_CONFIG = {"devices": "2", "memory_bytes": "4G"}
ROOT = Path(__file__).resolve().parents[2]
#: what the stand-in for NVIDIA's prestart hook says when it is run; it fails then
NVIDIA_HOOK_SAYS = "the stand-in for the NVIDIA hook ran"
#: C programs of the tests, below tests/
OWN = [f"containers/programs/{name}.c" for name in ("view", "hold", "ask")]
SOURCES = ("system/programs/tenant.c", *OWN)


def unavailable(reason: str) -> NoReturn:
    """Skips, or fails where the tests must run."""
    mandatory.unavailable(f"no container engine: {reason}")


def need(*programs: str) -> None:
    """Skips (or fails) when one of these programs cannot run here."""
    reason = engine.why_not(*programs)
    if reason:
        unavailable(reason)


@pytest.fixture(scope="session")
def engines_dir() -> Iterator[Path]:
    """Where engines and system live; the name is short, since sockets lie below."""
    need()
    path = Path(tempfile.mkdtemp(prefix="vge-"))
    path.chmod(0o711)  # containers whose root is another user outside look for their files in here
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def image_tar() -> Path:
    """The base image's root file system, from the user's cache or made now."""
    need()
    try:
        return base_tar()
    except ImageError as error:
        unavailable(str(error))


@pytest.fixture(scope="session")
def shared_system(engines_dir: Path) -> Iterator[OwnSystem]:
    """The daemon and the two simulated devices that the engines' runtime asks."""
    cdi = engines_dir / "cdi"
    cdi.mkdir()
    hooks = f'front = "{engines_dir}/sys/front/vgpu-runtime"'  # where the fixture of that name installs it
    system = ForkedSystem(engines_dir / "sys", SIM_CONFIG, [f'cdi_dir = "{cdi}"', "nvidia_cdi_dirs = []", hooks])
    with system:
        yield system


@pytest.fixture(scope="session")
def front(shared_system: OwnSystem) -> Path:
    """The vgpu-runtime that asks shared_system's daemon."""
    return engine.front_of(shared_system)


@pytest.fixture(scope="session")
def plain_docker(engines_dir: Path, image_tar: Path) -> Iterator[engine.Docker]:
    """A dockerd with the base image and no runtime but runc."""
    need("dockerd", "docker")
    made = engine.Docker(engines_dir / "docker", {}, {"live-restore": True})
    # With a program of this name in PATH dockerd takes --gpus and puts it into config.json as a hook.
    hooks = engines_dir / "hooks"
    hooks.mkdir()
    (hooks / "nvidia-container-runtime-hook").write_text(f"#!/bin/sh\necho {NVIDIA_HOOK_SAYS} >&2\nexit 1\n")
    (hooks / "nvidia-container-runtime-hook").chmod(0o755)
    made.env["PATH"] = f"{hooks}:{made.env['PATH']}"
    try:
        made.__enter__()
    except PartError as error:
        unavailable(str(error))
    made.import_base(image_tar)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def docker_engine(plain_docker: engine.Docker, front: Path) -> engine.Docker:
    """The same dockerd with the runtime vgpu."""
    plain_docker.runtimes["vgpu"] = front
    plain_docker.reload()
    return plain_docker


@pytest.fixture
def docker(docker_engine: engine.Docker, system: OwnSystem) -> Iterator[engine.Docker]:
    """dockerd with the runtime vgpu; the test's containers are removed after it."""
    yield docker_engine
    if docker_engine.daemon is None or not docker_engine.daemon.running:  # a test that ended before it was back
        docker_engine.start()
    docker_engine.remove_all()


@pytest.fixture(scope="session")
def containerd_engine(engines_dir: Path, plain_docker: engine.Docker) -> Iterator[engine.Containerd]:
    """containerd with the base image, taken from dockerd."""
    need("containerd", "ctr")
    made = engine.Containerd(engines_dir / "ctrd")
    try:
        made.__enter__()
        made.import_image(plain_docker, engine.BASE)
    except PartError as error:
        made.stop()
        unavailable(str(error))
    yield made
    made.stop()


@pytest.fixture
def containerd(containerd_engine: engine.Containerd, system: OwnSystem) -> engine.Containerd:
    """containerd, for `ctr run` with vgpu-runtime as the runc binary."""
    return containerd_engine


@pytest.fixture(scope="session")
def podman_engine(engines_dir: Path, image_tar: Path, front: Path) -> Iterator[engine.Podman]:
    need("podman")
    made = engine.Podman(engines_dir / "podman", {"vgpu": front}, engines_dir / "cdi")
    try:
        made.import_base(image_tar)
    except PartError as error:
        unavailable(str(error))
    yield made
    made.stop()


@pytest.fixture
def podman(podman_engine: engine.Podman, system: OwnSystem) -> Iterator[engine.Podman]:
    """podman with the runtime vgpu; the test's containers are removed after it."""
    yield podman_engine
    podman_engine.cli("rm", "-af", "-t", "0", check=False)


@pytest.fixture(params=["docker", "podman"])
def either(request: pytest.FixtureRequest) -> engine.Docker | engine.Podman:
    """The test runs on docker, then on podman."""
    made: engine.Docker | engine.Podman = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def system(shared_system: OwnSystem) -> Iterator[OwnSystem]:
    """The engines' system with nothing on it; a test may kill its daemon."""
    yield shared_system
    if shared_system.daemon is None or not shared_system.daemon.running:
        shared_system.start_daemon()
    with shared_system.client() as client:
        for item in client.all(calls.slices()):
            try:
                shared_system.vgpu("slice", "rm", "--force", item.name)
            except PartError as error:  # podman's clean-up has ended meanwhile, and so its container's slice
                if "no slice" not in str(error):
                    raise


@pytest.fixture(scope="session")
def on_base(plain_docker: engine.Docker) -> Callable[[str, str], str]:
    """on_base(name, lines): an image of the base image and more Dockerfile lines."""

    def make(name: str, lines: str) -> str:
        return plain_docker.build(f"vgpu-test/{name}", f"FROM {engine.BASE}\n{lines}\n")

    return make


@pytest.fixture(scope="session")
def programs(engines_dir: Path) -> Path:
    """A folder with the tests' programs, linked to libcuda.so.1 as a user's are; containers get it at PROGRAMS."""
    folder = engines_dir / "programs"
    folder.mkdir()
    for source in SOURCES:
        flags = ["-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", "tests/sim", "-iquote", "shim"]
        out = str(folder / Path(source).stem)
        command = [os.environ.get("CC", "gcc"), *flags, "-o", out, f"tests/{source}", "vgpud/lib/sim/libcuda.so.1"]
        subprocess.run([*command, "-ldl"], cwd=ROOT, check=True)
    return folder
