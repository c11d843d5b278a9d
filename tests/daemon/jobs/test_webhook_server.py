"""Webhooks that are hostile: what the program that posts to one believes, reads and shows."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpud.core.jobs.facts import NoticeTo

from .test_notices import folder, run_notices

__all__ = ["folder"]
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root can run others' programs")]
REFUSED = ("job.notify_failed", "the webhook could not be reached, or refused it")
PIECE = b"x" * 65536
#: of a body without end; far less distinguishes a program that reads it from one that does not
MOST_BYTES = 64 << 20


class Hostile:
    """A server that answers with these lines, and then a body until the client stops reading or it is long enough."""

    def __init__(self, head: str) -> None:
        self.head = head
        self.request_lines: list[str] = []
        self.sent_bytes = 0
        self.arguments: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                self.request_lines.append(sock.recv(65536).split(b"\r\n")[0].decode())
                self.arguments += command_lines()
                self._answer(sock)

    def _answer(self, sock: socket.socket) -> None:
        try:
            sock.sendall(self.head.replace("HERE", self.url).encode())
            while self.sent_bytes < MOST_BYTES:
                sock.sendall(PIECE)
                self.sent_bytes += len(PIECE)
        except OSError:
            return

    def close(self) -> None:
        self._listener.close()


def command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@pytest.fixture
def hostile(request: pytest.FixtureRequest) -> Iterator[Hostile]:
    made = Hostile(request.param)
    yield made
    made.close()


REDIRECTS = [f"HTTP/1.1 {code} Found\r\nLocation: HERE/stolen\r\n\r\n" for code in (301, 302, 303, 307, 308)]
OTHERS = ["HTTP/1.1 500 Broken\r\n\r\n", "HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=x\r\n\r\n", "HTTP/1.1 "]


@pytest.mark.parametrize("hostile", REDIRECTS + OTHERS, indirect=True)
def test_a_refusal_of_any_kind_is_asked_once_and_not_read(folder: Path, hostile: Hostile) -> None:
    assert run_notices(folder, NoticeTo(webhook=f"{hostile.url}/hook")) == [REFUSED]
    assert hostile.request_lines == ["POST /hook HTTP/1.1"]
    assert hostile.sent_bytes < MOST_BYTES, "what it sends is not read to its end"


@pytest.mark.parametrize("hostile", ["HTTP/1.1 200 OK\r\n\r\n"], indirect=True)
def test_a_success_is_not_read_and_its_address_not_shown(folder: Path, hostile: Hostile) -> None:
    assert run_notices(folder, NoticeTo(webhook=f"{hostile.url}/secret-of-alice")) == []
    assert hostile.sent_bytes < MOST_BYTES
    assert any("post.py" in line for line in hostile.arguments), "the program was running"
    assert not [line for line in hostile.arguments if "secret-of-alice" in line]
