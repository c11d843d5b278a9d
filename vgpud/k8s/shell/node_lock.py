"""Which process publishes a node's GPUs: the one that has locked the driver's directory, a lock that ends with it.

While a driver is replaced, two run side by side: both answer kubelet, and the former one publishes until it ends. So
versions that would publish otherwise do not write against each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from vgpud.k8s.core.names import DRIVER

HELD = f"another driver of {DRIVER} runs on this node"


class NodeLock:
    """plugins: kubelet's directory of that name. Raises OSError where the driver can have none in it."""

    def __init__(self, plugins: Path) -> None:
        self.directory = plugins / DRIVER
        self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._file = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)

    def take(self) -> bool:
        """Whether it is this process's now."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def remove_dead_sockets(own: Path, others: Iterator[Path]) -> None:
    """Removes sockets on which nothing listens any more: those of a driver that was killed. One that is newer than our
    own may be about to listen."""
    for path in others:
        with contextlib.suppress(OSError):
            if path.stat().st_mtime_ns < own.stat().st_mtime_ns and not _is_served(path):
                path.unlink()


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        try:
            sock.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # its queue is full, say
    return True
