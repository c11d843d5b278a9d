"""Fixtures of the hook's tests: the library as it is shipped, and drivers that are like it, newer and older."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "shim"), str(ROOT / "shim" / "codegen")]

import build_shim  # noqa: E402
import cudaspec  # noqa: E402
import hookdef  # noqa: E402

from tests.shim import tiny_driver  # noqa: E402
from vgpud.libraries import fit  # noqa: E402

EXTRA = (*(f"cuFuture{number:02d}_v2" for number in range(18)), "cudbgFuture", "cuFuture00_v2_ptsz")
#: left out of the older driver: of every behaviour, and what newer programs ask for first
MISSING = [
    "cuCtxRecordEvent",
    "cuCtxWaitEvent",
    "cuGetProcAddress_v2",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuMemsetD8_v2_ptds",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemFreeAsync",
    "cuMemFreeAsync_ptsz",
    "cuMemPoolTrimTo",
    "cuCtxCreate_v4",
    "cuStreamGetId",
    "cuStreamGetId_ptsz",
    "cuLibraryLoadData",
    "cuKernelGetName",
    "cuMemcpyBatchAsync_v2",
    "cuEventElapsedTime_v2",
    "cuDeviceGetUuid_v2",
    "cuProfilerStop",
]


@pytest.fixture(scope="session")
def surface() -> cudaspec.Surface:
    return cudaspec.read_committed(ROOT / "shim/gen/abi/cuda_abi.h")


@pytest.fixture(scope="session")
def rows(surface: cudaspec.Surface) -> dict[str, hookdef.Row]:
    return hookdef.assign(surface.entries, hookdef.read_rows(ROOT / "shim/codegen/hooks.def"))


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libvgpu.so, built from this very tree as it is shipped."""
    folder = tmp_path_factory.mktemp("shim")
    build_shim.build_target("libvgpu.so", folder)
    return folder / "libvgpu.so"


@pytest.fixture(scope="session")
def same_driver(surface: cudaspec.Surface, tmp_path_factory: pytest.TempPathFactory) -> tiny_driver.TinyDriver:
    """A driver with exactly the names that the hook was built for."""
    return tiny_driver.build(surface, tmp_path_factory.mktemp("same"))


@pytest.fixture(scope="session")
def other_driver(surface: cudaspec.Surface, tmp_path_factory: pytest.TempPathFactory) -> tiny_driver.TinyDriver:
    """A driver with 20 names more and 20 fewer than the hook was built for."""
    return tiny_driver.build(surface, tmp_path_factory.mktemp("other"), missing=MISSING, extra=EXTRA)


@pytest.fixture(scope="session")
def other_shim(shim: Path, other_driver: tiny_driver.TinyDriver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libvgpu.so fitted to other_driver."""
    return fit.ensure_fitted_copy(shim, other_driver.path, tmp_path_factory.mktemp("fitted"))


@pytest.fixture(scope="session")
def ledger_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver that keeps exact account of memory (ledger_driver.c)."""
    source = Path(__file__).with_name("ledger_driver.c")
    output = tmp_path_factory.mktemp("ledger") / "libledger.so"
    return tiny_driver.compile_c(output, "-Wall", "-shared", "-fvisibility=hidden", source)


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run() -> Run:
    """Runs a program with a driver in LD_LIBRARY_PATH, hooked when a shim is given; never raises for its exit code."""

    def do(
        command: list[str | Path],
        driver: tiny_driver.TinyDriver | None = None,
        hook: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("VGPU", "LD_", "TINY", "CUDA"))}
        paths = {"LD_LIBRARY_PATH": str(driver.path.parent)} if driver else {}
        preload = {"LD_PRELOAD": str(hook)} if hook else {}
        everything = {**inherited, **paths, **preload, **(environment or {})}
        words = [str(word) for word in command]
        return subprocess.run(words, env=everything, capture_output=True, text=True, timeout=60, check=False)

    return do
