"""WebSockets of sessions: when the console ends them."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from vgpud.console.login.client import User
from vgpud.console.sessions import program, tunnel
from vgpud.tunnels import passing
from vgpud.tunnels.ends import End
from vgpud.tunnels.frames import FrameWatch


class Broker:
    def __init__(self) -> None:
        self.user_now: User | None = User(1, "alice", "csrf", "cookie", "1")
        self.uses: list[bool] = []
        self.reports = 0

    async def report(self) -> None:
        self.reports += 1

    async def is_in(self, user: User, *, is_use: bool) -> bool:
        self.uses.append(is_use)
        assert (user.cookie, user.source) == ("cookie", "1")
        return self.user_now is not None


async def pass_between(broker: Broker) -> tuple[asyncio.Task[None], socket.socket, socket.socket]:
    """Both far ends of a WebSocket that is passed on."""
    site = SimpleNamespace(broker=broker)
    request = Request({"type": "http", "app": SimpleNamespace(state=SimpleNamespace(site=site)), "state": {}})
    request.state.user = broker.user_now
    (browser, ours), (its, session) = socket.socketpair(), socket.socketpair()
    loop = asyncio.get_running_loop()
    _, end = await loop.create_connection(lambda: End(program.SILENT_S, FrameWatch()), sock=ours)
    _, its_end = await loop.create_connection(lambda: End(program.SILENT_S), sock=its)
    for sock in (browser, session):
        sock.setblocking(False)
    task = asyncio.create_task(tunnel._pass(request, broker.report, end, its_end))
    return task, browser, session


async def check_echo(browser: socket.socket, session: socket.socket) -> None:
    loop: Any = asyncio.get_running_loop()
    for one, other in ((browser, session), (session, browser)):
        await loop.sock_sendall(one, b"hello")
        assert await loop.sock_recv(other, 10) == b"hello"


def test_bytes_pass_until_the_user_has_logged_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "LOOK_S", 0.01)

    async def use() -> None:
        broker = Broker()
        task, browser, session = await pass_between(broker)
        with browser, session:
            await check_echo(browser, session)
            await asyncio.sleep(0.05)
            await check_echo(browser, session)
            assert not task.done()
            assert broker.uses and not any(broker.uses), "no message: these bytes are a part of a frame's head"
            assert broker.reports == 0
            broker.user_now = None
            await task

    asyncio.run(use())


def test_only_messages_of_the_browser_keep_a_log_in_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is open, and answers pings, does not."""
    monkeypatch.setattr(program, "LOOK_S", 0.01)
    pong, message = b"\x8a\x80\0\0\0\0", b"\x81\x81\0\0\0\0x"

    async def use() -> None:
        broker = Broker()
        task, browser, session = await pass_between(broker)
        loop: Any = asyncio.get_running_loop()
        with browser, session:
            await loop.sock_sendall(browser, pong)
            await loop.sock_sendall(session, b"\x81\1x" * 100)
            await asyncio.sleep(0.1)
            assert len(broker.uses) > 1 and not any(broker.uses)
            await loop.sock_sendall(browser, message)
            while not any(broker.uses):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert broker.uses.count(True) == broker.reports == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(use())


@pytest.mark.parametrize("end", [0, 1])
def test_it_ends_with_either_side(end: int) -> None:
    async def use() -> None:
        task, *ends = await pass_between(Broker())
        ends[end].close()
        await task
        ends[1 - end].close()

    asyncio.run(use())


def test_silence_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "SILENCE_S", 0.1)

    async def use() -> None:
        task, browser, session = await pass_between(Broker())
        with browser, session:
            await task

    asyncio.run(use())


def test_a_side_that_takes_nothing_stops_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held of each direction is bounded, and the one that hangs is disconnected."""
    monkeypatch.setattr(program, "SILENT_S", 0.5)

    async def use() -> None:
        task, browser, session = await pass_between(Broker())
        loop: Any = asyncio.get_running_loop()
        sent = 0

        async def fill() -> None:
            nonlocal sent
            while True:
                await loop.sock_sendall(session, bytes(65536))
                sent += 65536

        with browser, session:
            filling = asyncio.create_task(fill())
            await task
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)
            assert 65536 < sent < 8 << 20

    asyncio.run(use())


def test_what_was_sent_before_the_handshake_is_passed_on() -> None:
    async def use() -> None:
        ours, browser = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, end = await loop.create_connection(lambda: End(1.0), sock=ours)
        browser.sendall(b"first")
        while not end._pieces:
            await asyncio.sleep(0.01)
        browser.sendall(b"second")
        its, session = socket.socketpair()
        _, its_end = await loop.create_connection(lambda: End(1.0), sock=its)
        end.join(its_end)
        session.setblocking(False)
        found = b""
        while len(found) < 11:
            found += await loop.sock_recv(session, 100)
        assert found == b"firstsecond"
        for one in (browser, session):
            one.close()
        end.close()
        its_end.close()

    asyncio.run(use())
