"""Users by name: as options take them, and in texts. The daemon has numbers only: a lookup may ask a network."""

from __future__ import annotations

import functools
import re

import click

from vgpud.cli.common.quantities import IntParam
from vgpud.core.units import parse_whole

UID_MAX = (1 << 32) - 2

_UID = re.compile(r"\buid (\d{1,10})\b")


@functools.lru_cache(maxsize=1024)
def _name(uid: int) -> str:
    """The name of the user, "" for one without."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""


def user_name(uid: int) -> str:
    """One word: ann, uid:1000 for a user without a name, or anyone."""
    return "anyone" if uid < 0 else _name(uid) or f"uid:{uid}"


def named_users(text: str) -> str:
    """A sentence of the daemon with the names of users instead of their numbers: `uid 1000` is `user ann`."""
    return _UID.sub(lambda found: f"user {name}" if (name := _name(int(found[1]))) else found[0], text)


class User(IntParam):
    """A user's name or uid."""

    name = "user"
    also = ""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        import pwd

        text = str(value)
        uid = parse_whole(text, UID_MAX)
        if uid is not None:
            return uid
        try:
            return pwd.getpwnam(text).pw_uid
        except (KeyError, ValueError):  # or one with a zero byte
            self.fail(f"there is no user {text!r}: give a user name{self.also or ' or a uid'}", param, ctx)


class Owner(User):
    """A user's name or uid, or "any" (-1)."""

    also = ", a uid or any"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return -1 if str(value) in ("any", "-1") else super().convert(value, param, ctx)
