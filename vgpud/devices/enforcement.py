"""Freezes or ends a program that uses a device past its ledger (DESIGN D10), as core/devices/enforce.py decides.

A program is held by a pidfd before it is looked at for the last time, so that another process that has got its pid is
not hit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path

from vgpud.core.devices.enforce import KILL, Act, freezer_of, why_spared
from vgpud.core.observed import Seen
from vgpud.host import cgroups, processes

CGROUPS = Path("/sys/fs/cgroup")


def see(pid: int) -> Seen:
    """The identity of a process; all unknown when it has ended."""
    return Seen(
        processes.program(pid),
        cgroups.paths_of(pid),
        processes.real_uid(pid),
        is_stopped(pid),
        processes.start_time(pid),
    )


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by signals or with its cgroup."""
    return processes.is_stopped(pid) or any(_is_frozen(path, pid) for path in cgroups.paths_of(pid))


def carry_out(
    act: Act,
    is_still: Callable[[], bool],
    attached_pids: Collection[int],
    prepare_kill: Callable[[int], None] = lambda pid: None,
) -> str:
    """Does it, and returns what was done, or why not; "" when the process has ended. May wait for the driver.

    `is_still`: whether the decision still applies to the process that has the pid now; `attached_pids`: of all attached
    programs; `prepare_kill`: done to a process before it is killed.
    """
    try:
        pidfd = os.pidfd_open(act.pid)
    except OSError:
        return ""
    try:
        if not is_still():  # by now another process may have the pid that we saw
            return ""
        who = see(act.pid)
        if processes.has_ended(pidfd):
            return ""
        name = f"pid {act.pid} ({who.program})"
        spared = why_spared(act, who)
        if spared:
            return f"{name} {spared}: left alone"
        if act.verb == KILL:
            prepare_kill(act.pid)
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            return f"{name} was killed"
        paths = {path for pid in attached_pids if pid != act.pid for path in cgroups.paths_of(pid)}
        return f"{name} {_freeze(pidfd, act.pid, freezer_of(who, cgroups.paths_of(os.getpid()), paths))}"
    except OSError as error:
        return f"pid {act.pid} cannot be frozen or ended: {error.strerror}"
    finally:
        os.close(pidfd)


def _freeze(pidfd: int, pid: int, cgroup: str) -> str:
    """By its cgroup, if that is where we see it (version 2 alone), else by a signal. Raises OSError."""
    folder = CGROUPS / cgroup.lstrip("/")
    if cgroup and _holds(folder, pid):
        (folder / "cgroup.freeze").write_text("1")
        return f"was frozen with its container: `echo 0 > {folder}/cgroup.freeze` lets it continue"
    signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
    return f"was stopped: `kill -CONT {pid}` lets it continue"


def _is_frozen(cgroup: str, pid: int) -> bool:
    """Whether a program is frozen with its cgroup, as in a paused container (version 2)."""
    folder = CGROUPS / cgroup.lstrip("/")
    try:
        return "frozen 1" in (folder / "cgroup.events").read_text().split("\n") and _holds(folder, pid)
    except OSError:
        return False


def _holds(folder: Path, pid: int) -> bool:
    """Whether it is the folder of a cgroup with this process in it: paths may mean others where we live."""
    try:
        return str(pid) in (folder / "cgroup.procs").read_text().split() and (folder / "cgroup.freeze").exists()
    except OSError:
        return False
