"""One-time links, sessions and the rate limit of log-ins. Pure: the time is an argument.

Tokens are kept as SHA-256 digests only, so looking one up takes the same time whatever it resembles.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

#: a link is for now, and for the user who asked for it
LINK_NS = 60 * 10**9
#: a session ends when no page has used it for this long, and after a working day in any case
IDLE_NS, SESSION_NS = 3600 * 10**9, 12 * 3600 * 10**9
#: of one user: the oldest ends when there is one more
LINKS_MAX, SESSIONS_MAX = 5, 32
#: failed log-ins by name and by address, and of all, within a minute
FAILURES_MAX, ALL_FAILURES_MAX, WINDOW_NS = 5, 60, 60 * 10**9
#: names and addresses whose failures are remembered
REMEMBERED_MAX = 4096


@dataclass
class Session:
    """A browser that has logged in as this user. source: whose connections may use it, "" = all."""

    uid: int
    name: str
    csrf: str
    source: str
    began_ns: int
    used_ns: int

    def ended(self, now_ns: int) -> bool:
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

    def redeem(self, token: str, now_ns: int, source: str = "") -> str | None:
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

    def get(self, cookie: str, now_ns: int, source: str = "") -> Session | None:
        """The session of a cookie that has come from this source; it counts as used now."""
        session = self._sessions.get(_digest(cookie))
        if session is None or session.ended(now_ns) or session.source not in ("", source):
            return None
        session.used_ns = now_ns
        return session

    def close(self, cookie: str) -> None:
        self._sessions.pop(_digest(cookie), None)

    def expire(self, now_ns: int) -> None:
        """Forgets what has ended."""
        for key in [key for key, session in self._sessions.items() if session.ended(now_ns)]:
            del self._sessions[key]

    def uids(self) -> set[int]:
        """Users with a session."""
        return {session.uid for session in self._sessions.values()}


class Failures:
    """Failed log-ins of the last minute. At the limit, the next attempt is refused before the password is looked at."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[Hashable, deque[int]] = OrderedDict()
        self._all: deque[int] = deque()

    def wait_ns(self, keys: tuple[Hashable, ...], now_ns: int) -> int:
        """How long these (a name, an address) must wait before the next attempt; 0 = not at all."""
        waits = [self._wait(self._by_key.get(key), FAILURES_MAX, now_ns) for key in keys]
        return max([*waits, self._wait(self._all, ALL_FAILURES_MAX, now_ns)])

    @staticmethod
    def _wait(times: deque[int] | None, most: int, now_ns: int) -> int:
        while times and now_ns - times[0] > WINDOW_NS:
            times.popleft()
        return times[0] + WINDOW_NS - now_ns if times and len(times) >= most else 0

    def add(self, keys: tuple[Hashable, ...], now_ns: int) -> None:
        self._all.append(now_ns)
        for key in keys:
            self._by_key.setdefault(key, deque()).append(now_ns)
            self._by_key.move_to_end(key)
        while len(self._by_key) > REMEMBERED_MAX:
            self._by_key.popitem(last=False)
