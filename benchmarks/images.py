"""The images of docker/Dockerfile built without a package index inside: wheels are fetched outside and copied in.

Used by the container benchmark and the container tests, whose engines have no network. What a user types is in the
Dockerfile's head; only the base image and the build arguments differ here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.base_image import base_tar
from benchmarks.engine import Docker, call, find

#: what the base needs so that no step of the Dockerfile asks for packages, and the Python that it has then
PACKAGES = ("python3", "python3-venv")
PYTHON = "3.11"
BASE = "vgpu-test/python"
CIFAR = ("numpy>=1.26", "tinygrad>=0.11", "nvidia-cuda-nvrtc>=13.0")
#: what PyTorch's wheel needs on the simulated device, which has CUDA libraries of its own (docs/pytorch.md)
TORCH = (
    *("numpy>=1.26", "filelock", "fsspec", "jinja2", "MarkupSafe", "mpmath", "networkx", "setuptools", "sympy"),
    "typing-extensions",
)
BUILD_TIMEOUT_S = 900.0


class BuildError(RuntimeError):
    """A wheel or an image cannot be had; the message ends with what pip or docker said last."""


def context(folder: Path) -> Path:
    """Copies what .dockerignore lets through into a folder, so that wheels can lie beside it. Returns the folder."""
    lines = (results.ROOT / ".dockerignore").read_text().splitlines()
    left_out = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    for name in [line[1:] for line in lines if line.startswith("!")]:
        source, target = results.ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*left_out, "lib", "_shim.*", "*.whl"))
        else:
            shutil.copy2(source, target)
    shutil.copy2(results.ROOT / ".dockerignore", folder)
    return folder


def add_wheels(folder: Path, requirements: Sequence[str]) -> None:
    """Fetches wheels of these packages and all that they need into the context. Raises BuildError."""
    words = ["download", "--only-binary=:all:", "--python-version", PYTHON, "-d", str(folder / "docker" / "wheels")]
    _pip([*words, *requirements])


def add_torch(folder: Path, wheel: Path) -> tuple[str, str]:
    """Puts PyTorch's wheel into the context, and what it needs without NVIDIA's. Returns the Dockerfile's TORCH and
    TORCH_PACKAGES. Raises BuildError.
    """
    add_wheels(folder, TORCH)
    shutil.copy2(wheel, folder / "docker" / "wheels")
    version = wheel.name.split("-")[1].partition("+")[0]
    return version, " ".join(["--no-deps", *TORCH])


def find_torch_wheel() -> Path | None:
    """PyTorch's build for CUDA of the image's Python, where one lies in docker/wheels."""
    found = sorted((results.ROOT / "docker" / "wheels").glob(f"torch-*-cp{PYTHON.replace('.', '')}-*manylinux*.whl"))
    return next((wheel for wheel in found if "+cpu" not in wheel.name), None)


def add_vgpud(folder: Path) -> None:
    """Builds a wheel of this project from the context alone, and fetches what it needs. Raises BuildError.

    Objects are taken from the clone where they are of the same sources.
    """
    wheels = folder / "docker" / "wheels"
    objects = str(results.ROOT / "build" / "objects")
    _pip(["wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(folder)], VGPU_OBJECTS=objects)
    (built,) = wheels.glob("vgpud-*.whl")
    add_wheels(folder, [f"{built}[k8s]"])


def _pip(words: Sequence[str], **env: str) -> None:
    command = [sys.executable, "-m", "pip", *words, "-q", "--disable-pip-version-check"]
    options: Any = {"env": os.environ | env, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise BuildError(f"pip {words[0]}: {said[-1]}")


def import_base(docker: Docker) -> str:
    """Gives an engine the base image with Python. Raises ImageError where it cannot be made."""
    return docker.import_base(base_tar(include=PACKAGES), BASE)


def select_stages(dockerfile: str, target: str) -> str:
    """The stages that a target is made of: the old builder makes every one before it as well."""
    head, *stages = re.split(r"^(?=FROM )", dockerfile, flags=re.MULTILINE)
    names = {re.findall(r"^FROM \S+ AS (\S+)", stage)[0]: stage for stage in stages}
    needed, waiting = set[str](), [target]
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting += [n for n in re.findall(r"(?:^FROM |--from=)(\S+)", names[name], re.MULTILINE) if n in names]
    return head + "".join(stage for name, stage in names.items() if name in needed)


def build(docker: Docker, folder: Path, target: str, base: str = BASE, offline: bool = True, **arguments: str) -> str:
    """Builds a target of docker/Dockerfile; returns the image's name. offline: from the context's wheels alone.

    Raises BuildError.
    """
    name = f"vgpu-test/{target}"
    options: Mapping[str, str] = {"BASE": base, "PIP_NO_INDEX": "1" if offline else "", **arguments}
    given = [word for key, value in options.items() for word in ("--build-arg", f"{key}={value}")]
    network = "none" if offline else "host"
    dockerfile = folder / "docker" / f"Dockerfile.{target}"
    dockerfile.write_text(select_stages((folder / "docker" / "Dockerfile").read_text(), target))
    command = [find("docker") or "docker", "build", f"--network={network}", "-f", str(dockerfile), "--target", target]
    # the old builder: it needs neither a network nor a plugin
    env = {**docker.env, "DOCKER_BUILDKIT": "0"}
    done = call([*command, *given, "-t", name, str(folder)], env, check=False, timeout_s=BUILD_TIMEOUT_S)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise BuildError(f"docker build --target {target}: " + " / ".join(line.strip() for line in said[-6:]))
    return name
