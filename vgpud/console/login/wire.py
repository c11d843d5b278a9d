"""Messages between the console's processes: one JSON object per packet of a SEQPACKET socket; an answer has at most one
file descriptor with it. What the other side sends ends neither process: only that it has closed is a reason to end."""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any

#: a file's path (4096) and a user's name fit
MESSAGE_BYTES_MAX = 16 * 1024

Message = dict[str, Any]


class GoneError(Exception):
    """The other side has closed."""


class NotMessageError(Exception):
    """A packet that is too long or no JSON object; later ones may be messages."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: Message, fd: int = -1) -> None:
    """Sends a message, and a copy of a descriptor. Raises GoneError; NotMessageError: it is too long to be sent."""
    data = json.dumps(message).encode()
    if len(data) > MESSAGE_BYTES_MAX:
        raise NotMessageError(f"a message has {len(data)} bytes, at most {MESSAGE_BYTES_MAX} are sent")
    try:
        if fd >= 0:
            socket.send_fds(sock, [data], [fd])
        else:
            sock.send(data)
    except OSError as error:
        raise GoneError(str(error)) from error


def receive(sock: socket.socket) -> Message:
    """A request; the kernel closes descriptors that come with it, so that no client fills the receiver's table.

    Raises GoneError, NotMessageError. BlockingIOError: there is none yet.
    """
    return _receive(sock, 0)[0]


def receive_answer(sock: socket.socket) -> tuple[Message, int]:
    """An answer and the descriptor with it (-1: none), which is the caller's to close. Raises as receive() does."""
    message, fds = _receive(sock, 1)
    return message, fds[0] if fds else -1


def _receive(sock: socket.socket, fds_max: int) -> tuple[Message, list[int]]:
    try:
        data, fds, flags, _address = socket.recv_fds(sock, MESSAGE_BYTES_MAX, fds_max)
    except BlockingIOError:
        raise
    except OSError as error:
        raise GoneError(str(error)) from error
    if not data and not fds and _has_closed(sock):
        raise GoneError("closed")
    try:
        message = None if flags & socket.MSG_TRUNC else json.loads(data)
    except (ValueError, RecursionError):  # RecursionError: a few thousand brackets
        message = None
    if not isinstance(message, dict):
        for fd in fds:
            os.close(fd)
        raise NotMessageError("not a message")
    return message, fds


def _has_closed(sock: socket.socket) -> bool:
    """Whether nothing comes any more: an empty packet reads like the end."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))
