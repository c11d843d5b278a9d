"""Joins the terminal of a job: a connection to its keeper, which holds it (shim/job/terminal.c).

The keeper outlives the daemon, so a terminal is joined in the same way after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from vgpud.core.jobs import terminal as wire
from vgpud.core.jobs.terminal import Heard, Kind

log = logging.getLogger("vgpud.jobs")

#: output that is passed on as one message, if there is so much
OUTPUT_BYTES = 64 << 10
#: within this time a keeper that lives has said what was there
ANSWER_S = 10.0


class Terminal:
    """One connection, on the running loop. Closing it leaves the job running."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._waiting = 0  # calls that wait for the socket, which must not be closed under them
        self._is_closed = False
        self._has_answered = False
        self._ahead: Heard | None = None  # received together with the output before it

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def hear(self) -> Heard:
        """The next message; the output of before comes as one, and so does the output that is there already."""
        data = bytearray()
        while True:
            heard = await self._receive()
            if heard.kind is Kind.REPLAY and len(data) + len(heard.data) <= wire.REPLAY_BYTES_MAX:
                data += heard.data
            elif heard.kind is Kind.JOINED:
                return Heard(Kind.REPLAY, bytes(data))
            elif heard.kind is Kind.OUTPUT:
                return Heard(Kind.OUTPUT, heard.data + self._more_output())
            else:
                return Heard(Kind.ENDED) if heard.kind is Kind.REPLAY else heard

    async def _receive(self) -> Heard:
        if self._ahead:
            heard, self._ahead = self._ahead, None
            return heard
        try:
            with self._open():
                receiving = self._loop.sock_recv(self._socket, wire.MESSAGE_BYTES_MAX + 1)
                message = await asyncio.wait_for(receiving, None if self._has_answered else ANSWER_S)
        except asyncio.TimeoutError:
            log.error("the keeper of a terminal does not answer: the connection is closed")
            return Heard(Kind.ENDED)
        except OSError:
            return Heard(Kind.ENDED)
        self._has_answered = True
        return self._parse(message)

    def _more_output(self) -> bytes:
        data = bytearray()
        try:
            while not self._is_closed and len(data) < OUTPUT_BYTES:
                heard = self._parse(self._socket.recv(wire.MESSAGE_BYTES_MAX + 1))
                if heard.kind is not Kind.OUTPUT:
                    self._ahead = heard
                    break
                data += heard.data
        except OSError:
            pass  # there is no more at present; an end is heard next
        return bytes(data)

    @staticmethod
    def _parse(message: bytes) -> Heard:
        try:
            return wire.parse(message)
        except ValueError as error:
            log.error("the keeper of a terminal has sent %s: the connection is closed", error)
            return Heard(Kind.ENDED)

    async def type(self, keys: bytes) -> None:
        """Waits while the job's program reads nothing."""
        for at in range(0, len(keys), wire.INPUT_BYTES_MAX):
            await self._send(wire.encode_keys(keys[at : at + wire.INPUT_BYTES_MAX]))

    async def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the window; the first time after joining, the program redraws it."""
        await self._send(wire.encode_size(rows, columns))

    async def _send(self, message: bytes) -> None:
        try:
            with self._open():
                await self._loop.sock_sendall(self._socket, message)
        except OSError:
            return  # hear() says that it has ended

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """Raises OSError after close()."""
        if self._is_closed:
            raise OSError("closed")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            self._close_unused()

    def close(self) -> None:
        """Whoever waits in another method returns."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._close_unused()

    def _close_unused(self) -> None:
        if self._is_closed and not self._waiting:
            self._socket.close()


def join(attempt: Path) -> Terminal | None:
    """The terminal of the attempt with this directory; None: it is not there, not yet or not any more."""
    try:
        directory = os.open(attempt, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        connected.connect(f"/proc/self/fd/{directory}/terminal")  # the path itself may be longer than an address
    except OSError:
        connected.close()
        return None
    finally:
        os.close(directory)
    return Terminal(connected)
