"""Who is at a port of this machine: the token of a session or a service is for no program of another user."""

from __future__ import annotations

import os

from vgpud.host import listeners


def find_listener(port: int) -> int | None:
    """The uid whose program listens at this port of 127.0.0.1; None: no program does."""
    return listeners.listener_uid(port)


def may_serve(uid: int | None, owner: int, *, is_published: bool) -> bool:
    """Whether a program of this user may be shown the owner's token; `is_published`: by a container engine."""
    return listeners.may_serve(uid, owner, is_published=is_published)


def is_own(peer: tuple[str, int] | None, own: tuple[str, int] | None) -> bool:
    """Whether a connection with these two ends, ours the second, is one of this user's programs."""
    try:
        return bool(peer and own) and listeners.source_between(peer, own) == os.geteuid()  # type: ignore[arg-type]
    except OSError:  # it has gone
        return False
