"""The image of the chart's pods, for nodes without a registry: Debian with Python, and this tree with what it needs."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import json
import re
import tarfile
from pathlib import Path

from benchmarks import images
from benchmarks.base_image import base_tar

ROOT = Path(__file__).resolve().parents[2]
NAME = "registry.example/vgpud-k8s"
#: where Debian's Python looks
PACKAGES_AT = f"usr/local/lib/python{images.PYTHON}/dist-packages"
COMMANDS = {"vgpu": "vgpud.cli.main:main", "vgpud": "vgpud.serve:main", "vgpud-k8s": "vgpud.k8s.main:main"}


def find_packages() -> list[importlib.metadata.Distribution]:
    """The packages that `pip install vgpud[k8s]` brings, as they are installed here."""
    names, found = ["vgpud"], {"vgpud": importlib.metadata.distribution("vgpud")}
    for name in names:
        for line in found[name].requires or []:
            other, _, condition = line.partition(";")
            wanted = "extra" not in condition or (name == "vgpud" and "k8s" in condition)
            (package,) = re.findall(r"^[A-Za-z0-9._-]+", other)
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # one for another Python
                if wanted and package not in found:
                    found[package] = importlib.metadata.distribution(package)
                    names.append(package)
    return [found[name] for name in names[1:]]


def write_layer(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.add(ROOT / "vgpud", f"{PACKAGES_AT}/vgpud", filter=_without_caches)
        for package in find_packages():
            for file in package.files or []:
                if ".." not in file.parts and file.locate().is_file():  # type: ignore[attr-defined]
                    archive.add(file.locate(), f"{PACKAGES_AT}/{file}")
        for name, target in COMMANDS.items():
            module, _, function = target.partition(":")
            text = f"#!/usr/bin/python3\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n".encode()
            info = tarfile.TarInfo(f"usr/local/bin/{name}")
            info.mode, info.size = 0o755, len(text)
            archive.addfile(info, io.BytesIO(text))


def _without_caches(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name else info


def chart_image(folder: Path, tag: str) -> Path:
    """Writes the image as an archive that `ctr image import` takes. Raises ImageError."""
    layers = {"base.tar": base_tar(include=images.PACKAGES), "vgpud.tar": folder / "vgpud.tar"}
    write_layer(layers["vgpud.tar"])
    digests = [f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" for path in layers.values()]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED=1"]},
        "rootfs": {"type": "layers", "diff_ids": digests},
    }
    manifest = [{"Config": "config.json", "RepoTags": [f"{NAME}:{tag}"], "Layers": list(layers)}]
    made = folder / "chart-image.tar"
    with tarfile.open(made, "w") as archive:
        for name, content in (("config.json", config), ("manifest.json", manifest)):
            (folder / name).write_text(json.dumps(content))
            archive.add(folder / name, name)
        for name, path in layers.items():
            archive.add(path, name)
    layers["vgpud.tar"].unlink()
    return made
