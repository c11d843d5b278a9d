"""Who may enter a session: its user, by the console's log-in, or whoever has a shared link to it. At the console's own
host below /session/JOB/, or at the session's host, if the site has names for sessions."""

from __future__ import annotations

import time
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from vgpud.console.login.client import RefusedError, User
from vgpud.console.sessions import own_hosts
from vgpud.console.sessions.address import Address
from vgpud.console.sessions.headers import SHARE_COOKIE, is_within
from vgpud.console.sessions.own_hosts import Domain, Entries
from vgpud.console.web.site import enter, site_of, user_of

#: a link is short: a longer one is none
_SECRET_CHARS_MAX = 128
_GONE = "This link has ended, or was revoked: ask for another one."


class Entrance:
    """`domain`: of sessions' own host names."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._entries = Entries(time.monotonic)

    async def enter(self, request: Request, address: Address, at_own_host: bool) -> Response | None:
        """Sets request.state.user and .board, or returns the way there."""
        if at_own_host:
            return await self._enter_host(request, address)
        shared = await _find_shared(request, address)
        away = await _act_as(request, shared) if shared else await enter(request)
        if away is not None or not self.domain.name:
            return away
        if request.method != "GET":
            return PlainTextResponse("This session has a host name of its own: load its page again.", 401)
        return self._lead_to_host(user_of(request), address, _raw_target(request))

    async def _enter_host(self, request: Request, address: Address) -> Response | None:
        site = site_of(request)
        user = self._entries.find(request.cookies.get(self._cookie(request), ""), address, site.source(request))
        if user and await site.broker.is_in(user, is_use=True):
            return await _act_as(request, user)
        if request.method != "GET" or request.headers.get("sec-fetch-dest", "document") != "document":
            return PlainTextResponse("log in again", 401)
        return RedirectResponse(f"{self.domain.url}{address.base.decode()}", 303)

    def redeem(self, request: Request, address: Address) -> Response:
        """The session's host takes over who has come from the console."""
        site = site_of(request)
        ticket = request.query_params.get("ticket", "")
        cookie = self._entries.redeem(ticket, address, site.source(request))
        if cookie is None:
            return RedirectResponse(f"{self.domain.url}{address.base.decode()}", 303)
        path = request.query_params.get("to", "")
        base = address.base.decode()
        answer = RedirectResponse(path if is_within(path.encode(), address.base) else base, 303)
        answer.set_cookie(self._cookie(request), cookie, path="/", httponly=True, samesite="lax", secure=site.secure)
        return answer

    def _cookie(self, request: Request) -> str:
        return own_hosts.COOKIE_TLS if site_of(request).secure else own_hosts.COOKIE

    def _lead_to_host(self, user: User, address: Address, target: str) -> Response:
        ticket = self._entries.make_ticket(user, address)
        to = quote(target, safe="")
        return RedirectResponse(f"{self.domain.url_of(address)}{own_hosts.ENTER_PATH}?ticket={ticket}&to={to}", 303)

    # ---- shared links ----

    async def open_share(self, request: Request) -> Response:
        """GET /share/SECRET: the page of the session that it is a link to."""
        site = site_of(request)
        secret = request.path_params["secret"]
        shared = await site.broker.shared(secret, site.source(request)) if len(secret) <= _SECRET_CHARS_MAX else None
        if shared is None:
            return PlainTextResponse(_GONE, 404)
        user, job_id = shared
        address = Address(job_id)
        if self.domain.name:
            return self._lead_to_host(user, address, address.base.decode())
        answer = RedirectResponse(address.base.decode(), 303)
        name = f"{SHARE_COOKIE.decode()}{job_id}"
        answer.set_cookie(name, secret, path="/session/", httponly=True, samesite="lax", secure=site.secure)
        return answer


def _raw_target(request: Request) -> str:
    """Path and query as the browser wrote them."""
    query: bytes = request.scope["query_string"]
    path: bytes = request.scope.get("raw_path") or b""
    return (path + (b"?" + query if query else b"")).decode("latin-1")


async def _find_shared(request: Request, address: Address) -> User | None:
    """Whom another person acts as, who has a shared link to this session."""
    site = site_of(request)
    secret = request.cookies.get(f"{SHARE_COOKIE.decode()}{address.job_id}", "")
    shared = await site.broker.shared(secret, site.source(request)) if secret else None
    return shared[0] if shared and shared[1] == address.job_id else None


async def _act_as(request: Request, user: User) -> Response | None:
    request.state.user = user
    try:
        request.state.board = await site_of(request).boards.of(user)
        await request.state.board.ready()
    except RefusedError as error:
        return PlainTextResponse(str(error), 403)
    return None
