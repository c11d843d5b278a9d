"""The port of the metrics under clients that are silent, half, slow, huge or loop: others get their answers."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vgpud.core.observed import Snapshot
from vgpud.host import http_server
from vgpud.host.http_server import PART, Account, HttpServer
from vgpud.host.listeners import METRICS, Bound
from vgpud.metrics import Metrics

MALLORY, ANN = "127.0.0.2", "127.0.0.3"
LIMIT_S = 60.0


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """Users by the address that they connect from; deadlines are short."""
    monkeypatch.setattr(http_server, "source", lambda sock: sock.getpeername()[0])
    monkeypatch.setattr(
        "vgpud.metrics.METRICS", Bound(METRICS.all_max, METRICS.share_max, METRICS.reserved_max, deadline_s=0.5)
    )
    metrics = Metrics()
    metrics.put(Snapshot(slice_count=3))
    found = metrics.serve("127.0.0.1", 0)
    yield found
    found.close()


def connect(server: HttpServer, host: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), LIMIT_S, (host, 0))


def ask(server: HttpServer, host: str = ANN, request: bytes = b"GET /metrics HTTP/1.1\r\n\r\n") -> bytes:
    said = b""
    with connect(server, host) as sock:
        try:
            sock.sendall(request)
            while part := sock.recv(1 << 16):
                said += part
        except ConnectionError:
            pass
    return said


def silent(sock: socket.socket) -> None:
    pass


def half(sock: socket.socket) -> None:
    sock.sendall(b"GET /metrics HTTP/1.1\r\nHost:")


def slow(sock: socket.socket) -> None:
    try:
        while True:
            sock.sendall(b"G")
            time.sleep(0.01)
    except OSError:
        pass


def huge(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(b"GET /" + b"a" * 10_000_000)


def no_reader(sock: socket.socket) -> None:
    sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")


KINDS = [silent, half, slow, huge, no_reader]


@pytest.mark.parametrize("kind", KINDS)
def test_many_connections_of_one_user_keep_no_other_out(
    server: HttpServer, kind: Callable[[socket.socket], None], capfd: pytest.CaptureFixture[str]
) -> None:
    ask(server)
    threads, before = threading.active_count(), descriptors()
    opened = []
    for _ in range(340):
        sock = connect(server, MALLORY)
        opened.append(sock)
        try:
            if kind in (slow, huge):
                if len(opened) <= METRICS.share_max:
                    threading.Thread(target=kind, args=(sock,), daemon=True).start()
            else:
                kind(sock)
        except OSError:
            pass  # it was refused
    assert b"vgpu_slices 3.0" in ask(server)
    assert threading.active_count() <= threads + METRICS.share_max, "those of this test"
    assert server.places.connection_count <= METRICS.share_max
    until_s = time.monotonic() + LIMIT_S
    while server.places.connection_count and time.monotonic() < until_s:
        time.sleep(0.05)
    assert server.places.connection_count == 0, "the deadline ends those that ask for nothing"
    for sock in opened:
        sock.close()
    while threading.active_count() > threads and time.monotonic() < until_s:
        time.sleep(0.05)
    assert descriptors() == before
    assert b"vgpu_slices 3.0" in ask(server, MALLORY)
    assert "Traceback" not in capfd.readouterr().err


def test_two_thousand_at_once_from_many_addresses(server: HttpServer) -> None:
    before = descriptors()
    opened = []
    for i in range(2000):
        sock = connect(server, f"127.0.{1 + i % 40}.9")
        opened.append(sock)
        if i % 2:
            sock.close()
    assert server.places.connection_count <= METRICS.all_max
    until_s = time.monotonic() + LIMIT_S
    while b"vgpu_slices 3.0" not in ask(server) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert time.monotonic() < until_s
    for sock in opened:
        sock.close()
    while server.places.connection_count and time.monotonic() < until_s:
        time.sleep(0.05)
    assert descriptors() == before


def test_who_loops_pays_for_it_and_others_do_not() -> None:
    account, now_s, answers = Account(), 0.0, 0
    while now_s < 100.0:  # one that asks again as soon as it is answered
        now_s += account.wait_s("mallory", now_s)
        assert account.wait_s("ann", now_s) == 0
        account.charge("mallory", 0.020, now_s)
        now_s += 0.020
        answers += 1
    assert answers * 0.020 <= 100.0 * PART + 0.021
    assert account.wait_s("mallory", now_s + 1) == 0, "later it is as everybody"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK"),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"405"),
        (b"GET\r\n\r\n", b"400"),
        (b"\xff\x00\r\n\r\n", b"400"),
        (b"GET /metrics?name[]=%ff&name[]=vgpu_slices HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /metrics?" + b"a&" * 4000 + b" HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.1\r\nAccept: \xff;q=x;version=..\r\n\r\n", b"200 OK"),
    ],
)
def test_every_request_has_an_answer(server: HttpServer, request_: bytes, status: bytes) -> None:
    said = ask(server, request=request_)
    assert said.startswith(b"HTTP/1.1 " + status)
    assert b"\r\nConnection: close" in said
    if request_.startswith(b"HEAD"):
        assert said.endswith(b"\r\n\r\n")


def test_a_port_that_is_taken_is_said(server: HttpServer) -> None:
    with pytest.raises(OSError, match="in use"):
        Metrics().serve("127.0.0.1", server.port)


def test_the_docs_say_what_one_user_has() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/security.md").read_text()
    assert f"{PART * 100:.0f} % of one processor" in text
