"""Ports for servers that accept only a number. None of those that the kernel gives to connections: on a busy
machine one of these is taken again before the server binds it."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

#: below them other servers have well-known ones
FIRST = 20_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


def find_free_ports(count: int) -> list[int]:
    """That many, on which no process listens."""
    end = max(FIRST + 1000, int(_RANGE.read_text().split()[0]))
    numbers = random.SystemRandom().sample(range(FIRST, end), _TRIES)
    with ExitStack() as held:
        return [port for port in numbers if _is_free(port, held)][:count]


def _is_free(port: int, held: ExitStack) -> bool:
    sock = held.enter_context(socket.socket())
    try:
        sock.bind(("", port))
    except OSError:
        return False
    return True
