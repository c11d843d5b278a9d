"""Ports of 127.0.0.1 for sessions, and how the port of an attempt is kept among the facts of its job."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Mapping

from vgpud.jobs.runner import StartError

#: below the ports that the kernel takes for outgoing connections (ip_local_port_range begins at 32768)
FIRST, LAST = 20_000, 29_999
_TRIES_MAX = 200


def choose() -> int:
    """A port that no program listens on. Another one may take it before the session does: the session then ends with
    its own error, and the console passes nothing on to a program of another user. Raises StartError."""
    for port in random.sample(range(FIRST, LAST + 1), _TRIES_MAX):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    continue
                raise StartError(f"no port for the session: {error.strerror}", may_retry=True) from error
            return port
    raise StartError(f"the ports {FIRST} to {LAST} of 127.0.0.1 are taken: end programs that listen", may_retry=True)


def as_facts(port: int, attempt: int) -> dict[str, int | str]:
    return {"session_port": port, "session_attempt": attempt}


def known_port(facts: Mapping[str, int | str], attempt: int) -> int:
    """The port that this attempt was given; 0: none."""
    return int(facts.get("session_port", 0)) if int(facts.get("session_attempt", 0)) == attempt else 0
