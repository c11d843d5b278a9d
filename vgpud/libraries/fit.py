"""Fits a shim to the driver at hand: a copy of libvgpu.so that exports exactly the driver's names.

The shim is built from one list of names; drivers are older or newer than that list. In the copy a name that is missing
in the driver is undefined, so a program finds it missing as it would without the shim; a name that only the driver has
is given to a spare entry, which jumps there. Nothing moves: names are written over names, and the hash tables are
recomputed in place: the old one (hash function and layout: System V ABI, gABI "Hash Table"), and GNU's, in which the
loader sees at once that a name is not here. It looks here first for every symbol that a program and its libraries use.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vgpud.libraries import elf

SPARE_PREFIX = "vg_spare_"
MARKER = "vg_shim_marker"
#: exported by a shim for itself, for the other one and for vgpud.client, whatever the driver has
OURS = ("dlopen", "dlmopen", MARKER, "vg_shim_memory", *(f"vg_shim_reclaim_{n}" for n in ("watch", "unwatch", "read")))
NOBODYS = ("_init", "_fini")  # every library may have these; the loader calls them by address
_RELA = struct.Struct("<QQq")


class FitError(ValueError):
    """The library is not a shim as vgpud builds it; the message names it."""


@dataclass(frozen=True)
class Fit:
    """The changes in a fitted copy. `left_out`: driver functions without a spare entry, which programs cannot link."""

    path: Path
    added_names: tuple[str, ...]
    removed_names: tuple[str, ...]
    left_out: tuple[str, ...]


def is_shim(path: Path) -> bool:
    """True for any copy of libvgpu.so or libvgpu-ml.so, False for all other files."""
    try:
        return MARKER in elf.Elf(path).exports()
    except (elf.ElfError, OSError):
        return False


def _plan(shim: elf.Elf, driver: elf.Elf) -> tuple[dict[str, str], list[str], list[str]]:
    """Spare name -> new name, names to remove, names without a spare entry.

    Variables are left to the driver: a debugger looks up its cudbg* variables in the real library, and would find
    copies here instead.
    """
    ours, theirs = shim.exports(), driver.exports()
    spares = sorted(name for name in ours if name.startswith(SPARE_PREFIX))
    wanted = sorted(
        (n for n, s in theirs.items() if not s.data and n not in ours and n not in NOBODYS),
        key=lambda n: (not n.startswith(("cu", "nvml")), n),
    )
    fitting = [n for n in wanted if theirs[n].function and all(len(n) <= len(s) for s in spares)]
    added = dict(zip(spares, fitting, strict=False))
    left_out = sorted(set(wanted) - set(added.values()))
    removed = [n for n in ours if n not in theirs and n not in OURS and n not in added]
    return added, removed, left_out


def _check_unreferenced(shim: elf.Elf, indices: set[int]) -> None:
    """No relocation may name a removed symbol: the loader would refuse the copy (hence -Bsymbolic)."""
    for table, size in ((elf.DT_RELA, elf.DT_RELASZ), (elf.DT_JMPREL, elf.DT_PLTRELSZ)):
        if not shim.has_tag(table):
            continue
        start = shim.offset(shim.tag(table))
        for offset in range(start, start + shim.tag(size), _RELA.size):
            symbol = _RELA.unpack_from(shim.data, offset)[1] >> 32
            if symbol in indices:
                raise FitError(f"{shim.path} refers to its own exports by name: link it with -Bsymbolic")


def _sysv_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def _gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _rehash_gnu(shim: elf.Elf) -> None:
    """Rewrites the filter, and makes one bucket of all: the symbols of a bucket have to lie side by side, and a new
    name would belong elsewhere. The filter alone says that a name is not here."""
    table = shim.offset(shim.tag(elf.DT_GNU_HASH))
    _, first, words, shift = shim.words(table, 4)
    bloom, chain = [0] * words, [0] * (shim.symbol_count() - first)
    for symbol in shim.symbols():
        if symbol.index < first or not symbol.is_exported:
            continue
        value = _gnu_hash(symbol.name)
        bloom[value // 64 % words] |= 1 << value % 64 | 1 << (value >> shift) % 64
        chain[symbol.index - first] = value & ~1
    chain[-1] |= 1  # the end
    head = struct.pack(f"<4I{words}QI", 1, first, words, shift, *bloom, first)
    packed = head + struct.pack(f"<{len(chain)}I", *chain)
    shim.data[table : table + len(packed)] = packed


def _rehash(shim: elf.Elf) -> None:
    """Rewrites bucket and chain words; undefined symbols are in no chain."""
    table = shim.offset(shim.tag(elf.DT_HASH))
    bucket_count, chain_count = shim.words(table, 2)
    buckets, chains = [0] * bucket_count, [0] * chain_count
    for symbol in shim.symbols():
        if symbol.is_exported:
            bucket = _sysv_hash(symbol.name) % bucket_count
            chains[symbol.index], buckets[bucket] = buckets[bucket], symbol.index
    struct.pack_into(f"<{bucket_count + chain_count}I", shim.data, table + 8, *buckets, *chains)


def _rename(shim: elf.Elf, symbol: elf.Symbol, name: str) -> None:
    start = shim.strings + symbol.name_offset
    shim.data[start : start + len(symbol.name)] = name.encode().ljust(len(symbol.name), b"\0")


def _undefine(shim: elf.Elf, symbol: elf.Symbol) -> None:
    entry = shim.symbol_table + symbol.index * elf.SYMBOL_BYTES
    struct.pack_into("<HQQ", shim.data, entry + 6, 0, 0, 0)  # section, value, size


def fit(library: Path, driver: Path, output: Path) -> Fit:
    """Writes the copy of `library` that is fitted to `driver` (atomically). Raises FitError, ElfError or OSError."""
    shim = elf.Elf(library)
    if MARKER not in shim.exports() or not (shim.has_tag(elf.DT_HASH) and shim.has_tag(elf.DT_GNU_HASH)):
        raise FitError(f"{library} is not a shim of vgpud: build it with shim/build_shim.py")
    if is_shim(driver):
        raise FitError(f"{driver} is a shim itself: name the real driver")
    added, removed, left_out = _plan(shim, elf.Elf(driver))
    symbols = shim.exports()
    _check_unreferenced(shim, {symbols[name].index for name in [*added, *removed]})
    for spare, name in added.items():
        _rename(shim, symbols[spare], name)
    for name in removed:
        _undefine(shim, symbols[name])
    _rehash(shim)
    _rehash_gnu(shim)
    _write(output, bytes(shim.data))
    gone = tuple(sorted(n for n in removed if not n.startswith(SPARE_PREFIX)))
    return Fit(output, tuple(sorted(added.values())), gone, tuple(left_out))


def _write(path: Path, data: bytes, mode: int = 0o755) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())  # a crash of the machine must not leave the name with an empty file
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # it has its name already
            os.unlink(temporary)
        raise


def sync(path: Path) -> None:
    """Waits until a file's contents, or a directory's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """SHA-256 of the contents. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def identity(files: Iterable[Path]) -> str:
    """A text that changes when the file is replaced or rewritten."""
    facts = []
    for file in files:
        real = file.resolve()
        status = real.stat()
        facts.append(f"{real}:{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def ensure_fitted_copy(library: Path, driver: Path, cache: Path) -> Path:
    """The copy of `library` fitted to `driver`, created unless it is in `cache` already (one folder per pair of files).

    The copy keeps the library's file name; its checksum lies beside it. One that is damaged is made again: the loader
    would ignore an empty file, and the program run without limits. Raises as fit() does.
    """
    path = cache / identity((library, driver)) / library.name
    sum_file = path.with_name(f"{path.name}.sha256")
    if not _is_whole(path, sum_file):
        fit(library, driver, path)
        _write(sum_file, f"{checksum(path)}\n".encode(), 0o644)
    return path


def _is_whole(path: Path, sum_file: Path) -> bool:
    try:
        return sum_file.read_bytes() == f"{checksum(path)}\n".encode() and os.access(path, os.R_OK | os.X_OK)
    except FileNotFoundError:
        return False


def missing_names(library: Path, driver: Path) -> tuple[str, ...]:
    """Names of the driver which even a fitted copy cannot export. Raises ElfError or OSError."""
    return tuple(_plan(elf.Elf(library), elf.Elf(driver))[2])
