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


#: what XLA calls beside what PyTorch does
OF_JAX = """
import ctypes
from ctypes import byref, c_int, c_longlong, c_size_t, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = c_void_p(), c_uint64()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(byref(memory), c_size_t(1 << 20)) == 0
products, sparse, solver, transforms = (
    ctypes.CDLL(name) for name in ("libcublasLt.so.13", "libcusparse.so.12", "libcusolver.so.12", "libcufft.so.12")
)
handle, version, plan, area = c_void_p(), c_int(), c_int(), c_size_t()
assert products.cublasLtCreate(None) != 0 and products.cublasLtDestroy(None) != 0
assert products.cublasLtCreate(byref(handle)) == products.cublasLtDestroy(handle) == 0
assert sparse.cusparseGetProperty(0, byref(version)) == 0 and version.value == 12
assert sparse.cusparseGetProperty(3, byref(version)) != 0 and sparse.cusparseGetProperty(0, None) != 0
assert solver.cusolverGetVersion(None) != 0
assert solver.cusolverGetVersion(byref(version)) == 0 and version.value >= 11000
wide, narrow = (c_longlong * 1)(512), (c_int * 1)(512)
REAL_TO_COMPLEX, UNKNOWN = 0x2A, 0x2B
def make(sizes, kind, code, number=c_longlong):
    assert transforms.cufftCreate(byref(plan)) == 0
    many = getattr(transforms, "cufftMakePlanMany" + kind)
    words = (None, number(1), number(512), None, number(1), number(512), code, number(16), byref(area))
    return many(plan, 1, sizes, *words)
assert make(wide, "64", UNKNOWN) != 0
for sizes, kind, number in ((wide, "64", c_longlong), (narrow, "", c_int)):
    assert make(sizes, kind, REAL_TO_COMPLEX, number) == 0 and area.value == 16 * 512 * 8 // 2
    assert transforms.cufftExecR2C(plan, memory, memory) == 0
    assert transforms.cufftExecR2C(plan, None, memory) != 0
assert cuda.cuCtxSynchronize() == 0
"""


def test_what_jax_calls_beside_what_pytorch_does(short_dir: Path) -> None:
    done = run_on_a_device(short_dir, WAYS["slice"], sys.executable, "-c", OF_JAX)
    assert done.returncode == 0, done.stderr
