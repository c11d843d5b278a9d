"""`vgpu session open`: a port of this machine that leads to a session's program, over the API. Like `ssh -L`, and
without an account for ssh: the daemon checks the session's owner at each connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import cast

from vgpud.cli.common.local_ports import is_own
from vgpud.cli.common.output import say
from vgpud.client import calls
from vgpud.client.async_connection import AsyncConnection
from vgpud.client.failures import ClientError
from vgpud.errors import CliError, ExitCode, VgpudError
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.errors import make_cli_error

PIECE_BYTES = 64 * 1024
#: connections at once; the daemon has a share for each user as well
CONNECTIONS_MAX = 64
#: a program on this machine that takes nothing
STALLED_S = 60.0


@dataclass(frozen=True)
class Tunnel:
    """`port_name`: one of the session's further ports; `announce`: called with the local port when it listens."""

    host: str | None  # the daemon, as `vgpu --host`
    timeout_s: float
    job_id: int
    port_name: str
    local_port: int  # 0 = any that is free
    announce: Callable[[int], None]

    def run(self) -> None:
        """Until Ctrl-C. Raises CliError."""
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        try:
            connection = AsyncConnection(self.host, timeout_s=self.timeout_s)
        except VgpudError as error:
            raise make_cli_error(error) from error
        async with connection:
            ends = _Ends(self, connection)
            try:
                server = await asyncio.start_server(ends.take, "127.0.0.1", self.local_port, limit=PIECE_BYTES)
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else str(error)
                text = f"cannot listen on 127.0.0.1:{self.local_port}: {why}; choose another --listen"
                raise CliError(text, ExitCode.CONFLICT) from error
            try:
                async with server:
                    self.announce(server.sockets[0].getsockname()[1])
                    await server.serve_forever()
            finally:
                ends.is_stopping = True


class _Ends:
    """The connections of this machine's programs."""

    def __init__(self, tunnel: Tunnel, connection: AsyncConnection) -> None:
        self._tunnel = tunnel
        self._connection = connection
        self._count = 0
        self._said = ""
        self.is_stopping = False

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Only of this user: whoever else has an account here could use the session otherwise."""
        try:
            if self._count < CONNECTIONS_MAX and is_own(
                writer.get_extra_info("peername"), writer.get_extra_info("sockname")
            ):
                self._count += 1
                try:
                    await self._pass_through(reader, writer)
                finally:
                    self._count -= 1
        except ClientError as error:
            self._say(error.message)
        except (OSError, asyncio.TimeoutError):
            pass  # the program here has closed, or takes nothing
        finally:
            if writer.transport.get_write_buffer_size() > PIECE_BYTES:
                writer.transport.abort()
            else:
                writer.close()

    async def _pass_through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = self._connection.watch(calls.forward_session(self._requests(reader)))
        async with contextlib.aclosing(cast(AsyncGenerator[pb.ForwardSessionResponse, None], call)) as answers:
            async for answer in answers:
                if answer.data:
                    writer.write(answer.data)
                    await asyncio.wait_for(writer.drain(), STALLED_S)

    async def _requests(self, reader: asyncio.StreamReader) -> AsyncIterator[pb.ForwardSessionRequest]:
        yield pb.ForwardSessionRequest(job_id=self._tunnel.job_id, port=self._tunnel.port_name)
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                yield pb.ForwardSessionRequest(data=data)
        yield pb.ForwardSessionRequest(end=True)

    def _say(self, text: str) -> None:
        """A browser tries again and again: each reason once."""
        if text != self._said and not self.is_stopping:
            self._said = text
            say(text)
