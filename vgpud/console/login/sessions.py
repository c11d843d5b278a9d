"""One-time links and sessions. Pure: the time is an argument.

Tokens are kept as SHA-256 digests only, so looking one up takes the same time whatever it resembles.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

#: a link is for now, and for the user who asked for it
LINK_NS = 60 * 10**9
#: a session ends when no page has used it for this long, and after a working day in any case
IDLE_NS, SESSION_NS = 3600 * 10**9, 12 * 3600 * 10**9
#: of one user: the oldest ends when there is one more
LINKS_MAX, SESSIONS_MAX = 5, 32


@dataclass
class Session:
    """A browser that has logged in as this user. source: whose connections may use it, "" = all."""

    uid: int
    name: str
    csrf: str
    source: str
    began_ns: int
    used_ns: int

    def has_ended(self, now_ns: int) -> bool:
        return now_ns - self.used_ns > IDLE_NS or now_ns - self.began_ns > SESSION_NS


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


class Sessions:
    """Links and sessions by their tokens. `make_token`: a new secret each time."""

    def __init__(self, make_token: Callable[[], str]) -> None:
        self._make_token = make_token
        self._links: OrderedDict[bytes, tuple[int, str, int]] = OrderedDict()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def link(self, uid: int, name: str, now_ns: int) -> str:
        """A token that logs this user in once."""
        self._links = OrderedDict((k, v) for k, v in self._links.items() if now_ns - v[2] <= LINK_NS)
        own = [key for key, link in self._links.items() if link[0] == uid]
        for key in own[: max(0, len(own) - LINKS_MAX + 1)]:
            del self._links[key]
        token = self._make_token()
        self._links[_digest(token)] = uid, name, now_ns
        return token

    def redeem_link(self, token: str, now_ns: int, source: str = "") -> str | None:
        """Uses a link up. Returns the cookie of the new session; None: it was used before, is too old or unknown."""
        link = self._links.pop(_digest(token), None)
        if link is None or now_ns - link[2] > LINK_NS:
            return None
        return self.open(link[0], link[1], now_ns, source)

    def open(self, uid: int, name: str, now_ns: int, source: str = "") -> str:
        """Begins a session for connections of this source. Returns its cookie."""
        self.expire(now_ns)
        own = [key for key, session in self._sessions.items() if session.uid == uid]
        for key in own[: max(0, len(own) - SESSIONS_MAX + 1)]:
            del self._sessions[key]
        cookie = self._make_token()
        self._sessions[_digest(cookie)] = Session(uid, name, self._make_token(), source, now_ns, now_ns)
        return cookie

    def get(self, cookie: str, now_ns: int, source: str = "", *, is_use: bool = True) -> Session | None:
        """The session of a cookie that has come from this source. It counts as used now; not if `is_use` is False: an
        open stream only looks whether it still has its session."""
        session = self._sessions.get(_digest(cookie))
        if session is None or session.has_ended(now_ns) or session.source not in ("", source):
            return None
        if is_use:
            session.used_ns = now_ns
        return session

    def close(self, cookie: str) -> None:
        self._sessions.pop(_digest(cookie), None)

    def expire(self, now_ns: int) -> None:
        """Forgets what has ended."""
        for key in [key for key, session in self._sessions.items() if session.has_ended(now_ns)]:
            del self._sessions[key]

    def uids(self) -> set[int]:
        """Users with a session."""
        return {session.uid for session in self._sessions.values()}
