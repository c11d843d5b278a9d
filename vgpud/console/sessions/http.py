"""HTTP below /session/JOB/: authorized by the console, answered by the session's program, piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import h11
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from vgpud.console.login.client import User
from vgpud.console.sessions import headers, own_hosts, policy
from vgpud.console.sessions.address import PREFIX, Address, parse_name, parse_path
from vgpud.console.sessions.entry import Entrance
from vgpud.console.sessions.program import (
    PIECE_BYTES,
    SILENT_S,
    NotOpenError,
    Program,
    Programs,
    close,
    connect,
    wait_for_log_out,
)
from vgpud.console.web.security import Receive, Scope, Send, is_of_session
from vgpud.console.web.site import board_of, enter, site_of, user_of
from vgpud.host import listeners

#: until the head of an answer, and between two pieces of it: a cell may compute, and a stream of events be silent
ANSWER_S, STREAM_S = 600.0, 3600.0
#: how often a page that waits for its session is loaded again
AGAIN_S = 3


class BrokenError(Exception):
    """The program's answer ends before its end, or is no HTTP."""


class Sessions:
    """The ASGI application below /session/ and at sessions' own hosts, and what WebSockets share with it."""

    def __init__(self, entrance: Entrance) -> None:
        self.entrance = entrance
        self.programs = Programs()
        self.places = listeners.Places(listeners.CONSOLE_SESSIONS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)

    @contextlib.contextmanager
    def place(self, user: User) -> Any:
        """Raises NotOpenError where the user has too many."""
        if not self.places.take(user.uid):
            most = listeners.CONSOLE_SESSIONS.share_max
            raise NotOpenError(f"{most} requests to your sessions are open, which is the limit: close some pages", 429)
        try:
            yield
        finally:
            self.places.give_back(user.uid)

    def takes(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request is for a session, whose bodies are passed on piece by piece, and not for the console."""
        return is_of_session(scope) or self.entrance.domain.has_host(_host_of(scope))

    def parse(self, scope: Scope) -> tuple[Address | None, bool]:
        """The session that a request is for, None: there is none of that name; and whether at its own host."""
        own = self.entrance.domain.parse_host(_host_of(scope))
        return (own, True) if own else (parse_path(scope.get("raw_path") or b""), False)

    async def _respond(self, request: Request) -> Response:
        address, at_own_host = self.parse(request.scope)
        path = request.scope["path"]
        if address is None:
            whole = parse_name(path.removeprefix(PREFIX))
            if whole:  # its base without the / at the end
                return RedirectResponse(whole.base.decode(), 307)
            away = await enter(request)
            return away or PlainTextResponse("There is no such session.", 404)
        if at_own_host and path == own_hosts.ENTER_PATH:
            return self.entrance.redeem(request, address)
        away = await self.entrance.enter(request, address, at_own_host)
        if away is not None:
            return away
        if at_own_host and path == "/":
            return RedirectResponse(address.base.decode(), 307)
        try:
            program = await self.programs.find(board_of(request).api, user_of(request), address)
            return Passed(self, request, program, at_own_host)
        except NotOpenError as error:
            return show_reason(request, error)


def _host_of(scope: Mapping[str, Any]) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")


def show_reason(request: Request, error: NotOpenError) -> Response:
    """Why the session is not open: a page for a window, loaded again if that may change; a line for scripts."""
    again = {"refresh": str(AGAIN_S)} if error.is_awaited else {}
    if request.headers.get("sec-fetch-dest", "document") not in ("document", "iframe") or request.method != "GET":
        return PlainTextResponse(str(error), error.status)
    if user_of(request).share or not request.url.path.startswith(PREFIX):  # no page of the console's for another person
        return PlainTextResponse(str(error), error.status, headers=again)
    sentence = str(error)
    page = site_of(request).page(
        request, "session.html", error.status, sentence=sentence[:1].upper() + sentence[1:], is_awaited=bool(again)
    )
    page.headers.update(again)
    return page


class Passed(Response):
    """The program's own answer."""

    def __init__(self, sessions: Sessions, request: Request, program: Program, at_own_host: bool) -> None:
        self._sessions = sessions
        self._request = request
        self._program = program
        self._at_own_host = at_own_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._sessions.place(user_of(self._request)):
                await self._sessions.programs.report_use(board_of(self._request).api, self._program)
                reader, writer = await connect(self._program)
                try:
                    exchange = _Exchange(reader, writer, self._convert)
                    await exchange.run(self._head(), scope, receive, send)
                finally:
                    close(writer)
        except NotOpenError as error:
            await show_reason(self._request, error)(scope, receive, send)

    def _convert(self, answer: headers.Headers) -> headers.Headers:
        """The answer's headers as the browser gets them: a host of its own has the policy that its program gives it."""
        passed = headers.from_session(answer, self._program.base, has_own_host=self._at_own_host)
        if self._at_own_host:
            return passed
        host, has_tls = self._request.headers.get("host", ""), site_of(self._request).has_tls
        return policy.apply_policy(passed, self._program.base, host, has_tls=has_tls)

    def _head(self) -> h11.Request:
        scope = self._request.scope
        query: bytes = scope["query_string"]
        path = self._program.inner_path(scope.get("raw_path") or b"")
        passed = headers.to_session(scope["headers"], self._program.token, scope["scheme"])
        if any(name == b"transfer-encoding" for name, _ in scope["headers"]):  # it overrides a length
            passed = [header for header in passed if header[0] != b"content-length"]
            passed.append((b"transfer-encoding", b"chunked"))
        return h11.Request(
            method=scope["method"].encode(),
            target=path + (b"?" + query if query else b""),
            headers=[*passed, (b"connection", b"close")],
        )


def abort(scope: Scope) -> None:
    """The browser's connection ends without the end of its answer."""
    scope["state"]["abort"]()


def tell_silence(scope: Scope) -> None:
    """Raises NotOpenError where no answer has begun."""
    if not scope["state"].get("passed"):
        raise NotOpenError(f"nothing of this request was sent, or taken, for {SILENT_S:.0f} s", 408)


class _Exchange:
    """One request and its answer, over a connection of its own."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        convert: Callable[[headers.Headers], headers.Headers],
    ) -> None:
        """`convert`: what the browser gets of the answer's headers."""
        self._reader, self._writer = reader, writer
        self._convert = convert
        self._connection = h11.Connection(h11.CLIENT)

    async def run(self, head: h11.Request, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the answer has been passed on or the browser has gone. Raises NotOpenError before the answer begins."""
        sending = asyncio.create_task(self._send(head, receive))
        answering = asyncio.create_task(self._pass_answer(scope, send))
        leaving = asyncio.create_task(wait_for_log_out(Request(scope)))
        tasks = {sending, answering, leaving}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and isinstance(sending.exception(), asyncio.TimeoutError) and not answering.done():
                tell_silence(scope)
            if sending.done() and sending.exception():  # a program may answer, and close, before it has read all
                await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
            elif leaving.done():
                abort(scope)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, head: h11.Request, receive: Receive) -> None:
        """The request, then nothing until the browser has gone. Raises OSError, TimeoutError: the program, or the
        browser, does not go on."""
        await self._write(head)
        more = True
        while more:
            message = await asyncio.wait_for(receive(), SILENT_S)
            if message["type"] == "http.disconnect":
                return
            if message.get("body"):
                await self._write(h11.Data(data=message["body"]))
            more = message.get("more_body", False)
        await self._write(h11.EndOfMessage())
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _write(self, event: h11.Event) -> None:
        if data := self._connection.send(event):
            self._writer.write(data)
            await asyncio.wait_for(self._writer.drain(), SILENT_S)

    async def _pass_answer(self, scope: Scope, send: Send) -> None:
        try:
            head = await self._next(ANSWER_S)
            while isinstance(head, h11.InformationalResponse):
                head = await self._next(ANSWER_S)
            if not isinstance(head, h11.Response) or head.status_code > 599:
                raise BrokenError
        except (BrokenError, OSError, asyncio.TimeoutError, h11.RemoteProtocolError) as error:
            raise NotOpenError("its program gives no answer: `vgpu job logs` has its output", 502) from error
        scope["state"]["passed"] = True
        passed = self._convert(list(head.headers.raw_items()))
        await send({"type": "http.response.start", "status": head.status_code, "headers": passed})
        try:
            async for data in self._body():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except (BrokenError, OSError, asyncio.TimeoutError, h11.RemoteProtocolError):
            abort(scope)  # the browser must not take a part for all of it
            return
        await send({"type": "http.response.body", "body": b""})

    async def _body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(STREAM_S), h11.Data):
            yield bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise BrokenError

    async def _next(self, timeout_s: float) -> Any:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            self._connection.receive_data(await asyncio.wait_for(self._reader.read(PIECE_BYTES), timeout_s))
        return event
