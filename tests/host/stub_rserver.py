"""A stand-in for RStudio Server's `rserver`: it listens at the socket that it is given and says what it was asked."""

from __future__ import annotations

import json
import os
import socketserver
import stat
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

OPTIONS = ("--www-socket", "--www-root-path", "--auth-none", "--secure-cookie-key-file", "--server-user")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        if self.headers.get("Upgrade"):
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.end_headers()
            self.wfile.write(self.rfile.read(5).upper())
            self.close_connection = True
            return
        folder = Path(given["www-socket"]).parent
        said = {
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "options": given,
            "mode": stat.S_IMODE(folder.stat().st_mode),
            "knows_token": "VGPU_SESSION_TOKEN" in os.environ,
            "body": self.rfile.read(int(self.headers.get("Content-Length", 0))).decode(),
        }
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


if "--help" in sys.argv:
    print("\n".join(OPTIONS[1:] if os.environ.get("STUB_IS_OLD") else OPTIONS))
    sys.exit(0)
given = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
Server(given["www-socket"], Handler).serve_forever()
