"""Host names of sessions' own, session-7.DOMAIN: which one a request is for, and who has entered it. Pure.

A browser keeps the pages of such a host apart from the console's, so their scripts can do nothing with the console's
log-in. It sends the console's cookie to the console only: a ticket, which works once, takes a log-in over.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from vgpud.console.login.client import User
from vgpud.console.sessions.address import Address, parse_name

#: the first label of the name, before the session's
_LABEL = "session-"
#: of the session's host itself: everything else is its program's
ENTER_PATH = "/.vgpu/enter"
COOKIE, COOKIE_TLS = "vgpu-session", "__Host-vgpu-session"
TICKET_S = 60.0
ENTRIES_MAX = 4096
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Domain:
    """`name`: below which sessions have names, "" = they have none; `url`: the console's."""

    name: str
    url: str

    def parse_host(self, host: str) -> Address | None:
        """The session that a Host header names."""
        label, dot, rest = host.lower().partition(".")
        if not self.name or not dot or not label.startswith(_LABEL):
            return None
        return parse_name(label.removeprefix(_LABEL)) if rest.partition(":")[0] == self.name else None

    def has_host(self, host: str) -> bool:
        return self.parse_host(host) is not None

    def url_of(self, address: Address) -> str:
        """Without a path; at the console's port."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        label = f"{_LABEL}{address.job_id}" + (f"-{address.port_name}" if address.port_name else "")
        return f"{parts.scheme}://{label}.{self.name}{port}"


#: of a site without names for sessions
NO_DOMAIN = Domain("", "")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


class Entries:
    """Tickets, and the cookies that they were exchanged for. `now_s`: a clock that never goes back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._tickets: OrderedDict[bytes, tuple[User, Address, float]] = OrderedDict()
        self._entered: OrderedDict[bytes, tuple[User, Address]] = OrderedDict()

    def make_ticket(self, user: User, address: Address) -> str:
        ticket = secrets.token_urlsafe(_TOKEN_BYTES)
        self._tickets[_digest(ticket)] = user, address, self._now_s()
        while len(self._tickets) > ENTRIES_MAX:
            self._tickets.popitem(last=False)
        return ticket

    def redeem(self, ticket: str, address: Address, source: str) -> str | None:
        """Uses a ticket up. Returns the cookie for this session's host; None: it was used before, is too old, or of
        another session or another source."""
        user, its_address, made_s = self._tickets.pop(_digest(ticket), (None, None, 0.0))
        if user is None or its_address != address or user.source != source or self._now_s() - made_s > TICKET_S:
            return None
        cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        self._entered[_digest(cookie)] = user, address
        while len(self._entered) > ENTRIES_MAX:
            self._entered.popitem(last=False)
        return cookie

    def find(self, cookie: str, address: Address, source: str) -> User | None:
        """Who has entered this session's host with this cookie, over connections of this source; whether they are still
        logged in, the broker knows."""
        key = _digest(cookie)
        user, its_address = self._entered.get(key, (None, None))
        if user is None or its_address != address or user.source != source:
            return None
        self._entered.move_to_end(key)
        return user

    def forget(self, cookie: str) -> None:
        self._entered.pop(_digest(cookie), None)
