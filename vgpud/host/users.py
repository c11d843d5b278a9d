"""The users of this machine, as its name service knows them."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

#: the file of a machine's own users; those of a directory service are not in it
PASSWD = Path("/etc/passwd")
_PASSWD_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class User:
    """A user with all groups."""

    name: str
    uid: int
    gid: int
    gids: tuple[int, ...]  # further groups


def find(name: str) -> User | None:
    """The user of this name, None if there is none. May wait for a name service: call it in a thread."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a NUL byte
        return None
    groups = tuple(gid for gid in os.getgrouplist(name, entry.pw_gid) if gid != entry.pw_gid)
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid, groups)


def find_by_uid(uid: int) -> User | None:
    """The same by the uid."""
    name = name_of(uid)
    return find(name) if name else None


def name_of(uid: int) -> str:
    """The name of the user with this uid, "" if there is none. May wait as find() does."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


class LocalNames:
    """Names of the users in /etc/passwd, read again when the file changes. Never waits for a name service."""

    def __init__(self, path: Path = PASSWD) -> None:
        self._path = path
        self._read_of: tuple[int, int] | None = None
        self._names: dict[int, str] = {}

    def find(self, uid: int) -> str:
        """The user's name, "" for one that is not in the file."""
        try:
            info = self._path.stat()
            if (info.st_mtime_ns, info.st_size) != self._read_of:
                self._read_of = info.st_mtime_ns, info.st_size
                self._names = self._read()
        except OSError:
            self._names = {}
        return self._names.get(uid, "")

    def _read(self) -> dict[int, str]:
        """The first name of each number, as the C library has it."""
        with self._path.open(encoding="utf-8", errors="replace") as file:
            rows = [line.split(":") for line in file.read(_PASSWD_BYTES_MAX).splitlines()]
        return {int(row[2]): row[0] for row in reversed(rows) if len(row) == 7 and row[2].isdecimal() and row[0]}
