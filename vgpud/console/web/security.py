"""Headers of every answer, and what is refused before a page is asked: foreign hosts, foreign origins, large bodies.

The policy allows scripts and styles from this host only: nothing inline, no frames, no other origin. A page that slips
through unescaped could still run nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
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
#: of a form
BODY_BYTES_MAX = 256 * 1024


class Guard:
    """ASGI middleware. hosts: names by which the console is reached; a page of another site that points a name of its
    own at this address gets no answer."""

    def __init__(self, app: App, hosts: frozenset[str], secure: bool) -> None:
        self._app = app
        self._hosts = hosts
        extra = {"strict-transport-security": "max-age=31536000"} if secure else {}
        self._headers = [(k.encode(), v.encode()) for k, v in {**HEADERS, **extra}.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {k: v.decode("latin-1") for k, v in scope["headers"]}

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                names = {k.lower() for k, _ in message["headers"]}
                message["headers"] = [*message["headers"], *((k, v) for k, v in self._headers if k not in names)]
                if b"cache-control" not in names:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        why = self._why_not(scope["method"], headers)
        if why:
            await _refuse(send_with_headers, *why)
            return
        await self._app(scope, _limit_body(receive), send_with_headers)

    def _why_not(self, method: str, headers: dict[bytes, str]) -> tuple[int, str] | None:
        host = headers.get(b"host", "")
        if _name(host) not in self._hosts:
            return 421, "This console is not reached by that name: see --url of vgpu console serve."
        if method in ("GET", "HEAD"):
            return None
        site = headers.get(b"sec-fetch-site")
        origin = headers.get(b"origin")
        foreign = site not in (None, "same-origin", "none") or (origin and origin.partition("://")[2] != host)
        if foreign:
            return 403, "This request was made by another site."
        if parse_whole(headers.get(b"content-length") or "0", BODY_BYTES_MAX) is None:
            return 413, "The form is too large."
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
