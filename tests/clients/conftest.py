"""Fixtures of the client tests: a simulated device by itself, and running a program on it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "vgpud" / "lib"
SIM = LIB / "sim"
PROGRAMS = Path(__file__).with_name("programs")
MODEL = Path(__file__).with_name("kernels.model")
#: program -> the packages without which it cannot run
NEEDS = {
    "cuda_python": ("cuda.bindings", "numpy"),
    "cuda_rules": ("cuda.bindings", "numpy"),
    "cuda_core": ("cuda.core", "cuda.bindings", "numpy"),
    "numba_saxpy": ("numba_cuda", "numpy"),
    "tinygrad_train": ("tinygrad",),
}
PROGRAM_TIMEOUT_S = 240


def _nvidia_library(pattern: str) -> Path | None:
    """A library of NVIDIA's packages on PyPI, in this environment."""
    for folder in sys.path:
        for found in sorted(Path(folder).glob(f"nvidia/*/lib/{pattern}")):
            return found
    return None


def skip_without(program: str) -> None:
    """Skips the test when a package is missing that the program imports."""
    for name in NEEDS[program]:
        try:
            found = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            pytest.skip(f"needs the package {name}")
    if _nvidia_library("libnvrtc.so.*") is None:
        pytest.skip("needs the package nvidia-cuda-nvrtc")


def client_environment(sim_dir: Path, library_dir: Path = SIM, cache: Path | None = None) -> dict[str, str]:
    """What an unmodified program needs to find the driver in library_dir, NVRTC, and these tests' kernel model."""
    env = {**os.environ, "VGPU_SIM_DIR": str(sim_dir), "VGPU_SIM_KERNELS": str(MODEL), "DEV": "CUDA"}
    env["LD_LIBRARY_PATH"] = str(library_dir)
    if (nvrtc := _nvidia_library("libnvrtc.so.*")) is not None:
        env["NVRTC_PATH"] = str(nvrtc)  # tinygrad looks for no package
    if cache is not None:
        env["XDG_CACHE_HOME"] = str(cache)  # where tinygrad keeps what it has compiled
    return env


@pytest.fixture
def sim_device(short_dir: Path) -> Iterator[Path]:
    """The directory of a simulated device that runs as long as the test."""
    folder = short_dir / "sim"
    command = [str(SIM / "vgpu-simd"), "--dir", str(folder), "--foreground"]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not (folder / "sock").exists():
        assert server.poll() is None and time.monotonic() < end, "the simulated device does not start"
        time.sleep(0.01)
    yield folder
    server.terminate()
    server.wait(10)


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tinygrad's cache of compiled kernels, shared by the tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run_program(sim_device: Path, kernel_cache: Path) -> Callable[..., str]:
    """Runs a program of programs/ on the device; returns what it printed. Fails with its traceback."""

    def run(name: str, extra: Mapping[str, str] | None = None) -> str:
        skip_without(name)
        env = client_environment(sim_device, cache=kernel_cache) | dict(extra or {})
        return run_python(PROGRAMS / f"{name}.py", env)

    return run


def run_python(program: Path, env: Mapping[str, str], *prefix: str, arguments: Sequence[str] = ()) -> str:
    """Runs `prefix... python program arguments...`; returns stdout, fails with stderr."""
    command = [*prefix, sys.executable, str(program), *arguments]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
    assert done.returncode == 0, f"{program.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout
