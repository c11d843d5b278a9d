"""Replicas of the tests: servers in this process that answer, die and hang as a test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import h11

from vgpud.services.core.model import JobPhase, Replica, Service
from vgpud.services.shell.address import WATCH_S, Address
from vgpud.services.shell.replicas import Replicas

#: what a program does with a request
ANSWER, RESET, HALF, HANG = "answer", "reset", "half", "hang"
STREAM, STREAM_HALF, NO_HTTP, SLOW = "stream", "stream half", "no HTTP", "slow"


@dataclass
class Program:
    """Listens at a port, and keeps what it was asked."""

    name: str
    behaviour: str = ANSWER
    requests: list[tuple[bytes, bytes, dict[bytes, bytes], bytes]] = field(default_factory=list)
    port: int = 0
    departures: int = 0  # clients that closed while it hung

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        with contextlib.suppress(OSError, h11.RemoteProtocolError, asyncio.CancelledError):
            while await self._one(reader, writer, http):
                http.start_next_cycle()
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, http: h11.Connection) -> bool:
        head, body = None, b""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(65536)
                if not data and head is None:
                    return False
                http.receive_data(data)
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                break
        if head is None:
            return False
        self.requests.append((head.method, head.target, dict(head.headers), body))
        return await self._behave(reader, writer, http)

    async def _behave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, http: h11.Connection) -> bool:
        text = f"{self.name} says hello".encode()

        def send(*events: h11.Event) -> None:
            writer.write(b"".join(http.send(event) or b"" for event in events))

        length = ("content-length", str(len(text)))
        if self.behaviour == RESET:
            writer.transport.abort()
            return False
        if self.behaviour == HANG:
            await reader.read(1)
            self.departures += 1
            return False
        if self.behaviour == NO_HTTP:
            writer.write(b"SSH-2.0-nothing\r\n\r\n")
            return False
        if self.behaviour in (STREAM, STREAM_HALF):
            send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
            for _ in range(3):
                send(h11.Data(data=text))
                await writer.drain()
                await asyncio.sleep(0.01)
            if self.behaviour == STREAM_HALF:
                writer.transport.abort()
                return False
            send(h11.EndOfMessage())
            return True
        if self.behaviour == SLOW:  # longer than a client is not watched
            await asyncio.sleep(2 * WATCH_S)
        send(h11.Response(status_code=200, headers=[length]))
        if self.behaviour == HALF:
            writer.write(text[:5])
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.transport.abort()
            return False
        send(h11.Data(data=text), h11.EndOfMessage())
        return True


class Balanced:
    """An address with replicas whose programs are these."""

    def __init__(self, programs: dict[int, Program], service: Service) -> None:
        self.service, self.programs = service, programs
        self.nudges = 0
        self.replicas = Replicas(self._nudge)
        self.address = Address(lambda: self.service, self.replicas)
        self.port = 0

    def _nudge(self) -> None:
        self.nudges += 1

    def add(self, job_id: int) -> Replica:
        program = self.programs[job_id]
        made = Replica(job_id, 1, JobPhase.RUNNING, attempt=1, port=program.port, token=f"of-{job_id}")
        made.healthy_since_s = 0.0
        self.replicas.by_id[job_id] = made
        self.replicas.note_change()
        return made

    async def ask(
        self, method: str = "GET", path: str = "/x", body: bytes = b"", key: str | None = "secret", **headers: str
    ) -> tuple[int, bytes, dict[bytes, bytes]]:
        """Status, body and headers of the answer. Raises OSError, where the connection ends before the answer does."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        http = h11.Connection(h11.CLIENT)
        given = [("host", "here"), *((name.replace("_", "-"), value) for name, value in headers.items())]
        if key is not None:
            given.append(("authorization", f"Bearer {key}"))
        if body:
            given.append(("content-length", str(len(body))))
        events: list[Any] = [h11.Request(method=method, target=path, headers=given)]
        events += [h11.Data(data=body)] if body else []
        writer.write(b"".join(http.send(event) or b"" for event in (*events, h11.EndOfMessage())))
        status, data, found = 0, b"", {}
        try:
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(await reader.read(65536))
                elif isinstance(event, h11.Response):
                    status, found = event.status_code, dict(event.headers)
                elif isinstance(event, h11.Data):
                    data += event.data
                elif isinstance(event, h11.EndOfMessage):
                    return status, data, found
                elif not isinstance(event, h11.InformationalResponse):
                    raise ConnectionResetError
        except h11.RemoteProtocolError as error:
            raise ConnectionResetError(str(error)) from error
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def serve_balanced(*behaviours: str, **fields: Any) -> AsyncIterator[Balanced]:
    """A service with a replica for each behaviour: jobs 1, 2 and so on, all ready."""
    programs = {at: Program(f"replica {at}", behaviour) for at, behaviour in enumerate(behaviours, 1)}
    made = Balanced(programs, Service("chat", {}, "secret", **fields))
    servers = []
    for job_id, program in programs.items():
        server = await asyncio.start_server(program.serve, "127.0.0.1", 0)
        servers.append(server)
        program.port = server.sockets[0].getsockname()[1]
        made.add(job_id)
    front = await asyncio.start_server(made.address.serve, "127.0.0.1", 0)
    made.port = front.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        front.close()
        await made.address.close()
        for job_id in programs:
            made.replicas.forget(job_id)
        for server in servers:
            server.close()
