"""Fixtures of the tests of vgpud/oci: an image, the plan for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oci.image import HOME, LOADER, UUIDS, Image, docker_config
from vgpud import libtree
from vgpud.oci.prepare import Plan


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A simulated slice on one device; the tree holds empty files of the right names."""
    tree = tmp_path / "cache/containers/0123456789abcdef"
    (tree / "real").mkdir(parents=True)
    for name in (libtree.SHIM, libtree.ML_SHIM):
        (tree / name).touch()
    (tree / libtree.PRELOAD).write_text(libtree.preload_text(True))
    return Plan(
        attach_dir=tmp_path / "slices/c-1",
        tree=tree,
        scratch=tmp_path / "scratch/0123",
        uuids=UUIDS[:1],
        indices=(0,),
        sim_dir="/run/simulated",
        cdi_dirs=(),
        front="/usr/lib/vgpu/current/vgpu-runtime",
    )


@pytest.fixture
def image(tmp_path: Path, plan: Plan) -> Image:
    """A glibc image without a driver in it, with merged /usr as Debian has it."""
    root = tmp_path / "bundle/rootfs"
    for directory in ("usr/lib64", f"{HOME[1:]}", "etc", "run", "usr/local"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "lib64").symlink_to("usr/lib64")
    made = Image(root, plan, docker_config("rootfs"))
    made.put(LOADER.replace("/lib", "/usr/lib", 1))
    made.put(f"{HOME}/libc.so.6")
    return made
