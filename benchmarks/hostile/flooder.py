"""A user who holds and makes as many connections as they are let: `flooder TARGET...`, unix:PATH, seqpacket:PATH or
tcp:HOST:PORT.

From SIGUSR1 it has CONNECTIONS in all, divided among the targets and five manners: silent; half of a request; one byte
of it every second; a request without end; connected and closed again and again. One that is closed is made again. From
SIGUSR2, and at first, it does the same to a server of its own: its processor time is no part of the comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.hostile import users
from benchmarks.hostile.attacker import BEGIN, END

CONNECTIONS = 2000
REPORT_S = 0.05
REFUSED_PAUSE_S = 0.25
HALF = b"GET /metrics HTTP/1.1\r\nHost: "
LARGE = b"a" * 65_536
Manner = Callable[[socket.socket], Awaitable[None]]


async def _wait_for_end(sock: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(sock, 4096):
        pass


async def stay_silent(sock: socket.socket) -> None:
    await _wait_for_end(sock)


async def send_half(sock: socket.socket) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, HALF)
    await _wait_for_end(sock)


async def send_slowly(sock: socket.socket) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(sock, b"G")
        await asyncio.sleep(1)


async def send_without_end(sock: socket.socket) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(sock, LARGE)
        await asyncio.sleep(0)


async def hang_up(_sock: socket.socket) -> None:
    await asyncio.sleep(REFUSED_PAUSE_S / 25)


MANNERS: tuple[Manner, ...] = (stay_silent, send_half, send_slowly, send_without_end, hang_up)


class Flooder:
    """Its connections and what became of them."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.counts = {"made": 0, "refused": 0}
        self.held = 0

    def begin(self, targets: Sequence[str]) -> None:
        self.end()
        for number in range(CONNECTIONS):
            target = targets[number % len(targets)]
            manner = MANNERS[number // len(targets) % len(MANNERS)]
            self._tasks.append(asyncio.create_task(self._repeat(target, manner)))

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _repeat(self, target: str, manner: Manner) -> None:
        while True:
            try:
                with await connect(target) as sock:
                    self.counts["made"] += 1
                    self.held += 1
                    try:
                        await manner(sock)
                    finally:
                        self.held -= 1
            except OSError:
                self.counts["refused"] += 1
            await asyncio.sleep(REFUSED_PAUSE_S)


async def connect(target: str) -> socket.socket:
    """Raises OSError."""
    kind, _, where = target.partition(":")
    if kind == "tcp":
        host, _, port = where.rpartition(":")
        family, address = socket.AF_INET, (host, int(port))
    else:
        family, address = socket.AF_UNIX, where  # type: ignore[assignment]
    sock = socket.socket(family, socket.SOCK_SEQPACKET if kind == "seqpacket" else socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def processor_time_s(pid: int) -> float:
    """Of all threads of a process so far."""
    return time.clock_gettime(~pid << 3 | 2)  # the number of its clock, as the C library makes it


def serve_own() -> tuple[str, int]:
    """A server in a process of its own, which closes a connection that has sent something; its target, its pid."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG

        async def serve() -> None:
            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    await asyncio.wait_for(reader.read(4096), 5)
                    await asyncio.wait_for(reader.read(1), 2)
                writer.close()

            server = await asyncio.start_server(answer, sock=listening)
            await server.serve_forever()

        asyncio.run(serve())
        os._exit(0)
    port = listening.getsockname()[1]
    listening.close()
    return f"tcp:127.0.0.1:{port}", pid


async def flood(targets: list[str], own_server: str, server_pid: int) -> None:
    """Until it is ended."""
    flooder, loop = Flooder(), asyncio.get_running_loop()
    flooder.begin([own_server])
    loop.add_signal_handler(BEGIN, flooder.begin, targets)
    loop.add_signal_handler(END, flooder.begin, [own_server])
    while True:
        own = {"flood_s": time.process_time(), "server_s": processor_time_s(server_pid)}
        users.say(**flooder.counts, held=flooder.held, **own)
        await asyncio.sleep(REPORT_S)


def main(targets: list[str]) -> None:
    limit = min(2 * CONNECTIONS + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    users.become(users.ATTACKER_UID)
    asyncio.run(flood(targets, *serve_own()))


if __name__ == "__main__":
    main(sys.argv[1:])
