"""Libraries of linear algebra of the simulated device, and the length of kernels of PyTorch's own: C programs that link
the libraries, and PyTorch where it is at hand; each alone and in a slice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shim import build_shim
from vgpud import paths

ROOT = Path(__file__).resolve().parents[2]
SIM = paths.sim_lib_dir()
#: an interpreter that has PyTorch 2.13 or another version of shim/simcuda/names/, nothing of NVIDIA's
TORCH_PYTHON = os.environ.get("VGPU_TORCH_PYTHON", "")
#: program -> the libraries that it links
PROGRAMS = {
    "blas": ("libcublas.so.13", "libcublasLt.so.13"),
    "kernels": (),
    "solvers": ("libcufft.so.12", "libcusolver.so.12", "libcusparse.so.12"),
}
#: all of a device: what is timed there does not wait for its turn
WAYS = {"alone": (), "slice": ("--gpus", "1", "--mem", "16G")}
#: how long an H200 takes for 2 x 4096^3 operations at 70 % of its data sheet, for three arrays of 4096^2 numbers at
#: 80 % of its bandwidth, and for one
EXPECTED_US = {"float32": 2930.5, "bfloat16": 198.4, "add": 52.4, "sum": 17.5}
pytestmark = pytest.mark.skipif(
    not (SIM / "SIMULATED").is_dir(), reason="the native part is not built: python shim/build_shim.py"
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("programs")
    for name, libraries in PROGRAMS.items():
        linked = [SIM / "libcuda.so.1", *(SIM / "SIMULATED" / library for library in libraries)]
        flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-iquote", "shim", "-iquote", "tests/simcuda"]
        command: list[str | Path] = [*build_shim.compiler(), *flags, "-o", output / name]
        command += [f"tests/simcuda/{name}.c", *linked]
        subprocess.run(command, cwd=ROOT, check=True)
    return output


def run_on_a_device(folder: Path, way: Sequence[str], *command: str | Path) -> subprocess.CompletedProcess[str]:
    """As `vgpu sim run` does it; alone it needs a device that is there."""
    vgpu = [sys.executable, "-m", "vgpud.cli.main", "sim"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(folder), "VGPU_SIM_DIR": str(folder / "sim")}
    if not way:
        subprocess.run([*vgpu, "start", "--memory", "16G"], env=env, check=True, capture_output=True)
    try:
        words = [*vgpu, "run", *way, "--", *command]
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    finally:
        if not way:
            subprocess.run([*vgpu, "stop"], env=env, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("name", "way"), [("blas", "alone"), ("solvers", "alone"), ("kernels", "alone"), ("blas", "slice")]
)
def test_a_program_gets_sizes_times_and_zeros(short_dir: Path, programs: Path, name: str, way: str) -> None:
    done = run_on_a_device(short_dir, WAYS[way], programs / name)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not TORCH_PYTHON, reason="VGPU_TORCH_PYTHON names no interpreter with PyTorch")
@pytest.mark.parametrize("way", WAYS)
def test_pytorch_multiplies_solves_and_transforms(short_dir: Path, way: str) -> None:
    done = run_on_a_device(short_dir, WAYS[way], TORCH_PYTHON, ROOT / "tests/simcuda/torch_linear.py")
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["failures"] == {}
    for name, expected_us in EXPECTED_US.items():
        assert expected_us <= result["times_us"][name] <= 1.5 * expected_us + 20, name
