"""Names of users in texts. The daemon has numbers only: a lookup may ask a network."""

from __future__ import annotations

import functools
from typing import Any

from vgpud.core.user_text import name_users


@functools.lru_cache(maxsize=1024)
def _name(uid: int) -> str:
    """The name of the user, "" for one without."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""


def find_user_name(uid: int | None) -> str | None:
    """For documents, beside the number: ann, or None for a user without a name and for None, every user."""
    return None if uid is None else _name(uid) or None


def add_user_name(row: dict[str, Any]) -> dict[str, Any]:
    """The object of a document with the name beside the number; as it is where it has no number."""
    return row | {"user": find_user_name(row["uid"])} if "uid" in row else row


def user_name(uid: int | None) -> str:
    """One word: ann, uid:1000 for a user without a name, or anyone for None."""
    return "anyone" if uid is None else _name(uid) or f"uid:{uid}"


def named_users(text: str) -> str:
    """A sentence of the daemon with the names of users instead of their numbers: `uid 1000` is `user ann`."""
    return name_users(text, _name)
