"""`vgpu run` says, once, that a program on a simulated device has a PyTorch that was built without CUDA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem

BUILT = (paths.sim_lib_dir() / "vgpu-simd").exists()
#: maps the file that its argument names in a process below it, as PyTorch loads its library, for several looks
PROGRAM = """
import os, mmap, sys, time
if os.fork() == 0:
    with open(sys.argv[1], "rb") as file:
        kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    time.sleep(4)
    os._exit(0)
os.wait()
"""


@pytest.mark.slow
@pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py")
def test_it_is_said_in_a_slice_and_without_one(system: OwnSystem, tmp_path: Path) -> None:
    env = {**system.env, "VGPU_SIM_DIR": str(system.sim_dir)}
    folders = {name: tmp_path / name / "torch/lib" for name in ("cpu", "cuda")}
    for folder in folders.values():
        folder.mkdir(parents=True)
        (folder / "libtorch_cpu.so").write_bytes(bytes(4096))
    (folders["cuda"] / "libtorch_cuda.so").touch()
    started = {}
    for way in ("run --gpus 0.2 -q", "sim run"):
        for name, folder in folders.items():
            words = ["-m", "vgpud.cli.main", *way.split(), "--", sys.executable, "-c", PROGRAM]
            command = [sys.executable, *words, str(folder / "libtorch_cpu.so")]
            started[way, name] = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    said = {key: run.communicate(timeout=120)[1] for key, run in started.items()}
    expected = f"vgpu: this torch has no CUDA: {folders['cpu']}; install PyPI's for Linux (`pip install --no-deps "
    expected += "torch===2.13.0`), not one of the index for CPUs\n"
    assert said == {(way, name): expected if name == "cpu" else "" for way, name in said}
