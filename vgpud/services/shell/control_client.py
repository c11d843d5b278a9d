"""The control port of a service, as the command line and the console ask it: with the token of the balancer's job, and
only where a program of the service's owner listens."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import h11

from vgpud.core.jobs.session import TOKEN
from vgpud.errors import CliError, ExitCode
from vgpud.services.core.model import RecordError, Service, read_record
from vgpud.services.shell.control import RECORD, STATUS, STOP
from vgpud.services.shell.http1 import BrokenError
from vgpud.services.shell.upstream import Request, connect, exchange, read_body
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

#: of a balancer's answer: the record has a replica's whole environment
ANSWER_BYTES_MAX = 8 << 20
ASK_S = 5.0
_EXIT_CODES = {400: ExitCode.USAGE, 401: ExitCode.DENIED}


@dataclass(frozen=True, slots=True)
class Balancer:
    """`job`: its job, as the daemon shows it to the service's owner. Methods raise CliError."""

    job: pb.Job
    timeout_s: float = ASK_S

    @property
    def name(self) -> str:
        return str(self.job.spec.name)

    async def status(self) -> dict[str, Any]:
        return await self._ask(b"GET", STATUS)

    async def record(self) -> Service:
        answer = await self._ask(b"GET", RECORD)
        try:
            return read_record(json.dumps(answer))
        except RecordError as error:
            raise CliError(f"{self._title} has another record than this vgpu knows: {error}") from error

    async def change(self, service: Service) -> None:
        await self._ask(b"PUT", RECORD, service.to_json().encode())

    async def stop(self) -> None:
        await self._ask(b"POST", STOP)

    @property
    def _title(self) -> str:
        return f"the balancer of service {self.name}, job {self.job.job_id},"

    async def _ask(self, method: bytes, target: bytes, body: bytes = b"") -> dict[str, Any]:
        token = self.job.spec.environment.get(TOKEN)
        if not token:
            raise CliError(f"service {self.name} is another user's: only they may change it", ExitCode.DENIED)
        if not self.job.HasField("session_port"):
            state = words.JOB_STATE.to_word(self.job.state)
            why = f": {self.job.reason}" if self.job.reason else ""
            raise CliError(f"{self._title} is {state}{why}", ExitCode.UNREACHABLE)
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
        headers += [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        try:
            work = self._exchange(Request(method, target, headers, body))
            status, data = await asyncio.wait_for(work, self.timeout_s)
        except (OSError, ValueError, TypeError, asyncio.TimeoutError, BrokenError, h11.ProtocolError) as error:
            why = str(error) or f"within {self.timeout_s:g} s"
            text = f"{self._title} does not answer ({why}): `vgpu service logs {self.name} --balancer` has its output"
            raise CliError(text, ExitCode.UNREACHABLE) from error
        if status != 200:
            raise CliError(str(data.get("error", "it refuses")), _EXIT_CODES.get(status, ExitCode.OTHER))
        return data

    async def _exchange(self, request: Request) -> tuple[int, dict[str, Any]]:
        """Status and answer. The token lets whoever has it run programs as the service's owner: it is shown to a
        program of theirs only. Raises BrokenError, TimeoutError, ValueError."""
        wire = await connect(self.job.session_port, self.job.uid)
        try:
            head = await exchange(wire, request, self.timeout_s)
            body = await read_body(wire, self.timeout_s, ANSWER_BYTES_MAX)
        finally:
            wire.close()
        return head.status_code, dict(json.loads(body))
