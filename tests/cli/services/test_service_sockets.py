"""WebSockets of a service with the real daemon and real replicas, which a rolling replacement closes one by one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from .test_service_real import BUILT, SMALL, Site, site, system, wait_until

__all__ = ["site", "system"]  # fixtures
pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(300),
]
#: says its job's number and what it gets; /health with 200
PROGRAM = """
import asyncio, os
from websockets.asyncio.server import serve
async def echo(connection):
    async for message in connection:
        await connection.send(os.environ["VGPU_JOB_ID"] + " " + message)
def look(connection, request):
    if request.path == "/health":
        return connection.respond(200, "ok")
    if request.headers.get("Authorization") != "Bearer " + os.environ["VGPU_SERVICE_TOKEN"]:
        return connection.respond(401, "no")
async def main():
    at = os.environ["VGPU_SERVICE_HOST"], int(os.environ["VGPU_SERVICE_PORT"])
    async with serve(echo, *at, process_request=look) as server:
        await server.serve_forever()
asyncio.run(main())
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def open_socket(site: Site, stack: ExitStack) -> ClientConnection:
    host, port, token = site.url("live")
    headers = {"Authorization": f"Bearer {token}"}
    opened: ClientConnection = stack.enter_context(connect(f"ws://{host}:{port}/", additional_headers=headers))
    return opened


def ask(connection: ClientConnection) -> int:
    """The job of the replica that answers."""
    connection.send("hello")
    job_id, word = str(connection.recv(60)).split()
    assert word == "hello"
    return int(job_id)


def closing_of(connection: ClientConnection) -> Any:
    with pytest.raises(ConnectionClosed) as caught:
        connection.recv(120)
    return caught.value.rcvd.code if caught.value.rcvd else None


def test_a_rolling_replacement_closes_each_with_a_close_frame(site: Site, stack: ExitStack) -> None:
    (site.home / "sockets.py").write_text(PROGRAM)
    more = ("--replicas", "3", "--health-http", "/health", "--drain", "1s")
    result = site("service", "start", *SMALL, "--name", "live", *more, "--", sys.executable, "sockets.py")
    assert result.code == 0, result
    before = {one["job_id"] for one in site.wait_until_healthy("live", 3)["replicas"]}
    connections = [open_socket(site, stack) for _ in range(6)]
    assert sorted(ask(one) for one in connections) == sorted([*before, *before])
    assert {one["outstanding"] for one in site.show("live")["replicas"]} == {2}
    assert site("service", "restart", "live").code == 0
    assert [closing_of(one) for one in connections] == [1001] * 6
    after = {one["job_id"] for one in site.wait_until_healthy("live", 3, generation=2)["replicas"]}
    again = [open_socket(site, stack) for _ in range(3)]
    assert {ask(one) for one in again} == after and not before & after
    assert site("service", "stop", "live").code == 0
    assert [closing_of(one) for one in again] == [1001] * 3
    wait_until(lambda: not site.jobs("balancer", "live"))
