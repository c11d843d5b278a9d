"""RStudio Server behind a session's token, with a stand-in for `rserver`: who gets through, and what it is asked."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import find_free_ports
from vgpud.core.jobs import session
from vgpud.host import session_gate

STUB = Path(__file__).with_name("stub_rserver.py")
TOKEN = {"Authorization": "Bearer secret"}


def install(folder: Path) -> None:
    """`rserver` on a PATH."""
    program = folder / "rserver"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(STUB))} "$@"\n')
    program.chmod(0o755)


def start(folder: Path, port: int, *words: str, **variables: str) -> subprocess.Popen[str]:
    command = session.complete_command(("rstudio", *words), Path(session_gate.__file__).read_text())
    env = {"PATH": f"{folder}:{os.path.dirname(sys.executable)}:/usr/bin:/bin", "TMPDIR": str(folder), **variables}
    env |= {session.PORT: str(port), session.BASE: "/session/7/", session.TOKEN: "secret"}
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("r")
    install(folder)
    number = find_free_ports(1)[0]
    process = start(folder, number, "--server-user=me")
    while True:
        try:
            if ask(number, "/session/7/", **TOKEN)[0] == 200:
                break
        except ConnectionError:
            assert process.poll() is None, process.stderr and process.stderr.read()
    yield number
    process.terminate()
    process.communicate()


def ask(port: int, path: str, method: str = "GET", body: str | None = None, **headers: str) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, json.loads(data) if answer.status == 200 else data.decode(), answer.headers


def test_it_is_asked_without_the_path_in_front(port: int) -> None:
    status, said, _ = ask(port, "/session/7/rpc?a=1", "POST", "words", Cookie="one=1; vgpu-gate=secret", **TOKEN)
    assert (status, said["path"], said["body"]) == (200, "/rpc?a=1", "words")
    assert said["headers"]["cookie"] == "one=1" and "authorization" not in said["headers"]
    assert said["headers"]["x-rstudio-root-path"] == "/session/7" and said["headers"]["connection"] == "close"
    assert said["options"]["www-root-path"] == "/session/7/" and said["options"]["auth-none"] == "1"
    assert said["options"]["server-user"] == "me", "the user's own words come last"
    assert said["mode"] == 0o700 and not said["knows_token"]
    assert "database-config-file" not in said["options"], "it does not know this option"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/session/7/", {}, 401),
        ("/session/7/", {"Authorization": "Bearer other"}, 401),
        ("/session/7/", {"Authorization": "secret"}, 401),
        ("/session/7/?token=other", {}, 401),
        ("/session/7/", {"Cookie": "vgpu-gate=other"}, 401),
        ("/session/7/", {"Cookie": "vgpu-gate=secret"}, 200),
        ("/session/8/", TOKEN, 404),
        ("/", TOKEN, 404),
        ("/session/7/" + "x" * 70_000, TOKEN, 431),
    ],
)
def test_who_gets_through(port: int, path: str, headers: dict[str, str], status: int) -> None:
    assert ask(port, path, **headers)[0] == status


def test_an_address_with_the_token_makes_a_cookie(port: int) -> None:
    status, _, headers = ask(port, "/session/7/?token=secret&view=1")
    assert (status, headers["Location"]) == (303, "/session/7/?view=1")
    assert headers["Set-Cookie"] == "vgpu-gate=secret; Path=/session/7/; HttpOnly; SameSite=Lax"


def test_what_is_upgraded_passes_both_ways(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        lines = "Host: x\r\nAuthorization: Bearer secret\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket"
        sock.sendall(f"GET /session/7/ws HTTP/1.1\r\n{lines}\r\n\r\nhe".encode())
        sock.sendall(b"llo")
        answer = b""
        while data := sock.recv(4096):
            answer += data
        assert answer.startswith(b"HTTP/1.1 101") and answer.endswith(b"\r\n\r\nHELLO")


def test_without_rserver_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if session_gate.find_rserver():
        pytest.skip("RStudio Server is installed here")
    process = start(tmp_path, find_free_ports(1)[0])
    said = process.communicate()[1]
    assert process.returncode and "vgpu: rserver is not installed" in said and said.count("\n") == 1


def test_an_old_rserver_is_not_started(tmp_path: Path) -> None:
    install(tmp_path)
    process = start(tmp_path, find_free_ports(1)[0], STUB_IS_OLD="1")
    said = process.communicate()[1]
    assert process.returncode and "is too old: without --www-socket every user" in said
    assert [path.name for path in tmp_path.iterdir()] == ["rserver"], "its own folder is removed"


def test_connections_without_the_token_keep_the_owner_out_for_no_moment(port: int) -> None:
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(session_gate.HEADS_MAX + 20)]
    assert ask(port, "/session/7/", **TOKEN)[0] == 200
    for sock in silent:
        sock.close()
