"""Leftovers of an attempt whose supervisor was killed: its processes are found, killed, and their cgroups removed.

By the cgroups that the attempt's directory names; where none could be made, by a variable of the environment that the
supervisor gave to all of them. All of this reads and waits: not for the loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from vgpud.host import processes
from vgpud.jobs.messages import Begun

#: an engine that does not answer
CLEANUP_S = 60.0
_LOOK_S = 0.02


def end_leftovers(name: str, attempt_record: Begun, environment: Mapping[str, str]) -> None:
    """Returns when no process of the attempt is left. `environment`: of the engine that has its containers."""
    directory = Path(attempt_record.cgroup) if attempt_record.cgroup else None
    while (left := list(_processes(directory, name))) or (directory and _is_populated(directory)):
        for pid, start in left:
            _kill(pid, start)
        if directory:
            _kill_cgroup(directory)
        time.sleep(_LOOK_S)
    if attempt_record.cleanup:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                attempt_record.cleanup, env=dict(environment), timeout=CLEANUP_S, capture_output=True, check=False
            )
    for path in (attempt_record.cgroup, *attempt_record.limits):
        _remove(path)


def _tree(directory: Path) -> list[Path]:
    """The attempt's cgroup and all below it, which jobs of root's may have made: those further down first."""
    return [Path(path) for path, _directories, _files in os.walk(directory, topdown=False)]


def _is_populated(directory: Path) -> bool:
    """By the kernel's own file, where it has one: a process from a list of pids may have forked and ended since."""
    try:
        return "populated 0" not in (directory / "cgroup.events").read_text()
    except OSError:
        return any(_pids(cgroup) for cgroup in _tree(directory))  # version 1, or it has gone already


def _processes(directory: Path | None, name: str) -> Iterator[tuple[int, int]]:
    """(pid, start time) of those that live."""
    pids = _members(directory) if directory else _find_marked_pids(name)
    return ((pid, processes.start_time(pid)) for pid in pids if processes.runs(pid))


def _members(directory: Path) -> Iterator[int]:
    for cgroup in _tree(directory):
        yield from _pids(cgroup)


def _pids(cgroup: Path) -> list[int]:
    try:
        return [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _find_marked_pids(name: str) -> Iterator[int]:
    mark = f"VGPU_JOB={name}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def _kill(pid: int, start: int) -> None:
    pidfd = processes.open_process(pid, start)
    if pidfd < 0:
        return
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)


def _kill_cgroup(directory: Path) -> None:
    """All at once, also those that are forking: version 2 can, and version 1's freezer stops all of them meanwhile."""
    if _put(directory / "cgroup.kill", "1"):
        return
    frozen = _put(directory / "cgroup.freeze", "1") or _put(directory / "freezer.state", "FROZEN")
    if frozen:
        for pid in _members(directory):
            _kill(pid, processes.start_time(pid))
        _ = _put(directory / "cgroup.freeze", "0") or _put(directory / "freezer.state", "THAWED")


def _put(path: Path, value: str) -> bool:
    try:
        with path.open("r+") as file:  # never made: these are the kernel's
            file.write(value)
    except OSError:
        return False
    return True


def _remove(path: str) -> None:
    if not path:
        return
    for directory in _tree(Path(path)):
        with contextlib.suppress(OSError):
            directory.rmdir()
