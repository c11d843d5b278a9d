"""A daemon for vgpu-runtime's tests: takes one request per connection and answers as the test sets.

It keeps to the protocol's other half only: header lines, an empty line, a body of the announced length, end of file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

GREETING = "vgpu-runtime 1"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came, and its sender."""

    first: str
    header: dict[str, str]
    body: bytes
    peer_pid: int

    @property
    def op(self) -> str:
        return self.header["op"]


def reply(status: str, body: bytes = b"", greeting: str = GREETING) -> bytes:
    """The bytes of one reply."""
    return f"{greeting}\nstatus {status}\nbody {len(body)}\n\n".encode() + body


def parse(data: bytes, peer_pid: int = 0) -> Asked:
    """Reads one request. Raises AssertionError at anything that the protocol does not allow."""
    head, blank, body = data.partition(b"\n\n")
    assert blank, f"no empty line in {data[:200]!r}"
    first, *lines = head.decode().split("\n")
    pairs = [line.split(" ", 1) for line in lines]
    header = dict(pairs)
    assert len(header) == len(pairs), f"a line came twice: {lines}"
    assert len(body) == int(header["body"]), "the body is not as long as announced"
    return Asked(first, header, body, peer_pid)


Answer = bytes | Callable[[Asked], bytes]


class FakeDaemon:
    """Use it in a `with`. answer: bytes, or a function of the request; b"" closes without an answer."""

    def __init__(self, path: Path, answer: Answer = b"") -> None:
        self.path = path
        self.answer = answer
        self.requests: list[Asked] = []
        self.errors: list[BaseException] = []
        self.listener: socket.socket | None = None
        self.threads: list[threading.Thread] = []

    def __enter__(self) -> FakeDaemon:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
        if kind is None and self.errors:
            raise self.errors[0]

    def start(self) -> None:
        """Binds the socket again."""
        self.path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.threads = [threading.Thread(target=self._accept, args=(self.listener,), daemon=True)]
        self.threads[0].start()

    def stop(self) -> None:
        """Closes the listening socket; the file stays, as after kill -9."""
        if self.listener:
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
        for thread in self.threads:
            thread.join(10)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                data = b""
                while piece := connection.recv(1 << 16):
                    data += piece
                request = parse(data, pid)
                self.requests.append(request)
                with contextlib.suppress(OSError):
                    connection.sendall(self.answer(request) if callable(self.answer) else self.answer)
        except BaseException as error:
            self.errors.append(error)


def main() -> None:
    """`python -m tests.runtime.fake_daemon SOCKET STATUS [BODY_FILE]`: for trying an engine by hand."""
    import sys
    import time

    body = Path(sys.argv[3]).read_bytes() if len(sys.argv) > 3 else b""
    with FakeDaemon(
        Path(sys.argv[1]), lambda asked: reply(sys.argv[2] if asked.op == "create" else "ok", body)
    ) as daemon:
        os.chmod(sys.argv[1], 0o666)
        while True:
            time.sleep(0.2)
            for request in daemon.requests:
                print(request.op, request.header, len(request.body), request.peer_pid, flush=True)
            daemon.requests.clear()


if __name__ == "__main__":
    main()
