"""WebSockets below /session/JOB/ and /service/NAME/: the browser's handshake is checked here and made with the program;
then bytes pass in both directions. Of frames only the lengths are read, to know whether the user does something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http.client import responses
from typing import Any

import h11
from starlette.requests import Request

from vgpud.console.login.client import RefusedError
from vgpud.console.sessions import headers
from vgpud.console.sessions.http import Sessions
from vgpud.console.sessions.program import (
    SILENT_S,
    NotOpenError,
    Program,
    check_owner,
    wait_for_log_out,
)
from vgpud.console.web.security import SERVICE_PREFIX, Scope, why_foreign
from vgpud.console.web.site import board_of, enter, user_of
from vgpud.host import listeners
from vgpud.tunnels.ends import End
from vgpud.tunnels.frames import FrameWatch
from vgpud.tunnels.passing import pass_between


class Tunnels:
    """All WebSockets to sessions and services. `app`: the console's, whose state and sessions they use; `find_service`:
    the address of the service that a request is for, which raises NotOpenError."""

    def __init__(
        self,
        app: Any,
        sessions: Sessions,
        hosts: frozenset[str],
        find_service: Callable[[Request], Awaitable[Program]],
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._find_service = find_service
        self._hosts = hosts
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, scope: Mapping[str, Any], transport: asyncio.Transport, data: bytes) -> None:
        """Takes a connection over whose request for a WebSocket has been read; `data`: what came behind it."""
        browser = End(SILENT_S, FrameWatch())
        transport.set_protocol(browser)
        browser.connection_made(transport)
        if data:
            browser.data_received(data)
        task = asyncio.create_task(self._serve({**scope, "app": self._app}, browser))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, scope: Scope, browser: End) -> None:
        session: End | None = None
        try:
            request = Request(scope)
            program = await asyncio.wait_for(self._find(request), listeners.CONSOLE.deadline_s)
            with self._sessions.place(user_of(request)):
                session = await _connect(program)
                browser.transport.write(await _greet(scope, program, session))
                report = self._report_of(request, program)
                await report()
                await _pass(request, report, browser, session)
        except NotOpenError as error:
            browser.transport.write(_refusal(error.status, str(error)))
        except (OSError, asyncio.TimeoutError, RefusedError):
            pass  # one of the two has gone, or says nothing any more
        finally:
            for one in (browser, session):
                if one:
                    one.close()

    def _report_of(self, request: Request, program: Program) -> Callable[[], Awaitable[None]]:
        return lambda: self._sessions.programs.report_use(board_of(request).api, program)

    async def _find(self, request: Request) -> Program:
        """Raises NotOpenError."""
        sent = {key: value.decode("latin-1") for key, value in request.scope["headers"]}
        address, at_own_host = self._sessions.parse(request.scope)
        own_name = sent.get(b"host", "").lower().partition(":")[0]
        why = why_foreign(frozenset({own_name}) if at_own_host else self._hosts, sent)
        if why:
            raise NotOpenError(why[1], why[0])
        if address is None and str(request.scope["path"]).startswith(SERVICE_PREFIX):
            if await enter(request) is not None:
                raise NotOpenError("log in again", 401)
            return await self._find_service(request)
        if address is None:
            raise NotOpenError("there is no such session", 404 if await enter(request) is None else 401)
        if await self._sessions.entrance.enter(request, address, at_own_host) is not None:
            raise NotOpenError("log in again", 401)
        return await self._sessions.programs.find(board_of(request).api, user_of(request), address)


async def _connect(program: Program) -> End:
    """Raises NotOpenError."""
    loop = asyncio.get_running_loop()
    try:
        opening = loop.create_connection(lambda: End(SILENT_S), "127.0.0.1", program.port)
        transport, session = await asyncio.wait_for(opening, listeners.CONSOLE_SESSIONS.deadline_s)
    except (OSError, asyncio.TimeoutError) as error:
        raise NotOpenError(f"{program.name} is running, its program starts", 503, is_awaited=True) from error
    try:
        check_owner(program, transport)
    except NotOpenError:
        session.close()
        raise
    return session


async def _greet(scope: Scope, program: Program, session: End) -> bytes:
    """Makes the handshake with the program. Returns what the browser gets: its answer, and what came behind it. Raises
    NotOpenError."""
    query: bytes = scope["query_string"]
    path = program.inner_path(scope.get("raw_path") or b"")
    upgrade = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    sent = headers.to_session(scope["headers"], program.token, scope["scheme"]) + upgrade
    connection = h11.Connection(h11.CLIENT)
    head = h11.Request(method=b"GET", target=path + (b"?" + query if query else b""), headers=sent)
    session.transport.write(connection.send(head) or b"")
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await asyncio.wait_for(session.read(), SILENT_S))
    except (OSError, asyncio.TimeoutError, h11.RemoteProtocolError) as error:
        raise NotOpenError(f"the program of {program.name} gives no answer", 502) from error
    if not isinstance(event, h11.InformationalResponse) or event.status_code != 101:
        status = event.status_code if isinstance(event, h11.Response) and event.status_code >= 400 else 502
        raise NotOpenError(f"the program of {program.name} refuses a WebSocket here", status)
    lines = headers.from_session(event.headers.raw_items(), program.base) + upgrade
    shown = b"".join(b"%s: %s\r\n" % line for line in lines)
    return b"HTTP/1.1 101 Switching Protocols\r\n" + shown + b"\r\n" + connection.trailing_data[0]


async def _pass(request: Request, report: Callable[[], Awaitable[None]], browser: End, session: End) -> None:
    """Bytes in both directions, until one side has gone, the user has logged out, or neither says anything. `report`:
    says that the session is used."""

    async def take_use() -> bool:
        is_use = browser.take_use()
        if is_use:
            await report()
        return is_use

    await pass_between(browser, session, wait_for_log_out(request, take_use))


def _refusal(status: int, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status} {responses.get(status, 'Refused')}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
