"""Finds every driver file that a program of a container could load: the directories of its loader, and CUDA's own.

Order and places: ld.so(8), ldconfig(8), and the folders in which CUDA images keep their compat and stub libraries.
/etc/ld.so.preload covers all other places. Everything read here comes from the image, so all of it is bounded.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vgpud.libraries import elf
from vgpud.oci.request import RequestError
from vgpud.oci.view import Spot, View

#: prefix of a driver file's name -> the shim that stands in for it
DRIVERS = {"libcuda.so": "libvgpu.so", "libnvidia-ml.so": "libvgpu-ml.so"}
_STEMS = tuple(DRIVERS)
LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
C_LIBRARY = "libc.so.6"
FILES_MAX = 128
NAMES_MAX = 4096
CACHE_BYTES_MAX = 4 << 20
CONF_BYTES_MAX = 64 << 10
CONF_FILES_MAX = 256
DIRECTORIES_MAX = 512
_PATH_BYTES_MAX = 4096
_VARIANTS = "glibc-hwcaps"
_VARIANTS_MAX = 16


@dataclass(frozen=True, slots=True)
class DriverFile:
    """A regular file in the container that programs load as the driver, and the shim to mount over it."""

    path: str
    library: str


def library_for(path: str) -> str:
    """The shim that stands in for a file of that name; "" if it is not a driver's."""
    name = path[path.rfind("/") + 1 :]
    if not name.startswith(_STEMS):  # thousands of files are none
        return ""
    return next(library for stem, library in DRIVERS.items() if name.startswith(stem))


def default_directories(machine: str) -> list[str]:
    """Directories that glibc searches by default on some distribution; the most specific first."""
    multiarch = f"{machine}-linux-gnu"
    return [f"/usr/lib/{multiarch}", f"/lib/{multiarch}", "/usr/lib64", "/lib64", "/usr/lib", "/lib"]


def loader_directory(view: View, machine: str) -> str:
    """The default directory of this image's C library. Raises RequestError for an image without glibc."""
    loader = view.look(LOADERS.get(machine, "/lib64/ld-linux.so.2"))
    if loader.is_file and not posixpath.basename(loader.path).startswith("ld-musl"):
        for directory in default_directories(machine):
            library = view.look(posixpath.join(directory, C_LIBRARY))
            if library.is_file and "musl" not in posixpath.basename(library.path):
                return view.look(directory).path
    musl = next((n for n in view.look("/lib").names() if n.startswith("ld-musl-")), "")
    what = (
        f"it is built on musl (/lib/{musl}, as Alpine is)"
        if musl
        else "it has no C library at all, or another machine's"
    )
    text = f"this image cannot be held to a slice: no glibc for {machine} in it, {what}"
    raise RequestError(f"{text}; build on a glibc image such as debian:bookworm-slim, or run it without VGPU")


def driver_files(view: View, env: Mapping[str, str], machine: str, warnings: list[str]) -> list[DriverFile]:
    """Every driver file that programs of this container would find. Raises RequestError if there are too many."""
    found: dict[str, DriverFile] = {}
    seen: set[str] = set()
    looked_at = 0
    for directory in _limit_directories(_directories(view, env, machine, warnings), warnings):
        for place, names in _list_directory(view, directory, seen):
            for name in filter(library_for, names):
                looked_at += 1
                file = view.look(posixpath.join(place, name))
                if file.path not in found and mountable(file, machine, warnings):
                    found[file.path] = DriverFile(file.path, library_for(name))
                if len(found) > FILES_MAX or looked_at > NAMES_MAX:
                    text = (
                        f"this image has too many files named libcuda.so* or libnvidia-ml.so*, {looked_at} up to here"
                    )
                    raise RequestError(f"{text} ({file.path!a}): remove those that are not needed")
    return list(found.values())


def _list_directory(view: View, directory: str, seen_paths: set[str]) -> Iterator[tuple[str, list[str]]]:
    """(directory, its names) unless yielded before; also its variants for newer processors, which come first."""
    spot = view.look(directory)
    if spot.path in seen_paths or not spot.is_dir:
        return
    seen_paths.add(spot.path)
    names = spot.names()
    yield spot.path, names
    if _VARIANTS in names:
        variants = posixpath.join(spot.path, _VARIANTS)
        for name in view.look(variants).names()[:_VARIANTS_MAX]:
            yield from _list_directory(view, posixpath.join(variants, name), seen_paths)


def mountable(file: Spot, machine: str, warnings: list[str]) -> bool:
    """Whether the shim can replace this file: a regular file, not a library for another machine."""
    if not file.is_file:
        return False
    head = file.read(20) or b""
    if head[:4] == b"\x7fELF" and (
        head[4:6] != b"\x02\x01" or int.from_bytes(head[18:20], "little") != elf.MACHINES.get(machine)
    ):
        return False
    if file.shared:
        warnings.append(f"{file.path} is on a mount with shared propagation: left as it is, or it would change outside")
        return False
    if not _writable_in_json(file.path):
        warnings.append(f"{file.path!a} is not UTF-8: left as it is, since config.json cannot name it")
        return False
    return True


def _writable_in_json(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _limit_directories(directories: Iterable[str], warnings: list[str]) -> Iterator[str]:
    for index, directory in enumerate(directories):
        if index >= DIRECTORIES_MAX:
            text = f"more than {DIRECTORIES_MAX} directories to search for drivers"
            warnings.append(f"{text}: {directory!a} and more left out")
            return
        yield directory


def list_preloads(env: Mapping[str, str]) -> list[str]:
    """The libraries that LD_PRELOAD names; ld.so(8): separated by blanks or colons. They come before the shims."""
    return env.get("LD_PRELOAD", "").replace(":", " ").split()


def _directories(view: View, env: Mapping[str, str], machine: str, warnings: list[str]) -> Iterator[str]:
    yield from default_directories(machine)
    path = env.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    yield from (directory for directory in path if posixpath.isabs(directory))
    yield from (posixpath.dirname(file) for file in list_preloads(env) if posixpath.isabs(file))
    yield from _cuda_directories(view, machine)
    yield from _read_loader_cache(view, warnings)
    yield from _read_loader_conf(view, warnings)


def _cuda_directories(view: View, machine: str) -> Iterator[str]:
    target = {"x86_64": "x86_64-linux", "aarch64": "sbsa-linux"}.get(machine, machine)
    stubs = f"targets/{target}/lib/stubs"
    names = [name for name in view.look("/usr/local").names() if name.startswith("cuda")]
    for name in dict.fromkeys(["cuda", *names]):  # a volume may add /usr/local/cuda to an image without it
        for folder in ("compat", "compat/lib", "compat/lib.real", "lib64", "lib64/stubs", stubs):
            yield f"/usr/local/{name}/{folder}"
    yield from ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/local/lib", "/usr/lib/wsl/lib")


def _read_loader_cache(view: View, warnings: list[str]) -> Iterator[str]:
    """The directories of the drivers that ld.so.cache names: its strings are searched, in any format."""
    cache = view.look("/etc/ld.so.cache").read(CACHE_BYTES_MAX + 1) or b""
    if len(cache) > CACHE_BYTES_MAX:
        warnings.append(
            f"the image's ld.so.cache is larger than {CACHE_BYTES_MAX >> 20} MiB: only its beginning was read"
        )
    for stem in DRIVERS:
        needle = f"/{stem}".encode()
        seen: set[str] = set()
        at = cache.find(needle)
        while at >= 0 and len(seen) < DIRECTORIES_MAX:
            before = cache.rfind(b"\0", max(0, at - _PATH_BYTES_MAX), at)
            directory = cache[before + 1 : at].decode(errors="surrogateescape") if before >= 0 else ""
            if directory.startswith("/") and directory not in seen:
                seen.add(directory)
                yield directory
            at = cache.find(needle, at + len(needle))


def _read_loader_conf(view: View, warnings: list[str]) -> Iterator[str]:
    """The directories of ld.so.conf and its includes."""
    patterns, seen = ["/etc/ld.so.conf"], set[str]()
    while patterns:
        pattern = patterns.pop(0)
        if pattern in seen:
            continue
        seen.add(pattern)
        for file in _matches(view, pattern):
            if file in seen and file != pattern:
                continue
            seen.add(file)
            if len(seen) > CONF_FILES_MAX:
                warnings.append(f"ld.so.conf includes more than {CONF_FILES_MAX} files: {file!a} and more left out")
                return
            includes, directories = _conf(view.look(file).read(CONF_BYTES_MAX) or b"")
            patterns += [posixpath.join(posixpath.dirname(file), name) for name in includes[:CONF_FILES_MAX]]
            yield from directories


def _conf(data: bytes) -> tuple[list[str], list[str]]:
    """(includes, directories) of a file in ldconfig's format."""
    includes: list[str] = []
    directories: list[str] = []
    for line in data.decode(errors="surrogateescape").splitlines():
        words = line.partition("#")[0].split(None, 1)
        if len(words) == 2 and words[0] == "include":
            includes += words[1].split()
        elif words and words[0] not in ("include", "hwcap"):
            whole = line.partition("#")[0].partition("=")[0]
            directories += [part for part in whole.replace(":", " ").replace(",", " ").split() if part.startswith("/")]
    return includes, directories


def _matches(view: View, pattern: str) -> list[str]:
    """The files of a path whose last part may have wildcards."""
    directory, name = posixpath.split(pattern)
    if not any(sign in name for sign in "*?["):
        return [pattern]
    return [posixpath.join(directory, n) for n in view.look(directory).names() if fnmatch.fnmatchcase(n, name)]
