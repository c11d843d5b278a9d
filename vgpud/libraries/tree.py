"""The library tree: the host directory that containers see as /usr/lib/vgpu, with everything that the shims need.

One tree for each pair of drivers and build of the shims: `<cache>/containers/<identity>/` with `libvgpu.so`,
`libvgpu-ml.so` (fitted), `ld.so.preload`, `real/` with copies of the drivers, and on a simulated device `SIMULATED/`
with its CUDA libraries. Copies, so that an update of the driver's package does not affect running containers. A tree is
written beside and renamed, and never changed. One whose files do not have the checksums in `checksums` is made again,
and renamed for containers that still use it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from vgpud import paths
from vgpud.errors import DeniedError, DriverError
from vgpud.libraries import driver as drivers
from vgpud.libraries import elf, fit, simulated

MOUNTED_AT = "/usr/lib/vgpu"
SHIM = "libvgpu.so"
ML_SHIM = "libvgpu-ml.so"
PRELOAD = "ld.so.preload"
KERNELS = "kernels.model"
SUMS = "checksums"

#: what the files of a tree were when their checksums were right; a driver has 90 MB, too much for each container
_checked: dict[Path, list[tuple[int, ...]]] = {}
_making = threading.Lock()


def preload_text(places: list[str]) -> str:
    """Contents of an /etc/ld.so.preload: the shims and the simulated CUDA libraries, as a container has them."""
    names = [place for place in places if place in (SHIM, ML_SHIM) or simulated.is_cuda_library(place)]
    return "".join(f"{MOUNTED_AT}/{name}\n" for name in names)


def library_tree(cache: Path, driver: Path, nvml: Path | None, is_simulated: bool) -> Path:
    """The tree for these drivers, created unless it exists. Creating one prunes trees that no mount namespace uses.

    cache: the daemon's cache directory. Raises DeniedError (not writable, or mounted noexec) or DriverError (no
    shims, or a driver that they cannot be fitted to).
    """
    base = paths.make_private_dir(paths.make_private_dir(cache, 0o755) / "containers", 0o755)
    if os.statvfs(base).f_flag & os.ST_NOEXEC:
        raise DeniedError(f"{base} is mounted noexec: containers could not load libraries from it; mount it exec")
    try:
        parts = _parts(driver, nvml, is_simulated)
        tree = base / fit.identity([source for source, _ in parts])
        with _making:
            if not _is_whole(tree):
                _make(tree, parts, driver, nvml)
                prune(base, keep=tree)
    except FileNotFoundError as error:
        raise DriverError(f"{error.filename} does not exist: build it with `pip install .`") from error
    except (fit.FitError, elf.ElfError) as error:
        raise DriverError(str(error)) from error
    except OSError as error:
        reason = error.strerror or error
        raise DeniedError(f"cannot create the library tree {base}: {reason}; fix its permissions") from error
    os.utime(tree)  # the time of last use, for prune()
    return tree


def _parts(driver: Path, nvml: Path | None, is_simulated: bool) -> list[tuple[Path, str]]:
    """(file, place in the tree) of everything in a tree; a shim is fitted, all others are copied."""
    parts = [(paths.lib_dir() / SHIM, SHIM), (driver, f"real/{drivers.DRIVER_SONAME}")]
    if nvml is not None:
        parts += [(paths.lib_dir() / ML_SHIM, ML_SHIM), (nvml, f"real/{drivers.NVML_SONAME}")]
    if is_simulated:
        parts.append((driver.parent / KERNELS, f"real/{KERNELS}"))
        parts += [(file, f"{simulated.FOLDER}/{file.name}") for file in simulated.cuda_libraries(driver)]
        nvrtc = sorted(simulated.nvrtc_folder(driver).glob("*.so*"))
        parts += [(file, f"{simulated.FOLDER}/{simulated.NVRTC}/{file.name}") for file in nvrtc]
    return parts


def _make(tree: Path, parts: list[tuple[Path, str]], driver: Path, nvml: Path | None) -> None:
    made = Path(tempfile.mkdtemp(dir=tree.parent, prefix=".new-"))
    try:
        folders = sorted({(made / place).parent for _, place in parts}, reverse=True)  # `made` itself is the last
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for source, place in parts:
            if place not in (SHIM, ML_SHIM):
                shutil.copyfile(source, made / place)
                (made / place).chmod(0o755 if ".so" in place else 0o644)
        fit.fit(paths.lib_dir() / SHIM, driver, made / SHIM)
        if nvml is not None:
            fit.fit(paths.lib_dir() / ML_SHIM, nvml, made / ML_SHIM)
        (made / PRELOAD).write_text(preload_text([place for _, place in parts]))
        files = sorted(path for path in made.rglob("*") if path.is_file())
        (made / SUMS).write_text("".join(f"{fit.checksum(path)} {path.relative_to(made)}\n" for path in files))
        for path in (made / PRELOAD, made / SUMS, *folders):
            path.chmod(0o755 if path.is_dir() else 0o644)
        for path in (*files, made / SUMS, *folders):
            fit.sync(path)
        if tree.exists():
            os.rename(tree, Path(tempfile.mkdtemp(dir=tree.parent, prefix=".damaged-")))
        os.rename(made, tree)
        fit.sync(tree.parent)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not _is_whole(tree):  # otherwise another daemon has created the same one in the meantime
            raise
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _is_whole(tree: Path) -> bool:
    """Whether each file has its checksum. Files that have not changed since the last look are not read again."""
    try:
        lines = [line.split(" ", 1) for line in (tree / SUMS).read_text().splitlines()]
        sums = {name: checksum for checksum, name in lines}
        facts = [_facts(tree / name) for name in (SUMS, *sums)]
        if not sums or (_checked.get(tree) != facts and any(fit.checksum(tree / n) != s for n, s in sums.items())):
            return False
    except (OSError, ValueError):
        return False
    _checked[tree] = facts
    return True


def _facts(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mode, status.st_mtime_ns, status.st_ctime_ns


#: a tree may be named in a config.json whose container has not started yet, or in a CDI file of vgpud
UNUSED_SECONDS = 24 * 3600


def prune(base: Path, keep: Path) -> list[Path]:
    """Removes trees that were not used for a day and that no mount namespace of this machine has.

    Removes none if some namespace is not visible: a running container would lose its libraries.
    """
    oldest = keep.stat().st_mtime - UNUSED_SECONDS
    old = [tree for tree in base.iterdir() if tree != keep and _was_made_before(oldest, tree)]
    if not old:
        return []
    try:
        used = "\n".join(_mountinfos())
    except PermissionError:
        return []
    gone = [tree for tree in old if f"/containers/{tree.name}" not in used]
    for tree in gone:
        shutil.rmtree(tree, ignore_errors=True)
    return gone


def _was_made_before(moment: float, tree: Path) -> bool:
    try:
        status = tree.stat()
    except FileNotFoundError:
        return False  # one that another daemon was creating, or has removed
    return stat.S_ISDIR(status.st_mode) and status.st_mtime < moment


def _mountinfos() -> Iterator[str]:
    """The mounts of every mount namespace that a process is in. Raises PermissionError."""
    seen = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            namespace = _namespace(process)
            if namespace not in seen:
                seen.add(namespace)
                yield (process / "mountinfo").read_text(errors="replace")
        except PermissionError:
            raise
        except OSError:
            continue  # it has ended


def _namespace(process: Path) -> str:
    """An identifier of a process's mount namespace; of the process itself if the namespace is not accessible."""
    try:
        return os.readlink(process / "ns/mnt")
    except PermissionError:
        return process.name
