"""`vgpu console`: its options, and the two processes of `serve`."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import http.cookiejar
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.fake_server import FakeDaemon
from vgpud import paths
from vgpud.console import main
from vgpud.console.live.channel import Bridge
from vgpud.console.login import agent
from vgpud.console.login.broker import link
from vgpud.console.main import ConsoleUsageError, Serve
from vgpud.errors import ExitCode
from vgpud.host import listeners

ROOT = Path(__file__).resolve().parents[2]
TLS = {"certificate": Path("c"), "key": Path("k")}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"listen": "0.0.0.0:8377"}, "is reached by other machines"),
        ({"listen": "node7:8377"}, "is reached by other machines"),
        ({"listen": "[::]:8377"}, "is reached by other machines"),
        ({"listen": "nonsense"}, "is no address"),
        ({"listen": "127.0.0.1:" + "9" * 5000}, "is no address"),
        ({"certificate": Path("c")}, "belong together"),
        ({"password_file": Path("p")}, "over TLS only"),
        ({"nodes": ("n2",)}, "write NAME=URL"),
        ({"nodes": ("n2=javascript:alert(1)",)}, "write NAME=URL"),
        ({"nodes": ("=https://n2",)}, "write NAME=URL"),
    ],
)
def test_options_that_would_be_unsafe_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConsoleUsageError, match=sentence):
        main.check(Serve("/api", **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nodes": ("n2=https://n2:8377",)},
        {"listen": "[::1]:1"},
        {"listen": "localhost:0"},
        {"listen": "unix:/x"},
        {"listen": "0.0.0.0:1", **TLS},
    ],
)
def test_options_that_are_safe(options: dict[str, object]) -> None:
    main.check(Serve("/api", **options))  # type: ignore[arg-type]


def test_hosts_are_those_of_the_url() -> None:
    assert main._hosts("https://Console.example:444", private=False) == {"console.example"}
    assert main._hosts("http://[::1]:8377", private=True) == {"[::1]", "localhost", "127.0.0.1"}


@pytest.fixture
def console(short_dir: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path, str]]:
    """A console of this user's on a fake daemon: its process, its directory and a one-time link."""
    short_dir.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    vgpu = [sys.executable, "-m", "vgpud.cli.main", "console"]
    with FakeDaemon(short_dir) as daemon:
        daemon.socket.chmod(0o666)
        command = [*vgpu, "serve", "--host", daemon.host, "--runtime-dir", str(short_dir), "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE)
        assert process.stderr
        process.stderr.readline()
        link = [*vgpu, "open", "--print", "--runtime-dir", str(short_dir)]
        done = subprocess.run(link, env=env, capture_output=True, text=True, check=True)
        yield process, short_dir, done.stdout.strip()
        process.terminate()
        process.wait(20)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def uid_of(pid: int) -> int:
    line = next(text for text in Path(f"/proc/{pid}/status").read_text().splitlines() if text.startswith("Uid:"))
    (uid,) = set(map(int, line.split()[1:]))
    return uid


def test_serve_and_open(console: tuple[subprocess.Popen[bytes], Path, str]) -> None:
    process, folder, url = console
    assert url.startswith("http://127.0.0.1:")
    until_s = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
                html = answer.read().decode()
            break
        except urllib.error.URLError:
            assert time.monotonic() < until_s
            time.sleep(0.05)
    assert "This link logs you in once" in html
    (web,) = children(process.pid)
    expected = main.DEFAULT_UID if os.geteuid() == 0 else os.geteuid()
    assert uid_of(web) == expected, "the pages are served without root's rights"
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    assert "grpc" not in maps, "the privileged process does not load gRPC"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert not main.link_socket_path(folder).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(web, 0)


@pytest.mark.parametrize(
    ("form", "cookie", "status"),
    [
        ("token=" + "a" * 20_000, "", 403),
        ("name=" + "a" * 20_000 + "&password=a", "", 403),
        ("name=a&password=" + "%ff" * 20_000, "", 403),
        ("", "vgpu=" + "\xff" * 4000, 303),
        ("", "vgpu=" + "a" * 20_000, 303),
    ],
)
def test_no_request_without_a_log_in_ends_the_console(
    console: tuple[subprocess.Popen[bytes], Path, str], form: str, cookie: str, status: int
) -> None:
    process, folder, url = console
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    headers = {"Content-Type": "application/x-www-form-urlencoded"} | ({"Cookie": cookie} if cookie else {})
    connection.request("POST" if form else "GET", "/login" if form else "/", form or None, headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == status
    connection.request("GET", urlsplit(url).path)
    assert connection.getresponse().status == 200
    assert process.poll() is None
    assert link(main.link_socket_path(folder), 20)


#: silent, half a line, half of the headers, half of a form
BEGINNINGS = (
    b"",
    b"GET /login",
    b"GET / HTTP/1.1\r\nHost:",
    b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\na",
)


def open_connections(url: str, count: int) -> list[socket.socket]:
    """Connections to the console's port that have begun a request."""
    host, _, port = urlsplit(url).netloc.partition(":")
    made = []
    for number in range(count):
        sock = socket.create_connection((host, int(port)), 30)
        made.append(sock)
        with contextlib.suppress(OSError):
            sock.sendall(BEGINNINGS[number % len(BEGINNINGS)])
    return made


@pytest.mark.root
def test_connections_of_one_user_keep_no_other_user_out(console: tuple[subprocess.Popen[bytes], Path, str]) -> None:
    process, _, url = console
    (web,) = children(process.pid)
    with urllib.request.urlopen(url, timeout=20):  # noqa: S310
        before = len(os.listdir(f"/proc/{web}/fd"))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            agent.become(5)  # games
            made = open_connections(url, 600)
            os.write(writer, b"x")
            for sock in made:
                with contextlib.suppress(OSError):
                    sock.recv(1)  # until the deadline
        finally:
            os._exit(0)
    os.read(reader, 1)
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310
        assert answer.status == 200
    assert len(os.listdir(f"/proc/{web}/fd")) <= before + listeners.CONSOLE.share_max + 2
    os.waitpid(pid, 0)
    until_s = time.monotonic() + 60
    while len(os.listdir(f"/proc/{web}/fd")) > before and time.monotonic() < until_s:
        time.sleep(0.05)
    assert len(os.listdir(f"/proc/{web}/fd")) <= before
    os.close(reader)
    os.close(writer)


def test_when_the_web_server_ends_so_does_the_console(console: tuple[subprocess.Popen[bytes], Path, str]) -> None:
    process, _, _ = console
    (web,) = children(process.pid)
    os.kill(web, signal.SIGKILL)
    assert process.wait(20) != 0


def test_open_without_a_console(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from vgpud.cli.main import invoke

    assert invoke(["console", "open", "--runtime-dir", str(tmp_path)]) == ExitCode.UNREACHABLE
    assert "start it with `vgpu console serve`" in capfd.readouterr().err


def other_users_console(folder: Path, answer: bytes) -> socket.socket:
    """A console of uid 65534's: its socket, which says this to every caller."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(str(main.link_socket_path(folder)))
    main.link_socket_path(folder).chmod(0o666)
    os.chown(main.link_socket_path(folder), main.DEFAULT_UID, -1)
    os.seteuid(main.DEFAULT_UID)  # the kernel reports the process that called listen()
    try:
        sock.listen()
    finally:
        os.seteuid(0)

    def say() -> None:
        with contextlib.suppress(OSError), sock.accept()[0] as caller:
            caller.recv(4096)
            caller.send(answer)

    threading.Thread(target=say, daemon=True).start()
    return sock


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("has_option", [True, False])
def test_open_takes_no_link_of_another_users_console(
    short_dir: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, has_option: bool
) -> None:
    """Whose link leads to a page of theirs. In /tmp any user can take the name of a runtime directory."""
    from vgpud.cli.main import invoke

    roots = short_dir / "roots"
    roots.mkdir()
    other = short_dir / "other"
    other.mkdir()
    sock = other_users_console(other, b'{"url": "http://evil.example/"}')
    os.chown(other, main.DEFAULT_UID, main.DEFAULT_UID)
    monkeypatch.setattr(paths, "runtime_dir", lambda *_, uid=None: other if uid is None else roots)
    code = invoke(["console", "open", "--print", *(["--runtime-dir", str(other)] if has_option else [])])
    sock.shutdown(socket.SHUT_RDWR)
    sock.close()
    said = capfd.readouterr()
    assert "evil" not in said.out
    assert code == (ExitCode.DENIED if has_option else ExitCode.UNREACHABLE), "root's console is asked instead"
    assert "neither you nor root" in said.err or not has_option


def test_the_console_needs_a_unix_socket(capfd: pytest.CaptureFixture[str]) -> None:
    from vgpud.cli.main import invoke

    assert invoke(["console", "serve", "--host", "node7:8376"]) == ExitCode.USAGE
    assert "unix socket" in capfd.readouterr().err


def _log_in(url: str, jar: http.cookiejar.CookieJar | None = None) -> None:
    """As a browser does, until a page with the user's data is there."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    token = url.rpartition("=")[2]
    until_s = time.monotonic() + 20
    while True:
        try:
            browser.open(url.partition("?")[0], f"token={token}".encode(), timeout=10).read()
            return
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            assert time.monotonic() < until_s
            time.sleep(0.05)


def _status(url: str, cookie: str) -> int:
    """Of the console's first page, for a request with this cookie."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request("GET", "/", headers={"Cookie": cookie})
    return connection.getresponse().status


def _as_user(uid: int, work: Callable[[], int]) -> int:
    """What it returns as a process of this user."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        agent.become(uid)
        os.write(writer, str(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = pipe.read()
    os.waitpid(pid, 0)
    return int(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_cookie_that_went_to_another_users_port_is_worth_nothing(
    console: tuple[subprocess.Popen[bytes], Path, str],
) -> None:
    """A browser sends the cookies of 127.0.0.1 to every port of it."""
    url = console[2]
    jar = http.cookiejar.CookieJar()
    _log_in(url, jar)
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        port = theirs.getsockname()[1]
        visit = threading.Thread(target=lambda: browser.open(f"http://127.0.0.1:{port}/", timeout=20).read())
        visit.start()
        sock, _ = theirs.accept()
        with sock:
            said = sock.recv(65536).decode()
            sock.send(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        visit.join()
    cookie = next(line.partition(": ")[2] for line in said.splitlines() if line.lower().startswith("cookie:"))
    assert _status(url, cookie) == 200, "its own user's programs may use it"
    assert _as_user(main.DEFAULT_UID, lambda: _status(url, cookie)) == 303, "the log-in"
    assert _status(url, cookie) == 200


def _find_reachable_sockets(web: int, folder: Path) -> list[str]:
    """Sockets of users' requests that a process of the web server's uid gets an answer at."""
    names = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()]
    own = {name for name in names if name.endswith(f"/{os.geteuid()}.sock")}
    assert own, "the user who has logged in has a socket in the web server"
    within = [name.replace("/self/", f"/{web}/") for name in own] + [f"{folder}/console/sockets/{os.geteuid()}.sock"]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        agent.become(main.DEFAULT_UID)
        for name in [*own, *within]:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(10)
                try:
                    sock.connect(name)
                    sock.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                    if sock.recv(64):
                        os.write(writer, f"{name}\n".encode())
                except OSError:
                    continue
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = pipe.read().split()
    os.waitpid(pid, 0)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_no_other_process_uses_the_connections_of_users(console: tuple[subprocess.Popen[bytes], Path, str]) -> None:
    process, folder, url = console
    _log_in(url)
    (web, *_) = children(process.pid)
    assert _find_reachable_sockets(web, folder) == []


def test_a_socket_of_requests_is_for_its_own_process_alone(short_dir: Path) -> None:
    """Where another process gets at the socket all the same, it is known by its pid."""

    async def use() -> tuple[int, bytes, bytes]:
        asked = 0

        async def connect() -> socket.socket:
            nonlocal asked
            asked += 1
            here, there = socket.socketpair()
            there.send(b"hello")
            here.setblocking(False)
            kept.append(there)
            return here

        kept: list[socket.socket] = []
        bridge = Bridge(short_dir / "1.sock", connect)
        await bridge.open()
        words = f"import socket; s = socket.socket(1); s.connect({str(short_dir / '1.sock')!r}); print(s.recv(9))"
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", words, stdout=subprocess.PIPE)
        others, _ = await child.communicate()
        reader, writer = await asyncio.open_unix_connection(str(short_dir / "1.sock"))
        own = await reader.read(9)
        writer.close()
        await bridge.close()
        for sock in kept:
            sock.close()
        return asked, others.strip(), own

    assert asyncio.run(use()) == (1, b"b''", b"hello")


def test_no_process_is_left_of_a_console_that_is_killed_at_its_start(short_dir: Path) -> None:
    """The web server asks the kernel for its parent's end; a parent that had ended before was not noticed."""
    short_dir.chmod(0o755)
    with FakeDaemon(short_dir) as daemon:
        daemon.socket.chmod(0o666)
        command = [sys.executable, "-m", "vgpud.cli.main", "console", "serve", "--host", daemon.host]
        command += ["--runtime-dir", str(short_dir), "--listen", "127.0.0.1:0"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE)
        assert process.stderr
        process.stderr.readline()
        (web,) = children(process.pid)
        process.kill()
        process.wait()
        until_s = time.monotonic() + 60
        while not _has_ended(web):
            assert time.monotonic() < until_s, "the web server is left"
            time.sleep(0.05)


def _has_ended(pid: int) -> bool:
    """Where there is no init that waits for it, it stays as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
