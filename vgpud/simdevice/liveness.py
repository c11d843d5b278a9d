"""Whether the simulator (vgpu-simd) of a directory lives, by a pidfd of its process: asking costs it nothing."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from vgpud.host import processes
from vgpud.simdevice.state_page import SOCKET_NAME


class Simulator:
    """The server of simulated devices in a directory."""

    def __init__(self, directory: Path) -> None:
        self._socket = directory / SOCKET_NAME
        self._pidfd = -1

    def look(self) -> tuple[bool, bool]:
        """(whether it lives, whether it is another one than at the last look at which one lived)."""
        if self._pidfd >= 0 and not processes.has_ended(self._pidfd):
            return True, False
        pidfd = self._connect()
        if pidfd < 0:
            return False, False
        self.close()
        self._pidfd = pidfd
        return True, True

    def _connect(self) -> int:
        """A pidfd of the process that listens, -1 when none does."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as sock:
                sock.connect(str(self._socket))
                pidfd = processes.peer_pidfd(sock, processes.credentials(sock)[0])
        except OSError:
            return -1
        if processes.has_ended(pidfd):
            os.close(pidfd)
            return -1
        return pidfd

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._pidfd = -1
