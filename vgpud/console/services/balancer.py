"""The balancer of a user's service: found by the user's own rights, asked at its control port."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import h11

from vgpud.console.live.data import Api
from vgpud.console.sessions.program import PIECE_BYTES, NotOpenError, Program, connect
from vgpud.core.jobs import session
from vgpud.errors import CliError, ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

#: of a balancer's answer: the record has a replica's whole environment
ANSWER_BYTES_MAX = 8 << 20
ASK_S = 5.0
_ACTIVE = ("pending", "held", "running", "suspended")


async def list_balancers(api: Api) -> list[pb.Job]:
    """Of all services that the user may see. Raises CliError."""
    jobs = await api.jobs(_ACTIVE)
    return sorted((job for job in jobs if job.spec.session == session.BALANCER), key=lambda job: job.spec.name)


async def find_balancer(api: Api, uid: int, name: str) -> Balancer:
    """Of the service with this name that the user has. Raises CliError."""
    found = [job for job in await list_balancers(api) if job.spec.name == name and job.uid == uid]
    if not found:
        raise CliError(f"no service {name[:60]} of yours runs", ExitCode.NOT_FOUND)
    return Balancer(await api.job(found[0].job_id))


@dataclass(frozen=True, slots=True)
class Balancer:
    """`job`: its job, as the daemon shows it to the service's owner."""

    job: pb.Job

    async def status(self) -> dict[str, Any]:
        """Raises CliError."""
        return await self._ask("GET", "/status")

    async def record(self) -> dict[str, Any]:
        """Raises CliError."""
        return await self._ask("GET", "/record")

    async def change(self, record: dict[str, Any]) -> None:
        """Raises CliError."""
        await self._ask("PUT", "/record", json.dumps(record).encode())

    async def stop(self) -> None:
        """Raises CliError."""
        await self._ask("POST", "/stop")

    async def _ask(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        job, name = self.job, self.job.spec.name
        token = job.spec.environment.get(session.TOKEN)
        if not token:
            raise CliError(f"service {name} is another user's: only they may change it", ExitCode.DENIED)
        if not job.HasField("session_port"):
            state = words.JOB_STATE.to_word(job.state)
            raise CliError(f"the balancer of service {name}, job {job.job_id}, is {state}", ExitCode.UNREACHABLE)
        shown = ("authorization", f"Bearer {token}")
        program = Program(job.job_id, job.uid, job.session_port, shown, b"/", title=f"the balancer of service {name}")
        try:
            status, answer = await asyncio.wait_for(_exchange(program, method, target, body), ASK_S)
            data = dict(json.loads(answer))
        except NotOpenError as error:
            raise CliError(str(error), ExitCode.UNREACHABLE) from error
        except (OSError, ValueError, TypeError, asyncio.TimeoutError, h11.ProtocolError) as error:
            text = f"the balancer of service {name}, job {job.job_id}, does not answer: its job has its output"
            raise CliError(text, ExitCode.UNREACHABLE) from error
        if status != 200:
            raise CliError(str(data.get("error", "it refuses")), ExitCode.USAGE if status == 400 else ExitCode.OTHER)
        return data


async def _exchange(program: Program, method: str, target: str, body: bytes) -> tuple[int, bytes]:
    """The status and the body of an answer. Raises NotOpenError, OSError, ValueError, h11.ProtocolError."""
    reader, writer = await connect(program)
    try:
        connection = h11.Connection(h11.CLIENT)
        headers = [program.token, ("host", "localhost"), ("content-length", str(len(body))), ("connection", "close")]
        writer.write(connection.send(h11.Request(method=method, target=target, headers=headers)) or b"")
        for event in (*((h11.Data(data=body),) if body else ()), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        status, parts, size = 0, [], 0
        while not isinstance(event := await _next(connection, reader), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                size += len(event.data)
            if isinstance(event, h11.ConnectionClosed) or size > ANSWER_BYTES_MAX:
                raise ValueError("it is no answer of a balancer")
        return status, b"".join(parts)
    finally:
        writer.close()


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(PIECE_BYTES))
    return event
