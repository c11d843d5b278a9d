"""Tokens: a program that acts for several users, such as a console, sends one with each call.

A token stands for one user until it expires or is revoked; only its SHA-256 is kept, in memory, so that a restart of
the daemon ends all. It is an addition to a connection that the daemon knows, by credentials or by certificate, and is
of no use without one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from vgpud.api.caller import Caller, caller
from vgpud.api.peer_proxy import Peer
from vgpud.api.rpc import Observe, refuse, unary
from vgpud.core.model import Reason
from vgpud.host import users
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

log = logging.getLogger("vgpud.api")

#: life of a token: the default, and its bounds
TTL_S, TTL_MIN_S, TTL_MAX_S = 3600.0, 1.0, 86_400.0
PER_USER_MAX, ALL_MAX = 64, 4096
NOTE_CHARS_MAX = 100
_HEADER, _SCHEME = "authorization", "Bearer "


@dataclass(frozen=True, slots=True)
class Token:
    """Times are of two clocks: wall time is shown; the monotonic one, which cannot be set back, decides."""

    token_id: str
    peer: Peer  # the user that it stands for
    name: str
    note: str
    created_s: float
    expires_s: float
    until_s: float  # monotonic
    certificate: str  # of the connection that it was made on: it ends with that one
    sha256: str


class Tokens:
    """All tokens that are valid."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._by_hash: dict[str, Token] = {}

    def create(self, user: users.User, ttl_s: float, note: str, certificate: str) -> tuple[Token, str]:
        """A new token and its secret. Raises RefusedError when the user has too many."""
        self._forget_expired()
        mine = len(self.of(user.uid))
        if mine >= PER_USER_MAX:
            text = f"user {user.name} has {mine} tokens, which is the limit: revoke some, or wait until they expire"
            raise refuse(Reason.NO_CAPACITY, text)
        if len(self._by_hash) >= ALL_MAX:
            raise refuse(Reason.NO_CAPACITY, f"there are {ALL_MAX} tokens, which is the limit: wait until some expire")
        secret, wall_s = secrets.token_urlsafe(32), time.time_ns() / 1e9
        token = Token(
            secrets.token_hex(8),
            Peer(user.uid, user.gid, user.gids, 0, 0),
            user.name,
            note,
            wall_s,
            wall_s + ttl_s,
            self._clock_s() + ttl_s,
            certificate,
            _hash(secret),
        )
        self._by_hash[token.sha256] = token
        return token, secret

    def find(self, secret: str) -> Token | None:
        """The token, None if it has expired, was revoked or never existed."""
        token = self._by_hash.get(_hash(secret))
        if token and self._clock_s() >= token.until_s:
            del self._by_hash[token.sha256]
            return None
        return token

    def of(self, uid: int | None) -> list[Token]:
        """Those of a user, None: of all."""
        self._forget_expired()
        return [token for token in self._by_hash.values() if uid in (None, token.peer.uid)]

    def revoke(self, token: Token) -> None:
        self._by_hash.pop(token.sha256, None)

    def _forget_expired(self) -> None:
        now_s = self._clock_s()
        self._by_hash = {key: token for key, token in self._by_hash.items() if now_s < token.until_s}

    async def recheck(self, valid: Callable[[str], Awaitable[bool]]) -> None:
        """Revokes tokens whose certificate is not valid any more, or whose user is gone or has other groups."""
        tokens, loop = list(self._by_hash.values()), asyncio.get_running_loop()
        found = {name: await loop.run_in_executor(None, users.find, name) for name in {t.name for t in tokens}}
        for token in tokens:
            user = found[token.name]
            same = user is not None and Peer(user.uid, user.gid, user.gids, 0, 0) == token.peer
            if not same or (token.certificate and not await valid(token.certificate)):
                log.info(
                    "token %s of uid %d was revoked: its user or certificate changed", token.token_id, token.peer.uid
                )
                self.revoke(token)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def secret_in(metadata: Iterable[tuple[str, Any]] | None) -> str | None:
    """The token that a call came with, None if it came with none. Raises ValueError for another kind of log-in."""
    for key, value in metadata or ():
        if key == _HEADER:
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            if not text.startswith(_SCHEME):
                raise ValueError("authorization takes a token: write `Bearer TOKEN`")
            return text.removeprefix(_SCHEME)
    return None


class TokenService(stubs.TokenServiceServicer):
    """Tokens: users make them for themselves, admins for any user of this machine."""

    def __init__(self, tokens: Tokens, observe: Observe) -> None:
        self.observe = observe  # as unary() calls it
        self._tokens = tokens

    @unary
    async def CreateToken(self, request: pb.CreateTokenRequest) -> pb.CreateTokenResponse:
        who = caller()
        if who.token:
            text = "a token makes no further tokens: connect without one, or ask for a longer ttl"
            raise refuse(Reason.DENIED, text, "user")
        ttl_s = request.ttl.seconds + request.ttl.nanos / 1e9 if request.HasField("ttl") else TTL_S
        if not TTL_MIN_S <= ttl_s <= TTL_MAX_S:
            text = f"ttl {ttl_s:g} s is out of range: write {TTL_MIN_S:g} to {TTL_MAX_S:g} seconds"
            raise refuse(Reason.INVALID, text, "ttl")
        if len(request.note) > NOTE_CHARS_MAX:
            text = f"note has {len(request.note)} characters: {NOTE_CHARS_MAX} is the limit"
            raise refuse(Reason.INVALID, text, "note")
        user = await self._user(request.user, who)
        token, secret = self._tokens.create(user, ttl_s, request.note, who.certificate)
        log.info("uid %d made token %s for uid %d, for %d s", who.uid, token.token_id, user.uid, ttl_s)
        return pb.CreateTokenResponse(token=_view(token), secret=secret)

    async def _user(self, name: str, who: Caller) -> users.User:
        loop = asyncio.get_running_loop()
        wanted = name or await loop.run_in_executor(None, users.name_of, who.uid)
        if not wanted:
            text = f"uid {who.uid} has no user name on this machine, and tokens are for named users: create the user"
            raise refuse(Reason.PRECONDITION, text, "user")
        user = await loop.run_in_executor(None, users.find, wanted)
        if not who.admin and (user is None or user.uid != who.uid):
            text = f"a token for user {wanted!r}: uid {who.uid} may make tokens for itself only: leave user out"
            raise refuse(Reason.DENIED, text, "user")
        if user is None:
            raise refuse(Reason.NOT_FOUND, f"there is no user {wanted!r} on this machine: name one that exists", "user")
        return user

    @unary
    def ListTokens(self, request: pb.ListTokensRequest) -> pb.ListTokensResponse:
        who = caller()
        found = self._tokens.of(None if who.admin else who.uid)
        return pb.ListTokensResponse(tokens=[_view(token) for token in sorted(found, key=lambda t: t.created_s)][:1000])

    @unary
    def RevokeToken(self, request: pb.RevokeTokenRequest) -> pb.RevokeTokenResponse:
        who = caller()
        mine = self._tokens.of(None if who.admin else who.uid)
        found = next((token for token in mine if token.token_id == request.token_id), None)
        if found is None:
            text = f"no token {request.token_id!r} of yours: it has expired, or was revoked"
            raise refuse(Reason.NOT_FOUND, text, "token_id")
        self._tokens.revoke(found)
        log.info("uid %d revoked token %s of uid %d", who.uid, found.token_id, found.peer.uid)
        return pb.RevokeTokenResponse()


def _view(token: Token) -> pb.Token:
    made = pb.Token(token_id=token.token_id, user=token.name, uid=token.peer.uid, note=token.note)
    made.create_time.FromNanoseconds(int(token.created_s * 1e9))
    made.expire_time.FromNanoseconds(int(token.expires_s * 1e9))
    return made
