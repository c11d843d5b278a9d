"""One request to a session's program, when either side does not go on as it should."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import h11
import pytest

from vgpud.console.login.client import User
from vgpud.console.sessions import http, program
from vgpud.console.sessions.http import _Exchange
from vgpud.console.sessions.program import NotOpenError

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ANSWER = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"


class Browser:
    """The ASGI side. `messages`: what it has sent; then it says nothing until it `leaves`."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = list(messages)
        self.leaves = asyncio.Event()
        self.output: list[Any] = []
        self.is_aborted = False
        self.user: User | None = User(1, "alice", "csrf", "cookie", "")
        site = SimpleNamespace(broker=SimpleNamespace(is_in=self._is_in))
        state = {"user": self.user, "abort": self._abort}
        self.scope = {"type": "http", "state": state, "app": SimpleNamespace(state=SimpleNamespace(site=site))}

    async def _is_in(self, user: User, *, is_use: bool) -> bool:
        return self.user is not None

    def _abort(self) -> None:
        self.is_aborted = True

    async def receive(self) -> dict[str, Any]:
        if self.messages:
            return self.messages.pop(0)
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.output.append(message.get("status") or message["body"])

    async def run(self, serve: Serve) -> None:
        """The request, answered by that program."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve(reader, writer)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        headers = [(b"host", b"x"), (b"content-length", b"10")]
        head = h11.Request(method=b"POST", target=b"/session/7/", headers=headers)
        try:
            await _Exchange(reader, writer, list).run(head, self.scope, self.receive, self.send)
        finally:
            writer.close()
            server.close()


def body(data: bytes, has_more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": has_more}


async def wait_for_close(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def test_a_body_that_stops_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENT_S", 0.05)

    async def use() -> None:
        with pytest.raises(NotOpenError, match="nothing of this request") as refused:
            await Browser(body(b"half", True)).run(wait_for_close)
        assert refused.value.status == 408

    asyncio.run(use())


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 2", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 x\r\n\r\n"])
def test_what_is_no_answer_is_said(words: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"0123456789")
        writer.write(words)

    async def use() -> None:
        with pytest.raises(NotOpenError, match="gives no answer") as refused:
            await Browser(body(b"0123456789", False)).run(serve)
        assert refused.value.status == 502

    asyncio.run(use())


def test_an_answer_that_comes_early_is_passed_on() -> None:
    """Before the body has been read, and the program closes then."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWER)

    async def use() -> None:
        browser = Browser(body(b"half", True))
        await browser.run(serve)
        assert browser.output == [413, b"no", b""]

    asyncio.run(use())


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM)
    await reader.read()


async def until_sent(browser: Browser) -> None:
    while b"a" not in browser.output:
        await asyncio.sleep(0.01)


def test_a_program_is_left_when_the_browser_has_gone() -> None:
    async def use() -> None:
        browser = Browser(body(b"0123456789", False))
        task = asyncio.create_task(browser.run(stream))
        await until_sent(browser)
        browser.leaves.set()
        await task
        assert browser.output == [200, b"a"]

    asyncio.run(use())


def test_a_stream_ends_with_the_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "LOOK_S", 0.01)

    async def use() -> None:
        browser = Browser(body(b"0123456789", False))
        task = asyncio.create_task(browser.run(stream))
        await until_sent(browser)
        assert not task.done()
        browser.user = None
        await task
        assert browser.is_aborted and browser.output == [200, b"a"]

    asyncio.run(use())


def test_a_part_of_an_answer_is_not_taken_for_all_of_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"0123456789")
        writer.write(STREAM)

    async def use() -> None:
        browser = Browser(body(b"0123456789", False))
        await browser.run(serve)
        assert browser.is_aborted and browser.output == [200, b"a"]

    asyncio.run(use())
