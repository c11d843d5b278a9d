"""The control port of a service: `vgpu service` asks for its state and changes it here. On loopback, with the token of
the balancer's job, which the daemon shows to its owner only."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any

import h11

from vgpud.errors import VgpudError
from vgpud.host import listeners
from vgpud.services.core.model import RECORD_BYTES_MAX, RecordError, Service, read_record
from vgpud.services.shell.http1 import HEAD_BYTES_MAX, BrokenError, Wire, find_header

STATUS, RECORD, STOP = b"/status", b"/record", b"/stop"


class Control:
    """`status`: what there is, as JSON values; `record`: the service now; `change`: makes it another one, and may raise
    RecordError, VgpudError; `stop`: ends it."""

    def __init__(
        self,
        token: str,
        status: Callable[[], dict[str, Any]],
        record: Callable[[], Service],
        change: Callable[[Service], Awaitable[None]],
        stop: Callable[[], None],
    ) -> None:
        self._shown = f"Bearer {token}".encode()
        self._status, self._record, self._change, self._stop = status, record, change, stop
        self._places = listeners.Places(listeners.SERVICE_CONTROL)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, as asyncio's server has it."""
        wire = Wire(reader, writer, h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX))
        try:
            who = listeners.source(writer.get_extra_info("socket"))
        except OSError:
            wire.close()
            return
        if not self._places.take(who):
            wire.abort()
            return
        try:
            await asyncio.wait_for(self._answer(wire), listeners.SERVICE_CONTROL.deadline_s)
        except (h11.RemoteProtocolError, BrokenError, asyncio.TimeoutError):
            wire.abort()
        finally:
            self._places.give_back(who)
            wire.close()

    async def _answer(self, wire: Wire) -> None:
        request = await wire.next(listeners.SERVICE_CONTROL.deadline_s)
        if not isinstance(request, h11.Request):
            return
        if not hmac.compare_digest(find_header(request.headers, b"authorization"), self._shown):
            await _send(wire, 401, {"error": "this is the control port of a service: use `vgpu service`"})
            return
        body = b""
        while isinstance(event := await wire.next(listeners.SERVICE_CONTROL.deadline_s), h11.Data):
            body += event.data
            if len(body) > RECORD_BYTES_MAX:
                await _send(wire, 413, {"error": f"a record has at most {RECORD_BYTES_MAX} bytes"})
                return
        status, answer = await self._carry_out(request.method, request.target, body)
        await _send(wire, status, answer)

    async def _carry_out(self, method: bytes, target: bytes, body: bytes) -> tuple[int, dict[str, Any]]:
        """The status and the answer."""
        if (method, target) == (b"GET", STATUS):
            return 200, self._status()
        if (method, target) == (b"GET", RECORD):
            return 200, json.loads(self._record().to_json())
        if (method, target) == (b"POST", STOP):
            self._stop()
            return 200, {}
        if (method, target) != (b"PUT", RECORD):
            return 404, {"error": "there is no such request"}
        try:
            await self._change(read_record(body.decode(errors="replace")))
        except (RecordError, VgpudError) as error:
            return 400, {"error": str(error)}
        return 200, {}


async def _send(wire: Wire, status: int, answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    head = h11.Response(status_code=status, headers=[*headers, (b"connection", b"close")])
    await wire.send(head, h11.Data(data=body), h11.EndOfMessage())
