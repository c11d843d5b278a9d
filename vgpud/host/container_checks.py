"""What `vgpud serve --in-container` insists on: a daemon in a container must see the host's processes and folders.

Called by serve.py before anything is made. Tenants are known by the pids and cgroups that the kernel reports, and what
their containers get mounted is named by the host's paths: in namespaces of its own the daemon would start, and then
adopt strangers or mount folders that are not there. Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from vgpud.errors import ConfigError

#: bundles and roots of containers are opened through /proc/PID/root, which docker's AppArmor profile forbids as well
LOOKING = "--cap-add=SYS_PTRACE --security-opt=apparmor=unconfined"
#: inodes of the namespaces that the kernel itself makes (include/linux/proc_ns.h)
INITIAL_NAMESPACES = {"pid": 4026531836, "cgroup": 4026531835, "user": 4026531837}


def check(folders: Iterable[Path], proc: Path = Path("/proc")) -> None:
    """Raises ConfigError, naming the flags of `docker run` to add, when namespaces or mounts of the host are missing.

    folders: what must be the host's own folder at the same path.
    """
    missing = [*_namespaces(proc), *_mounts(folders, proc)]
    if missing:
        flags = ", ".join(dict.fromkeys(missing))
        raise ConfigError(f"this container does not show all of the host's processes and folders: add {flags}")


def _namespaces(proc: Path) -> list[str]:
    """The flags that are missing for the host's namespaces and for looking at its processes."""
    flags = {"pid": "--pid=host", "cgroup": "--cgroupns=host", "user": "--userns=host"}
    missing = [flag for kind, flag in flags.items() if not _is_host(proc, kind)]
    if flags["pid"] not in missing and not _readable(proc / str(os.getppid()) / "root"):
        missing.append(LOOKING)
    return missing


def _is_host(proc: Path, kind: str) -> bool:
    """Whether this namespace is the host's: the kernel's first one, or (a host that is a container) that of pid 1."""
    own = _link(proc / "self" / "ns" / kind)
    if own == f"{kind}:[{INITIAL_NAMESPACES[kind]}]":
        return True
    first, own_files = _link(proc / "1" / "ns" / "mnt"), _link(proc / "self" / "ns" / "mnt")
    outside = bool(first) and first != own_files  # in a pid namespace of our own, pid 1 lives among our files
    return outside and _link(proc / "1" / "ns" / kind) == own


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _readable(path: Path) -> bool:
    return bool(_link(path))


def _mounts(folders: Iterable[Path], proc: Path) -> list[str]:
    """The -v flags that are missing."""
    mounts = [line.split(" ")[3:5] for line in (proc / "self" / "mountinfo").read_text().splitlines()]
    found = {Path(_unescape_path(point)): Path(_unescape_path(root)) for root, point in mounts}
    return [f"-v {folder}:{folder}" for folder in folders if not _is_shared(folder, found)]


def _is_shared(folder: Path, mounts: dict[Path, Path]) -> bool:
    """Whether a folder lies in a mount of a folder with the same name; mounts: where -> which folder is mounted."""
    point = next((p for p in (folder, *folder.parents) if p in mounts), Path("/"))
    return point != Path("/") and mounts[point].name in (point.name, "")


def _unescape_path(text: str) -> str:
    r"""A path of mountinfo: blanks are written as \040 there."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
