"""WebSockets through the address of a service, by another project's library at both ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from tests.services.programs import ANSWER, Balanced, Program, serve_balanced
from vgpud.services.core.model import Service
from vgpud.services.shell import sockets
from vgpud.services.shell.sockets import upgrade_of
from vgpud.tunnels import passing
from vgpud.tunnels.ends import End

V2 = Subprotocol("v2")
KEY = {"Authorization": "Bearer secret"}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@dataclass
class Echo(Program):
    """A replica that says what it gets; `refuse` has it answer 403."""

    open: list[ServerConnection] = field(default_factory=list)
    close_codes: list[int | None] = field(default_factory=list)
    paths: list[tuple[str, str]] = field(default_factory=list)

    async def echo(self, connection: ServerConnection) -> None:
        self.open.append(connection)
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                await connection.send(message)
        await connection.wait_closed()
        self.close_codes.append(connection.close_code)

    def look(self, connection: ServerConnection, request: Request) -> Response | None:
        self.paths.append((request.path, request.headers["Authorization"]))
        return connection.respond(403, "not you\n") if "refuse" in request.path else None


@contextlib.asynccontextmanager
async def serve_echoes(count: int, **fields: Any) -> AsyncIterator[tuple[Balanced, list[Echo]]]:
    """A service whose jobs 1, 2 and so on echo what a WebSocket says."""
    echoes = [Echo(f"replica {at}") for at in range(1, count + 1)]
    made = Balanced(dict(enumerate(echoes, 1)), Service("chat", {}, "secret", **fields))
    async with contextlib.AsyncExitStack() as stack:
        for at, one in enumerate(echoes, 1):
            server = await stack.enter_async_context(
                serve(one.echo, "127.0.0.1", 0, process_request=one.look, subprotocols=[V2], max_size=8 << 20)
            )
            one.port = server.sockets[0].getsockname()[1]
            made.add(at)
        front = await asyncio.start_server(made.address.serve, "127.0.0.1", 0)
        made.port = front.sockets[0].getsockname()[1]
        try:
            yield made, echoes
        finally:
            front.close()
            await made.address.close()


def socket_to(service: Balanced, path: str = "/", **options: Any) -> connect:
    options = {"additional_headers": KEY, "max_size": 8 << 20, "subprotocols": [V2], **options}
    return connect(f"ws://127.0.0.1:{service.port}{path}", **options)


async def closing_of(connection: ClientConnection) -> int | None:
    await connection.wait_closed()
    return connection.close_code


async def wait_until_idle(service: Balanced) -> None:
    while not service.replicas.traffic.is_idle or any(one.outstanding for one in service.replicas.by_id.values()):
        await asyncio.sleep(0.01)


def test_messages_pass_in_both_directions() -> None:
    async def test() -> None:
        async with serve_echoes(1) as (service, (echo,)):
            async with socket_to(service, "/ws?a=1", subprotocols=["v1", "v2"]) as connection:
                assert connection.subprotocol == "v2"
                for message in ("hello", b"\0" * 1000, "x" * (4 << 20)):
                    await connection.send(message)
                    assert await connection.recv() == message
                await (await connection.ping())
                replica = service.replicas.by_id[1]
                assert replica.outstanding == 1 and not service.replicas.traffic.is_idle, "it keeps the service awake"
            assert connection.close_code == 1000
            await wait_until_idle(service)
            assert echo.paths == [("/ws?a=1", "Bearer of-1")] and echo.close_codes == [1000]

    run(test())


def test_what_the_client_sends_with_the_handshake_is_not_lost() -> None:
    async def test() -> None:
        async with serve_echoes(1) as (service, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            lines = "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            lines += "Sec-WebSocket-Protocol: v2\r\n"
            lines += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer secret\r\n"
            writer.write(f"GET / HTTP/1.1\r\nHost: here\r\n{lines}\r\n".encode() + b"\x81\x85\0\0\0\0first")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
            assert await reader.readexactly(7) == b"\x81\x05first"
            writer.close()
            await wait_until_idle(service)

    run(test())


def test_what_the_client_sends_last_reaches_a_slow_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[End] = []

    class Recorded(End):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            ends.append(self)

    async def test() -> None:
        may_read = asyncio.Event()
        received: list[bytes] = []

        async def replica(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
            await may_read.wait()
            with contextlib.suppress(OSError):
                while piece := await reader.read(65536):
                    received.append(piece)
            received.append(b"end")
            writer.close()

        async with serve_echoes(1) as (service, _):
            server = await asyncio.start_server(replica, "127.0.0.1", 0, limit=1024)
            service.replicas.by_id[1].port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            head = "Host: here\r\nConnection: Upgrade\r\nUpgrade: raw\r\nAuthorization: Bearer secret\r\n"
            writer.write(f"GET / HTTP/1.1\r\n{head}\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            _, far = ends
            far.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            count = 0
            while not far.transport.get_write_buffer_size():
                writer.write(bytes(8192))
                count += 8192
                await asyncio.sleep(0.002)
            writer.close()
            await wait_until_idle(service)
            may_read.set()
            while received[-1:] != [b"end"]:
                await asyncio.sleep(0.01)
            assert len(b"".join(received)) == count + 3
            server.close()

    monkeypatch.setattr(sockets, "End", Recorded)
    run(test())


def test_the_token_is_asked_for_and_a_replica_may_refuse() -> None:
    async def test() -> None:
        async with serve_echoes(1) as (service, (echo,)):
            for headers, path, status in (({}, "/", 401), (KEY, "/refuse", 403)):
                with pytest.raises(InvalidStatus) as caught:
                    async with socket_to(service, path, additional_headers=headers):
                        pass
                assert caught.value.response.status_code == status
            assert caught.value.response.body == b"not you\n"
            assert [path for path, _ in echo.paths] == ["/refuse"]
            await wait_until_idle(service)

    run(test())


def test_one_at_a_replica_that_has_died_is_made_with_another() -> None:
    async def test() -> None:
        async with serve_echoes(2) as (service, _):
            service.replicas.by_id[1].port = 1
            for _ in range(2):
                async with socket_to(service) as connection:
                    await connection.send("hello")
                    assert await connection.recv() == "hello"
            assert service.replicas.by_id[1].is_suspect

    run(test())


def test_those_of_a_replica_that_ends_are_closed_at_both_ends_and_others_stay() -> None:
    async def test() -> None:
        async with serve_echoes(2) as (service, echoes), contextlib.AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(socket_to(service)) for _ in range(4)]
            assert [len(one.open) for one in echoes] == [2, 2]
            sending = asyncio.create_task(send_for_ever(connections))
            assert service.address.sockets.end(1)
            while service.address.sockets.end(1):
                await asyncio.sleep(0.01)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            codes = [await closing_of(one) if one.close_code else None for one in connections]
            assert sorted(map(str, codes)) == ["1001", "1001", "None", "None"]
            while len(echoes[0].close_codes) < 2:
                await asyncio.sleep(0.01)
            assert echoes[0].close_codes == [1001, 1001] and not echoes[1].close_codes

    run(test())


async def send_for_ever(connections: list[ClientConnection]) -> None:
    """Large messages, so that a close frame has to wait for the end of one."""
    while True:
        for one in connections:
            with contextlib.suppress(ConnectionClosed):
                await one.send("x" * 300_000)
                await one.recv()


def test_a_replica_that_is_killed_is_a_close_frame_for_its_clients() -> None:
    async def test() -> None:
        async with serve_echoes(1) as (service, (echo,)):
            async with socket_to(service) as connection:
                await connection.send("hello")
                await connection.recv()
                echo.open[0].transport.abort()
                assert await closing_of(connection) == 1011
            await wait_until_idle(service)

    run(test())


def test_a_client_that_vanishes_ends_it_at_the_replica() -> None:
    async def test() -> None:
        async with serve_echoes(1) as (service, (echo,)):
            connection = await socket_to(service)
            connection.transport.abort()
            await wait_until_idle(service)
            while not echo.close_codes:
                await asyncio.sleep(0.01)

    run(test())


def test_silence_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "SILENCE_S", 0.2)

    async def test() -> None:
        async with serve_echoes(1) as (service, _):
            async with socket_to(service, ping_interval=None) as connection:
                assert await closing_of(connection) == 1011
            await wait_until_idle(service)

    run(test())


@pytest.mark.parametrize("connection", ["Upgrade, HTTP2-Settings", "keep-alive"])
def test_another_http_is_not_changed_to(connection: str) -> None:
    """Its requests would pass without their token being looked at."""

    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            status, _, _ = await service.ask(Connection=connection, Upgrade="h2c", HTTP2_Settings="AAMAAABk")
            assert status == 200
            (_, _, headers, _) = service.programs[1].requests[0]
            assert b"upgrade" not in headers and (b"http2-settings" in headers) is (connection == "keep-alive")

    run(test())


def test_which_upgrades_are_passed_on() -> None:
    for connection, protocol, passed in (
        (b"Upgrade", b"websocket", b"websocket"),
        (b"keep-alive, upgrade", b"WebSocket", b"WebSocket"),
        (b"upgrade", b"tcp", b"tcp"),
        (b"keep-alive", b"websocket", b""),
        (b"upgrade", b"h2c", b""),
        (b"upgrade", b"TLS/1.0", b""),
        (b"upgrade", b"", b""),
    ):
        assert upgrade_of([(b"connection", connection), (b"upgrade", protocol)]) == passed
