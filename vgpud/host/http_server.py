"""A small HTTP server in a thread of its own, for answers that a program polls: one request per connection.

It is bounded as vgpud/host/listeners.py says, and an answer's time is charged to its client: one that asks without end
has PART of one processor, and waits for the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from vgpud.host.listeners import Bound, Places, source

log = logging.getLogger("vgpud.http")

BACKLOG = 128
#: of a request's line and headers
HEAD_BYTES_MAX = 16 * 1024
#: of one processor, for all answers to one user or address
PART = 0.05
#: what a connection costs beside its answer
CONNECTION_S = 0.0002
#: an answer that is not taken by then is dropped
TAKEN_S = 10.0
#: pauses behind so many connections that were refused, which take 0.1 ms, and when none can be accepted
REFUSED_S, REFUSED_MAX, REST_S = 0.001, 4, 0.1
#: failures are logged at most this often, since clients cause them
LOG_EVERY_S = 10.0
_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked; names of headers in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """status: the number and its words."""

    status: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


Answering = Callable[[Request], Answer]


class Account:
    """Which clients must wait, and for how long: time is paid for at the rate PART. Pure."""

    def __init__(self) -> None:
        self._free_s: dict[Hashable, float] = {}

    def wait_s(self, who: Hashable, now_s: float) -> float:
        return max(0.0, self._free_s.get(who, 0.0) - now_s)

    def charge(self, who: Hashable, cost_s: float, now_s: float) -> None:
        self._free_s = {key: free_s for key, free_s in self._free_s.items() if free_s > now_s}
        self._free_s[who] = max(self._free_s.get(who, 0.0), now_s) + cost_s / PART


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: HttpServer, who: Hashable) -> None:
        self._server, self._who = server, who
        self._head = bytearray()
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._set_timer(self._server.bound.deadline_s, transport.abort)

    def _set_timer(self, delay_s: float, act: Callable[[], None]) -> None:
        """The one thing that is awaited: what was awaited before is not any more."""
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, act)

    def data_received(self, data: bytes) -> None:
        if self._asked:
            return  # one request per connection
        self._head += data
        if _END in self._head or len(self._head) > HEAD_BYTES_MAX:
            self._asked = True
            self._transport.pause_reading()
            self._wait()

    def _wait(self) -> None:
        """Until it is the client's turn; another answer to them may have been made meanwhile."""
        wait_s = self._server.account.wait_s(self._who, time.monotonic())
        if wait_s > 0:
            self._set_timer(wait_s, self._wait)
        else:
            self._answer()

    def _answer(self) -> None:
        began_s = time.thread_time()
        self._transport.write(self._server.build_answer(bytes(self._head)))
        self._server.account.charge(self._who, CONNECTION_S + time.thread_time() - began_s, time.monotonic())
        self._set_timer(TAKEN_S, self._transport.abort)
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        self._server.places.give_back(self._who)


class HttpServer:
    """Listens from its making on, until close(). answer() is called in the server's thread. Raises OSError."""

    def __init__(self, host: str, port: int, bound: Bound, answer: Answering) -> None:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.bound = bound
        self.places = Places(bound)
        self.account = Account()
        self._give_answer = answer
        self._logged_s = -LOG_EVERY_S
        self._listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listening.bind(address)
            self._listening.listen(BACKLOG)
        except OSError:
            self._listening.close()
            raise
        self.port = int(self._listening.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        accepting = self._loop.create_task(self._accept())
        self._loop.run_forever()
        accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(accepting)
        self._listening.close()
        self._loop.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        refused = 0
        while True:
            try:
                sock, _ = await loop.sock_accept(self._listening)
            except OSError:  # no descriptors
                await asyncio.sleep(REST_S)
                continue
            try:
                who = source(sock)
            except OSError:  # it has gone
                sock.close()
                continue
            if not self.places.take(who):
                sock.close()
                refused += 1
                await asyncio.sleep(REFUSED_S if refused % REFUSED_MAX == 0 else 0)
                continue
            try:
                await loop.connect_accepted_socket(lambda who=who: _Connection(self, who), sock)  # type: ignore[misc]
            except OSError:
                sock.close()
                self.places.give_back(who)

    def build_answer(self, head: bytes) -> bytes:
        """The answer to this request, as bytes; whatever it is."""
        request = _parse(head)
        try:
            answer = self._give_answer(request) if isinstance(request, Request) else request
        except Exception:
            if time.monotonic() - self._logged_s > LOG_EVERY_S:
                self._logged_s = time.monotonic()
                log.exception("a request could not be answered")
            answer = Answer("500 Internal Server Error")
        lines = [f"{name}: {value}" for name, value in answer.headers]
        lines += [f"Content-Length: {len(answer.body)}", "Connection: close"]
        body = b"" if isinstance(request, Request) and request.method == "HEAD" else answer.body
        return "\r\n".join((f"HTTP/1.1 {answer.status}", *lines, "", "")).encode("latin-1", "replace") + body


def _parse(head: bytes) -> Request | Answer:
    """The request, or why it is none."""
    if len(head) > HEAD_BYTES_MAX:
        return Answer("431 Request Header Fields Too Large")
    first, *rest = head[: head.index(_END)].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return Answer("400 Bad Request")
    if words[0] not in ("GET", "HEAD"):
        return Answer("405 Method Not Allowed", (("Allow", "GET, HEAD"),))
    path, _, query = words[1].partition("?")
    pairs = (line.partition(":") for line in rest)
    return Request(words[0], path, query, {name.strip().lower(): value.strip() for name, _, value in pairs})
