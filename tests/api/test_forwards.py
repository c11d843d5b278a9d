"""ForwardSession between a caller and the program of a session: a server of this test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from vgpud.api import forwards
from vgpud.api.caller import Caller, set_caller
from vgpud.api.forwards import Forwarding
from vgpud.api.job_backend import JobBackend
from vgpud.api.rpc import RefusedError
from vgpud.core.jobs.facts import Facts, Launch
from vgpud.core.jobs.model import Ask, Job, JobSpec, JobState, UserWait
from vgpud.core.model import Spec
from vgpud.host import listeners
from vgpud.v1alpha1 import vgpud_pb2 as pb

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OWNER = os.geteuid()


class FakeBackend:
    """One session, at `port`."""

    def __init__(self, port: int, uid: int = OWNER, session: str = "web") -> None:
        run = Launch(
            uid, uid, (), ("serve",), "", "/", (), 18, (), "/tmp/x", session=session, session_ports=("tb", "api")
        )
        self.present = Job(7, JobSpec(Ask(Spec(500)), uid=uid, run=run), 0, state=JobState.RUNNING, attempt=1)
        self.port, self.uses = port, 0

    def facts(self, job: Job) -> Facts:
        return Facts(session_port=self.port, named_ports=(("tb", self.port),))

    async def use_session(self, job_id: int) -> None:
        self.uses += 1

    async def find(self, job_id: int) -> Job:
        return self.present


def make(backend: FakeBackend) -> Forwarding:
    parts: Any = backend
    return Forwarding(JobBackend("n1", parts, parts, parts, parts, parts, parts, parts), backend.find)


async def say(*messages: pb.ForwardSessionRequest, until: asyncio.Event | None = None) -> AsyncIterator[Any]:
    for message in messages:
        yield message
    if until:
        await until.wait()


HELLO = pb.ForwardSessionRequest(job_id=7)
ECHO_BYTES = 3_000_000


def run(serve: Serve | None, *messages: pb.ForwardSessionRequest, **fields: Any) -> tuple[bytes, FakeBackend]:
    """What the caller gets. Raises RefusedError."""

    async def use() -> tuple[bytes, FakeBackend]:
        set_caller(Caller(OWNER, OWNER, (), 1, admin=True))
        server = await asyncio.start_server(serve or echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if serve is None:
            server.close()
        backend = FakeBackend(port, **fields)
        found = b""
        async for answer in make(backend).serve_call(say(*messages)):
            found += answer.data
        server.close()
        return found, backend

    return asyncio.run(use())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_bytes_pass_in_both_directions() -> None:
    pieces = [os.urandom(forwards.PIECE_BYTES) for _ in range(ECHO_BYTES // forwards.PIECE_BYTES)]
    sent = [pb.ForwardSessionRequest(data=data) for data in pieces]
    found, backend = run(echo, HELLO, *sent, pb.ForwardSessionRequest(end=True))
    assert found == b"".join(pieces) and backend.uses == 1, "it is used, and that is reported now and until"


def test_a_further_port() -> None:
    hello = pb.ForwardSessionRequest(job_id=7, port="tb", data=b"hello", end=True)
    assert run(echo, hello)[0] == b"hello"


@pytest.mark.parametrize(
    ("fields", "hello", "sentence"),
    [
        ({"uid": OWNER + 1}, {}, "session 7 is another user's: only they may open it"),
        ({"session": ""}, {}, "job 7 is not a session"),
        ({}, {"port": "x"}, "session 7 has no port 'x'"),
        ({}, {"port": "api"}, "it has no port"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], hello: dict[str, Any], sentence: str) -> None:
    """Even to an admin."""
    with pytest.raises(RefusedError) as refused:
        run(echo, pb.ForwardSessionRequest(job_id=7, **hello), **fields)
    assert sentence in str(refused.value.refusal.message)


def test_a_connection_continues_a_session_that_was_paused() -> None:
    """Also one that had to start again, and has no port yet."""
    backend = FakeBackend(0)
    backend.present.user_wait = UserWait.USE

    async def use() -> None:
        set_caller(Caller(OWNER, OWNER, (), 1, admin=False))
        with pytest.raises(RefusedError, match="it has no port"):
            async for _ in make(backend).serve_call(say(HELLO)):
                pass

    asyncio.run(use())
    assert backend.uses == 1


def test_a_port_at_which_no_program_listens() -> None:
    with pytest.raises(RefusedError) as refused:
        run(None, HELLO)
    assert "does not listen at port" in refused.value.refusal.message


def test_a_program_of_another_user_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(100))

    monkeypatch.setattr(listeners, "server_uid", lambda *_, **__: 4242)
    with pytest.raises(RefusedError) as refused:
        run(note, pb.ForwardSessionRequest(job_id=7, data=b"secret"))
    assert "a program of uid 4242 does" in refused.value.refusal.message and seen in ([], [b""])


def test_no_call_that_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwards, "HELLO_S", 0.01)

    async def use() -> None:
        with pytest.raises(RefusedError, match="no session was named"):
            async for _ in make(FakeBackend(1)).serve_call(say(until=asyncio.Event())):
                pass

    asyncio.run(use())


def test_too_much_in_a_message() -> None:
    with pytest.raises(RefusedError) as refused:
        run(echo, HELLO, pb.ForwardSessionRequest(data=bytes(forwards.PIECE_BYTES + 1)))
    assert "send at most 65536" in refused.value.refusal.message


def test_a_silent_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwards, "SILENT_S", 0.05)

    async def use() -> None:
        set_caller(Caller(OWNER, OWNER, (), 1, admin=False))
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        forwarding = make(FakeBackend(server.sockets[0].getsockname()[1]))
        answers = [answer async for answer in forwarding.serve_call(say(HELLO, until=asyncio.Event()))]
        assert len(answers) == 1 and forwarding._places.connection_count == 0
        server.close()

    asyncio.run(use())


def test_one_user_has_a_share_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        listeners, "API_SESSIONS", listeners.Bound(all_max=9, share_max=1, reserved_max=0, deadline_s=5.0)
    )

    async def use() -> None:
        set_caller(Caller(OWNER, OWNER, (), 1, admin=False))
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        forwarding = make(FakeBackend(server.sockets[0].getsockname()[1]))
        first = forwarding.serve_call(say(HELLO, until=asyncio.Event()))
        await anext(first)
        with pytest.raises(RefusedError) as refused:
            await anext(forwarding.serve_call(say(HELLO)))
        assert "1 connections to your sessions are open" in refused.value.refusal.message
        await first.aclose()
        again = forwarding.serve_call(say(HELLO, until=asyncio.Event()))
        await anext(again)
        await again.aclose()
        server.close()

    asyncio.run(use())
