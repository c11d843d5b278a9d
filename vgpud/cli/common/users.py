"""Users by name: as options take them, and in texts. The daemon has numbers only: a lookup may ask a network."""

from __future__ import annotations

import click

from vgpud.cli.common.quantities import IntParam
from vgpud.core.units import parse_whole

UID_MAX = (1 << 32) - 2
ANY_USER = -1


class User(IntParam):
    """A user's name or uid."""

    name = "user"
    also = ""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        import pwd

        text = str(value)
        uid = parse_whole(text.removeprefix("uid:"), UID_MAX)  # uid:1000 is how tables show a user without a name
        if uid is not None:
            return uid
        try:
            return pwd.getpwnam(text).pw_uid
        except (KeyError, ValueError):  # or one with a zero byte
            self.fail(f"there is no user {text!r}: give a user name{self.also or ' or a uid'}", param, ctx)


class Owner(User):
    """A user's name or uid, or "any" (ANY_USER)."""

    also = ", a uid or any"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return ANY_USER if str(value) == "any" else super().convert(value, param, ctx)
