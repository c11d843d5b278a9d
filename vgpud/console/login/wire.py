"""Messages between the console's processes: one JSON object per packet of a SEQPACKET socket, with at most one file
descriptor."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

#: a file's path (4096) and a user's name fit
MESSAGE_BYTES_MAX = 16 * 1024

Message = dict[str, Any]


class GoneError(Exception):
    """The other side has closed."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: Message, fd: int = -1) -> None:
    """Sends a message, and a copy of a descriptor. Raises GoneError."""
    data = json.dumps(message).encode()
    try:
        if fd >= 0:
            socket.send_fds(sock, [data], [fd])
        else:
            sock.send(data)
    except OSError as error:
        raise GoneError(str(error)) from error


def receive(sock: socket.socket) -> tuple[Message, int]:
    """A message and the descriptor with it (-1: none), which is the caller's to close.

    Raises GoneError, also for anything that is no message. BlockingIOError: there is none yet.
    """
    try:
        data, fds, _flags, _address = socket.recv_fds(sock, MESSAGE_BYTES_MAX, 1)
    except BlockingIOError:
        raise
    except OSError as error:
        raise GoneError(str(error)) from error
    fd = fds[0] if fds else -1
    try:
        message = json.loads(data) if data else None
    except ValueError:
        message = None
    if not isinstance(message, dict):
        if fd >= 0:
            os.close(fd)
        raise GoneError("closed" if not data else "not a message")
    return message, fd
