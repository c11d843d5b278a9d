"""A daemon that is just starting: `vgpud serve &` and the next command, typed or in a script, are not far apart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

#: a daemon answers within a second of its start, or several on a busy machine; one that is older has another reason
STARTS_S = 20.0
#: a user who waits for longer is told why
SILENT_S = 1.0
_LOOK_S = 0.05


def find_starting_daemon() -> int:
    """The pid of a `vgpud serve` of this user or of root that was started a moment ago, 0 if there is none."""
    import psutil  # not for commands that find their daemon

    started_s = psutil.boot_time() + time.clock_gettime(time.CLOCK_BOOTTIME) - STARTS_S
    for process in psutil.process_iter(["cmdline", "create_time", "uids"]):
        seen = process.info
        if not seen["cmdline"] or not seen["uids"] or seen["uids"].real not in (0, os.getuid()):
            continue
        if seen["create_time"] > started_s and _serves(seen["cmdline"]):
            return int(process.pid)
    return 0


def _serves(words: list[str]) -> bool:
    """vgpud serve, python /PATH/vgpud serve, python -m vgpud.serve serve."""
    if Path(words[0]).name.startswith("python"):
        words = words[2:] if words[1:2] == ["-m"] else words[1:]
    return "serve" in words[1:] and Path(words[0]).name in ("vgpud", "vgpud.serve")


def wait_for_starting_daemon(answers: Callable[[], bool], say: Callable[[str], None]) -> bool:
    """Waits while one is starting. Returns whether it answers. A longer wait is said once."""
    begin_s = time.monotonic()
    is_said = False
    while pid := find_starting_daemon():
        if answers():
            return True
        if not is_said and time.monotonic() - begin_s > SILENT_S:
            say(f"waiting for vgpud (process {pid}), which is starting")
            is_said = True
        time.sleep(_LOOK_S)
    return False
