"""What tests of sessions with a real daemon and a real console share."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from vgpud import paths
from vgpud.console.login import agent
from vgpud.console.login.broker import link, link_socket_path

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("session_program.py")
OTHER_UID = 5  # games
BUILT = all((paths.sim_lib_dir() / name).exists() for name in ("vgpu-simd", "libcuda.so.1"))


def wait_until(look: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + 120
    while not (found := look()):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return found


class Console:
    """`vgpu console serve` as a process."""

    def __init__(self, host: str, runtime: Path, *options: str) -> None:
        command = [sys.executable, "-m", "vgpud.cli.main", "console", "serve", "--host", host]
        command += ["--runtime-dir", str(runtime), "--listen", "127.0.0.1:0", *options]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        line = self.process.stderr.readline()
        found = re.search(r"https?://\S+?(?=;)", line)
        assert found, line + self.process.stderr.read()
        self.url, self.runtime = found.group(), runtime

    @property
    def address(self) -> str:
        return urlsplit(self.url).netloc

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def log_in(self, uid: int | None = None) -> Browser:
        path = link_socket_path(self.runtime)
        url = link(path, 10) if uid is None else as_user(uid, lambda: link(path, 10))
        browser = Browser(self.address, self.url.startswith("https"))
        form = urlencode({"token": url.rpartition("=")[2]})
        answer, _ = browser.ask("POST", "/login", form, {"Content-Type": "application/x-www-form-urlencoded"})
        assert answer.status == 303
        browser.cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
        return browser


def as_user(uid: int, work: Callable[[], str]) -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            agent.become(uid)
            os.write(writer, work().encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as file:
        return file.read()


class Browser:
    """As much of one as is needed; `cookie`: of its log-in."""

    def __init__(self, address: str, is_secure: bool = False) -> None:
        self.address = address
        self.cookie = ""
        self._tls = ssl._create_unverified_context() if is_secure else None  # noqa: S323  the test's own

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if self._tls:
            connection = http.client.HTTPSConnection(self.address, timeout=60, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self.address, timeout=60)
        sent = {**({"Cookie": self.cookie} if self.cookie else {}), **(headers or {})}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer, answer.read()

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        answer, body = self.ask("GET", path, None, headers)
        return answer.status, body

    def open_socket(self, path: str, **headers: str) -> tuple[socket.socket, bytes]:
        """A WebSocket, and the head of the answer."""
        host, _, port = self.address.partition(":")
        sock = socket.create_connection((host, int(port)), 30)
        sock = self._tls.wrap_socket(sock) if self._tls else sock
        lines = {"Host": self.address, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        lines |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": f"http://{self.address}"}
        lines |= {"Cookie": self.cookie} if self.cookie else {}
        text = "".join(f"{name}: {value}\r\n" for name, value in {**lines, **headers}.items())
        sock.sendall(f"GET {path} HTTP/1.1\r\n{text}\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head and (data := sock.recv(1)):
            head += data
        return sock, head


def start(real: Any, *words: str) -> str:
    result = real("session", "start", "-q", "--gpus", "0.25", *words)
    assert result.code == 0, result
    return str(result.stdout.strip())


def frame(data: bytes) -> bytes:
    length = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + len(data).to_bytes(2, "big")
    return b"\x81" + length + bytes(4) + data


def read_frame(sock: socket.socket) -> bytes:
    file = sock.makefile("rb", 0)
    size = read_exactly(file, 2)[1]
    return read_exactly(file, int.from_bytes(read_exactly(file, 2), "big") if size == 126 else size)


def read_exactly(file: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = file.read(size - len(data))
        assert part
        data += part
    return data
