"""Which session, and which of its ports, a request is for: by its path. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vgpud.console.sessions.headers import is_within
from vgpud.core.jobs import session
from vgpud.core.units import parse_whole

PREFIX = "/session/"
_JOB_MAX = (1 << 63) - 1
_FIRST = re.compile("([0-9]+)(?:-([a-z][a-z0-9]*))?")


@dataclass(frozen=True, slots=True)
class Address:
    """`port_name`: of one of its further ports, "" = its own."""

    job_id: int
    port_name: str = ""

    @property
    def base(self) -> bytes:
        """The path below which its program serves."""
        return session.base_path(self.job_id, self.port_name).encode()


def parse_name(name: str) -> Address | None:
    """7, or 7-tb; None: it names no session."""
    match = _FIRST.fullmatch(name)
    job_id = parse_whole(match[1], _JOB_MAX) if match else None
    return Address(job_id, match[2] or "") if match and job_id else None


def parse_path(raw_path: bytes) -> Address | None:
    """Of a path as the browser wrote it; None: it is no path of a session, or leaves it."""
    first, _, _ = raw_path.removeprefix(PREFIX.encode()).partition(b"/")
    found = parse_name(first.decode("latin-1"))
    return found if found and is_within(raw_path, found.base) else None
