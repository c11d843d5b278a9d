"""A daemon that is just starting: `vgpud serve &` and the next command, typed or in a script, are not far apart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vgpud.host import processes

#: a daemon answers within a second of its start, or several on a busy machine; one that is older has another reason
STARTS_S = 20.0
#: after this time the user is shown why it takes so long
SILENT_S = 1.0
_LOOK_S = 0.05
#: of a daemon that may be another one, with another socket
_ELSEWHERE = ("--config", "--runtime-dir")


def find_starting_daemon() -> int:
    """The pid of a `vgpud serve` of this user or of root that was started a moment ago, 0 if there is none."""
    import psutil  # not for commands that find their daemon

    started_s = psutil.boot_time() + time.clock_gettime(time.CLOCK_BOOTTIME) - STARTS_S
    for process in psutil.process_iter(["cmdline", "create_time", "uids"]):
        seen = process.info
        if not seen["cmdline"] or not seen["uids"] or seen["uids"].real not in (0, os.getuid()):
            continue
        if seen["create_time"] > started_s and _serves_here(seen["cmdline"]):
            return int(process.pid)
    return 0


def _serves_here(words: Sequence[str]) -> bool:
    """vgpud serve, python /PATH/vgpud serve, python -m vgpud.serve serve, with this machine's usual directories."""
    if any(word.partition("=")[0] in _ELSEWHERE for word in words):
        return False
    if Path(words[0]).name.startswith("python"):
        words = [word for word in words[1:] if not word.startswith("-")] or [""]
    return "serve" in words[1:] and Path(words[0]).name in ("vgpud", "vgpud.serve")


def wait_for_starting_daemon(answers: Callable[[], bool], timeout_s: float, say: Callable[[str], None]) -> bool:
    """Waits while one is starting, for `timeout_s` at most. Returns whether it answers. A longer wait is said once."""
    begin_s = time.monotonic()
    pid, is_said = find_starting_daemon(), False
    while pid and processes.runs(pid) and time.monotonic() - begin_s < min(STARTS_S, timeout_s):
        if answers():
            return True
        if not is_said and time.monotonic() - begin_s > SILENT_S:
            say(f"waiting for vgpud (process {pid}), which is starting")
            is_said = True
        time.sleep(_LOOK_S)
    return False
