"""RStudio Server behind a session's token: `python3 session_gate.py [RSERVER-OPTION]...`, as the session's user.

RStudio Server knows no token: at a port it would let every user of the machine in. Here it listens at a socket in a
directory of its user's alone, and this program at the session's port. It passes on what shows the token, without the
session's path in front, which RStudio Server expects a proxy to take away. A session's image may have an old Python and
has no vgpud, so this file needs Python 3.7 and nothing else; it is sent as text (vgpud/cli/jobs/session.py).
"""

from __future__ import annotations

import contextlib
import hmac
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from urllib.parse import parse_qsl, urlencode

#: where its packages put it, which is on no PATH
USUAL_DIR = "/usr/lib/rstudio-server/bin"
HEAD_BYTES_MAX, PIECE_BYTES = 64 * 1024, 64 * 1024
#: connections that have shown the token; those that have not, of which the oldest is closed for one more
CONNECTIONS_MAX, HEADS_MAX = 256, 256
#: by then a request's head has come; and a side that takes nothing of what is passed on
HEAD_S, STUCK_S = 5, 60
COOKIE = "vgpu-gate"
#: not passed on: the token, what is the connection's own, what only this program says; cookies are by themselves
HIDDEN = ("authorization", "connection", "cookie", "keep-alive", "proxy-connection", "x-rstudio-root-path")
MISSING = "rserver is not installed (neither on PATH nor in {}): install RStudio Server, or name an image that has it"


class RefusedError(Exception):
    """What is answered instead. `lines`: further ones of the head."""

    def __init__(self, status: str, text: str, *lines: str) -> None:
        super().__init__(text)
        self.status, self.text, self.lines = status, text, lines


def find_rserver() -> str:
    """Its path; "": there is none."""
    return shutil.which("rserver", path=os.environ.get("PATH", "") + os.pathsep + USUAL_DIR) or ""


def user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a user of the node, in an image
        return os.environ.get("USER", str(os.geteuid()))


def rserver_options(help_text: str, folder: str, base: str) -> list[str]:
    """Those that its --help has. `folder`: for its files; `base`: the path below which browsers see it."""
    with open(os.path.join(folder, "cookie-key"), "w") as file:
        file.write(str(uuid.uuid4()))
    with open(os.path.join(folder, "database.conf"), "w") as file:
        file.write(f"provider=sqlite\ndirectory={folder}\n")
    os.chmod(file.name, 0o600)
    wanted = (
        ("www-socket", os.path.join(folder, "socket")),
        ("www-root-path", base),
        ("www-frame-origin", "same"),
        ("www-verify-user-agent", "0"),
        ("auth-none", "1"),
        ("secure-cookie-key-file", os.path.join(folder, "cookie-key")),
        ("database-config-file", os.path.join(folder, "database.conf")),
        ("server-data-dir", folder),
        ("server-pid-file", os.path.join(folder, "pid")),
        ("server-daemonize", "0"),
        ("server-user", user_name()),
    )
    return [f"--{name}={value}" for name, value in wanted if "--" + name in help_text]


def start_rserver(folder: str, base: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Raises SystemExit, with a sentence."""
    program = find_rserver()
    if not program:
        raise SystemExit("vgpu: " + MISSING.format(USUAL_DIR))
    said = subprocess.run(
        [program, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    help_text = said.stdout.decode("utf-8", "replace")
    if "--www-socket" not in help_text:
        text = "vgpu: {} is too old: without --www-socket every user of the machine could open it; install a newer one"
        raise SystemExit(text.format(program))
    return subprocess.Popen([program] + rserver_options(help_text, folder, base) + arguments)


class Gate:
    """`base`: the session's path, from / to /; `target`: the socket of RStudio Server."""

    def __init__(self, base: str, token: str, target: str) -> None:
        self.base, self.token, self.target = base, token, target
        self.places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self.lock = threading.Lock()
        self.unknown: dict[socket.socket, None] = {}  # have not shown the token, the oldest first

    def serve(self, listener: socket.socket) -> None:
        """For ever."""
        while True:
            client, _ = listener.accept()
            with self.lock:
                if len(self.unknown) >= HEADS_MAX:
                    oldest = next(iter(self.unknown))
                    del self.unknown[oldest]
                    with contextlib.suppress(OSError):
                        oldest.shutdown(socket.SHUT_RDWR)  # ends its thread's wait
                self.unknown[client] = None
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client: socket.socket) -> None:
        try:
            with client:
                try:
                    passed_head, rest = self.hear(client)
                    self.pass_request(client, passed_head + rest)
                except RefusedError as refusal:
                    refuse(client, refusal)
        except OSError:
            pass  # one of the two has gone

    def hear(self, client: socket.socket) -> tuple[bytes, bytes]:
        """The head for RStudio Server, and what has come behind it. Raises OSError, RefusedError."""
        try:
            head, rest = read_head(client)
            return self.check(head), rest
        finally:
            with self.lock:
                self.unknown.pop(client, None)

    def pass_request(self, client: socket.socket, data: bytes) -> None:
        """Raises OSError, RefusedError."""
        if not self.places.acquire(blocking=False):
            raise RefusedError("503 Service Unavailable", f"{CONNECTIONS_MAX} requests are under way", "Retry-After: 2")
        try:
            with self.connect() as server:
                server.sendall(data)
                pass_both(client, server)
        finally:
            self.places.release()

    def connect(self) -> socket.socket:
        """Raises RefusedError."""
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self.target)
        except OSError as error:
            server.close()
            raise RefusedError("503 Service Unavailable", "RStudio Server starts", "Retry-After: 2") from error
        return server

    def check(self, head: bytes) -> bytes:
        """The head as RStudio Server gets it. Raises RefusedError."""
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[1].startswith("/"):
            raise RefusedError("400 Bad Request", "this is no HTTP request")
        method, target, version = words
        parts = [line.partition(":") for line in lines]
        pairs = [(name.strip().lower(), value.strip()) for name, _, value in parts]
        if not target.startswith(self.base):
            raise RefusedError("404 Not Found", f"the session is at {self.base}")
        cookies = [part for name, value in pairs if name == "cookie" for part in cookie_parts(value)]
        if not self.shows_token(pairs, cookies):
            self.take_from_address(method, target)
            raise RefusedError("401 Unauthorized", "open the session by `vgpu session url` or `vgpu session open`")
        kept = [f"{name}: {value}" for name, value in pairs if name not in HIDDEN]
        others = [part for part in cookies if not part.startswith(f"{COOKIE}=")]
        kept += ["Cookie: " + "; ".join(others)] if others else []
        is_upgrade = any(name == "connection" and "upgrade" in value.lower() for name, value in pairs)
        # one request for each connection: the next one shows the token again
        kept += [
            "Connection: " + ("Upgrade" if is_upgrade else "close"),
            f"X-RStudio-Root-Path: {self.base.rstrip('/')}",
        ]
        passed_target = target[len(self.base) - 1 :]
        return ("\r\n".join([f"{method} {passed_target} {version}", *kept]) + "\r\n\r\n").encode("latin-1")

    def shows_token(self, pairs: list[tuple[str, str]], cookies: list[str]) -> bool:
        shown = [value[len("Bearer ") :] for name, value in pairs if name == "authorization" and value[:7] == "Bearer "]
        shown += [part[len(COOKIE) + 1 :] for part in cookies if part.startswith(f"{COOKIE}=")]
        return any(map(self.is_token, shown))

    def take_from_address(self, method: str, target: str) -> None:
        """Raises RefusedError where an address has the token, which then becomes a cookie."""
        path, _, query = target.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        if method == "GET" and any(name == "token" and self.is_token(value) for name, value in pairs):
            others = urlencode([pair for pair in pairs if pair[0] != "token"])
            where = f"Location: {path}" + (f"?{others}" if others else "")
            cookie = f"Set-Cookie: {COOKIE}={self.token}; Path={self.base}; HttpOnly; SameSite=Lax"
            raise RefusedError("303 See Other", "", where, cookie)

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())


def cookie_parts(value: str) -> list[str]:
    return [part.strip() for part in value.split(";") if part.strip()]


def read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head without its empty line, and what has come behind it. Raises OSError, RefusedError."""
    data, until_s = b"", time.monotonic() + HEAD_S
    while b"\r\n\r\n" not in data:
        client.settimeout(max(until_s - time.monotonic(), 0.001))
        piece = client.recv(PIECE_BYTES)
        if not piece:
            raise OSError("it has closed the connection")
        data += piece
        if len(data) > HEAD_BYTES_MAX:
            raise RefusedError("431 Request Header Fields Too Large", "the head of this request is too long")
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def refuse(client: socket.socket, refusal: RefusedError) -> None:
    body = refusal.text.encode()
    head = [f"HTTP/1.1 {refusal.status}", "Content-Type: text/plain; charset=utf-8", "Connection: close"]
    head += [f"Content-Length: {len(body)}", *refusal.lines]
    client.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)


def pass_both(client: socket.socket, server: socket.socket) -> None:
    """Bytes in both directions, until the server has closed. A client may close its half first."""
    for sock in (client, server):
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, STUCK_S.to_bytes(8, sys.byteorder) + bytes(8))
    upload = threading.Thread(target=pass_on, args=(client, server), daemon=True)
    upload.start()
    pass_on(server, client)
    for sock in (client, server):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)  # ends the other thread's wait
    upload.join()


def pass_on(source: socket.socket, sink: socket.socket) -> None:
    try:
        while True:
            data = source.recv(PIECE_BYTES)
            if not data:
                break
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one of the two has gone


def main() -> int:
    base, token = os.environ["VGPU_SESSION_BASE"], os.environ.pop("VGPU_SESSION_TOKEN")
    address = os.environ.get("VGPU_SESSION_HOST", "127.0.0.1"), int(os.environ["VGPU_SESSION_PORT"])
    folder = tempfile.mkdtemp(prefix="vgpu-rstudio-")  # of mode 0700
    try:
        server = start_rserver(folder, base, sys.argv[1:])
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
        gate = Gate(base, token, os.path.join(folder, "socket"))
        threading.Thread(target=gate.serve, args=(listener,), daemon=True).start()
        return server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
