"""ID tokens of an OpenID provider: whose they are, and whether they are for this log-in. Pure, but for the clock that
PyJWT reads. The only module that loads PyJWT."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from vgpud.console.login.openid import Client, NotValidError, derive

#: signatures with a public key; a shared key or none would let the client's secret, or any stranger, make tokens
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: how far the clocks of provider and console may differ
LEEWAY_S = 60
#: of a user's name, as the broker takes it
NAME_CHARS_MAX = 256


def read_keys(key_set: dict[str, Any]) -> list[Any]:
    """The keys (jwt.PyJWK) that the provider shows. Raises NotValidError."""
    try:
        return list(jwt.PyJWKSet.from_dict(key_set).keys)
    except jwt.PyJWTError as error:
        raise NotValidError(f"the provider's keys cannot be used: {error}") from error


def find_key(token: str, keys: Sequence[Any]) -> Any:
    """The provider's key (jwt.PyJWK) that a token names; None: it is not there, the provider may have a new one. Raises
    NotValidError."""
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
