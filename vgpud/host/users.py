"""The users of this machine, as its name service knows them."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass


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


def name_of(uid: int) -> str:
    """The name of the user with this uid, "" if there is none. May wait as find() does."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
