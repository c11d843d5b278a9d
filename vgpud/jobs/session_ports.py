"""Ports of 127.0.0.1 for sessions: who has which, and how those of an attempt are kept among the facts of its job."""

from __future__ import annotations

import errno
import random
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpud.jobs.runner import StartError

#: below the ports that the kernel takes for outgoing connections (ip_local_port_range begins at 32768)
FIRST, LAST = 20_000, 29_999
#: of them one user's sessions have so many at once
USER_PORTS_MAX = 1000
_TRIES_MAX = 200
_SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Ports:
    """Those of one session: its own, and its further ones by name."""

    own: int
    by_name: tuple[tuple[str, int], ...] = ()

    def __iter__(self) -> Iterator[int]:
        return iter((self.own, *(port for _, port in self.by_name)))


class SessionPorts:
    """The ports of sessions that run. A program may take one before the session does: the session then ends with its
    own error, and neither the console nor `vgpu` sends anything to a program of another user."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, Ports]] = {}  # by job: its user's uid

    def choose(self, job_id: int, uid: int, names: Sequence[str]) -> Ports:
        """Free ports, held for this job until release(). Raises StartError."""
        self.release(job_id)
        held = [(owner, ports) for owner, ports in self._held.values()]
        own_count = sum(len([*ports]) for owner, ports in held if owner == uid)
        if own_count + 1 + len(names) > USER_PORTS_MAX:
            text = f"sessions of uid {uid} have {own_count} ports, of {USER_PORTS_MAX} that one user may have"
            raise StartError(f"{text}: stop some (`vgpu session ls`)", may_retry=True)
        taken = {port for _, ports in held for port in ports}
        free = _find_free(taken, 1 + len(names))
        made = Ports(free[0], tuple(zip(names, free[1:], strict=True)))
        self.hold(job_id, uid, made)
        return made

    def hold(self, job_id: int, uid: int, ports: Ports) -> None:
        self._held[job_id] = uid, ports

    def release(self, job_id: int) -> None:
        self._held.pop(job_id, None)


def _find_free(held_ports: set[int], count: int) -> list[int]:
    """So many ports that no session has and no program listens on. Raises StartError."""
    found: list[int] = []
    for port in random.sample(range(FIRST, LAST + 1), _TRIES_MAX):
        if port not in held_ports and _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    text = f"the ports {FIRST} to {LAST} of 127.0.0.1 are taken{_describe_holder()}: end programs that listen"
    raise StartError(text, may_retry=True)


def _is_free(port: int) -> bool:
    """Raises StartError."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise StartError(f"no port for the session: {error.strerror}", may_retry=True) from error
    return True


def _describe_holder() -> str:
    """The user whose programs listen at most of them, as the end of a phrase."""
    uids: Counter[int] = Counter()
    for path in _SOCKETS:
        try:
            lines = Path(path).read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            port = int(words[1].rpartition(":")[2], 16)
            if words[3] == _LISTEN and FIRST <= port <= LAST:
                uids[int(words[7])] += 1
    if not uids:
        return ""
    uid, count = uids.most_common(1)[0]
    return f" (at {count} of them programs of uid {uid} listen)"


# ---- in the store ----


def as_facts(ports: Ports, attempt: int) -> dict[str, int | str]:
    named = ",".join(f"{name}={port}" for name, port in ports.by_name)
    return {"session_port": ports.own, "session_named_ports": named, "session_attempt": attempt}


def known_ports(facts: Mapping[str, int | str], attempt: int) -> Ports | None:
    """The ports that this attempt was given; None: none."""
    own = int(facts.get("session_port", 0))
    if not own or int(facts.get("session_attempt", 0)) != attempt:
        return None
    pairs = (pair.partition("=") for pair in str(facts.get("session_named_ports", "")).split(",") if pair)
    return Ports(own, tuple((name, int(port)) for name, _, port in pairs))
