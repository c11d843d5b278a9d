"""Headers of every answer, and what is refused before a page is asked: foreign hosts, foreign origins, large bodies.

The policy allows scripts and styles from this host only: nothing inline, no frames, no other origin. A page that slips
through unescaped could still run nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from vgpud.core.units import parse_whole

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
#: where requests are passed on to the programs of sessions and of services
SESSION_PREFIX, SERVICE_PREFIX = "/session/", "/service/"
#: of a form
BODY_BYTES_MAX = 256 * 1024


class Guard:
    """ASGI middleware. hosts: names by which the console is reached; a page of another site that points a name of its
    own at this address gets no answer."""

    def __init__(
        self, app: App, hosts: frozenset[str], secure: bool, is_session_host: Callable[[str], bool] = lambda _: False
    ) -> None:
        """`is_session_host`: whether a Host header names a session's own host."""
        self._app = app
        self._hosts = hosts
        self._is_session_host = is_session_host
        extra = {"strict-transport-security": "max-age=31536000"} if secure else {}
        self._headers = [(k.encode(), v.encode()) for k, v in {**HEADERS, **extra}.items()]
        #: what a session answers has a policy of its own: console/sessions/policy.py
        self._session_headers = [(k.encode(), v.encode()) for k, v in extra.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        headers = {k: v.decode("latin-1") for k, v in scope["headers"]}

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                names = {k.lower() for k, _ in message["headers"]}
                added = self._session_headers if scope["state"].get("passed") else self._headers
                message["headers"] = [*message["headers"], *((k, v) for k, v in added if k not in names)]
                if b"cache-control" not in names:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        at_session_host = self._is_session_host(headers.get(b"host", ""))
        scope["state"]["at_session_host"] = at_session_host
        is_form = not at_session_host and not is_of_session(scope)
        why = self._why_not(scope["method"], headers, is_form, at_session_host)
        if why:
            await _refuse(send_with_headers, *why)
            return
        await self._app(scope, _limit_body(receive) if is_form else receive, send_with_headers)

    def _why_not(
        self, method: str, headers: dict[bytes, str], is_form: bool, at_session_host: bool
    ) -> tuple[int, str] | None:
        hosts = frozenset({_name(headers[b"host"])}) if at_session_host else self._hosts
        if method in ("GET", "HEAD") and (is_form or _is_link(headers)):
            return _why_not_host(hosts, headers)
        why = why_foreign(hosts, headers)
        if why:
            return why
        if is_form and parse_whole(headers.get(b"content-length") or "0", BODY_BYTES_MAX) is None:
            return 413, "The form is too large."
        return None


def is_of_session(scope: Mapping[str, Any]) -> bool:
    """Whether a request is for the program of a session or a service, whose bodies are passed on piece by piece."""
    return str(scope["path"]).startswith((SESSION_PREFIX, SERVICE_PREFIX))


def _is_link(headers: dict[bytes, str]) -> bool:
    """Whether a page is opened: other sites may lead to a session, and neither read nor embed it."""
    return headers.get(b"sec-fetch-mode") == "navigate" and headers.get(b"sec-fetch-dest") == "document"


def _why_not_host(hosts: frozenset[str], headers: dict[bytes, str]) -> tuple[int, str] | None:
    if _name(headers.get(b"host", "")) in hosts:
        return None
    return 421, "This console is not reached by that name: see --url of vgpu console serve."


def why_foreign(hosts: frozenset[str], headers: dict[bytes, str]) -> tuple[int, str] | None:
    """Why a request that may change something, or a WebSocket, is refused: status and sentence."""
    why = _why_not_host(hosts, headers)
    if why:
        return why
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site not in (None, "same-origin", "none") or (origin and origin.partition("://")[2] != headers[b"host"]):
        return 403, "This request was made by another site."
    return None


class TooLargeError(Exception):
    """A body without a length that is longer than allowed."""


def _limit_body(receive: Receive) -> Receive:
    size = 0

    async def receive_within_limit() -> MutableMapping[str, Any]:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES_MAX:
            raise TooLargeError
        return message

    return receive_within_limit


def _name(host: str) -> str:
    """The host without its port."""
    return host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0].lower()


async def _refuse(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
