"""Workers of pytest-xdist take turns: a test marked `alone` has the machine to itself, others run beside each other.

Locks of two directories, as nothing has to be made or removed for them: whoever is in the room has a lock of it, shared
or exclusive, and has stood in the door before. Who waits for an empty room stands in the door, so that nobody enters
before it and it waits for one test at most.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_ROOM = Path(__file__).parent
_DOOR = _ROOM / "system"


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough: a child that a test has forked may have it too
        os.close(fd)


@contextlib.contextmanager
def turn(alone: bool, room: Path = _ROOM, door: Path = _DOOR) -> Iterator[None]:
    """For as long as a test runs."""
    with contextlib.ExitStack() as inside:
        with _locked(door, fcntl.LOCK_EX):
            inside.enter_context(_locked(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield
