"""Finds the real driver and NVML as the dynamic loader would find them for a program, skipping the shims.

Order (ld.so(8)): the given path, LD_LIBRARY_PATH, ld.so.cache, the default directories. shim/driver/search.c
does the same inside a tenant; here it is for the daemon and the command line.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from vgpud.libraries import elf, fit

DRIVER_SONAME = "libcuda.so.1"
NVML_SONAME = "libnvidia-ml.so.1"
#: a function that every version exports, and no other library; shim/driver/resolve.c and nvml/resolve_ml.c ask for it
DRIVER_FUNCTION = "cuInit"
NVML_FUNCTION = "nvmlInit_v2"
CACHE_FILE = Path("/etc/ld.so.cache")

_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_CACHE_MAGIC = b"ld.so-1.7.0"
_OLD_ENTRY_BYTES = 12
_CACHE_HEAD = struct.Struct("<20sII20x")
_CACHE_ENTRY = struct.Struct("<IIIIQ")
_CACHE_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}  # glibc, this machine


def search_cache(name: str, cache: bytes, machine: str) -> Iterator[Path]:
    """The paths that the contents of an ld.so.cache give for a library's name, best first; none if it is not one."""
    start = 0
    if cache.startswith(_OLD_CACHE_MAGIC) and len(cache) >= 16:
        (count,) = struct.unpack_from("<I", cache, 12)
        start = (16 + count * _OLD_ENTRY_BYTES + 7) & ~7
    cache = cache[start:]
    if not cache.startswith(_CACHE_MAGIC) or len(cache) < _CACHE_HEAD.size:
        return
    _, count, _ = _CACHE_HEAD.unpack_from(cache)
    for index in range(min(count, (len(cache) - _CACHE_HEAD.size) // _CACHE_ENTRY.size)):
        flags, key, value, _, hwcap = _CACHE_ENTRY.unpack_from(cache, _CACHE_HEAD.size + index * _CACHE_ENTRY.size)
        if flags == _CACHE_FLAGS.get(machine) and hwcap == 0 and _text(cache, key) == name:
            yield Path(_text(cache, value))


def _text(cache: bytes, offset: int) -> str:
    end = cache.find(b"\0", offset)
    return "" if end < 0 else cache[offset:end].decode(errors="surrogateescape")


def candidates(name: str, environment: Mapping[str, str]) -> Iterator[Path]:
    """The paths at which the loader looks for a library's name in a program with that environment, in order."""
    machine = platform.machine()
    for directory in environment.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        if environment.get("LD_LIBRARY_PATH"):
            yield Path(directory or ".") / name
    if CACHE_FILE.is_file():
        yield from search_cache(name, CACHE_FILE.read_bytes(), machine)
    for directory in (
        f"/lib/{machine}-linux-gnu",
        f"/usr/lib/{machine}-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ):
        yield Path(directory) / name


def unusable(path: Path, function: str) -> str:
    """Why a file is not the real library with that function, as the rest of a sentence; "" if it is."""
    try:
        library = elf.Elf(path)
        exports = library.exports()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except elf.ElfError:
        return "is not a shared library"
    if library.machine != elf.MACHINES.get(platform.machine()):
        return f"is not for {platform.machine()}"
    if fit.MARKER in exports:
        return "is a hook of vgpud"
    return "" if function in exports else f"has no {function}"


def _find(name: str, variable: str, function: str, environment: Mapping[str, str] | None) -> Path | None:
    environment = os.environ if environment is None else environment
    if named := environment.get(variable):
        return None if unusable(Path(named), function) else Path(named)
    return next((path for path in candidates(name, environment) if not unusable(path, function)), None)


def find_driver(environment: Mapping[str, str] | None = None) -> Path | None:
    """The real libcuda for a program with that environment (default: ours); VGPU_DRIVER names it. None: no driver."""
    return _find(DRIVER_SONAME, "VGPU_DRIVER", DRIVER_FUNCTION, environment)


def find_nvml(environment: Mapping[str, str] | None = None) -> Path | None:
    """The real NVML for a program with that environment (default: ours); VGPU_NVML names it. None: no NVML."""
    return _find(NVML_SONAME, "VGPU_NVML", NVML_FUNCTION, environment)
