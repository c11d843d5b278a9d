"""Processes that stop (SIGSTOP) at the step of a move that a test has named: stopping_daemon.py, stopping_helper.py.

In the system's folder, `stop-at` has the step's name. The first process that comes there takes the name away, says in
`stopped` who it is, and stops; `passed` has a line for each step that any of them came by. Nothing but the standard
library: the helper has no other.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

WANTED_FILE, TAKEN_FILE, STOPPED_FILE, PASSED_FILE = "stop-at", "stop-at.taken", "stopped", "passed"


def pass_step(folder: Path, step: str, owner: str) -> None:
    """`owner`: the name of the slice, or the pid of its program."""
    with (folder / PASSED_FILE).open("a") as passed:
        passed.write(f"{step}\n")
    with suppress(FileNotFoundError):
        if (folder / WANTED_FILE).read_text() != step:
            return
        (folder / WANTED_FILE).rename(folder / TAKEN_FILE)  # of two processes one fails
        new = folder / f"{STOPPED_FILE}.new"
        new.write_text(f"{os.getpid()} {owner}")
        new.rename(folder / STOPPED_FILE)
        os.kill(os.getpid(), signal.SIGSTOP)
