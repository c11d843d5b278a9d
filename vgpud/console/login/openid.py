"""OpenID Connect: what a log-in consists of. Pure: no network, and the time is an argument.

Nothing is remembered between the two halves of a log-in. The browser keeps one secret in a cookie; state, nonce and the
proof of possession (PKCE) are derived from it. So strangers who begin log-ins fill no memory, and an answer of the
provider is worth something only in the browser that asked for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

#: where a log-in with a provider begins, and the provider sends the browser back to .../callback
OPENID_PATH = "/login/openid"


class NotValidError(Exception):
    """What the provider has sent cannot be used: one sentence."""


@dataclass(frozen=True)
class Provider:
    """What the provider's description says, checked."""

    issuer: str
    authorization_url: str
    token_url: str
    keys_url: str
    takes_basic: bool  # the client's secret as HTTP's Basic; otherwise in the form


@dataclass(frozen=True)
class Client:
    """What the provider knows of this console. claim: the one that is the name of a local user."""

    issuer: str
    client_id: str
    secret: str  # "" = a public client
    redirect_url: str
    claim: str


def derive(secret: str, purpose: str) -> str:
    """A value of the browser's secret that tells nothing of the others."""
    digest = hmac.digest(secret.encode(errors="replace"), purpose.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_own(secret: str, state: str) -> bool:
    """Whether an answer is for the browser with this secret."""
    return bool(secret) and hmac.compare_digest(derive(secret, "state").encode(), state.encode(errors="replace"))


def is_safe_url(url: object) -> bool:
    """HTTPS, or this machine's own."""
    parts = urlsplit(str(url))
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"))
    )


def read_provider(issuer: str, description: Any) -> Provider:
    """Of /.well-known/openid-configuration. Raises NotValidError."""
    if not isinstance(description, dict) or description.get("issuer") != issuer:
        named = description.get("issuer") if isinstance(description, dict) else None
        raise NotValidError(f"the provider calls itself {str(named)[:200]!r}, not {issuer!r}: write that as the issuer")
    urls = [description.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
    if not all(isinstance(url, str) and is_safe_url(url) for url in urls):
        raise NotValidError("the provider names an address that is missing, or without TLS")
    methods = description.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    return Provider(issuer, str(urls[0]), str(urls[1]), str(urls[2]), "client_secret_basic" in methods)


def make_request(provider: Provider, client: Client, secret: str) -> str:
    """The address at which the user logs in with the provider."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(derive(secret, "verifier").encode()).digest()).rstrip(b"=")
    fields = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_url,
        "scope": "openid profile email",
        "state": derive(secret, "state"),
        "nonce": derive(secret, "nonce"),
        "code_challenge": challenge.decode(),
        "code_challenge_method": "S256",
    }
    joint = "&" if urlsplit(provider.authorization_url).query else "?"
    return f"{provider.authorization_url}{joint}{urlencode(fields)}"


def make_exchange(client: Client, code: str, secret: str) -> dict[str, str]:
    """The form that gets the ID token for a code, without the client's secret."""
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": client.redirect_url,
        "client_id": client.client_id,
        "code_verifier": derive(secret, "verifier"),
    }
