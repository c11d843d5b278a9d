"""Libraries of linear algebra of the simulated device, and the length of kernels of PyTorch's own: C programs that link
the libraries, alone and in a slice. tests/pytorch has PyTorch on them."""

from __future__ import annotations

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
#: program -> the libraries that it links
PROGRAMS = {
    "blas": ("libcublas.so.13", "libcublasLt.so.13"),
    "kernels": (),
    "solvers": ("libcufft.so.12", "libcusolver.so.12", "libcusparse.so.12"),
}
#: all of a device: what is timed there does not wait for its turn
WAYS = {"alone": (), "slice": ("--gpus", "1", "--mem", "16G")}
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
