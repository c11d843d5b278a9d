"""A TLS listener as the daemon has it, with ephemeral certificates and made-up users, in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from vgpud.api import remote as tls
from vgpud.api import tokens as tokens_module
from vgpud.api.caller import caller
from vgpud.api.peer_proxy import PeerProxy
from vgpud.api.permissions import METHODS, Authorizer, Row, Who
from vgpud.api.server import MESSAGE_BYTES_MAX
from vgpud.api.tokens import Tokens, TokenService
from vgpud.certs import issue
from vgpud.certs.register import Register
from vgpud.client.contexts import Context, read_certificate
from vgpud.client.tls import why_unreachable
from vgpud.host.users import User
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

ADMIN_GID = 7000
WHO = "/test.Service/Who"


class Clock:
    """The daemon's, in seconds, as far ahead of the real one as a test says."""

    def __init__(self) -> None:

        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time_ns() / 1e9 + self.ahead_s


class Remote:
    """The listener, gRPC behind it, and clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.users = {
            name: User(name, uid, uid, groups)
            for name, uid, groups in (("alice", 61001, (61500,)), ("bob", 61002, ()), ("carol", 61003, (ADMIN_GID,)))
        }
        self.users["root"] = User("root", 0, 0, ())
        self.clock = Clock()
        self.register = Register(directory / "tls")
        issue.init(self.register, ["localhost", "127.0.0.1"], 30, renew=False)
        self.proxy = PeerProxy(directory / "grpc.sock")
        self.listener = tls.RemoteListener(self.proxy, self.register, self.clock)
        self.tokens = Tokens(self.clock)
        self.host = ""

    def certificate(self, name: str, register: Register | None = None) -> Context:
        """A new one for this user."""
        file = Path(tempfile.mkdtemp(dir=self.directory)) / "c.json"
        issue.user(register or self.register, self.users[name], 30, file)
        return read_certificate(file)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Remote]:
        site: Any = None  # methods that name no slice and no job
        authorizer = Authorizer(site, self.proxy.peer, self.proxy.turns, self.tokens)
        authorizer.admin_gid = ADMIN_GID
        self.proxy.is_admin = authorizer.is_admin
        server = grpc.aio.server(
            interceptors=[authorizer], options=[("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
        )
        stubs.add_TokenServiceServicer_to_server(TokenService(self.tokens, lambda *_: None), server)

        async def who(request: bytes, context: Any) -> bytes:
            found = caller()
            fields = {name: getattr(found, name) for name in ("uid", "gid", "gids", "pid", "admin", "remote")}
            return json.dumps(fields | {"by_token": bool(found.token)}).encode()

        handler = grpc.unary_unary_rpc_method_handler(who, lambda data: data, lambda data: data)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Service", {"Who": handler})])
        server.add_insecure_port(f"unix:{self.directory / 'grpc.sock'}")
        await server.start()
        try:
            ((_, port),) = await self.listener.open("127.0.0.1", 0)
            self.host = f"127.0.0.1:{port}"
            yield self
        finally:
            await self.listener.close()
            await server.stop(0)
            await asyncio.wait_for(self.proxy.drain(), 30)

    @contextlib.asynccontextmanager
    async def channel(self, context: Context) -> AsyncIterator[grpc.aio.Channel]:
        given = context.authority.encode(), context.key.encode(), context.certificate.encode()
        options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
        credentials = grpc.ssl_channel_credentials(*given)
        async with grpc.aio.secure_channel(self.host, credentials, options=options) as channel:
            yield channel

    async def who(self, context: Context, token: str | None = None, header: str = "Bearer ") -> Any:
        """The caller that the daemon sees, or (status code, message)."""
        metadata = [("authorization", header + token)] if token is not None else None
        async with self.channel(context) as channel:
            try:
                answer = await channel.unary_unary(WHO)(b"", timeout=30, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                return error.code().name, error.details()
        return json.loads(answer)

    async def token(self, context: Context, by: str | None = None, **fields: Any) -> Any:
        """A new token's secret, or (status code, message). `by`: the token to call with."""
        metadata = [("authorization", f"Bearer {by}")] if by else None
        async with self.channel(context) as channel:
            try:
                request = pb.CreateTokenRequest(**fields)
                return await stubs.TokenServiceStub(channel).CreateToken(request, timeout=30, metadata=metadata)  # type: ignore[misc]
            except grpc.aio.AioRpcError as error:
                return error.code().name, error.details()

    async def why(self, context: Context, host: str = "") -> str:
        """The client's sentence."""
        return await asyncio.get_running_loop().run_in_executor(None, why_unreachable, context, host or self.host)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    """Not serving yet. The users are the test's."""
    made = Remote(tmp_path)
    monkeypatch.setitem(METHODS, WHO, Row(Who.EVERY_USER))
    monkeypatch.setattr(tls.users, "find", made.users.get)
    by_uid = lambda uid: next((u.name for u in made.users.values() if u.uid == uid), "")  # noqa: E731
    monkeypatch.setattr(tokens_module.users, "name_of", by_uid)
    return made
