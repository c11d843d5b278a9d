"""The address of a service: requests reach a replica that works, once more where the first has died, and no client sees
it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.services.programs import (
    ANSWER,
    HALF,
    HANG,
    NO_HTTP,
    RESET,
    SLOW,
    STREAM,
    STREAM_HALF,
    serve_balanced,
)
from vgpud.host import listeners
from vgpud.services.shell import address


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_requests_are_passed_to_all_replicas_with_the_replicas_own_tokens() -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER, ANSWER, ANSWER) as service:
            for _ in range(9):
                status, body, _ = await service.ask("POST", "/v1/x?y=1", b"question", Connection="x-mine", X_Mine="1")
                assert status == 200 and body.endswith(b"says hello")
            for job_id, program in service.programs.items():
                assert len(program.requests) == 3
                method, target, headers, body = program.requests[0]
                assert (method, target, body) == (b"POST", b"/v1/x?y=1", b"question")
                assert headers[b"authorization"] == b"Bearer of-%d" % job_id
                assert headers[b"host"] == b"here" and b"x-mine" not in headers

    run(test())


@pytest.mark.parametrize("key", [None, "x", "Secret", "secret2"])
def test_a_request_without_the_token_reaches_no_replica(key: str | None) -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            status, body, headers = await service.ask(key=key)
            assert status == 401 and b"vgpu service url chat --token" in body
            assert headers[b"www-authenticate"] == b"Bearer"
            assert service.programs[1].requests == []

    run(test())


def test_a_public_service_passes_on_what_the_client_shows() -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER, is_public=True) as service:
            assert (await service.ask(key=None))[0] == 200
            assert (await service.ask(key="its own"))[0] == 200
            shown = [headers[b"authorization"] for _, _, headers, _ in service.programs[1].requests]
            assert shown == [b"Bearer of-1", b"Bearer its own"]

    run(test())


@pytest.mark.parametrize("behaviour", [RESET, HALF, NO_HTTP])
def test_a_replica_that_dies_under_a_request_is_seen_by_no_client(behaviour: str) -> None:
    async def test() -> None:
        async with serve_balanced(behaviour, ANSWER) as service:
            answers = await asyncio.gather(*(service.ask("POST", body=b"question") for _ in range(20)))
            assert {(status, body) for status, body, _ in answers} == {(200, b"replica 2 says hello")}
            assert service.replicas.by_id[1].is_suspect and service.nudges
            assert service.programs[1].requests, "it was tried"
            count = len(service.programs[1].requests)
            await service.ask()
            assert len(service.programs[1].requests) == count, "a suspect gets nothing before its next check"

    run(test())


def test_without_repeats_a_post_is_sent_once_and_a_get_again() -> None:
    async def test() -> None:
        async with serve_balanced(RESET, RESET, repeats=False) as service:
            status, body, _ = await service.ask("POST", body=b"pay")
            assert status == 502 and b"has not answered" in body
            assert sum(len(program.requests) for program in service.programs.values()) == 1
            for replica in service.replicas.by_id.values():
                replica.is_suspect = False
            service.programs[1].behaviour = service.programs[2].behaviour = ANSWER
            dead = next(iter(service.replicas.by_id.values()))
            dead.port = 1
            assert (await service.ask())[0] == 200 and (await service.ask())[0] == 200

    run(test())


def test_a_request_at_which_every_program_dies_is_given_up() -> None:
    async def test() -> None:
        async with serve_balanced(RESET, RESET) as service:
            asking = asyncio.create_task(service.ask("POST", body=b"poison"))
            while not asking.done():
                for replica in service.replicas.by_id.values():
                    replica.is_suspect = False  # as a check finds
                service.replicas.note_change()
                await asyncio.sleep(0)
            status, _, _ = await asking
            assert status == 502
            assert sum(len(program.requests) for program in service.programs.values()) == address.TRIES_MAX

    run(test())


def test_a_stream_is_passed_on_in_pieces_and_broken_off_where_it_breaks_off() -> None:
    async def test() -> None:
        async with serve_balanced(STREAM) as service:
            status, body, headers = await service.ask()
            assert status == 200 and body == b"replica 1 says hello" * 3
            assert headers[b"content-type"] == b"text/event-stream"
        async with serve_balanced(STREAM_HALF, ANSWER) as service:
            service.replicas.by_id[2].outstanding = 1
            with pytest.raises(ConnectionError):
                await service.ask()

    run(test())


def test_the_least_busy_replica_is_chosen() -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER, HANG, ANSWER) as service:
            service.programs[1].behaviour = HANG
            hanging = [asyncio.create_task(service.ask()) for _ in range(2)]
            while service.replicas.by_id[1].outstanding + service.replicas.by_id[2].outstanding < 2:
                await asyncio.sleep(0.01)
            for _ in range(5):
                assert (await service.ask())[1].startswith(b"replica 3")
            for task in hanging:
                task.cancel()

    run(test())


def test_a_client_that_leaves_ends_its_request_at_the_replica() -> None:
    async def test() -> None:
        async with serve_balanced(HANG) as service:
            task = asyncio.create_task(service.ask())
            while not service.programs[1].requests:
                await asyncio.sleep(0.01)
            assert not service.replicas.traffic.is_idle
            task.cancel()
            while not service.programs[1].departures or not service.replicas.traffic.is_idle:
                await asyncio.sleep(0.01)
            assert service.replicas.by_id[1].outstanding == 0

    run(test())


def test_a_request_waits_for_a_replica_and_wakes_the_service() -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            service.replicas.forget(1)
            asking = asyncio.create_task(service.ask())
            while not service.replicas.traffic.waiting:
                await asyncio.sleep(0.01)
            assert service.nudges and not asking.done()
            service.add(1)
            assert (await asking)[0] == 200 and service.replicas.traffic.waiting == 0

    run(test())


def test_a_request_that_waits_too_long_is_told_when_to_come_again() -> None:
    async def test() -> None:
        async with serve_balanced(wake_s=0.1) as service:
            status, body, headers = await service.ask()
            assert status == 503 and headers[b"retry-after"] == b"5"
            assert body == b"vgpu service chat: no replica was ready within 0.1 s: `vgpu service show chat` says why\n"

    run(test())


def test_a_request_to_a_service_that_is_being_stopped_does_not_wait() -> None:
    async def test() -> None:
        async with serve_balanced(wake_s=1000.0) as service:
            asking = asyncio.create_task(service.ask())
            while not service.replicas.traffic.waiting:
                await asyncio.sleep(0.01)
            service.replicas.are_ending = True
            service.replicas.note_change()
            status, body, _ = await asking
            assert status == 503 and b"it is being stopped" in body

    run(test())


def test_what_is_refused_keeps_no_service_awake() -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            before_s = service.replicas.traffic.last_s
            await service.ask(key="wrong")
            assert service.replicas.traffic.last_s == before_s
            await service.ask()
            while service.replicas.traffic.last_s == before_s:
                await asyncio.sleep(0.01)

    run(test())


def test_a_draining_replica_gets_no_request_and_one_that_it_has_is_answered() -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER, ANSWER) as service:
            service.replicas.by_id[1].draining_since_s = 0.0
            for _ in range(4):
                assert (await service.ask())[1].startswith(b"replica 2")

    run(test())


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (b"GET / HTTP/9\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 4 + b"\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 200_000, b"431"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
    ],
)
def test_what_is_no_request_ends_its_connection_only(data: bytes, start: bytes) -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(data)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 " + start)
            writer.close()
            assert (await service.ask())[0] == 200

    run(test())


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_harm_no_other_client(seed: int) -> None:
    draw = random.Random(seed)
    words = [b"GET / HTTP/1.1\r\n", b"host: a\r\n", b"\r\n", b"authorization: Bearer secret\r\n", b"0\r\n\r\n"]
    words += [b"content-length: 9\r\n", b"transfer-encoding: chunked\r\n", b"expect: 100-continue\r\n", b"fffff\r\n"]

    async def disturb(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(draw.randrange(1, 12)):
            writer.write(draw.choice([draw.choice(words), draw.randbytes(draw.randrange(40))]))
            await asyncio.sleep(0)
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            if draw.randrange(2):
                writer.write_eof()
            await asyncio.wait_for(reader.read(), 0.2)
        writer.transport.abort()

    async def test() -> None:
        async with serve_balanced(ANSWER, ANSWER) as service:
            await asyncio.gather(*(disturb(service.port) for _ in range(60)))
            assert (await service.ask())[0] == 200
            while not service.replicas.traffic.is_idle or any(r.outstanding for r in service.replicas.by_id.values()):
                await asyncio.sleep(0.01)
            assert service.address._held_bytes == 0 and not any(r.is_suspect for r in service.replicas.by_id.values())

    run(test())


def test_requests_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "REQUEST_BYTES_MAX", 1000)

    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            assert (await service.ask("POST", body=b"x" * 1000))[0] == 200
            assert (await service.ask("POST", body=b"x" * 1001))[0] == 413
            monkeypatch.setattr(address, "HELD_BYTES_MAX", 500)
            assert (await service.ask("POST", body=b"x" * 600))[0] == 503
            monkeypatch.setattr(address, "HELD_BYTES_MAX", 1000)
            assert (await service.ask("POST", body=b"x" * 1000))[0] == 200, "what was refused is not held"

    run(test())


def test_one_client_has_its_share_of_connections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = listeners.Bound(all_max=4, share_max=2, reserved_max=0, deadline_s=30.0)
    monkeypatch.setattr(listeners, "SERVICE_UNKNOWN", bound)

    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            held = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(2)]
            await asyncio.sleep(0.1)
            with pytest.raises(ConnectionError):
                await service.ask()
            for _, writer in held:
                writer.close()
            for _ in range(100):
                await asyncio.sleep(0.02)
                try:
                    assert (await service.ask())[0] == 200
                    return
                except OSError:
                    continue
            raise AssertionError("the places of closed connections were not given back")

    run(test())


def test_connections_without_the_token_take_no_place_of_those_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, share in (("SERVICE", 3), ("SERVICE_UNKNOWN", 2)):
        bound = listeners.Bound(all_max=8, share_max=share, reserved_max=0, deadline_s=30.0)
        monkeypatch.setattr(listeners, name, bound)

    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            known = [await Kept.open(service.port)]
            assert await known[0].ask("secret") == 200
            unknown = [await Kept.open(service.port) for _ in range(2)]
            await asyncio.sleep(0.1)
            with pytest.raises(ConnectionError):
                await service.ask()
            assert await known[0].ask("secret") == 200
            assert await unknown[0].ask("secret") == 200, "it has a place of the known from now on"
            known.append(await Kept.open(service.port))
            assert await known[1].ask("secret") == 200
            known.append(await Kept.open(service.port))
            assert await known[2].ask("secret") == 503, "three of one user have shown the token"
            for one in (*known, *unknown):
                one.writer.close()

    run(test())


class Kept:
    """A client's connection for several requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Kept:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, key: str) -> int:
        self.writer.write(f"GET / HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.splitlines()[1:-1])
        await self.reader.readexactly(int(lines[b"content-length"]))
        return int(head.split()[1])


@pytest.mark.parametrize(
    ("head", "status"),
    [("GET / HTTP/1.0", 400), ("GET / HTTP/1.0\r\nHost: here", 200), ("GET / HTTP/1.1\r\nHost: here", 200)],
)
@pytest.mark.parametrize("behaviour", [ANSWER, SLOW])
def test_a_client_that_has_closed_its_half_gets_its_answer(head: str, status: int, behaviour: str) -> None:
    """A request needs a host: HTTP/1.0 does not ask for one, and gets a sentence."""

    async def test() -> None:
        async with serve_balanced(behaviour) as service:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(f"{head}\r\nAuthorization: Bearer secret\r\n\r\n".encode())
            writer.write_eof()
            answer = (await reader.read()).removeprefix(b"HTTP/1.1 100 \r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 %d " % status), answer
            assert answer.endswith(b"says hello" if status == 200 else b"a request names its host: Host: NAME\n")
            writer.close()

    run(test())


def test_a_connection_is_kept_and_a_closed_one_is_noticed() -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            for _ in range(5):
                assert (await service.ask())[0] == 200
            kept = next(iter(service.replicas.upstreams._kept.values()))
            while not kept:
                await asyncio.sleep(0.01)
            assert len(kept) == 1
            kept[0][1].writer.transport.abort()
            assert (await service.ask())[0] == 200 and not service.replicas.by_id[1].is_suspect

    run(test())
