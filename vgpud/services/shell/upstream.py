"""Connections to replicas: kept open between requests, and given up when anything is wrong with them."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from dataclasses import dataclass

import h11

from vgpud.host import listeners
from vgpud.services.core.model import Replica
from vgpud.services.shell.http1 import HEAD_BYTES_MAX, PIECE_BYTES, BrokenError, Headers, Wire

CONNECT_S = 5.0
#: of a replica: connections that wait for a request, and for how long. Servers close theirs after 5 s and more
KEPT_MAX, KEPT_S = 64, 2.0
#: until the head of an answer, and between two pieces of it: a model may think, and a stream of events be silent
ANSWER_S, STREAM_S = 600.0, 600.0


Head = h11.Response | h11.InformationalResponse
#: the status of an answer after which the connection has another protocol
SWITCHED = 101


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a replica gets it."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes


class Upstreams:
    """Of all replicas, by job and attempt."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], deque[tuple[float, Wire]]] = {}

    async def ask(self, replica: Replica, request: Request, answer_s: float = ANSWER_S) -> tuple[Wire, Head]:
        """The head of the replica's answer; the body, or another protocol, follows on the wire. Raises BrokenError: no
        byte of an answer has come. Raises TimeoutError."""
        while True:
            wire, is_used = await self._take(replica)
            try:
                return wire, await exchange(wire, request, answer_s)
            except BaseException as error:
                wire.abort()
                if isinstance(error, BrokenError) and is_used:
                    continue  # it was closed while it waited: that says nothing of the replica
                raise

    async def _take(self, replica: Replica) -> tuple[Wire, bool]:
        kept = self._kept.get((replica.job_id, replica.attempt))
        while kept:
            at_s, wire = kept.pop()
            if time.monotonic() - at_s < KEPT_S and not wire.reader.at_eof():
                return wire, True
            wire.abort()
        return await connect(replica.port, is_published=replica.is_published), False

    def give_back(self, replica: Replica, wire: Wire) -> None:
        """The exchange is over: the connection may be used again, if both sides have left it so."""
        kept = self._kept.setdefault((replica.job_id, replica.attempt), deque())
        if wire.http.our_state is not h11.DONE or wire.http.their_state is not h11.DONE or len(kept) >= KEPT_MAX:
            wire.close()
            return
        wire.http.start_next_cycle()
        kept.append((time.monotonic(), wire))

    def forget(self, job_id: int) -> None:
        for key in [key for key in self._kept if key[0] == job_id]:
            for _, wire in self._kept.pop(key):
                wire.abort()


async def connect(port: int, owner: int | None = None, *, is_published: bool = False) -> Wire:
    """A connection to a program of this user, or of `owner`; `is_published`: a container engine leads the port to it,
    as root. Raises BrokenError, also where another user's listens at the port."""
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection("127.0.0.1", port, limit=PIECE_BYTES), CONNECT_S
        )
    except (OSError, asyncio.TimeoutError) as error:
        raise BrokenError(f"nothing listens at port {port}") from error
    own = writer.get_extra_info("sockname")
    uid = listeners.server_uid(port, own[:2], is_published=is_published) if own else None
    if not listeners.may_serve(uid, os.geteuid() if owner is None else owner, is_published=is_published):
        writer.transport.abort()
        raise BrokenError(f"nothing of it listens at port {port}" + ("" if uid is None else f", uid {uid} does"))
    return Wire(reader, writer, h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX))


async def exchange(wire: Wire, request: Request, answer_s: float) -> Head:
    """Sends the request; the head of its answer, which changes the protocol only where the request has asked for that.
    Raises BrokenError, TimeoutError."""
    try:
        head = h11.Request(method=request.method, target=request.target, headers=request.headers)
        await wire.send(head, *((h11.Data(data=request.body),) if request.body else ()), h11.EndOfMessage())
        event = await wire.next(answer_s)
        while isinstance(event, h11.InformationalResponse) and event.status_code != SWITCHED:
            event = await wire.next(answer_s)
    except h11.RemoteProtocolError as error:
        raise BrokenError(f"it does not speak HTTP: {error}") from error
    if not isinstance(event, h11.Response | h11.InformationalResponse) or event.status_code > 599:
        raise BrokenError("it has closed the connection")
    return event


async def read_body(wire: Wire, piece_s: float, bytes_max: int) -> bytes:
    """The body of an answer. Raises BrokenError, TimeoutError, h11.RemoteProtocolError; ValueError: it is too long."""
    parts: list[bytes] = []
    size = 0
    while isinstance(event := await wire.next(piece_s), h11.Data):
        parts.append(bytes(event.data))
        size += len(event.data)
        if size > bytes_max:
            raise ValueError(f"its answer has more than {bytes_max} bytes")
    if not isinstance(event, h11.EndOfMessage):
        raise BrokenError("it has closed the connection")
    return b"".join(parts)
