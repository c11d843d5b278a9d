"""ForwardSession: a connection to a session's program over the API, for `vgpu session open` on another machine.

A call is one connection. Bytes pass in both directions, unread. What the daemon holds of each is bounded by a piece of
each direction, since it reads on only when the other side has taken the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from vgpud.api.caller import caller
from vgpud.api.job_backend import JobBackend
from vgpud.api.rpc import RefusedError, refuse
from vgpud.api.turns import charge_message
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import Job, UserWait
from vgpud.core.model import Denied, Reason
from vgpud.host import listeners
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: a call must name its session within this time
HELLO_S = 10.0
PIECE_BYTES = 64 * 1024
#: a program that takes nothing of what it is sent, and a connection on which nothing passes in either direction
STALLED_S, SILENT_S = 60.0, 3600.0
#: how often the session counts as used while its caller sends
USE_S = 30.0


class Forwarding:
    """All calls. `find`: a job that the caller may see; raises RefusedError."""

    def __init__(self, backend: JobBackend, find: Callable[[int], Awaitable[Job]]) -> None:
        self._backend = backend
        self._find = find
        self._places = listeners.Places(listeners.API_SESSIONS)

    async def serve_call(
        self, requests: AsyncIterator[pb.ForwardSessionRequest]
    ) -> AsyncGenerator[pb.ForwardSessionResponse, None]:
        """One call. Raises RefusedError."""
        try:
            hello = await asyncio.wait_for(anext(requests), HELLO_S)
        except (asyncio.TimeoutError, StopAsyncIteration):
            text = f"no session was named within {HELLO_S:.0f} s: send job_id first"
            raise refuse(Reason.INVALID, text, "job_id") from None
        job = await self._find(hello.job_id)
        port = await self._find_port(job, hello.port)
        uid = caller().uid
        if not self._places.take(uid):
            text = f"{listeners.API_SESSIONS.share_max} connections to your sessions are open, which is the limit"
            raise refuse(Reason.NO_CAPACITY, f"{text}: close some", "job_id")
        try:
            reader, writer = await _connect(job, port)
            forward = _Forward(reader, writer, lambda: self._backend.requests.use_session(job.job_id))
            async with contextlib.aclosing(forward.run(hello, requests)) as answers:
                async for answer in answers:
                    yield answer
        finally:
            self._places.give_back(uid)

    async def _find_port(self, job: Job, name: str) -> int:
        """Raises RefusedError."""
        launch, what = job.spec.run, f"session {job.job_id}"
        if not (isinstance(launch, Launch) and launch.session):
            raise refuse(Reason.PRECONDITION, f"job {job.job_id} is not a session", "job_id")
        if job.spec.uid != caller().uid:
            raise refuse(Reason.DENIED, f"{what} is another user's: only they may open it", "job_id")
        facts = self._backend.reader.facts(job)
        if name and name not in launch.session_ports:
            raise refuse(Reason.NOT_FOUND, f"{what} has no port {name[:40]!r}", "port")
        port = dict(facts.named_ports).get(name, 0) if name else facts.session_port
        if job.user_wait is UserWait.USE:
            await self._backend.requests.use_session(job.job_id)
        if not port:
            why = f": {job.reason}" if job.reason else ""
            raise refuse(Reason.PRECONDITION, f"{what} is {job.state.value}{why}: it has no port", "job_id")
        return port


async def _connect(job: Job, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the program of the session's own user. Raises RefusedError."""
    try:
        opening = asyncio.open_connection("127.0.0.1", port, limit=PIECE_BYTES)
        reader, writer = await asyncio.wait_for(opening, listeners.API_SESSIONS.deadline_s)
    except (OSError, asyncio.TimeoutError):
        text = f"session {job.job_id} is running, and its program does not listen at port {port} yet"
        raise refuse(Reason.UNAVAILABLE, text, "job_id") from None
    is_published = isinstance(job.spec.run, Launch) and bool(job.spec.run.image)
    uid = listeners.server_uid(port, writer.get_extra_info("sockname")[:2], is_published=is_published)
    if not listeners.may_serve(uid, job.spec.uid, is_published=is_published):
        writer.transport.abort()
        whose = "" if uid is None else f", a program of uid {uid} does"
        text = f"session {job.job_id} does not listen at its port {port}{whose}: stop it and start another one"
        raise refuse(Reason.PRECONDITION, text, "job_id")
    return reader, writer


class _Forward:
    """One connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, use: Callable[[], Awaitable[Denied | None]]
    ) -> None:
        self._reader, self._writer = reader, writer
        self._use = use
        self._used_s = float("-inf")
        self._passed_s = time.monotonic()
        self._refusal: Denied | None = None

    async def run(
        self, hello: pb.ForwardSessionRequest, requests: AsyncIterator[pb.ForwardSessionRequest]
    ) -> AsyncGenerator[pb.ForwardSessionResponse, None]:
        """Raises RefusedError."""
        sending = asyncio.create_task(self._send(hello, requests))
        reading: asyncio.Task[bytes] | None = None
        try:
            yield pb.ForwardSessionResponse()
            while True:
                reading = reading or asyncio.create_task(self._reader.read(PIECE_BYTES))
                waited = {reading} | ({sending} if not sending.done() else set())
                left_s = self._passed_s + SILENT_S - time.monotonic()
                await asyncio.wait(waited, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED)
                if self._refusal:
                    raise RefusedError(self._refusal)
                if reading.done():
                    data = _result_of(reading)
                    reading = None
                    if not data:
                        return
                    self._passed_s = time.monotonic()
                    yield pb.ForwardSessionResponse(data=data)
                elif time.monotonic() - self._passed_s >= SILENT_S:
                    return
        finally:
            for task in (sending, reading):
                if task:
                    task.cancel()
            self._writer.transport.abort()

    async def _send(self, hello: pb.ForwardSessionRequest, requests: AsyncIterator[pb.ForwardSessionRequest]) -> None:
        """Until the caller has sent all, or the program takes nothing."""
        try:
            await self._pass(hello)
            async for request in requests:
                await self._pass(request)
                await charge_message()
                if request.end:
                    return
        except RefusedError as refused:
            self._refusal = refused.refusal
        except (OSError, asyncio.TimeoutError):  # the program has closed, or hangs: what it has said still passes
            self._writer.transport.abort()

    async def _pass(self, request: pb.ForwardSessionRequest) -> None:
        if len(request.data) > PIECE_BYTES:
            text = f"{len(request.data)} bytes in a message: send at most {PIECE_BYTES}"
            raise refuse(Reason.INVALID, text, "data")
        if request.data:
            self._passed_s = time.monotonic()
            if self._passed_s - self._used_s >= USE_S:
                self._used_s = self._passed_s
                await self._use()
            self._writer.write(request.data)
            await asyncio.wait_for(self._writer.drain(), STALLED_S)
        if request.end and self._writer.can_write_eof():
            self._writer.write_eof()


def _result_of(reading: asyncio.Task[bytes]) -> bytes:
    """b"" where the program has closed, in whatever way."""
    try:
        return reading.result()
    except OSError:
        return b""
