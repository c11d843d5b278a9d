"""Sessions with the real daemon, its simulated device and the real console: the whole path of a page."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from vgpud import paths
from vgpud.cli.common import console_address
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls
from vgpud.console.login import agent
from vgpud.console.login.broker import link, link_socket_path, share
from vgpud.v1alpha1 import vgpud_pb2 as pb

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("session_program.py")
OTHER_UID = 5  # games
BUILT = all((paths.sim_lib_dir() / name).exists() for name in ("vgpu-simd", "libcuda.so.1"))
pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(200),
]


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


@pytest.fixture(scope="module")
def system() -> Iterator[OwnSystem]:
    folder = Path(tempfile.mkdtemp(prefix="vgs-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with OwnSystem(folder, {"devices": "1"}, ['socket_mode = "0666"', "job_grace_s = 1"]) as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def console(system: OwnSystem) -> Iterator[Console]:
    runtime = Path(tempfile.mkdtemp(prefix="vgc-", dir="/tmp"))
    runtime.chmod(0o755)
    made = Console(system.host, runtime)
    yield made
    made.stop()
    shutil.rmtree(runtime)


@pytest.fixture(scope="module")
def session(system: OwnSystem, console: Console) -> str:
    """The path of a session that answers, the same for most tests."""
    spec = pb.JobSpec(session="web", slice=pb.SliceSpec(gpus_milli=250), directory=str(system.folder), name="shared")
    spec.command.extend([sys.executable, str(PROGRAM)])
    spec.environment["VGPU_SIM_DIR"] = str(system.sim_dir)
    with system.client() as client:
        (job_id,) = client.send(calls.submit(spec, ""))
    owner = console.log_in()
    wait_until(lambda: owner.get(f"/session/{job_id}/")[0] == 200)
    return f"/session/{job_id}/"


@pytest.fixture
def real(system: OwnSystem, short_dir: Path, monkeypatch: pytest.MonkeyPatch, vgpu: Any) -> Iterator[Any]:
    """`vgpu ARGS` in this process; no job is left after the test but the session of all."""
    monkeypatch.chdir(short_dir)
    for name, value in system.env.items():
        if name.startswith("VGPU_"):
            monkeypatch.setenv(name, value)

    def call(*args: str) -> Any:
        return vgpu(*args, host=system.host)

    yield call
    rows = call("job", "ls", "-o", "json").json["jobs"]
    left = [str(row["job_id"]) for row in rows if row["name"] != "shared"]
    if left:
        call("job", "cancel", *left)
        call("job", "wait", *left)


def start(real: Any, *words: str) -> str:
    result = real("session", "start", "-q", "--gpus", "0.25", *words)
    assert result.code == 0, result
    return str(result.stdout.strip())


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
    guest = Browser(console.address)
    answer, _ = guest.ask("GET", urlsplit(made["url"]).path)
    assert (answer.status, answer.headers["Location"]) == (303, session)
    cookie = str(answer.headers["Set-Cookie"])
    assert "HttpOnly" in cookie and "Path=/session/" in cookie and "SameSite=lax" in cookie
    guest.cookie = f"{cookie.partition(';')[0]}; other=1"
    status, body = guest.get(f"{session}a")
    assert status == 200 and json.loads(body)["headers"]["cookie"] == "other=1", "the session sees no secret of a link"
    sock, head = guest.open_socket(f"{session}socket")
    with sock:
        assert head.startswith(b"HTTP/1.1 101 ")
        sock.sendall(frame(b"hello"))
        assert read_frame(sock) == b"hello"
    assert guest.get("/")[0] == guest.get("/queue")[0] == 303, "nothing but this session"
    other = start(real, "--", sys.executable, str(PROGRAM))
    assert guest.get(f"/session/{other}/")[0] == 303
    guest.cookie = guest.cookie.replace(f"share-{job_id}", f"share-{other}")
    assert guest.get(f"/session/{other}/")[0] == 303
    guest.cookie = cookie.partition(";")[0]
    (row,) = real("session", "shares", "-o", "json").json["shares"]
    assert (row["share_id"], row["job_id"]) == (made["share_id"], int(job_id)) and 3000 < row["left_s"] <= 3600
    assert row["share_id"] in real("session", "shares").stdout
    assert real("session", "unshare", "00000000").code == 5
    assert real("session", "unshare", made["share_id"]).code == 0
    assert guest.get(session)[0] == 303
    status, body = guest.get(urlsplit(made["url"]).path)
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
def test_nobody_shares_another_users_session(
    real: Any, console: Console, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console makes the link, and the daemon does not open the session by it."""
    job_id = int(session.strip("/").rpartition("/")[2])
    path = link_socket_path(console.runtime)
    url = as_user(OTHER_UID, lambda: share(path, 10, job_id, 3600)[0])
    guest = Browser(console.address)
    answer, _ = guest.ask("GET", urlsplit(url).path)
    guest.cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
    status, body = guest.get(session)
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
    assert f":{named['tb']}/session/{job_id}-tb/?token=" in real(
        "session", "url", "--direct", "--port", "tb", job_id
    ).stdout


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
