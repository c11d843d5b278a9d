"""OpenID Connect: what a log-in consists of. Pure: no network, and the time is an argument.

Nothing is remembered between the two halves of a log-in. The browser keeps one secret in a cookie; state, nonce and the
proof of possession (PKCE) are derived from it. So strangers who begin log-ins fill no memory, and an answer of the
provider is worth something only in the browser that asked for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

#: where a log-in with a provider begins, and the provider sends the browser back to .../callback
OPENID_PATH = "/login/openid"
#: signatures with a public key; a shared key or none would let the client's secret, or anybody, make tokens
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: how far the clocks of provider and console may differ
LEEWAY_S = 60
#: of a user's name, as the broker takes it
NAME_CHARS_MAX = 256


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


def read_provider(issuer: str, found: Any) -> Provider:
    """Of /.well-known/openid-configuration. Raises NotValidError."""
    if not isinstance(found, dict) or found.get("issuer") != issuer:
        named = found.get("issuer") if isinstance(found, dict) else None
        raise NotValidError(f"the provider calls itself {str(named)[:200]!r}, not {issuer!r}: write that as the issuer")
    urls = [found.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
    if not all(isinstance(url, str) and is_safe_url(url) for url in urls):
        raise NotValidError("the provider names an address that is missing, or without TLS")
    methods = found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
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


def find_key(token: str, keys: Sequence[Any]) -> Any:
    """The provider's key (jwt.PyJWK) that a token names; None: it is not there, the provider may have a new one. Raises
    NotValidError."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise NotValidError("the provider's token cannot be read") from error
    if header.get("alg") not in ALGORITHMS:
        raise NotValidError(f"the provider signs with {str(header.get('alg'))[:20]!r}, which is not accepted")
    named = header.get("kid")
    if named is None:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.key_id == named), None)


def read_name(token: str, key: Any, client: Client, secret: str) -> str:
    """The user's name of an ID token. Raises NotValidError."""
    import jwt

    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[name for name in ALGORITHMS if name == key.algorithm_name],
            audience=client.client_id,
            issuer=client.issuer,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
    except jwt.PyJWTError as error:
        raise NotValidError(f"the provider's token is not valid: {error}") from error
    _check_party(claims, client)
    nonce = str(claims.get("nonce", ""))
    if not hmac.compare_digest(derive(secret, "nonce").encode(), nonce.encode(errors="replace")):
        raise NotValidError("the provider's token is for another log-in: try again")
    name = claims.get(client.claim)
    if not isinstance(name, str) or not name or len(name) > NAME_CHARS_MAX:
        raise NotValidError(f"the provider's token has no {client.claim}: choose another claim with --oidc-claim")
    return name


def _check_party(claims: Mapping[str, Any], client: Client) -> None:
    """A token for several parties must say that it was made for this one."""
    party, audience = claims.get("azp"), claims.get("aud")
    if party not in (None, client.client_id) or (isinstance(audience, list) and len(audience) > 1 and party is None):
        raise NotValidError("the provider's token was made for another program")
