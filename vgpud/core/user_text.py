"""Users in sentences: the daemon writes `uid 1000`, people read `user ann`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

#: not one that stands in brackets behind the user's name already
_UID = re.compile(r"(?<!\()\buid (\d{1,10})\b")


def name_users(text: str, find_name: Callable[[int], str]) -> str:
    """The sentence with the names of users in place of their numbers; `find_name` returns "" for a user without one."""
    return _UID.sub(lambda found: f"user {name}" if (name := find_name(int(found[1]))) else found[0], text)
