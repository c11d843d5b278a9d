"""Fixtures of the tests of vgpud/oci: an image, the plan for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.oci.image import DRIVER, HOME, LOADER, UUIDS, Image, docker_config
from vgpud.libraries import tree as library_tree
from vgpud.oci.prepare import Plan


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A simulated slice on one device; the tree holds empty files of the right names."""
    tree = tmp_path / "cache/containers/0123456789abcdef"
    (tree / "real").mkdir(parents=True)
    for name in (library_tree.SHIM, library_tree.ML_SHIM):
        (tree / name).touch()
    (tree / library_tree.PRELOAD).write_text(library_tree.preload_text([library_tree.SHIM, library_tree.ML_SHIM]))
    return Plan(
        attach_dir=tmp_path / "slices/c-1",
        tree=tree,
        scratch=tmp_path / "scratch/0123",
        uuids=UUIDS[:1],
        indices=(0,),
        sim_dir="/run/simulated",
        cdi_dirs=(),
        front="/usr/lib/vgpu/current/vgpu-runtime",
        mode="closed",
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


@pytest.fixture
def host_driver(tmp_path: Path) -> Path:
    """The driver's files on a made-up host."""
    folder = tmp_path / "driver"
    folder.mkdir()
    for name in ("libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so"):
        (folder / f"{name}.999.1").write_bytes(DRIVER)
    (folder / "compat-libcuda.so.998").write_bytes(DRIVER)
    return folder


@pytest.fixture
def cdi_dir(tmp_path: Path, host_driver: Path) -> Path:
    """A folder with a specification of two devices as nvidia-ctk writes it."""

    def mount(name: str, place: str) -> dict[str, object]:
        options = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
        return {"hostPath": str(host_driver / name), "containerPath": place, "options": options}

    names = ("libcuda.so.999.1", "libnvidia-ml.so.999.1", "libnvidia-ptxjitcompiler.so.999.1")
    link = ["nvidia-cdi-hook", "create-symlinks", "--link", f"libcuda.so.1::{HOME}/libcuda.so"]
    common = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "FROM_CDI=1"],
        "deviceNodes": [{"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255}],
        "mounts": [
            *(mount(name, f"{HOME}/{name}") for name in names),
            mount("compat-libcuda.so.998", "/usr/local/cuda/compat/libcuda.so.998"),
        ],
        "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": link}],
        "additionalGids": [109],
    }
    devices = [
        {
            "name": name,
            "containerEdits": {
                "deviceNodes": [
                    {"path": f"/dev/nvidia{minor}", "type": "c", "major": 195, "minor": minor, "permissions": "rw"}
                ]
            },
        }
        for minor, name in ((0, "0"), (1, UUIDS[1]))
    ]
    folder = tmp_path / "cdi"
    folder.mkdir()
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": common}
    (folder / "nvidia.yaml").write_text(yaml.safe_dump(spec))
    return folder
