"""The load of the services' benchmark: it counts what fails, and its figures are those of its answers."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchmarks.services.__main__ import describe, percentile
from benchmarks.services.load import Results, Target, send_requests


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Of three requests the first is answered, the second with 500, and the third not at all."""
    for number in range(3):
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(next(line for line in head.split(b"\r\n") if b"content-length" in line.lower()).split(b":")[1])
        await reader.readexactly(size)
        if number == 2:
            break
        body = json.dumps({"choices": [{"text": " token"}], "replica": 7}).encode()
        status = b"200 OK" if number == 0 else b"500 Broken"
        writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
    writer.close()


def test_each_answer_that_is_not_whole_counts_as_a_failure() -> None:
    async def test() -> Results:
        server = await asyncio.start_server(_serve, "127.0.0.1", 0)
        found = Results()
        async with server:
            for _ in range(3):
                stop = asyncio.Event()
                asyncio.get_running_loop().call_later(0.01, stop.set)
                port = server.sockets[0].getsockname()[1]
                await send_requests(Target(port, "token", 1), 1.0, stop, found)
        return found

    # each call has a connection of its own, so each is the first of its connection
    found = asyncio.run(test())
    assert describe(found)["requests"] == 3 and describe(found)["failed"] == 0 and found.replicas == {7: 3}


def test_failures_are_counted_on_one_connection_too() -> None:
    async def test() -> Results:
        server = await asyncio.start_server(_serve, "127.0.0.1", 0)
        found = Results()
        async with server:
            stop = asyncio.Event()
            asyncio.get_running_loop().call_later(0.5, stop.set)
            port = server.sockets[0].getsockname()[1]
            await send_requests(Target(port, "token", 1), 5.0, stop, found)
        return found

    found = asyncio.run(test())
    assert found.latencies_ms and found.failures and "500" in found.failures[0]


@pytest.mark.parametrize(("part", "value"), [(0.5, 50.0), (0.95, 95.0), (1.0, 100.0)])
def test_percentiles(part: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], part) == value
