"""Prepared configurations in real containers of runc: what a program in there meets.

The root holds this machine's C library and one program; the drivers are made up, so no device is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import engine
from tests.oci.image import LOADER, bound
from vgpud import paths
from vgpud.libraries import simulated
from vgpud.libraries import tree as library_tree
from vgpud.oci.prepare import Plan, Prepared, prepare

RUNC = engine.find("runc") or "runc"
UUID = "GPU-cccccccc-0000-0000-0000-000000000000"
PROGRAM = Path(__file__).with_name("programs") / "probe.c"
#: stands in for nvidia-cdi-hook: makes one link in the container's root
LINK_HOOK = '#!/bin/sh\nlink="$3"\nln -sf "${link%%::*}" "$ROOT${link##*::}"\n'

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(engine.why_not()), reason=f"no container: {engine.why_not()}")]


class Box:
    """A root, a bundle and a host's driver, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "bundle/rootfs"
        for name in ("bundle/rootfs/dev", "bundle/rootfs/proc", "bundle/rootfs/etc", "attach", "sim", "driver", "cdi"):
            (folder / name).mkdir(parents=True)
        self._fill()
        lib = paths.sim_lib_dir()
        tree = library_tree.library_tree(folder / "cache", lib / "libcuda.so.1", lib / "libnvidia-ml.so.1", True)
        self.plan = Plan(
            folder / "attach", tree, folder / "scratch", (UUID,), (0,), str(folder / "sim"), (), "/bin/true", "coast"
        )
        self.config = self._config()

    def _fill(self) -> None:
        program = self.folder / "probe"
        subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", program, PROGRAM, "-ldl"], check=True)
        for name in ("lib", "lib64"):
            (self.root / "usr" / name).mkdir(parents=True)
            (self.root / name).symlink_to(f"usr/{name}")
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        files = {Path(word) for line in listed.splitlines() for word in line.split() if word.startswith("/")}
        library = next(file for file in files if file.name == "libc.so.6")
        names = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6", os.path.basename(LOADER))
        others = (library.with_name(name) for name in names)
        for source in {*files, Path(LOADER), *filter(Path.exists, others)}:
            self.put(str(source), source.read_bytes()).chmod(0o755)
        self.home = "/" + str((self.root / str(library)[1:]).resolve().parent.relative_to(self.root))
        self.put("/probe", program.read_bytes()).chmod(0o755)

    def _config(self) -> dict[str, Any]:
        subprocess.run([RUNC, "spec", "-b", self.root.parent], check=True)
        config: dict[str, Any] = json.loads((self.root.parent / "config.json").read_text())
        config["process"]["terminal"] = False
        config["process"]["env"] = ["VGPU=0.5"]
        config["root"]["readonly"] = False
        return config

    def put(self, path: str, data: bytes) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def prepare(self) -> Prepared:
        return prepare(json.dumps(self.config).encode(), str(self.root.parent), Path("/proc/self/root"), self.plan)

    def run(self, *arguments: str) -> dict[str, str]:
        """What the probe says of each argument."""
        self.config["process"]["args"] = ["/probe", *arguments]
        (self.root.parent / "config.json").write_bytes(self.prepare().config)
        command = [
            RUNC,
            "--root",
            str(self.folder / "runc"),
            "run",
            "--bundle",
            str(self.root.parent),
        ]
        done = subprocess.run(
            [*command, f"t{uuid.uuid4().hex}"], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == "", "the loader complains about nothing"
        return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.fixture
def box(short_dir: Path) -> Box:
    short_dir.chmod(0o755)
    return Box(short_dir)


def tiny(output: Path, soname: str) -> Path:
    """A library that is no shim."""
    flags = ["-shared", "-fPIC", f"-Wl,-soname,{soname}", "-x", "c", "-o", str(output), "-"]
    subprocess.run(["gcc", *flags], input=b"int cuInit(unsigned f) { return 100 + f; }", check=True)
    return output


WAYS = ("open:libcuda.so.1", "open:libcuda.so", "open:libnvidia-ml.so.1")


def test_the_simulated_device(box: Box) -> None:
    said = box.run(
        *WAYS, f"namespace:{box.home}/libcuda.so.1", "stat:/run/vgpu", "stat:/run/vgpu-sim", "write:/usr/lib/vgpu/x"
    )
    assert said.pop("/usr/lib/vgpu/x") == "Read-only file system"
    assert [said.pop(d) for d in ("/run/vgpu", "/run/vgpu-sim")] == ["file", "file"]
    assert set(said.values()) == {"shim"}
    assert len(said) == 4


def test_without_the_second_line_of_defence(box: Box) -> None:
    """The mounts alone are enough: an image whose /etc/ld.so.preload cannot be covered."""
    (box.root / "etc/ld.so.preload").mkdir()
    assert set(box.run(*WAYS).values()) == {"shim"}


def test_without_the_mounts_the_second_line_holds(box: Box) -> None:
    """A driver in a place that is not scanned, by its absolute path."""
    tiny(box.root / "libcuda.so.1", "libcuda.so.1")
    assert box.run("open:/libcuda.so.1") == {"/libcuda.so.1": "shim"}


@pytest.mark.parametrize(
    "how", ["read-only root", "uid 1000", "link into nothing", "empty leftovers", "own preload", "tmpfs"]
)
def test_images_and_options(box: Box, how: str) -> None:
    extra = "text:/etc/ld.so.preload"
    if how == "read-only root":
        box.config["root"]["readonly"] = True
    if how == "uid 1000":
        box.config["process"]["user"] = {"uid": 1000, "gid": 1000}
    if how == "link into nothing":
        (box.root / box.home[1:] / "libcuda.so.1").symlink_to("libcuda.so.470.1")
        (box.root / box.home[1:] / "libcuda.so").symlink_to("libcuda.so.1")
    if how == "empty leftovers":
        for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
            box.put(f"{box.home}/{name}", b"")
        box.put("/etc/ld.so.preload", b"")
    if how == "own preload":
        tiny(box.root / "own.so", "own.so")
        box.put("/etc/ld.so.preload", b"/own.so\n")
    if how == "tmpfs":
        tmpfs = {"type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}
        box.config["mounts"] += [{"destination": place, **tmpfs} for place in ("/run", "/tmp")]
    said = box.run(extra, *WAYS)
    lines = said.pop("/etc/ld.so.preload").rstrip(",").split(",")
    expected = ["/usr/lib/vgpu/libvgpu.so", "/usr/lib/vgpu/libvgpu-ml.so"]
    cuda = simulated.cuda_libraries(paths.sim_lib_dir() / "libcuda.so.1")
    expected += [f"/usr/lib/vgpu/SIMULATED/{file.name}" for file in cuda]
    assert lines == expected + (["/own.so"] if how == "own preload" else [])
    assert set(said.values()) == {"shim"}


def test_a_user_namespace(box: Box) -> None:
    subprocess.run(["chown", "-R", "100000:100000", box.root], check=True)
    mapping = [{"containerID": 0, "hostID": 100000, "size": 65536}]
    box.config["linux"] |= {"uidMappings": mapping, "gidMappings": mapping}
    box.config["linux"]["namespaces"].append({"type": "user"})
    tiny(box.root / "own.so", "own.so")
    box.put("/etc/ld.so.preload", b"/own.so\n")
    assert set(box.run(*WAYS).values()) == {"shim"}


HOLD = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None): sys.exit(77)
if libc.mount(sys.argv[1].encode(), b"/mnt", None, 4096, None): sys.exit(77)
print("mounted", flush=True)
sys.stdin.read()
"""


def test_a_runtime_in_another_mount_namespace(box: Box) -> None:
    """Its paths mean nothing here: root and volumes are looked at through its own root."""
    (box.folder / "volume").mkdir()
    tiny(box.folder / "volume/libcuda.so.5", "libcuda.so.1")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, box.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin
    assert holder.stdout
    try:
        assert holder.stdout.readline(), "a mount namespace can be made where containers can"
        box.config["root"]["path"] = "/mnt/bundle/rootfs"
        box.config["mounts"].append(bound("/mnt/volume", "/usr/local/cuda/compat"))
        tiny(box.put(f"{box.home}/libcuda.so.7", b""), "libcuda.so.1")
        raw = json.dumps(box.config).encode()
        done = json.loads(prepare(raw, "/mnt/bundle", Path(f"/proc/{holder.pid}/root"), box.plan).config)
    finally:
        holder.stdin.close()
        holder.wait(10)
        holder.stdout.close()
    places = {m["destination"] for m in done["mounts"] if m["source"].endswith("libvgpu.so")}
    assert {f"{box.home}/libcuda.so.7", "/usr/local/cuda/compat/libcuda.so.5"} <= places


# ---- a made-up host with NVIDIA's driver ----


def make_mount(source: Path, place: str) -> dict[str, Any]:
    return {"hostPath": str(source), "containerPath": place, "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]}


@pytest.fixture
def host(box: Box) -> Box:
    """The box with a specification of one device; the driver files are libraries that are no shim."""
    files: Mapping[str, str] = {
        "libcuda.so.999.1": "libcuda.so.1",
        "libnvidia-ml.so.999.1": "libnvidia-ml.so.1",
        "libptx.so.9": "p",
    }
    for name, soname in files.items():
        tiny(box.folder / "driver" / name, soname)
    hook = box.folder / "driver/nvidia-cdi-hook"
    hook.write_text(LINK_HOOK)
    hook.chmod(0o755)
    os.mknod(box.folder / "driver/nvidia0", 0o20666, os.makedev(1, 3))
    args = ["nvidia-cdi-hook", "create-symlinks", "--link", f"libcuda.so.1::{box.home}/libcuda.so"]
    edits = {
        "mounts": [make_mount(box.folder / "driver" / name, f"{box.home}/{name}") for name in files],
        "hooks": [
            {"hookName": "createContainer", "path": str(hook), "args": args, "env": [f"ROOT={box.root}", "PATH=/bin"]}
        ],
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
    }
    node = {"path": "/dev/nvidia0", "hostPath": str(box.folder / "driver/nvidia0")}
    device = {"name": UUID, "containerEdits": {"deviceNodes": [node]}}
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device], "containerEdits": edits}
    (box.folder / "cdi/nvidia.yaml").write_text(yaml.safe_dump(spec))
    box.plan = replace(box.plan, sim_dir="", cdi_dirs=(str(box.folder / "cdi"),))
    return box


def test_nvidias_files_are_there_and_the_driver_is_ours(host: Box) -> None:
    tiny(host.put("/usr/local/cuda-12.4/compat/libcuda.so.550", b""), "libcuda.so.1")
    host.config["process"]["env"].append("LD_LIBRARY_PATH=/usr/local/cuda-12.4/compat")
    (host.root / "usr/local/cuda-12.4/compat/libcuda.so.1").symlink_to("libcuda.so.550")
    ways = [
        f"open:{host.home}/libcuda.so.999.1",
        f"namespace:{host.home}/libcuda.so.1",
        "open:/usr/local/cuda-12.4/compat/libcuda.so.1",
    ]
    said = host.run(*WAYS, *ways, "open:libptx.so.9", "stat:/dev/nvidia0", "stat:/run/vgpu-sim")
    assert said.pop("libptx.so.9") == "driver"
    assert said.pop("/dev/nvidia0") == "char 1:3"
    assert said.pop("/run/vgpu-sim") == "none"
    assert set(said.values()) == {"shim"}
    assert len(said) == 6


def test_a_device_of_another_slice_is_taken_away(host: Box) -> None:
    taken = {"path": "/dev/nvidia5", "type": "c", "major": 195, "minor": 5}
    host.config["linux"]["devices"] = [taken]
    host.config["mounts"].append(bound("/dev/null", "/dev/nvidia6"))
    said = host.run("stat:/dev/nvidia0", "stat:/dev/nvidia5", "stat:/dev/nvidia6")
    assert said == {"/dev/nvidia0": "char 1:3", "/dev/nvidia5": "none", "/dev/nvidia6": "none"}


def test_nvidias_prestart_hook_does_not_run(host: Box) -> None:
    ran = host.folder / "ran"
    hook = host.folder / "nvidia-container-runtime-hook"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    host.config["hooks"] = {"prestart": [{"path": str(hook), "args": [hook.name, "prestart"]}]}
    assert host.run("open:libcuda.so.1") == {"libcuda.so.1": "shim"}
    assert not ran.exists()
