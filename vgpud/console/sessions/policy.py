"""What a session's page may do in the browser while it has the console's origin: it talks to its own session, and
never reads the console's pages, whose forms act for the user. Pure.

Browsers check this (Content-Security-Policy), not the program: the policy stands beside the program's own, and both
hold. A policy is checked by path until a redirect, so a session's redirects stay below its path, too.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from vgpud.console.sessions.headers import Headers, is_within

#: an address of another host, as plain as programs write it: browsers read others in more ways than this process does
_ABSOLUTE = re.compile(rb"https?://[A-Za-z0-9.-]+(:[0-9]+)?([/?#][!-~]*)?")
#: one without a scheme and without a host: a path without : and backslashes, then a query or a fragment
_RELATIVE = re.compile(rb"(?:[A-Za-z0-9._~%-][!-\"$-9;->@-\[\]-~]*)?(?:[?#][!-\[\]-~]*)?")
#: a host that a policy can name: an address of IPv6 is none
_NAMEABLE = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?")
#: what only the console says of a page that has its origin
_SAID_BY_CONSOLE = frozenset((b"x-frame-options", b"referrer-policy", b"cross-origin-resource-policy"))


def apply_policy(answer: Headers, base: bytes, host: str, *, has_tls: bool) -> Headers:
    """The headers of a session's answer as a browser gets them below the console's path `base`. `host`: the console, as
    the browser wrote it; `has_tls`: browsers reach it by https."""
    passed = [
        (name, value)
        for name, value in answer
        if name not in _SAID_BY_CONSOLE and (name != b"location" or stays_inside(value, base, host))
    ]
    return [*passed, *_make_policy(base.decode(), host, has_tls=has_tls)]


def _make_policy(base: str, host: str, *, has_tls: bool) -> Headers:
    """By https a policy cannot let a page talk to all other hosts by https, and not to the console."""
    own = [f"{scheme}://{host}{base}" for scheme in (("https", "wss") if has_tls else ("http", "ws"))]
    if not _NAMEABLE.fullmatch(host):
        own = ["'self'"]
    others = [] if has_tls else ["https:", "wss:"]
    connect = " ".join([*own, *others, "blob:", "data:"])
    return [
        (b"content-security-policy", f"connect-src {connect}; frame-ancestors 'self'".encode()),
        (b"x-frame-options", b"SAMEORIGIN"),
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]


def stays_inside(location: bytes, base: bytes, host: str) -> bool:
    """Whether a redirect leads below the base, or to another host than the console's."""
    if location.startswith(b"/"):
        return is_within(location, base)
    if _ABSOLUTE.fullmatch(location):
        parts = urlsplit(location.decode("ascii"))
        if parts.hostname != _hostname(host):
            return True
        return is_within((parts.path or "/").encode(), base)
    return bool(_RELATIVE.fullmatch(location)) and is_within(base + location.partition(b"?")[0], base)


def _hostname(host: str) -> str:
    return urlsplit(f"//{host}").hostname or ""
