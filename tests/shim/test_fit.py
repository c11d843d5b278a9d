"""Fitted copies: what is left out, what is refused, when a copy is made again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import cudaspec
import pytest

from tests.shim import tiny_driver
from tests.shim.conftest import EXTRA, MISSING, Run
from tests.shim.tiny_driver import TinyDriver
from vgpud.cli.system import checks
from vgpud.libraries import elf, fit


def test_the_copy_exports_what_the_driver_does(shim: Path, other_driver: TinyDriver, tmp_path: Path) -> None:
    result = fit.fit(shim, other_driver.path, tmp_path / "out/libvgpu.so")
    assert set(elf.Elf(result.path).exports()) == {*other_driver.names, *fit.OURS}
    assert result == fit.Fit(tmp_path / "out/libvgpu.so", tuple(sorted(EXTRA)), tuple(sorted(MISSING)), ())
    assert result.path.stat().st_mode & 0o777 == 0o755
    assert [p.name for p in result.path.parent.iterdir()] == ["libvgpu.so"]  # nothing half-written is left


def test_readelf_and_the_loader_take_the_copy(shim: Path, other_driver: TinyDriver, run: Run, tmp_path: Path) -> None:
    copy = fit.fit(shim, other_driver.path, tmp_path / "libvgpu.so").path
    done = subprocess.run(
        ["readelf", "-W", "--dyn-syms", "--use-dynamic", copy], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert run(["/bin/true"], hook=copy, environment={"LD_BIND_NOW": "1"}).stderr == ""


def _find_symbol(library: elf.Elf, name: str) -> bool | None:
    """What the loader finds in GNU's hash table; None: the filter says that the name is not there."""
    table = library.offset(library.tag(elf.DT_GNU_HASH))
    buckets, first, words, shift = library.words(table, 4)
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) % (1 << 32)
    low, high = library.words(table + 16 + value // 64 % words * 8, 2)
    bits = 1 << value % 64 | 1 << (value >> shift) % 64
    if (high << 32 | low) & bits != bits:
        return None
    (index,) = library.words(table + 16 + words * 8 + value % buckets * 4, 1)
    names = {s.index: s.name for s in library.symbols() if s.is_exported}
    while index:
        (chained,) = library.words(table + 16 + words * 8 + buckets * 4 + (index - first) * 4, 1)
        if chained | 1 == value | 1 and names.get(index) == name:
            return True
        index = 0 if chained & 1 else index + 1
    return False


def test_names_that_are_not_there_end_in_the_filter(shim: Path, other_driver: TinyDriver, tmp_path: Path) -> None:
    """The loader asks a preloaded library first, for every symbol of a program and its libraries."""
    copy = elf.Elf(fit.fit(shim, other_driver.path, tmp_path / "libvgpu.so").path)
    assert all(_find_symbol(copy, name) for name in copy.exports())
    assert not any(_find_symbol(copy, name) for name in MISSING)
    others = [f"{word}_{number}" for word in ("read", "PyLong_As", "_ZN2at") for number in range(300)]
    assert sum(_find_symbol(copy, name) is not None for name in others) < len(others) / 10


def test_names_without_space_are_reported(surface: cudaspec.Surface, shim: Path, run: Run, tmp_path: Path) -> None:
    """More names than spare entries, and one that is longer than any: left out, the rest works."""
    many = [f"cuLater{number:03d}" for number in range(300)]
    long = "cu" + "VeryLong" * 12
    driver = tiny_driver.build(surface, tmp_path / "driver", extra=[*many, long])
    result = fit.fit(shim, driver.path, tmp_path / "libvgpu.so")
    assert (len(result.added_names), len(result.left_out)) == (256, 45)
    assert long in result.left_out
    assert fit.missing_names(shim, driver.path) == result.left_out
    program = tiny_driver.snippet("by_dlopen", tmp_path / "program", [*result.added_names, *result.left_out])
    lines = run([program, "libcuda.so.1", "2"], driver, result.path).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["libvgpu.so"] * 256 + ["-"] * 45


def test_data_of_the_driver_stays_its_own(shim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A debugger finds the driver's cudbg* words in the driver: a copy has none of them, and nothing is wrong."""
    data = "unsigned cudbgIpcFlag = 1; __thread int cudbgThread;"
    (tmp_path / "driver.c").write_text(f"{data} int cuInit() {{ return 0; }}")
    driver = tiny_driver.compile_c(tmp_path / "libcuda.so.1", "-shared", tmp_path / "driver.c")
    assert fit.missing_names(shim, driver) == ()
    assert "cudbgIpcFlag" not in elf.Elf(fit.fit(shim, driver, tmp_path / "out/libvgpu.so").path).exports()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert [f.level for f in checks.fitting(driver, None)] == ["ok"]


def test_a_copy_is_made_once_per_driver(shim: Path, same_driver: TinyDriver, tmp_path: Path) -> None:
    driver = tmp_path / "libcuda.so.1"
    shutil.copy(same_driver.path, driver)
    first = fit.ensure_fitted_copy(shim, driver, tmp_path / "cache")
    stamp = first.stat().st_mtime_ns
    assert first.name == shim.name
    assert fit.ensure_fitted_copy(shim, driver, tmp_path / "cache") == first
    assert first.stat().st_mtime_ns == stamp
    os.utime(driver, ns=(1, 1))
    assert fit.ensure_fitted_copy(shim, driver, tmp_path / "cache") != first


def test_what_is_no_shim_or_no_driver_is_refused(shim: Path, same_driver: TinyDriver, tmp_path: Path) -> None:
    out = tmp_path / "out" / "libvgpu.so"
    text = tmp_path / "text.so"
    text.write_text("not a library\n")
    cut = tmp_path / "cut.so"
    cut.write_bytes(same_driver.path.read_bytes()[:5000])
    for library, driver, error, says in (
        (same_driver.path, same_driver.path, fit.FitError, "is not a shim of vgpud"),
        (shim, shim, fit.FitError, "is a shim itself"),
        (shim, text, elf.ElfError, "text.so is not a"),
        (shim, cut, elf.ElfError, "cut.so"),
        (shim, tmp_path / "none", FileNotFoundError, "none"),
    ):
        with pytest.raises(error, match=says):
            fit.fit(library, driver, out)
        assert not out.exists()


def test_a_shim_is_distinguished_from_other_libraries(shim: Path, same_driver: TinyDriver, tmp_path: Path) -> None:
    assert fit.is_shim(shim)
    assert not fit.is_shim(same_driver.path)
    assert not fit.is_shim(Path("/etc/passwd"))
    assert not fit.is_shim(tmp_path / "none")


def test_symbols_of_a_library_with_gnu_hash_only(surface: cudaspec.Surface, tmp_path: Path) -> None:
    """The real driver may carry either hash table: both readers see the same names."""
    (tmp_path / "a.c").write_text("int cuOne(void) { return 1; } int cuTwo(void) { return puts(0); } int data = 3;")
    seen = []
    for style in ("sysv", "gnu", "both"):
        output = tmp_path / f"{style}.so"
        tiny_driver.compile_c(output, "-w", "-shared", f"-Wl,--hash-style={style}", tmp_path / "a.c")
        seen.append({s.name for s in elf.Elf(output).exports().values()})
    assert seen[0] == seen[1] == seen[2] >= {"cuOne", "cuTwo", "data"}
    empty = tiny_driver.compile_c(
        tmp_path / "empty.so", "-shared", "-nostdlib", "-Wl,--hash-style=gnu", "-xc", "/dev/null"
    )
    assert elf.Elf(empty).exports() == {}


@pytest.mark.parametrize("which", ["libvgpu.so", "libvgpu.so.sha256"])
@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "gone", "unreadable by the loader"])
def test_a_damaged_copy_is_made_again(
    shim: Path, other_driver: TinyDriver, tmp_path: Path, which: str, damage: str
) -> None:
    copy = fit.ensure_fitted_copy(shim, other_driver.path, tmp_path)
    whole, file = copy.read_bytes(), copy.with_name(which)
    contents = file.read_bytes()
    with copy.open("rb") as used:  # mapped by a program that runs
        if damage == "gone":
            file.unlink()
        elif damage == "changed":
            file.write_bytes(contents[:-2] + b"??")
        elif damage == "unreadable by the loader":
            file.chmod(0)
        else:
            os.truncate(file, 0 if damage == "empty" else len(contents) // 2)
        kept = used.read()
        assert fit.ensure_fitted_copy(shim, other_driver.path, tmp_path) == copy
        used.seek(0)
        assert used.read() == kept, "a program that runs keeps its file as it was"
    assert copy.read_bytes() == whole
    assert copy.stat().st_mode & 0o777 == 0o755


def test_copies_are_on_the_disk_before_they_have_their_names(
    shim: Path, other_driver: TinyDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    synced, replaced = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append(os.readlink(f"/proc/self/fd/{fd}")), synced(fd))[1])
    monkeypatch.setattr(os, "replace", lambda old, new: (steps.append(f"named {new}"), replaced(old, new))[1])
    copy = fit.ensure_fitted_copy(shim, other_driver.path, tmp_path)
    for made in (copy, copy.with_name("libvgpu.so.sha256")):
        named = steps.index(f"named {made}")
        assert steps[named - 1].startswith(f"{copy.parent}/.{made.name}.")
        assert steps[named + 1] == str(copy.parent)


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9, 0.99])
def test_a_build_that_was_cut_short_is_refused(
    shim: Path, other_driver: TinyDriver, tmp_path: Path, part: float
) -> None:
    cut = tmp_path / "libvgpu.so"
    loaded = max(offset + size for _, offset, size in elf.Elf(shim)._loads)
    cut.write_bytes(shim.read_bytes()[: int(part * loaded)])
    with pytest.raises(elf.ElfError, match=str(cut)):
        fit.fit(cut, other_driver.path, tmp_path / "out/libvgpu.so")
