"""The library tree: complete, made once, new for another driver, pruned only when no process uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from vgpud import paths
from vgpud.errors import DeniedError, DriverError
from vgpud.libraries import fit
from vgpud.libraries import tree as library_tree

DAY_S = library_tree.UNUSED_SECONDS


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A driver that can be changed: the simulated one's copy."""
    folder = tmp_path / "driver"
    folder.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "kernels.model"):
        shutil.copy(paths.sim_lib_dir() / name, folder)
    return folder / "libcuda.so.1"


def make(tmp_path: Path, driver: Path, nvml: bool = True, is_simulated: bool = True) -> Path:
    return library_tree.library_tree(
        tmp_path / "cache", driver, driver.with_name("libnvidia-ml.so.1") if nvml else None, is_simulated
    )


def files(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}


def test_what_is_in_it(tmp_path: Path, driver: Path) -> None:
    tree = make(tmp_path, driver)
    assert tree.parent == tmp_path / "cache/containers"
    real = {"real/libcuda.so.1", "real/libnvidia-ml.so.1", "real/kernels.model"}
    assert files(tree) == {"libvgpu.so", "libvgpu-ml.so", "ld.so.preload", "checksums"} | real
    assert (tree / "real/libcuda.so.1").read_bytes() == driver.read_bytes()
    assert fit.is_shim(tree / "libvgpu.so")
    assert fit.is_shim(tree / "libvgpu-ml.so")
    assert (tree / "ld.so.preload").read_text() == "/usr/lib/vgpu/libvgpu.so\n/usr/lib/vgpu/libvgpu-ml.so\n"


def test_users_of_a_container_may_read_it(tmp_path: Path, driver: Path) -> None:
    umask = os.umask(0o077)
    try:
        tree = make(tmp_path, driver)
    finally:
        os.umask(umask)
    for path in [tree, *tree.rglob("*")]:
        plain = path.suffix in (".preload", ".model") or path.name == "checksums"
        assert path.stat().st_mode & 0o055 == (0o044 if plain else 0o055), path
        assert not path.stat().st_mode & 0o022, path


def test_a_real_device_without_nvml(tmp_path: Path, driver: Path) -> None:
    tree = make(tmp_path, driver, nvml=False, is_simulated=False)
    assert files(tree) == {"libvgpu.so", "ld.so.preload", "checksums", "real/libcuda.so.1"}
    assert "ml" not in (tree / "ld.so.preload").read_text()


def test_made_once(tmp_path: Path, driver: Path) -> None:
    tree = make(tmp_path, driver)
    inode = (tree / "libvgpu.so").stat().st_ino
    assert make(tmp_path, driver) == tree
    assert (tree / "libvgpu.so").stat().st_ino == inode
    assert [p.name for p in tree.parent.iterdir()] == [tree.name]


FILES = ["libvgpu.so", "libvgpu-ml.so", "ld.so.preload", "real/libcuda.so.1", "real/kernels.model", "checksums"]


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "gone"])
@pytest.mark.parametrize("daemon", ["the same", "another"])
def test_a_damaged_tree_is_made_again(tmp_path: Path, driver: Path, damage: str, daemon: str) -> None:
    tree = make(tmp_path, driver)
    whole = {path: (tree / path).read_bytes() for path in files(tree)}
    for name in FILES:
        damaged = tree / name
        used = damaged.stat().st_ino  # by a container that runs
        if damage == "gone":
            damaged.unlink()
        elif damage == "changed":
            damaged.write_bytes(whole[name][:-1] + b"?")
        else:
            os.truncate(damaged, 0 if damage == "empty" else len(whole[name]) // 2)
        if daemon == "another":
            library_tree._checked.clear()
        assert make(tmp_path, driver) == tree, name
        assert {path: (tree / path).read_bytes() for path in files(tree)} == whole, name
        left = [path for path in tree.parent.rglob("*") if path.is_file() and path.stat().st_ino == used]
        assert damage == "gone" or left[0] != damaged, "a container that has started keeps its files"


def test_a_whole_tree_is_read_once(tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make(tmp_path, driver)
    make(tmp_path, driver)
    monkeypatch.setattr(fit, "checksum", lambda path: pytest.fail(f"{path} is read for each container"))
    assert make(tmp_path, driver) == tree


def test_another_driver_another_tree(tmp_path: Path, driver: Path) -> None:
    first = make(tmp_path, driver)
    driver.write_bytes(driver.read_bytes() + b"\0")
    second = make(tmp_path, driver)
    assert second != first
    assert first.is_dir(), "a container may have been started with it a moment ago"


def test_two_at_once_make_one(tmp_path: Path, driver: Path) -> None:
    made: list[Path] = []
    threads = [threading.Thread(target=lambda: made.append(make(tmp_path, driver))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert len(set(made)) == 1
    assert [p.name for p in made[0].parent.iterdir()] == [made[0].name]


def test_pruning_beside_a_process_that_makes_one(tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    ended = threading.Event()

    def make_and_rename() -> None:
        while not ended.is_set():
            (tmp_path / ".new-1").mkdir()
            (tmp_path / ".new-1").rename(tmp_path / "made")
            (tmp_path / "made").rmdir()

    other = threading.Thread(target=make_and_rename)
    other.start()
    try:
        for _ in range(2000):
            assert library_tree.prune(tmp_path, keep) == []
    finally:
        ended.set()
        other.join()


@pytest.mark.root
def test_trees_that_no_process_uses_go_after_a_day(tmp_path: Path, driver: Path) -> None:
    first = make(tmp_path, driver)
    old = first.stat().st_mtime - DAY_S - 1
    os.utime(first, (old, old))
    driver.write_bytes(driver.read_bytes() + b"\0")
    second = make(tmp_path, driver)
    assert [p.name for p in second.parent.iterdir()] == [second.name]


def test_asking_again_counts_as_use(tmp_path: Path, driver: Path) -> None:
    first = make(tmp_path, driver)
    old = first.stat().st_mtime - DAY_S - 1
    os.utime(first, (old, old))
    make(tmp_path, driver)
    driver.write_bytes(driver.read_bytes() + b"\0")
    make(tmp_path, driver)
    assert first.is_dir()


def test_nothing_goes_where_not_every_namespace_can_be_seen(
    tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(tmp_path, driver)
    old = first.stat().st_mtime - DAY_S - 1
    os.utime(first, (old, old))
    driver.write_bytes(driver.read_bytes() + b"\0")

    def refuse(path: Path, **_how: str) -> str:
        raise PermissionError(1, "not yours", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    make(tmp_path, driver)
    assert first.is_dir()


HOLD = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None): sys.exit(77)
if libc.mount(sys.argv[1].encode(), b"/mnt", None, 4096, None): sys.exit(77)
print("mounted", flush=True)
sys.stdin.read()
"""


@pytest.mark.root
def test_a_tree_in_another_mount_namespace_stays(tmp_path: Path, driver: Path) -> None:
    first = make(tmp_path, driver)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(first)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin
    assert holder.stdout
    try:
        if not holder.stdout.readline():
            pytest.skip("no mount namespace can be made here")
        old = first.stat().st_mtime - DAY_S - 1
        os.utime(first, (old, old))
        driver.write_bytes(driver.read_bytes() + b"\0")
        make(tmp_path, driver)
        assert first.is_dir()
    finally:
        holder.stdin.close()
        holder.wait(10)
        holder.stdout.close()


# ---- refusals ----


def test_no_driver(tmp_path: Path, driver: Path) -> None:
    driver.unlink()
    with pytest.raises(DriverError, match=r"libcuda\.so\.1 does not exist"):
        make(tmp_path, driver)


def test_no_library(tmp_path: Path, driver: Path) -> None:
    driver.write_text("text")
    with pytest.raises(DriverError, match="is not a readable shared library"):
        make(tmp_path, driver)
    assert list((tmp_path / "cache/containers").iterdir()) == [], "nothing half-made is left"


def test_a_shim_is_no_driver(tmp_path: Path, driver: Path) -> None:
    shutil.copy(paths.lib_dir() / "libvgpu.so", driver)
    with pytest.raises(DriverError, match="name the real driver"):
        make(tmp_path, driver)


def test_a_cache_that_others_may_write_to(tmp_path: Path, driver: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(DeniedError, match="is writable by others"):
        make(tmp_path, driver)


def test_a_cache_that_nothing_may_be_executed_in(tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noexec(path: Path) -> os.statvfs_result:
        return os.statvfs_result([0] * 8 + [os.ST_NOEXEC, 255])

    monkeypatch.setattr(library_tree.os, "statvfs", noexec)
    with pytest.raises(DeniedError, match="noexec"):
        make(tmp_path, driver)
