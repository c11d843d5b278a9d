"""Which cgroups a process is in, by /proc: how programs of a container are known (DESIGN D4).

Version 2 has one path per process, version 1 one per hierarchy, hybrids both. Only /proc is read, not /sys/fs/cgroup,
which a daemon in a container may see differently; the paths are only compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vgpud.host import processes

PROC = Path("/proc")
_DELETED = " (deleted)"


def parse(text: str) -> tuple[str, ...]:
    """The paths in a /proc/PID/cgroup, each once. "/" is left out: every process is below it.

    Version 2 first, hierarchies without a controller last: a systemd in a container may be allowed to write to those.
    """
    lines = [line.split(":", 2) for line in text.split("\n") if line.count(":") >= 2]
    lines.sort(key=lambda fields: (fields[0] != "0", fields[1].startswith("name=")))
    paths = (path.removesuffix(_DELETED) for _number, _controllers, path in lines)
    return tuple(dict.fromkeys(path for path in paths if path.strip("/")))


def paths_of(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The cgroup paths of a process; none when it has ended."""
    try:
        return parse((proc / str(pid) / "cgroup").read_text(errors="replace"))
    except OSError:
        return ()


def own_path(paths: Iterable[str], engine: Iterable[str]) -> str:
    """The path that is a container's alone: the first of its process's that the engine itself is not in, else ""."""
    outside = set(engine)
    return next((path for path in paths if path not in outside), "")


def is_inside(pid: int, cgroup: str, proc: Path = PROC) -> bool:
    """Whether a process is in a cgroup or below it."""
    return any(path == cgroup or path.startswith(cgroup + "/") for path in paths_of(pid, proc))


def members(cgroup: str, proc: Path = PROC) -> list[int]:
    """The living processes at or below a path. Reads all of /proc: not for the loop."""
    pids = [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if is_inside(pid, cgroup, proc) and processes.runs(pid, proc)]
