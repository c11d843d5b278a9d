"""Sessions with the real daemon, its simulated device and the real console: the whole path of a page."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import http.client
import json
import os
import shutil
import socket
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.cli.sessions.world import (
    BUILT,
    OTHER_UID,
    PROGRAM,
    Browser,
    Console,
    frame,
    read_frame,
    start,
    wait_until,
)
from vgpud.cli.common import console_address
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.console.login import agent
from vgpud.console.login.broker import link_socket_path

pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(200),
]


def test_a_session_is_a_job_with_an_address(
    real: Any, console: Console, monkeypatch: pytest.MonkeyPatch, short_dir: Path
) -> None:
    job_id = start(real, "--", sys.executable, str(PROGRAM))
    owner, session = console.log_in(), f"/session/{job_id}/"
    wait_until(lambda: owner.get(session)[0] == 200)
    for command in ("session", "job"):
        assert job_id in real(command, "ls", "-o", "name").stdout.split()
    shown = real("job", "show", job_id, "-o", "json").json["job"]
    assert (shown["session"], shown["preemptible"]) == ("web", False)
    token = shown["environment"]["VGPU_SESSION_TOKEN"]
    assert token not in json.dumps(shown["command"]) and len(token) == 64
    direct = real("session", "url", "--direct", job_id).stdout.strip()
    assert direct == f"http://127.0.0.1:{shown['session_port']}/session/{job_id}/?token={token}"
    with urllib.request.urlopen(direct) as answer:  # noqa: S310
        assert answer.status == 200
    monkeypatch.setattr(console_address, "find_socket_path", lambda _: link_socket_path(console.runtime))
    assert real("session", "url", job_id).stdout.strip() == console.url + session
    monkeypatch.setattr(console_address, "find_socket_path", lambda _: link_socket_path(short_dir))
    assert real("session", "url", job_id, "-o", "json").json["url"] == direct, "no console answers"
    assert real("session", "stop", job_id).code == 0
    assert real("job", "wait", job_id).code == 143
    assert real("session", "url", job_id).code == 8
    wait_until(lambda: owner.get(session)[0] == 410)
    status, page = owner.get(session)
    assert status == 410 and b"was cancelled" in page
    assert "VGPU_SESSION_TOKEN" not in real("job", "show", job_id, "-o", "json").json["job"]["environment"]


def test_the_program_gets_the_request_and_no_cookie_of_the_console(console: Console, session: str) -> None:
    owner = console.log_in()
    cookie = f"{owner.cookie}; theme=dark; other=1"
    answer, body = owner.ask("GET", f"{session}a%20b?x=%2e%2e", None, {"Cookie": cookie, "X-Forwarded-For": "1.2.3.4"})
    said = json.loads(body)
    assert said["path"] == f"{session}a%20b?x=%2e%2e"
    assert said["headers"]["cookie"] == "other=1"
    assert said["headers"]["host"] == said["headers"]["x-forwarded-host"] == console.address
    assert "x-forwarded-for" not in said["headers"]
    assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
    own = f"connect-src http://{console.address}{session} ws://{console.address}{session} "
    assert answer.headers["Content-Security-Policy"].startswith(own), "its pages do not read the console's"
    assert answer.headers["Cache-Control"] == "no-store"
    answer, _ = owner.ask("GET", session.removesuffix("/"))
    assert (answer.status, answer.headers["Location"]) == (307, session)


def test_a_session_sets_cookies_below_its_path_only(console: Console, session: str) -> None:
    answer, _ = console.log_in().ask("GET", f"{session}cookies")
    assert answer.headers.get_all("Set-Cookie") == [f"mine=1; HttpOnly; Path={session}"]
    assert not {"Service-Worker-Allowed", "Clear-Site-Data"} & set(answer.headers)


@pytest.mark.parametrize("path", ["../../login", "%2e%2e/x", "a/..%2f..%2fx", "a/%252e%252e/x", "a\\..\\x"])
def test_no_path_leaves_the_session(console: Console, session: str, path: str) -> None:
    assert console.log_in().get(session + path) == (404, b"There is no such session.")


@pytest.mark.parametrize("path", ["/session/", "/session/x/", "/session/-1/", "/session/0/", "/session/99999/"])
def test_what_is_no_session(console: Console, session: str, path: str) -> None:
    assert console.log_in().get(path)[0] == 404


def test_nothing_is_passed_on_without_a_log_in(console: Console, session: str) -> None:
    stranger = Browser(console.address)
    assert stranger.get(session)[0] == 303
    assert stranger.ask("POST", session, b"x")[0].status == 401
    _, head = stranger.open_socket(session)
    assert head.startswith(b"HTTP/1.1 401 ")


@pytest.mark.root
def test_another_user_is_refused(console: Console, session: str) -> None:
    other = console.log_in(OTHER_UID)
    status, body = other.get(session)
    assert status == 404 and b"does not belong to user games" in body
    _, head = other.open_socket(session)
    assert head.startswith(b"HTTP/1.1 404 ")


@pytest.mark.root
def test_a_program_of_another_user_at_the_port_gets_nothing(real: Any, console: Console) -> None:
    """It took the port before the session could."""
    job_id = start(real, "--", "sleep", "100")
    port = wait_until(lambda: real("job", "show", job_id, "-o", "json").json["job"]["session_port"])
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            agent.become(OTHER_UID)
            with socket.create_server(("127.0.0.1", port)) as server:
                os.write(writer, b"x")
                sock, _ = server.accept()
                os.write(writer, sock.recv(1000) or b"nothing")
        os._exit(0)
    assert os.read(reader, 1) == b"x"
    status, page = console.log_in().get(f"/session/{job_id}/")
    assert status == 502 and f"uid {OTHER_UID} does".encode() in page
    assert os.read(reader, 1000) == b"nothing"
    os.waitpid(pid, 0)


def test_other_sites_open_no_socket(console: Console, session: str) -> None:
    owner = console.log_in()
    _, head = owner.open_socket(session, Origin="http://evil.example")
    assert head.startswith(b"HTTP/1.1 403 ")
    assert owner.ask("POST", session, b"x", {"Origin": "http://evil.example"})[0].status == 403
    assert owner.ask("GET", session, None, {"Host": "evil.example"})[0].status == 421
    assert owner.open_socket(session, Host="evil.example")[1].startswith(b"HTTP/1.1 421 ")


def test_a_socket_echoes_in_both_directions(console: Console, session: str) -> None:
    sock, head = console.log_in().open_socket(f"{session}socket")
    assert head.startswith(b"HTTP/1.1 101 ") and b"set-cookie" not in head.lower()
    assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head.lower().replace(
        b"s3pplmbitxaq9kygzzhzrbk+xoo=", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    )
    with sock:
        for data in (b"hello", b"x" * 60_000):
            sock.sendall(frame(data))
            assert read_frame(sock) == data
        sock.sendall(b"\x88\x80" + bytes(4))
        assert sock.recv(1) == b"", "the program has closed"


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Of this machine, signed by itself."""
    now = datetime.datetime.now(datetime.timezone.utc)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    certificate, secret = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, secret


def test_over_tls(system: OwnSystem, session: str, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    runtime = Path(tempfile.mkdtemp(prefix="vgc-", dir="/tmp"))
    runtime.chmod(0o755)
    made = Console(system.host, runtime, "--certificate", str(certificate), "--key", str(key))
    try:
        owner = made.log_in()
        assert owner.cookie.startswith("__Host-vgpu=")
        said = json.loads(owner.get(session)[1])["headers"]
        assert "cookie" not in said and said["x-forwarded-proto"] == "https"
        sock, head = owner.open_socket(f"{session}socket", Origin=made.url)
        assert head.startswith(b"HTTP/1.1 101 ")
        with sock:
            sock.sendall(frame(b"x" * 60_000))
            assert read_frame(sock) == b"x" * 60_000
            made.stop()
            assert sock.recv(1) == b""
    finally:
        made.stop()
        shutil.rmtree(runtime)


def test_huge_and_slow_bodies(console: Console, session: str) -> None:
    owner = console.log_in()
    part = os.urandom(1 << 20)
    for body in (part * 8, iter([part] * 8)):  # with a length, and in chunks
        answer, text = owner.ask("POST", f"{session}x", body)
        assert answer.status == 200
        assert json.loads(text) == {"size": 8 << 20, "digest": hashlib.sha256(part * 8).hexdigest()}
    assert len(owner.get(f"{session}huge?bytes={32 << 20}")[1]) == 32 << 20
    assert owner.get(f"{session}slow") == (200, b"012")
    with pytest.raises(http.client.IncompleteRead):
        owner.get(f"{session}part")


def test_a_session_outlives_the_console_and_the_daemon(system: OwnSystem, session: str) -> None:
    runtime = Path(tempfile.mkdtemp(prefix="vgc-", dir="/tmp"))
    runtime.chmod(0o755)
    try:
        first = Console(system.host, runtime)
        assert first.log_in().get(session)[0] == 200
        first.stop()
        assert system.daemon
        system.daemon.stop()
        system.start_daemon()
        second = Console(system.host, runtime)
        try:
            owner = second.log_in()
            wait_until(lambda: owner.get(session)[0] == 200)
        finally:
            second.stop()
    finally:
        shutil.rmtree(runtime)


def test_a_page_waits_for_its_session(real: Any, console: Console) -> None:
    job_id = start(real, "--", "sleep", "100")
    answer, page = console.log_in().ask("GET", f"/session/{job_id}/")
    assert answer.status == 503 and answer.headers["Refresh"] == "3" and b"its program starts" in page
    assert answer.headers["Content-Security-Policy"]
    answer, page = console.log_in().ask("GET", f"/session/{job_id}/", None, {"Sec-Fetch-Dest": "empty"})
    assert answer.status == 503 and page == f"session {job_id} is running, its program starts".encode()


def test_further_ports(real: Any, console: Console) -> None:
    """One session, two programs."""
    second = "VGPU_SESSION_PORT=$VGPU_SESSION_PORT_TB VGPU_SESSION_BASE=$VGPU_SESSION_BASE_TB"
    script = f"{second} {sys.executable} {PROGRAM} & exec {sys.executable} {PROGRAM}"
    job_id = start(real, "--port", "tb", "--", "sh", "-c", script)
    owner = console.log_in()
    for base in (f"/session/{job_id}/", f"/session/{job_id}-tb/"):
        wait_until(lambda base=base: owner.get(base)[0] == 200)
        assert json.loads(owner.get(f"{base}x")[1])["path"] == f"{base}x"
    assert owner.ask("GET", f"/session/{job_id}-tb")[0].status == 307
    status, body = owner.get(f"/session/{job_id}-api/", **{"Sec-Fetch-Dest": "empty"})
    assert (status, body) == (404, f"session {job_id} has no port api".encode())
    assert owner.get(f"/session/{job_id}-tb/../{job_id}/")[0] == 404
    named = real("job", "show", job_id, "-o", "json").json["job"]["named_ports"]
    assert (
        f":{named['tb']}/session/{job_id}-tb/?token="
        in real("session", "url", "--direct", "--port", "tb", job_id).stdout
    )


def test_a_shell_has_no_page(real: Any, console: Console) -> None:
    job_id = start(real, "shell")
    status, body = console.log_in().get(f"/session/{job_id}/", **{"Sec-Fetch-Dest": "empty"})
    assert status == 404 and b"is a terminal" in body
    shown = real("job", "show", job_id, "-o", "json").json["job"]
    assert shown["terminal"] and shown["session_port"] is None


@pytest.mark.skipif(not shutil.which("jupyter-lab"), reason="JupyterLab is not installed: pip install jupyterlab")
def test_jupyterlab_runs_a_cell(real: Any, console: Console) -> None:
    job_id = start(real, "jupyter", *(["--allow-root"] if os.geteuid() == 0 else []))
    owner, base = console.log_in(), f"/session/{job_id}/"
    wait_until(lambda: owner.get(f"{base}lab")[0] == 200)
    answer, body = owner.ask("POST", f"{base}api/kernels", "{}", {"Content-Type": "application/json"})
    assert answer.status == 201
    assert Browser(console.address).get(f"{base}api/kernels")[0] == 303
    sock, head = owner.open_socket(f"{base}api/kernels/{json.loads(body)['id']}/channels")
    assert head.startswith(b"HTTP/1.1 101 ")
    header = {"msg_id": "1", "session": "1", "username": "", "msg_type": "execute_request", "version": "5.3"}
    content = {"code": "print(6 * 7)", "silent": False}
    request = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    with sock:
        sock.sendall(frame(json.dumps(request).encode()))
        while b'"text": "42' not in (said := read_frame(sock)):
            assert b'"ename"' not in said
