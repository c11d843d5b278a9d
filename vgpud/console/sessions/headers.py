"""Headers of what is passed on between a browser and a session, in both directions. Pure.

The console's cookies never reach a session, and a session can set none that the browser would send to the console's
pages, or that is taken for one of the console's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes

Headers = list[tuple[bytes, bytes]]
#: of a shared link, before the session's number
SHARE_COOKIE = b"vgpu-share-"
#: the console's own cookies, with TLS and without; those of shared links have names of their own
_CONSOLE_COOKIES = frozenset(
    (b"vgpu", b"__host-vgpu", b"theme", b"vgpu-session", b"__host-vgpu-session", b"vgpu-openid", b"__host-vgpu-openid")
)
#: of one connection, not of a message (RFC 9110, 7.6.1)
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization")
) | frozenset((b"te", b"trailer", b"transfer-encoding", b"upgrade"))
#: what only the console may say of a browser
_SAID_BY_PROXIES = (b"x-forwarded-", b"x-real-ip", b"forwarded")
#: what a session may not say for the whole host; the server adds a date
_FOR_THE_HOST = frozenset(
    (b"service-worker-allowed", b"clear-site-data", b"strict-transport-security", b"alt-svc", b"nel", b"report-to")
) | frozenset((b"reporting-endpoints", b"date"))
#: browsers believe such names more than others
_TRUSTED_PREFIXES = (b"__host-", b"__secure-")


def to_session(headers: Iterable[tuple[bytes, bytes]], token: tuple[str, str], scheme: str) -> Headers:
    """A browser's headers as a session gets them. `token`: the header that shows the session its own token."""
    given = list(headers)
    hidden = _HOP_BY_HOP | _named_by_connection(given) | {b"expect", b"cookie"}
    name, value = token[0].encode(), token[1].encode()
    passed = [
        (key, text) for key, text in given if key not in hidden and key != name and not key.startswith(_SAID_BY_PROXIES)
    ]
    cookies = [
        cookie
        for cookie in _cookies(given)
        if not _is_consoles(cookie.partition(b"=")[0])
        and not (name == b"cookie" and cookie.partition(b"=")[0] == value.partition(b"=")[0])
    ]
    if name == b"cookie":
        cookies.append(value)
    else:
        passed.append((name, value))
    if cookies:
        passed.append((b"cookie", b"; ".join(cookies)))
    host = next((text for key, text in given if key == b"host"), b"")
    return [*passed, (b"x-forwarded-host", host), (b"x-forwarded-proto", scheme.encode())]


def _is_consoles(name: bytes) -> bool:
    """Whether a cookie is one of the console's."""
    return name.strip().lower() in _CONSOLE_COOKIES or name.strip().lower().startswith(SHARE_COOKIE)


def from_session(headers: Iterable[tuple[bytes, bytes]], base: bytes, *, has_own_host: bool = False) -> Headers:
    """A session's headers as the browser gets them. `base`: the path below which it serves; `has_own_host`: it has the
    whole host name to itself."""
    given = [(key.lower(), value) for key, value in headers]
    hidden = _HOP_BY_HOP | _named_by_connection(given) | _FOR_THE_HOST
    if any(key == b"transfer-encoding" for key, _ in given):
        hidden |= {b"content-length"}
    passed = [
        (key, value)
        for key, value in given
        if key not in hidden and key != b"set-cookie" and not key.startswith(b"access-control-")
    ]
    confine = _keep_cookie_at_host if has_own_host else _confine_cookie
    cookies = (confine(value, base) for key, value in given if key == b"set-cookie")
    return [*passed, *((b"set-cookie", cookie) for cookie in cookies if cookie)]


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    """The headers that the sender means for this connection only."""
    lists = (value.split(b",") for key, value in headers if key == b"connection")
    return frozenset(word.strip().lower() for words in lists for word in words)


def _cookies(headers: Headers) -> Iterator[bytes]:
    for key, value in headers:
        if key == b"cookie":
            yield from (cookie.strip() for cookie in value.split(b";") if cookie.strip())


def _confine_cookie(cookie: bytes, base: bytes) -> bytes:
    """The cookie for the session's own path; b"": it is dropped. One without a name could be read as any other."""
    pair, *attributes = cookie.split(b";")
    name = pair.partition(b"=")[0].strip()
    if not name or _is_consoles(name) or name.lower().startswith(_TRUSTED_PREFIXES):
        return b""
    path, kept = base, []
    for attribute in attributes:
        key, _, value = (part.strip() for part in attribute.partition(b"="))
        if key.lower() == b"path":
            path = value if value.startswith(base) and is_within(value, base) else base
        elif key.lower() != b"domain":
            kept.append(attribute.strip())
    return b"; ".join([pair.strip(), *kept, b"Path=" + path])


def _keep_cookie_at_host(cookie: bytes, base: bytes) -> bytes:
    """The cookie for the session's own host, and no other name of its domain; b"": it is dropped."""
    pair, *attributes = cookie.split(b";")
    name = pair.partition(b"=")[0].strip()
    if not name or _is_consoles(name):
        return b""
    kept = [one.strip() for one in attributes if one.partition(b"=")[0].strip().lower() != b"domain"]
    return b"; ".join([pair.strip(), *kept])


def is_within(raw_path: bytes, base: bytes) -> bool:
    """Whether a path as the browser wrote it stays below the base, whatever its reader decodes."""
    if not raw_path.startswith(base):
        return False
    plain = unquote_to_bytes(unquote_to_bytes(raw_path)).replace(b"\\", b"/")
    return not any(part in (b".", b"..") for part in plain.split(b"/"))
