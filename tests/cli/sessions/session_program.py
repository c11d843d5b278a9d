"""The program of a session in tests: it says what it was asked, and echoes bodies and WebSockets."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

BASE, PORT = os.environ["VGPU_SESSION_BASE"], int(os.environ["VGPU_SESSION_PORT"])
TOKEN = os.environ["VGPU_SESSION_TOKEN"]
MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body: bytes, *headers: tuple[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        name = parts.path.removeprefix(BASE)
        bearer = str(self.headers["Authorization"]).removeprefix("Bearer ")
        given = parse_qs(parts.query).get("token", [])
        if not parts.path.startswith(BASE) or TOKEN not in (*given, bearer):
            self.answer(b"who is this?", status=401)
        elif self.headers["Upgrade"] == "websocket":
            self.echo_socket()
        elif name == "huge":
            self.send_huge(int(parse_qs(parts.query)["bytes"][0]))
        elif name == "slow":
            self.send_slowly()
        elif name == "part":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"a part")
            self.close_connection = True
        elif name == "redirect":
            self.answer(b"", ("Location", parse_qs(parts.query)["to"][0]), status=307)
        elif name == "cookies":
            self.answer(
                b"",
                ("Set-Cookie", "vgpu=stolen; Path=/"),
                ("Set-Cookie", "=vgpu=stolen; Path=/"),
                ("Set-Cookie", "mine=1; Path=/; Domain=127.0.0.1; HttpOnly"),
                ("Service-Worker-Allowed", "/"),
                ("Clear-Site-Data", '"*"'),
            )
        else:
            said = {"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}
            self.answer(json.dumps(said).encode(), ("Content-Type", "application/json"))

    def do_POST(self) -> None:
        digest, size = hashlib.sha256(), 0
        if self.headers["Transfer-Encoding"] == "chunked":
            while count := int(self.rfile.readline(), 16):
                digest.update(self.rfile.read(count))
                self.rfile.readline()
                size += count
            self.rfile.readline()
        else:
            left = int(self.headers["Content-Length"])
            while left:
                data = self.rfile.read(min(left, 65536))
                digest.update(data)
                size, left = size + len(data), left - len(data)
        self.answer(json.dumps({"size": size, "digest": digest.hexdigest()}).encode())

    def send_huge(self, size: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for _ in range(size >> 20):
            self.wfile.write(bytes(1 << 20))

    def send_slowly(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(3):
            self.wfile.write(b"1\r\n%d\r\n" % number)
            self.wfile.flush()
            time.sleep(0.2)
        self.wfile.write(b"0\r\n\r\n")

    def echo_socket(self) -> None:
        digest = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + MAGIC).encode())  # noqa: S324  as RFC 6455 has it
        accept = base64.b64encode(digest.digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.send_header("Set-Cookie", "vgpu=stolen; Path=/")
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 0x0F == 8:
                return
            size = head[1] & 0x7F
            if size == 126:
                size = int.from_bytes(self.rfile.read(2), "big")
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[index % 4] for index, byte in enumerate(self.rfile.read(size)))
            length = bytes([size]) if size < 126 else bytes([126]) + size.to_bytes(2, "big")
            self.wfile.write(bytes([head[0]]) + length + data)


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
