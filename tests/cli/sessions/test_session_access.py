"""Other ways to a session than the console's own path: a tunnel over the API, shared links, host names of its own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.sessions.world import (
    BUILT,
    OTHER_UID,
    PROGRAM,
    ROOT,
    Browser,
    Console,
    as_user,
    frame,
    read_frame,
    start,
)
from vgpud.cli.common import console_address
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.console.login.broker import link_socket_path, share

pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(200),
]


def test_a_tunnel_leads_to_a_session(real: Any, system: OwnSystem, console: Console, session: str) -> None:
    """`vgpu session open`, over the daemon's API alone."""
    job_id = session.strip("/").rpartition("/")[2]
    command = [sys.executable, "-m", "vgpud.cli.main", "--host", system.host, "session", "open", job_id]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        local = urlsplit(url)
        assert local.path == session and local.query.startswith("token=")
        browser = Browser(local.netloc)
        status, body = browser.get(f"{session}?{local.query}")
        assert status == 200 and json.loads(body)["path"].startswith(session)
        assert browser.get(session)[0] == 401, "the program asks for its token, as at its own port"
        _, body = browser.ask("GET", f"{session}huge?bytes={8 << 20}&{local.query}")
        assert len(body) == 8 << 20
        sock, head = browser.open_socket(f"{session}socket?{local.query}")
        assert head.startswith(b"HTTP/1.1 101 ")
        with sock:
            sock.sendall(frame(b"x" * 60_000))
            assert read_frame(sock) == b"x" * 60_000
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


@pytest.mark.root
def test_a_tunnel_is_for_its_user_alone(real: Any, system: OwnSystem, session: str) -> None:
    job_id = session.strip("/").rpartition("/")[2]
    command = [sys.executable, "-m", "vgpud.cli.main", "--host", system.host, "session", "open", job_id]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        local = urlsplit(process.stdout.readline().strip())

        def ask() -> str:
            with socket.create_connection((local.hostname, local.port or 0), 20) as sock:
                sock.sendall(f"GET {session}?{local.query} HTTP/1.0\r\n\r\n".encode())
                with contextlib.suppress(ConnectionResetError):
                    return sock.recv(100).decode() or "nothing"
            return "nothing"

        assert as_user(OTHER_UID, ask) == "nothing"
        assert ask().startswith("HTTP/1.1 200 ")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def test_a_shared_link_opens_one_session(
    real: Any, console: Console, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_address, "find_socket_path", lambda _: link_socket_path(console.runtime))
    job_id = session.strip("/").rpartition("/")[2]
    refused = real("session", "share", job_id, "--for", "10s")
    assert refused.code == 5 and "1 minute to 7 days" in refused.stderr
    made = real("session", "share", job_id, "--for", "1h", "-o", "json").json
    assert made["url"].startswith(f"{console.url}/share/")
    friend = Browser(console.address)
    answer, _ = friend.ask("GET", urlsplit(made["url"]).path)
    assert (answer.status, answer.headers["Location"]) == (303, session)
    cookie = str(answer.headers["Set-Cookie"])
    assert "HttpOnly" in cookie and "Path=/session/" in cookie and "SameSite=lax" in cookie
    friend.cookie = f"{cookie.partition(';')[0]}; other=1"
    status, body = friend.get(f"{session}a")
    assert status == 200 and json.loads(body)["headers"]["cookie"] == "other=1", "the session sees no secret of a link"
    sock, head = friend.open_socket(f"{session}socket")
    with sock:
        assert head.startswith(b"HTTP/1.1 101 ")
        sock.sendall(frame(b"hello"))
        assert read_frame(sock) == b"hello"
    assert friend.get("/")[0] == friend.get("/queue")[0] == 303, "nothing but this session"
    other = start(real, "--", sys.executable, str(PROGRAM))
    assert friend.get(f"/session/{other}/")[0] == 303
    friend.cookie = friend.cookie.replace(f"share-{job_id}", f"share-{other}")
    assert friend.get(f"/session/{other}/")[0] == 303
    friend.cookie = cookie.partition(";")[0]
    (row,) = real("session", "shares", "-o", "json").json["shares"]
    assert (row["share_id"], row["job_id"]) == (made["share_id"], int(job_id)) and 3000 < row["left_s"] <= 3600
    assert row["share_id"] in real("session", "shares").stdout
    assert real("session", "unshare", "00000000").code == 5
    assert real("session", "unshare", made["share_id"]).code == 0
    assert friend.get(session)[0] == 303
    status, body = friend.get(urlsplit(made["url"]).path)
    assert status == 404 and b"has ended, or was revoked" in body


def test_a_shared_link_outlives_the_console(
    real: Any, system: OwnSystem, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Path(tempfile.mkdtemp(prefix="vgc-", dir="/tmp"))
    try:
        monkeypatch.setattr(console_address, "find_socket_path", lambda _: link_socket_path(runtime))
        first = Console(system.host, runtime)
        url = real("session", "share", session.strip("/").rpartition("/")[2], "--for", "1h").stdout.strip()
        first.stop()
        second = Console(system.host, runtime)
        answer, _ = Browser(second.address).ask("GET", urlsplit(url).path)
        second.stop()
        assert (answer.status, answer.headers["Location"]) == (303, session)
    finally:
        shutil.rmtree(runtime)


@pytest.mark.root
def test_a_link_to_another_users_session_opens_nothing(
    real: Any, console: Console, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console makes the link, and the daemon does not open the session by it."""
    job_id = int(session.strip("/").rpartition("/")[2])
    path = link_socket_path(console.runtime)
    url = as_user(OTHER_UID, lambda: share(path, 10, job_id, 3600)[0])
    friend = Browser(console.address)
    answer, _ = friend.ask("GET", urlsplit(url).path)
    friend.cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
    status, body = friend.get(session)
    assert status == 404 and b"does not belong to user games" in body


def test_a_session_has_a_host_name_of_its_own(real: Any, system: OwnSystem, session: str) -> None:
    runtime = Path(tempfile.mkdtemp(prefix="vgc-", dir="/tmp"))
    runtime.chmod(0o755)
    console = Console(system.host, runtime, "--session-domain", "s.test")
    try:
        job_id, port = session.strip("/").rpartition("/")[2], console.address.rpartition(":")[2]
        own = f"session-{job_id}.s.test:{port}"
        owner, at_host = console.log_in(), Browser(console.address)

        def ask(path: str, method: str = "GET", **headers: str) -> tuple[Any, bytes]:
            return at_host.ask(method, path, b"x" if method == "POST" else None, {"Host": own, **headers})

        answer, _ = ask("/")
        assert (answer.status, answer.headers["Location"]) == (303, f"{console.url}{session}"), "to the log-in first"
        answer, _ = owner.ask("GET", f"{session}a%20b?x=1")
        enter = answer.headers["Location"]
        assert answer.status == 303 and enter.startswith(f"http://{own}/.vgpu/enter?ticket=")
        target = enter.partition(own)[2]
        answer, _ = ask(target, Host=f"session-99.s.test:{port}")
        assert "Set-Cookie" not in answer.headers, "a ticket is for one session"
        enter = owner.ask("GET", f"{session}a%20b?x=1")[0].headers["Location"]
        answer, _ = ask(enter.partition(own)[2])
        assert (answer.status, answer.headers["Location"]) == (303, f"{session}a%20b?x=1")
        at_host.cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
        assert ask(enter.partition(own)[2])[0].headers.get("Set-Cookie") is None, "once"
        answer, body = ask(f"{session}a%20b?x=1", Cookie=f"{at_host.cookie}; other=1")
        said = json.loads(body)
        assert said["path"] == f"{session}a%20b?x=1" and said["headers"]["cookie"] == "other=1"
        assert "Content-Security-Policy" not in answer.headers, "its origin is its own, and so is its policy"
        assert ask("/")[0].headers["Location"] == session
        assert ask("/queue")[0].status == 401 and b"who is this" in ask("/queue")[1], "the program's, not the console's"
        assert ask(session, Host=f"session-99.s.test:{port}")[0].status == 303
        # the console's pages are not there, and sessions not at the console's host
        assert owner.ask("GET", "/queue", None, {"Host": own})[0].status in (303, 401)
        assert owner.ask("POST", session, b"x")[0].status == 401
        assert owner.open_socket(session)[1].startswith(b"HTTP/1.1 401 ")
        # another site, or the host of another session, asks for nothing by the user's browser
        foreign = {"Origin": f"http://session-99.s.test:{port}", "Sec-Fetch-Site": "same-site"}
        assert ask(session, "POST", **foreign)[0].status == 403
        assert ask(session, **{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"})[0].status == 403
        head = at_host.open_socket(f"{session}socket", Host=own, **foreign)[1]
        assert head.startswith(b"HTTP/1.1 403 ")
        sock, head = at_host.open_socket(f"{session}socket", Host=own, Origin=f"http://{own}")
        assert head.startswith(b"HTTP/1.1 101 ")
        with sock:
            sock.sendall(frame(b"hello"))
            assert read_frame(sock) == b"hello"
        digest = hashlib.sha256(bytes(3 << 20)).hexdigest()
        answer, body = at_host.ask("POST", f"{session}", bytes(3 << 20), {"Host": own})
        assert json.loads(body) == {"size": 3 << 20, "digest": digest}, "no form of the console's"
    finally:
        console.stop()
        shutil.rmtree(runtime)
