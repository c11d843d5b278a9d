"""gRPC over connections that an agent has made: gRPC in Python connects by itself only, so it connects to a private
socket here, and the bytes are passed on to the agent's connection. Other processes with this uid, which services may
share, get nothing there: the kernel says that this very process has connected."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from vgpud.host import processes

log = logging.getLogger("vgpud.console")

PIECE_BYTES = 64 * 1024


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes in one direction until either side closes."""
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


class Bridge:
    """A private socket whose connections become the user's connections to the API."""

    def __init__(self, path: Path, connect: Callable[[], Awaitable[socket.socket]]) -> None:
        self._path = path
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def target(self) -> str:
        return f"unix:{self._path}"

    async def open(self) -> None:
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self._path))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, _, _ = processes.all_credentials(writer.get_extra_info("socket"))
        if pid != os.getpid():
            log.warning("refused pid %d at the socket of a user's requests: it is for this process alone", pid)
            writer.close()
            return
        self._writers.add(writer)
        try:
            sock = await self._connect()
            its_reader, its_writer = await asyncio.open_unix_connection(sock=sock)
            await asyncio.gather(_pass_on(reader, its_writer), _pass_on(its_reader, writer))
        except Exception as error:  # whatever it is: gRPC sees a closed connection and tries again
            log.debug("no connection for gRPC: %s", error)
        finally:
            writer.close()
            self._writers.discard(writer)

    async def close(self) -> None:
        if self._server:
            self._server.close()
        for writer in list(self._writers):
            writer.close()  # which ends the other side, too
        self._path.unlink(missing_ok=True)
