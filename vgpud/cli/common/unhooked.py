"""Finds programs of a command that use a device without the hook, and so without the limits of its slice.

LD_PRELOAD does not reach every program: one starts another with an empty environment, is linked statically, or has the
rights of its file's owner; and the loader only prints a line when it cannot load the hook.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from vgpud.host.processes import start_time

HOOK, DRIVER, NODES = "/libvgpu.so", "/libcuda.so", "/dev/nvidia"


class Watch:
    """Looks at a process and all below it, again and again. `sim_dir`: of simulated devices, else ""."""

    def __init__(self, pid: int, sim_dir: str = "", proc: Path = Path("/proc")) -> None:
        self._pid, self._proc = pid, proc
        self._devices = f"{os.path.realpath(sim_dir)}/" if sim_dir else NODES
        self._hooked: set[tuple[int, int, str]] = set()  # each program has the hook from its start, or never

    def look(self) -> tuple[int, str]:
        """(pid, name) of a program that uses a device without the hook; (0, "") while there is none."""
        seen = set()
        for pid in list_tree(self._pid, self._proc):
            try:
                program = os.readlink(self._proc / str(pid) / "exe")
                key = (pid, start_time(pid, self._proc), program)
                if key not in self._hooked:
                    maps = (self._proc / str(pid) / "maps").read_text(errors="replace")
                    if HOOK not in maps:
                        if DRIVER in maps and self._devices in maps:
                            return pid, Path(program).name
                        continue
                seen.add(key)
            except OSError:
                continue  # it has ended, or is another user's
        self._hooked = seen
        return 0, ""


def list_tree(root_pid: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """A process and all below it."""
    waiting = [root_pid]
    while waiting:
        pid = waiting.pop()
        yield pid
        for file in (proc / str(pid) / "task").glob("*/children"):
            try:
                waiting += map(int, file.read_text().split())
            except OSError:
                continue  # the thread has ended
