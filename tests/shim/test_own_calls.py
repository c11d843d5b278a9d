"""The real library's calls of its own exported functions pass a preloaded shim, however the library was linked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import build_shim
import pytest

from tests.shim import tiny_driver
from tests.shim.conftest import Run

#: library -> its SONAME, the variable that names the real one, a function that calls, a hooked one that it calls
LIBRARY_TYPES = {
    "libvgpu.so": ("libcuda.so.1", "VGPU_DRIVER", "cuInit", "cuMemFree_v2"),
    "libvgpu-ml.so": ("libnvidia-ml.so.1", "VGPU_NVML", "nvmlInit_v2", "nvmlInitWithFlags"),
}
LINKED = {
    "now": ["-Wl,-z,relro,-z,now"],
    "lazy": ["-Wl,-z,norelro,-z,lazy"],
    "partial": ["-Wl,-z,relro,-z,lazy"],
    "no-plt": ["-fno-plt", "-Wl,-z,relro,-z,now"],
}
LOOK = """
import ctypes, json, sys
getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(0)
real = ctypes.CDLL(sys.argv[3])
print(json.dumps([real.own_calls(), real.own_table_is_writable()]))
"""


@pytest.fixture(scope="module")
def ml_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ml")
    build_shim.build_target("libvgpu-ml.so", folder)
    return folder / "libvgpu-ml.so"


def real_library(folder: Path, outer: str, inner: str, flags: list[str]) -> Path:
    define = [f"-DOUTER={outer}", f"-DINNER={inner}"]
    source = tiny_driver.SNIPPETS / "own_calls.c"
    return tiny_driver.compile_c(folder / "real.so", "-shared", "-fPIC", *define, *flags, source)


def look(run: Run, kind: str, real: Path, preload: str) -> list[int]:
    """How many of two calls inside the library stay there, and whether its table is writable."""
    soname, variable, outer, _ = LIBRARY_TYPES[kind]
    settings = {"LD_PRELOAD": preload, variable: str(real)}
    done = run([sys.executable, "-c", LOOK, soname, outer, real], environment=settings)
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("link_type", LINKED)
@pytest.mark.parametrize("kind", LIBRARY_TYPES)
def test_stay_inside(shim: Path, ml_shim: Path, run: Run, tmp_path: Path, kind: str, link_type: str) -> None:
    real = real_library(tmp_path, *LIBRARY_TYPES[kind][2:], LINKED[link_type])
    hook = shim if kind == "libvgpu.so" else ml_shim
    assert look(run, kind, real, str(hook)) == [2, link_type == "lazy"]


def test_another_interposer_stays(ml_shim: Path, run: Run, tmp_path: Path) -> None:
    """A profiler that is preloaded before the shim meets what it met without the shim."""
    kind = "libvgpu-ml.so"
    inner = LIBRARY_TYPES[kind][3]
    (tmp_path / "other.c").write_text(f"int {inner}(int flags) {{ return flags & 0; }}")
    other = tiny_driver.compile_c(tmp_path / "other.so", "-shared", "-fPIC", tmp_path / "other.c")
    real = real_library(tmp_path, *LIBRARY_TYPES[kind][2:], LINKED["now"])
    assert look(run, kind, real, f"{other}:{ml_shim}") == [-1, 0]
