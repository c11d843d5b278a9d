"""Cgroups of version 2 as directories: where they are mounted, and those that the daemon makes for `vgpu run`.

A program that runs in a login session shares its cgroup with the shell and with other programs. So it gets one of its
own below that one: what holds for the session (memory, its end) holds for it as before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from vgpud.errors import VgpudError
from vgpud.host import cgroups

#: the kernel's controller of device memory, since Linux 6.14
DMEM = "dmem"
#: how the cgroups begin that the daemon makes; the slice's uid follows
OWN_PREFIX = "vgpu-run-"


class CgroupError(VgpudError):
    """A cgroup cannot be made or used. The message says which one and why."""


def mount_point(proc: Path = cgroups.PROC) -> Path | None:
    """Where cgroups of version 2 are mounted; None where they are not."""
    try:
        lines = (proc / "self/mountinfo").read_text(errors="replace").split("\n")
    except OSError:
        return None
    points = [line.split()[4] for line in lines if " - cgroup2 " in line]
    return next((Path(point) for point in points if "\\" not in point), None)


def unified_path(pid: int, proc: Path = cgroups.PROC) -> str:
    """The path of a process's cgroup of version 2; "" where it has none, or has ended."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")


def sees_all(mount: Path) -> bool:
    """Whether paths in /proc mean the same cgroups below this mount: not in a cgroup namespace of our own."""
    return os.getpid() in pids_in(mount / unified_path(os.getpid()).lstrip("/"))


def pids_in(folder: Path) -> list[int]:
    """The processes of one cgroup, none below it; [] when it is gone."""
    try:
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def make(folder: Path) -> None:
    """Raises CgroupError, also where another user has made it: below a cgroup that is delegated to them."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CgroupError(f"cgroup {folder} cannot be made: {error.strerror}") from error
    if not is_ours(folder):
        raise CgroupError(f"cgroup {folder} is another user's")


def is_ours(folder: Path) -> bool:
    """Whether this user has made it."""
    try:
        return folder.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def remove(folder: Path) -> bool:
    """Whether it is gone: one with processes stays."""
    try:
        folder.rmdir()
    except OSError:
        if folder.exists():
            return False
    if folder.name.startswith(OWN_PREFIX):
        _take_dmem_back(folder.parent)
    return True


def _take_dmem_back(parent: Path) -> None:
    """From a cgroup in which a program was started: with a controller for those below it has no processes of its own.
    The root cgroup may have both, and what else is below needs the controller."""
    with contextlib.suppress(OSError):
        if not parent.is_mount() and not any(each.is_dir() for each in parent.iterdir()):
            (parent / "cgroup.subtree_control").write_text(f"-{DMEM}")


def hand_down_dmem(mount: Path, folder: Path) -> None:
    """Gives a cgroup the kernel's controller of device memory, where the kernel has it: the driver needs it there.
    Raises CgroupError."""
    if DMEM not in _words(mount / "cgroup.controllers"):
        return
    above = [parent for parent in reversed(folder.parents) if parent == mount or mount in parent.parents]
    for parent in above:
        if DMEM in _words(parent / "cgroup.subtree_control"):
            continue
        try:
            (parent / "cgroup.subtree_control").write_text(f"+{DMEM}")
        except OSError as error:
            text = f"cgroup {parent} cannot hand the controller {DMEM} down: {error.strerror}"
            raise CgroupError(f"{text}; it has processes of its own") from error


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def move_tree(pid: int, folder: Path, proc: Path = cgroups.PROC) -> None:
    """Moves a process and its descendants into a cgroup. What they start from then on is there, too: so children are
    looked for after their parent was moved. Raises CgroupError if the process itself cannot be moved."""
    try:
        (folder / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise CgroupError(f"pid {pid} cannot be moved to cgroup {folder}: {error.strerror}") from error
    for child in _children(pid, proc):
        with contextlib.suppress(CgroupError):  # it has ended
            move_tree(child, folder, proc)


def _children(pid: int, proc: Path) -> list[int]:
    found: list[int] = []
    for thread in (proc / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in thread.read_text().split()]
    return found


def own_folders(mount: Path) -> Iterator[Path]:
    """The cgroups that daemons of this user have made for slices, of others' as well. Walks all cgroups of the machine.
    Any user can take such a name below a cgroup that is delegated to them: theirs are left out."""
    for path, directories, _files in os.walk(mount):
        named = (Path(path, name) for name in directories if name.startswith(OWN_PREFIX))
        yield from (folder for folder in named if is_ours(folder))


def remove_all(folders: Iterable[Path]) -> list[Path]:
    """Those that still have processes."""
    return [folder for folder in folders if not remove(folder)]
