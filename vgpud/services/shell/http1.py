"""HTTP/1.1 over a stream, with a deadline for each wait: used for clients, replicas and the control port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

import h11

Headers = list[tuple[bytes, bytes]]
#: of what is read at once
PIECE_BYTES = 64 * 1024
#: of a request's or an answer's head
HEAD_BYTES_MAX = 64 * 1024
#: a side that takes nothing of what is sent to it
STUCK_S = 60.0
#: one that still sends when it has been refused
LINGER_S = 2.0
#: how often it is looked whether a connection has been reset; and where the kernel says so (tcp(7))
LOOK_S = 0.5
_TCP_STATE, _TCP_CLOSE = (socket.IPPROTO_TCP, socket.TCP_INFO), 7
#: of one connection, not of a message (RFC 9110, 7.6.1)
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization")
) | frozenset((b"te", b"trailer", b"transfer-encoding", b"upgrade"))


class BrokenError(Exception):
    """The other side has closed the connection, says nothing, or does not speak HTTP."""


class Wire:
    """One connection and where it is in its exchange of messages. A wait that takes too long ends the connection: that
    costs a timer, where asyncio.wait_for() would cost a task for each wait."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, http: h11.Connection) -> None:
        self.reader, self.writer, self.http = reader, writer, http
        self._has_expired = False

    async def next(self, timeout_s: float) -> h11.Event | type[h11.PAUSED]:
        """The next part of what the other side sends. Raises BrokenError, TimeoutError; h11.RemoteProtocolError for
        what is no HTTP."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            timer = asyncio.get_running_loop().call_later(timeout_s, self._expire)
            try:
                data = await self.reader.read(PIECE_BYTES)
            except OSError as error:
                raise BrokenError(error.strerror or str(error)) from error
            finally:
                timer.cancel()
            if self._has_expired:
                raise asyncio.TimeoutError
            if not data and self.http.their_state in (h11.IDLE, h11.SEND_RESPONSE):
                raise BrokenError("it has closed the connection")
            self.http.receive_data(data)
        return event  # type: ignore[return-value]

    async def send(self, *events: h11.Event) -> None:
        """Raises BrokenError."""
        data = b"".join(self.http.send(event) or b"" for event in events)
        timer = asyncio.get_running_loop().call_later(STUCK_S, self._expire)
        try:
            self.writer.write(data)
            await self.writer.drain()
        except OSError as error:
            raise BrokenError("it takes nothing" if self._has_expired else str(error)) from error
        finally:
            timer.cancel()

    async def linger(self) -> None:
        """What the other side still sends is read and forgotten, for a moment: to close at once would lose what it was
        sent last."""
        timer = asyncio.get_running_loop().call_later(LINGER_S, self.abort)
        try:
            self.writer.write_eof()
            while await self.reader.read(PIECE_BYTES):
                pass
        except OSError:
            pass  # it has gone
        finally:
            timer.cancel()

    def probe(self) -> None:
        """Of a client that has closed its half, and may have gone: what one that has gone is sent makes its machine
        reset the connection. Not once an answer has begun, and not of HTTP/1.0, which does not know it."""
        if self.http.our_state is h11.SEND_RESPONSE and self.http.their_http_version == b"1.1":
            self.writer.write(self.http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")

    async def wait_for_reset(self) -> None:
        """Until the connection is there no more, though nothing is read from it."""
        sock = self.writer.get_extra_info("socket")
        while not self.writer.transport.is_closing() and sock.getsockopt(*_TCP_STATE, 1)[0] != _TCP_CLOSE:
            await asyncio.sleep(LOOK_S)

    async def hand_over(self, protocol: asyncio.Protocol) -> None:
        """The connection is another protocol's from now on, with what has come behind the last message. Raises
        BrokenError: the other side takes nothing, which that protocol would not know."""
        transport = self.writer.transport
        if transport.get_write_buffer_size() > transport.get_write_buffer_limits()[0]:
            raise BrokenError("it takes nothing")
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        self.reader.feed_eof()  # what it holds is read without a wait
        if data := self.http.trailing_data[0] + await self.reader.read():
            protocol.data_received(data)

    def _expire(self) -> None:
        self._has_expired = True
        self.abort()

    def close(self) -> None:
        """What has been sent may still be taken, for a while."""
        self.writer.close()
        if self.writer.transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(STUCK_S, self.abort)

    def abort(self) -> None:
        self.writer.transport.abort()


def keep_headers(headers: Iterable[tuple[bytes, bytes]], *hidden_names: bytes) -> Headers:
    """Those of the message, without those of the connection that it came on."""
    given = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in given if name == b"connection" for word in value.split(b",")}
    return [(name, value) for name, value in given if name not in _HOP_BY_HOP | named and name not in hidden_names]


def find_header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    """The first one of this name, b"": there is none."""
    return next((value for key, value in headers if key.lower() == name), b"")
