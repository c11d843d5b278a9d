"""The real driver's file: vgpud/libraries/driver.py and shim/driver/search.c look where the loader looks."""

from __future__ import annotations

import platform
import shutil
import struct
from pathlib import Path

import pytest

from tests.shim import tiny_driver
from tests.shim.conftest import ROOT, Run
from tests.shim.tiny_driver import TinyDriver
from vgpud.libraries import driver


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    sources = [ROOT / "shim/driver/search.c", ROOT / "shim/base/prim.c"]
    return tiny_driver.compile_c(folder / "search", tiny_driver.SNIPPETS / "search.c", *sources)


def test_named_path_wins_and_must_be_a_driver(same_driver: TinyDriver, other_driver: TinyDriver, shim: Path) -> None:
    paths = {"LD_LIBRARY_PATH": str(other_driver.path.parent)}
    assert driver.find_driver(paths) == other_driver.path
    assert driver.find_driver(paths | {"VGPU_DRIVER": str(same_driver.path)}) == same_driver.path
    assert driver.find_driver(paths | {"VGPU_DRIVER": str(shim)}) is None
    assert driver.find_driver(paths | {"VGPU_DRIVER": "/nowhere/libcuda.so.1"}) is None
    nvml = ROOT / "vgpud/lib/sim/libnvidia-ml.so.1"
    assert driver.find_nvml({"VGPU_NVML": str(nvml)}) == nvml
    assert driver.find_nvml({"VGPU_NVML": str(same_driver.path)}) is None
    assert driver.find_driver(paths | {"VGPU_DRIVER": str(nvml)}) is None


def test_passes_over_shims_and_broken_files(same_driver: TinyDriver, shim: Path, tmp_path: Path) -> None:
    for name in ("ours", "broken", "none"):
        (tmp_path / name).mkdir()
    shutil.copy(shim, tmp_path / "ours/libcuda.so.1")
    (tmp_path / "broken/libcuda.so.1").write_text("no library")
    folders = [tmp_path / "none", tmp_path / "ours", tmp_path / "broken", same_driver.path.parent]
    assert driver.find_driver({"LD_LIBRARY_PATH": ":".join(map(str, folders))}) == same_driver.path


def cache(entries: list[tuple[int, str, str, int]], old_format: bool = False) -> bytes:
    """An ld.so.cache as ldconfig writes it: (flags, key, value, hwcap)."""
    text, offsets = b"", []
    start = 48 + 24 * len(entries)
    for _, key, value, _ in entries:
        offsets.append((start + len(text), start + len(text) + len(key) + 1))
        text += key.encode() + b"\0" + value.encode() + b"\0"
    head = b"glibc-ld.so.cache1.1" + struct.pack("<II20x", len(entries), len(text))
    body = b"".join(
        struct.pack("<IIIIQ", entry[0], *offset, 0, entry[3]) for entry, offset in zip(entries, offsets, strict=True)
    )
    old = b"ld.so-1.7.0\0" + struct.pack("<I", 1) + b"\0" * 12
    return (old + b"\0" * (-len(old) % 8) if old_format else b"") + head + body + text


@pytest.mark.parametrize("old_format", [False, True])
def test_cache_in_its_order(old_format: bool) -> None:
    data = cache(
        [
            (0x0303, "libcuda.so.1", "/compat/libcuda.so.1", 0),
            (0x0303, "libcuda.so.1", "/v4/libcuda.so.1", 1 << 62),  # for some processors only
            (0x0003, "libcuda.so.1", "/usr/lib32/libcuda.so.1", 0),
            (0x0A03, "libcuda.so.1", "/arm/libcuda.so.1", 0),
            (0x0303, "libcuda.so.12", "/no/libcuda.so.12", 0),
            (0x0303, "libcuda.so.1", "/usr/lib/libcuda.so.1", 0),
        ],
        old_format,
    )
    assert [str(p) for p in driver.search_cache("libcuda.so.1", data, "x86_64")] == [
        "/compat/libcuda.so.1",
        "/usr/lib/libcuda.so.1",
    ]
    assert [str(p) for p in driver.search_cache("libcuda.so.1", data, "aarch64")] == ["/arm/libcuda.so.1"]
    assert list(driver.search_cache("libcuda.so.1", data, "riscv64")) == []


@pytest.mark.parametrize(
    "data", [b"", b"ld.so-1.7.0\0", b"ld.so-1.7.0\0\xff\xff\xff\xff", b"glibc-ld.so.cache1.1", b"x" * 99]
)
def test_a_broken_cache_has_nothing(data: bytes) -> None:
    assert list(driver.search_cache("libcuda.so.1", data, "x86_64")) == []


def test_a_cut_cache_does_no_harm() -> None:
    data = cache([(0x0303, "libcuda.so.1", "/usr/lib/libcuda.so.1", 0)])
    for length in range(len(data)):
        list(driver.search_cache("libcuda.so.1", data[:length], "x86_64"))


def test_c_and_python_look_in_the_same_places(searcher: Path, run: Run, tmp_path: Path) -> None:
    """On this machine's own cache, with a directory of LD_LIBRARY_PATH in front and a default one among them."""
    (tmp_path / "libm.so.6").write_text("")
    default = f"/usr/lib/{platform.machine()}-linux-gnu"
    for paths in (f"{tmp_path}", f"{tmp_path}:{default}", f"{default}:{tmp_path}", ""):
        environment = {"LD_LIBRARY_PATH": paths} if paths else {}
        found = run([searcher, "libm.so.6"], environment=environment).stdout.splitlines()
        expected = [str(p) for p in driver.candidates("libm.so.6", environment) if p.is_file()]
        assert found, environment
        assert [f for f in found if not _default(f)] == [f for f in expected if not _default(f)]
        first = [f for f in expected[:1] if f.startswith(str(tmp_path))] or found[:1]
        assert found[0] == first[0]
    assert run([searcher, "libno-such.so"]).stdout == ""


def _default(path: str) -> bool:
    """Where the same file may be named by several spellings, depending on the distribution's list."""
    return path.startswith(("/lib", "/usr/lib"))
