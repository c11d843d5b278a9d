"""The address of a service: takes requests of clients, and passes each on to a replica that is ready.

A request is read whole before it is passed on, so that it can be sent to another replica if the first one dies without
having answered. An answer of a known, small size is read whole as well, for the same reason; others pass in pieces.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

import h11

from vgpud.host import listeners
from vgpud.services.core.choice import IDEMPOTENT
from vgpud.services.core.model import Replica, Service
from vgpud.services.shell.http1 import (
    HEAD_BYTES_MAX,
    PIECE_BYTES,
    BrokenError,
    Headers,
    Wire,
    find_header,
    keep_headers,
)
from vgpud.services.shell.replicas import NoReplicaError, Replicas
from vgpud.services.shell.sockets import HANDSHAKE_S, Sockets, upgrade_headers, upgrade_of
from vgpud.services.shell.upstream import ANSWER_S, STREAM_S, Request

#: of a request; of all requests that are held at once; and of an answer that is read whole
REQUEST_BYTES_MAX, HELD_BYTES_MAX, WHOLE_BYTES_MAX = 32 << 20, 512 << 20, 1 << 20
#: how long a connection on which a request was answered may wait for the next one
IDLE_S = 75.0
#: an answer that takes longer is given up when its client closes the connection
WATCH_S = 0.2
#: how often a request is sent to a replica: one at which programs die must not end them all
TRIES_MAX = 5
#: after how long a client should try again, where no replica was ready in time
AGAIN_S = 5
_ENDS = (h11.RemoteProtocolError, BrokenError, asyncio.TimeoutError, OSError)


class RefusedError(Exception):
    """The balancer answers by itself: a status and one sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _LostError(Exception):
    """The replica has gone before anything of its answer was passed on."""


@dataclass(slots=True)
class _Client:
    """A connection. `is_known`: it has shown the service's token, or needs none."""

    wire: Wire
    who: int | str
    is_known: bool = False


class Address:
    """All clients of one service. `service`: as it is now."""

    def __init__(self, service: Callable[[], Service], replicas: Replicas) -> None:
        self._service, self._replicas = service, replicas
        self.sockets = Sockets()
        self._places = listeners.Places(listeners.SERVICE)
        self._unknown_places = listeners.Places(listeners.SERVICE_UNKNOWN)
        self._clients: dict[asyncio.Task[None], _Client] = {}
        self._held_bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, as asyncio's server has it."""
        sock = writer.get_extra_info("socket")
        try:
            who = listeners.source(sock)
        except OSError:
            writer.close()
            return
        if not self._unknown_places.take(who):
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task
        wire = Wire(reader, writer, h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX))
        client = self._clients[task] = _Client(wire, who)
        try:
            await self._answer_all(wire)
        except (*_ENDS, h11.LocalProtocolError):
            wire.abort()
        finally:
            del self._clients[task]
            (self._places if client.is_known else self._unknown_places).give_back(who)
            wire.close()

    def _admit(self) -> None:
        """The client of this task has shown the token: its connection counts among those that have. Raises
        RefusedError."""
        task = asyncio.current_task()
        client = self._clients[task] if task else None
        if client is None or client.is_known:
            return
        if not self._places.take(client.who):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open: close some")
        self._unknown_places.give_back(client.who)
        client.is_known = True

    async def close(self) -> None:
        """Ends the connections of all clients."""
        for client in self._clients.values():
            client.wire.abort()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _answer_all(self, wire: Wire) -> None:
        """One request after the other. The first has the listener's deadline."""
        wait_s = listeners.SERVICE.deadline_s
        while True:
            try:
                event = await wire.next(wait_s)
            except h11.RemoteProtocolError as error:
                await self._refuse(wire, RefusedError(HTTPStatus(error.error_status_hint), "this is no HTTP request"))
                return
            except BrokenError:
                return  # it has closed the connection, and may still take its last answer
            if not isinstance(event, h11.Request):
                return
            try:
                await self._answer(wire, event)
            except RefusedError as error:
                await self._refuse(wire, error)
            if wire.http.our_state is not h11.DONE or wire.http.their_state is not h11.DONE:
                return
            wire.http.start_next_cycle()
            wait_s = IDLE_S

    async def _refuse(self, wire: Wire, error: RefusedError) -> None:
        body = f"vgpu service {self._service().name}: {error}\n".encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
        if error.status is HTTPStatus.SERVICE_UNAVAILABLE:
            headers.append((b"retry-after", b"%d" % AGAIN_S))
        if error.status is HTTPStatus.UNAUTHORIZED:
            headers.append((b"www-authenticate", b"Bearer"))
        if wire.http.their_state is h11.SEND_BODY:  # what it still sends is not read
            headers.append((b"connection", b"close"))
        if wire.http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            head = h11.Response(status_code=error.status, headers=headers, reason=error.status.phrase.encode())
            await wire.send(head, h11.Data(data=body), h11.EndOfMessage())
        if wire.http.their_state is not h11.DONE:
            await wire.linger()

    async def _answer(self, wire: Wire, request: h11.Request) -> None:
        """Raises RefusedError, and _ENDS where the client has gone."""
        service = self._service()
        headers = [(name, value) for name, value in request.headers.raw_items()]
        shown = find_header(headers, b"authorization")
        if not service.is_public and not hmac.compare_digest(shown, b"Bearer " + service.token.encode()):
            text = f"show its token as `Authorization: Bearer TOKEN`: `vgpu service url {service.name} --token`"
            raise RefusedError(HTTPStatus.UNAUTHORIZED, text)
        if not find_header(headers, b"host"):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "a request names its host: Host: NAME")
        self._admit()
        if request.method == b"CONNECT":
            raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "a service is no proxy: CONNECT is not passed on")
        with self._replicas.request():
            await self._answer_known(wire, request, headers, shown if service.is_public else b"")

    async def _answer_known(self, wire: Wire, request: h11.Request, headers: Headers, authorization: bytes) -> None:
        """One that may be answered. `authorization`: the client's own, which the replica gets; b"": the replica's.
        Raises RefusedError."""
        body = await self._read_body(wire, request)
        try:
            kept = keep_headers(headers, b"expect", b"authorization")
            if body or find_header(headers, b"transfer-encoding"):
                kept = [pair for pair in kept if pair[0] != b"content-length"]
                kept.append((b"content-length", b"%d" % len(body)))
            protocol = b"" if body else upgrade_of(headers)
            passed_request = Request(request.method, request.target, [*kept, *upgrade_headers(protocol)], body)
            passing = self._pass_on(wire, passed_request, authorization)
            if protocol:  # what comes behind it is not HTTP
                await passing
            else:
                await self._until_gone(wire, passing)
        finally:
            self._held_bytes -= len(body)

    async def _read_body(self, wire: Wire, request: h11.Request) -> bytes:
        """What is returned counts among the held bytes. Raises RefusedError."""
        if wire.http.they_are_waiting_for_100_continue:
            await wire.send(h11.InformationalResponse(status_code=100, headers=[]))
        parts: list[bytes] = []
        size = 0
        try:
            while isinstance(event := await wire.next(listeners.SERVICE.deadline_s), h11.Data):
                size += len(event.data)
                self._held_bytes += len(event.data)
                if size > REQUEST_BYTES_MAX:
                    text = f"a request has at most {REQUEST_BYTES_MAX >> 20} MiB"
                    raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
                if self._held_bytes > HELD_BYTES_MAX:
                    raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests at once")
                parts.append(bytes(event.data))
            if not isinstance(event, h11.EndOfMessage):
                raise BrokenError("it has closed the connection")
        except BaseException:
            self._held_bytes -= size
            raise
        return b"".join(parts)

    async def _until_gone(self, wire: Wire, answering: Awaitable[None]) -> None:
        """Waits for the answer to be passed on; gives up when the client closes its connection meanwhile."""
        tasks = [asyncio.ensure_future(answering)]
        try:
            await asyncio.wait(tasks, timeout=WATCH_S)
            if not tasks[0].done():
                tasks.append(asyncio.create_task(_wait_for_end(wire)))
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                raise BrokenError("the client has gone")
            await tasks[0]
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self, wire: Wire, passed_request: Request, authorization: bytes) -> None:
        """Raises RefusedError."""
        service = self._service()
        until_s = time.monotonic() + service.wake_s
        may_repeat = service.repeats or passed_request.method in IDEMPOTENT
        tried: list[int] = []
        while True:
            try:
                replica = await self._replicas.take(tried, until_s)
            except NoReplicaError:
                text = f"no replica was ready within {service.wake_s:g} s: `vgpu service show {service.name}` says why"
                if self._replicas.are_ending:
                    text = "it is being stopped"
                raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text) from None
            try:
                with self._replicas.under_way(replica):
                    await self._pass_to(wire, replica, passed_request, authorization)
                return
            except _LostError as error:
                tried.append(replica.job_id)
                self._replicas.note_failure(replica)
                if not may_repeat or len(tried) >= TRIES_MAX or time.monotonic() > until_s:
                    text = f"replica {replica.job_id} has not answered: {error}"
                    raise RefusedError(HTTPStatus.BAD_GATEWAY, text) from None

    async def _pass_to(self, wire: Wire, replica: Replica, passed_request: Request, authorization: bytes) -> None:
        """Raises _LostError, RefusedError."""
        token = authorization or b"Bearer " + replica.token.encode()
        with_token = Request(
            passed_request.method,
            passed_request.target,
            [*passed_request.headers, (b"authorization", token)],
            passed_request.body,
        )
        answer_s = HANDSHAKE_S if find_header(with_token.headers, b"upgrade") else ANSWER_S
        try:
            upstream, head = await self._replicas.upstreams.ask(replica, with_token, answer_s)
        except BrokenError as error:
            raise _LostError(str(error)) from error
        except asyncio.TimeoutError:
            raise RefusedError(HTTPStatus.GATEWAY_TIMEOUT, f"replica {replica.job_id} gives no answer") from None
        is_over = is_closing = False
        try:
            if isinstance(head, h11.InformationalResponse):
                replica.answers += 1
                await self.sockets.pass_on(replica.job_id, wire, upstream, head)
                is_closing = True  # what its client sent last may still be on its way
                return
            await self._pass_answer(wire, upstream, head, passed_request.method == b"HEAD")
            is_over = True
            replica.answers += 1
        finally:
            if is_over:
                self._replicas.upstreams.give_back(replica, upstream)
            elif not is_closing:
                upstream.abort()

    async def _pass_answer(self, wire: Wire, upstream: Wire, head: h11.Response, is_head: bool) -> None:
        """Raises _LostError."""
        is_chunked = find_header(head.headers, b"transfer-encoding")
        headers = keep_headers(head.headers.raw_items(), *((b"content-length",) if is_chunked else ()))
        size = find_header(headers, b"content-length")
        has_size = size.isdigit() and len(size) < 10
        if is_head or (has_size and int(size) <= WHOLE_BYTES_MAX) or head.status_code in (204, 304):
            try:
                body = b"".join([piece async for piece in _pieces(upstream)])
            except _ENDS as error:
                raise _LostError("it has ended in the midst of its answer") from error
            await wire.send(
                h11.Response(status_code=head.status_code, headers=headers, reason=head.reason),
                *((h11.Data(data=body),) if body else ()),
                h11.EndOfMessage(),
            )
            return
        await wire.send(h11.Response(status_code=head.status_code, headers=headers, reason=head.reason))
        async for piece in _pieces(upstream):
            await wire.send(h11.Data(data=piece))
        await wire.send(h11.EndOfMessage())


async def _pieces(upstream: Wire) -> AsyncIterator[bytes]:
    """The body of an answer. Raises _ENDS."""
    while isinstance(event := await upstream.next(STREAM_S), h11.Data):
        yield bytes(event.data)
    if not isinstance(event, h11.EndOfMessage):
        raise BrokenError("it has closed the connection")


async def _wait_for_end(wire: Wire) -> None:
    """Until the client has gone; one that has only closed its half still takes its answer. What it sends before, its
    next request, is kept for later, up to a bound."""
    kept = 0
    while data := await wire.reader.read(PIECE_BYTES):
        wire.http.receive_data(data)
        kept += len(data)
        if kept > HEAD_BYTES_MAX:
            return
    wire.probe()
    await wire.wait_for_reset()
