"""The privileged process, its agents and its sockets: what each user is given, and what not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest

from vgpud.console.login import agent, wire
from vgpud.console.login import broker as module
from vgpud.console.login.broker import Broker, Settings, address, link
from vgpud.console.login.client import Broker as Client
from vgpud.console.login.client import RefusedError, _Line, read_tail
from vgpud.console.main import link_socket_path
from vgpud.host import listeners

ME = pwd.getpwuid(os.geteuid())


class Running:
    """A broker in a process of its own."""

    def __init__(self, folder: Path, passwords: Path | None = None) -> None:
        self.socket_path = link_socket_path(folder)
        self.api = folder / "api.sock"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.api))
        self.api.chmod(0o666)
        self.listener.listen()
        link_socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link_socket.bind(str(self.socket_path))
        self.socket_path.chmod(0o666)
        link_socket.listen()
        link_socket.setblocking(False)
        self.web, its = wire.pair()
        self.web_pid = os.fork()
        if self.web_pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pause()
            os._exit(0)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.web.close()
                self.listener.close()
                settings = Settings(str(self.api), "http://127.0.0.1:8377", passwords)
                with contextlib.suppress(ChildProcessError):  # the web server is the test's child, not the broker's
                    Broker(settings, its, link_socket, self.web_pid).run()
            finally:
                os._exit(0)
        its.close()
        link_socket.close()

    def token(self) -> str:
        return link(self.socket_path, 5).rpartition("=")[2]

    def stop(self) -> None:
        self.web.close()
        self.listener.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.web_pid, signal.SIGTERM)
        for pid in (self.pid, self.web_pid):
            os.waitpid(pid, 0)


@pytest.fixture
def running(short_dir: Path) -> Iterator[Running]:
    short_dir.chmod(0o755)
    found = Running(short_dir)
    yield found
    found.stop()


def test_a_link_logs_in_as_the_user_who_asked(running: Running) -> None:
    async def use() -> None:
        client = Client(running.web)
        cookie = await client.redeem(running.token())
        user = await client.user(cookie)
        assert user and (user.uid, user.name) == (os.geteuid(), ME.pw_name)
        assert await client.alive(user.uid)
        await client.logout(cookie)
        assert await client.user(cookie) is None
        assert not await client.alive(user.uid)

    asyncio.run(use())


def test_a_link_works_once_and_bad_ones_keep_no_other_user_out(running: Running) -> None:
    async def use() -> list[str]:
        client = Client(running.web)
        token = running.token()
        await client.redeem(token)
        said = []
        for _ in range(100):
            with pytest.raises(RefusedError) as refused:
                await client.redeem(token)
            said.append(str(refused.value))
        await client.redeem(running.token())
        return said

    said = asyncio.run(use())
    assert all("was used before" in sentence for sentence in said)


def test_without_a_session_there_is_no_agent(running: Running) -> None:
    async def use() -> None:
        client = Client(running.web)
        cookie = await client.redeem(running.token())
        user = await client.user(cookie)
        assert user
        await client.logout(cookie)
        with pytest.raises(RefusedError, match="not logged in"):
            await client.agent(user)

    asyncio.run(use())


def test_an_agent_connects_and_opens_files_as_its_user(running: Running, short_dir: Path) -> None:
    (short_dir / "log").write_text("0123456789")
    os.mkfifo(short_dir / "fifo")

    async def use() -> tuple[bytes, int]:
        client = Client(running.web)
        user = await client.user(await client.redeem(running.token()))
        assert user
        its = await client.agent(user)
        with await its.connect() as sock:
            running.listener.accept()[0].close()
            assert sock.family == socket.AF_UNIX
        for path in (short_dir / "none", short_dir / "fifo", short_dir):
            with pytest.raises(RefusedError):
                await client.read_as(user, user.uid, str(path))
        return read_tail(await client.read_as(user, user.uid, str(short_dir / "log")), 4)

    assert asyncio.run(use()) == (b"6789", 10)


def test_an_agent_ends_with_the_last_session(running: Running) -> None:
    async def use() -> str:
        client = Client(running.web)
        first = await client.redeem(running.token())
        user = await client.user(first)
        assert user
        its = await client.agent(user)
        with await its.connect():
            await client.logout(first)
            await client.user("")  # the broker's next turn
        try:
            (await its.connect()).close()
        except wire.GoneError:
            return "gone"
        return "lives"

    assert asyncio.run(use()) == "gone"


def stubborn(*_: object) -> tuple[int, socket.socket]:
    """In place of an agent: a process that SIGTERM does not end, as one that waits for a file system of its user's."""
    ours, its = wire.pair()
    pid = os.fork()
    if pid:
        its.close()
        return pid, ours
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    its.send(b"{}")
    while True:
        signal.pause()


def test_a_user_whose_agent_does_not_end_delays_no_other(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "start", stubborn)
    running = Running(short_dir)

    async def use() -> None:
        client = Client(running.web)
        cookie = await client.redeem(running.token())
        user = await client.user(cookie)
        assert user
        its = await client.agent(user)
        its._line._sock.setblocking(True)
        its._line._sock.recv(9)  # it ignores SIGTERM now
        await client.logout(cookie)
        for _ in range(3):
            assert await client.user("") is None
        assert running.token()

    try:
        asyncio.run(use())
    finally:
        os.kill(running.pid, signal.SIGKILL)
        running.stop()


def test_an_agent_for_one_request_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(Settings("", ""), None, None, 0)  # type: ignore[arg-type]
    pid, sock = stubborn()
    sock.recv(9)
    broker._leaving[pid] = module.time.monotonic() + 1e6
    broker._end_leaving()
    assert pid in broker._leaving, "it has its time"
    broker._leaving[pid] = module.time.monotonic()
    while broker._leaving:
        broker._end_leaving()
    sock.close()


def test_a_web_server_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WEB_END_S", 0.1)
    pid, sock = stubborn()
    sock.recv(9)
    assert Broker(Settings("", ""), None, None, pid)._reap() == -signal.SIGKILL  # type: ignore[arg-type]
    sock.close()


def test_callers_who_say_nothing_hold_up_no_user(running: Running) -> None:
    silent = []
    for _ in range(5):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(running.socket_path))
        silent.append(sock)
    silent[0].send(b"not json")
    assert running.token()
    for sock in silent:
        sock.close()


def connect_silently(socket_path: Path, count: int) -> list[socket.socket]:
    made = []
    for _ in range(count):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(20)
        sock.connect(str(socket_path))
        made.append(sock)
    return made


def count_descriptors(running: Running) -> int:
    """Of a broker that is done with its callers: it closes a caller's socket only after it has answered."""
    asyncio.run(Client(running.web).user(""))  # answered in a later turn
    return len(os.listdir(f"/proc/{running.pid}/fd"))


def test_silent_callers_have_a_share_and_a_deadline(running: Running) -> None:
    assert running.token()
    before = count_descriptors(running)
    bound = listeners.CONSOLE_OPEN
    silent = connect_silently(running.socket_path, 100)
    ended = [sock.recv(1) for sock in silent]  # those beyond the share at once, the others by the deadline
    assert ended == [b""] * 100
    assert running.token()
    assert count_descriptors(running) <= before
    held = listeners.Places(bound)
    assert sum(held.take(1000) for _ in range(100)) == bound.share_max < bound.all_max


@pytest.mark.root
def test_silent_callers_of_one_user_keep_no_other_user_out(running: Running) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            agent.become(GAMES)
            for _ in range(4):
                silent = connect_silently(running.socket_path, 32)
                os.write(writer, b"x")
                silent[0].recv(1)
        finally:
            os._exit(0)
    for _ in range(4):
        os.read(reader, 1)
        assert running.token()
    os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)


#: what a web server that was taken over, or a user at the socket, may send
NOISE = {
    "cut": b'{"do": "redeem", "token": "' + b"a" * 2 * wire.MESSAGE_BYTES_MAX,
    "deep": b"[" * wire.MESSAGE_BYTES_MAX,
    "deep in a message": b'{"do": ' * 2000,
    "a list": b"[]",
    "a number": b"1" * 5000,
    "not UTF-8": b"\xff\xfe",
    "nothing": b"",
    "an empty message": b"{}",
    "an unknown request": b'{"do": "none"}',
    "a request that is a list": b'{"do": []}',
    "no token": b'{"do": "redeem", "address": "a"}',
    "an address that is a list": b'{"do": "redeem", "token": "a", "address": []}',
    "a uid that is a word": b'{"do": "alive", "uid": "root"}',
    "a uid that is infinite": b'{"do": "alive", "uid": Infinity}',
    "a name that is half a character": b'{"do": "password", "name": "\\ud800", "password": "\\ud800", "address": ""}',
}


def is_logged_in(running: Running, cookie: str) -> bool:
    """Asked by the web server's socket, behind what was sent before."""
    wire.send(running.web, {"do": "session", "cookie": cookie, "source": ""})
    return bool(wire.receive_answer(running.web)[0])


@pytest.mark.parametrize("what", NOISE)
def test_nothing_that_is_sent_ends_the_broker(running: Running, what: str) -> None:
    running.web.settimeout(5)
    wire.send(running.web, {"do": "redeem", "token": running.token(), "source": ""})
    cookie = wire.receive_answer(running.web)[0]["cookie"]
    running.web.send(NOISE[what])
    wire.receive_answer(running.web)
    assert is_logged_in(running, cookie)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.connect(str(running.socket_path))
        caller.send(NOISE[what])
        caller.settimeout(5)
        caller.recv(100)
    assert is_logged_in(running, cookie)
    assert running.token()


def test_descriptors_with_requests_do_not_stay(running: Running) -> None:
    running.web.settimeout(5)
    running.token()
    before = len(os.listdir(f"/proc/{running.pid}/fd"))
    for _ in range(10):
        socket.send_fds(running.web, [b'{"do": "alive", "uid": 1}'], [0, 1, 2])
        wire.receive_answer(running.web)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.connect(str(running.socket_path))
            socket.send_fds(caller, [b'{"do": "link"}'], [0, 1, 2])
            caller.settimeout(5)
            assert "url" in wire.receive(caller)
    running.token()
    limit = time.monotonic() + 10  # the broker closes the last caller's connection when it next looks
    while len(os.listdir(f"/proc/{running.pid}/fd")) > before and time.monotonic() < limit:
        time.sleep(0.01)
    assert count_descriptors(running) <= before, "the first caller may still have been connected"


def test_the_address_is_said_to_every_user(running: Running) -> None:
    assert address(running.socket_path, 5) == ("http://127.0.0.1:8377", str(running.api))


def test_what_is_too_long_is_refused_and_sessions_go_on(running: Running) -> None:
    high = "\xff" * 4000  # 24,000 bytes as JSON

    async def use() -> None:
        client = Client(running.web)
        cookie = await client.redeem(running.token())
        long = "a" * 20_000
        for asked in (client.redeem(long), client.password(long, "b", "a"), client.redeem(high)):
            with pytest.raises(RefusedError, match="too long"):
                await asked
        assert await client.user(high) is None and await client.user("a" * 1000) is None
        user = await client.user(cookie)
        assert user
        for path in ("/" + "a" * 20_000, "/" + high, "/" + "a" * 15_000, "\0", "\ud800"):
            with pytest.raises(RefusedError):
                await client.read_as(user, user.uid, path)
        its = await client.agent(user)
        with await its.connect() as sock:  # the agent lives, too
            running.listener.accept()[0].close()
            assert sock.family == socket.AF_UNIX

    asyncio.run(use())


def test_an_agent_answers_whatever_it_is_sent(running: Running) -> None:
    running.web.settimeout(5)
    wire.send(running.web, {"do": "redeem", "token": running.token(), "source": ""})
    cookie = wire.receive_answer(running.web)[0]["cookie"]
    wire.send(running.web, {"do": "agent", "cookie": cookie, "source": ""})
    with socket.socket(fileno=wire.receive_answer(running.web)[1]) as its:
        its.settimeout(5)
        for noise in NOISE.values():
            its.send(noise)
            assert "error" in wire.receive_answer(its)[0]


def test_a_broker_of_a_user_is_for_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    broker = Broker(Settings("", ""), None, None, 0)  # type: ignore[arg-type]
    assert "acts for no other user" in broker._link(0, {})["error"]


def write_passwords(folder: Path, *names: str) -> Path:
    """A file in which the password of each is "secret"."""
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    file = folder / "passwords"
    file.write_text("".join(f"{name}:{hashed}\n" for name in names))
    file.chmod(0o600)
    return file


def test_passwords_are_those_of_local_users(short_dir: Path) -> None:
    running = Running(short_dir, write_passwords(short_dir, ME.pw_name, "no-such-user"))

    async def use() -> None:
        client = Client(running.web)
        user = await client.user(await client.password(ME.pw_name, "secret", "a"))
        assert user and user.uid == os.geteuid()
        for name, password in ((ME.pw_name, "wrong"), ("no-such-user", "secret"), ("\0", "secret")):
            with pytest.raises(RefusedError, match="the name or the password is wrong"):
                await client.password(name, password, name)

    try:
        asyncio.run(use())
    finally:
        running.stop()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "unix", "10.0.0.9"])
def test_failed_passwords_keep_no_other_user_out(short_dir: Path, address: str) -> None:
    """Of a tunnel, a proxy or a unix socket all users have one address; and a name is not kept out from elsewhere."""
    running = Running(short_dir, write_passwords(short_dir, ME.pw_name, "games"))

    async def use() -> str:
        client = Client(running.web)
        for _ in range(6):
            with pytest.raises(RefusedError) as refused:
                await client.password("games", "wrong", address)
        said = str(refused.value)
        await client.password(ME.pw_name, "secret", "10.0.0.1" if address == "10.0.0.9" else address)
        if os.geteuid() == 0:
            await client.password("games", "secret", "10.0.0.2")
        await client.redeem(running.token())
        return said

    try:
        assert asyncio.run(use()).startswith("too many failed log-ins: try again in ")
    finally:
        running.stop()


# ---- other users: as root ----


def as_user(uid: int, work: Callable[[], str]) -> str:
    """What work() returns in a process of this user's."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            agent.become(uid)
            os.write(writer, work().encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


GAMES = 5  # a user of every Debian


@pytest.mark.root
def test_become_gives_everything_up() -> None:
    said = as_user(GAMES, lambda: f"{os.getresuid()} {os.getresgid()} {0 in os.getgroups()}")
    entry = pwd.getpwuid(GAMES)
    assert said == f"{(GAMES,) * 3} {(entry.pw_gid,) * 3} False"
    assert "is no user of this host" in as_user(3_999_999, lambda: "")


@pytest.mark.root
def test_another_users_agent_has_its_rights_only(running: Running, short_dir: Path) -> None:
    secret, own = short_dir / "secret", short_dir / "own"
    for path in (secret, own):
        path.write_text("text")
        path.chmod(0o600)
    os.chown(own, GAMES, GAMES)
    (short_dir / "trap").symlink_to(secret)
    url = as_user(GAMES, lambda: link(running.socket_path, 5))
    peers: list[int] = []

    def accept() -> None:
        with running.listener.accept()[0] as sock:
            peers.append(int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], "little"))

    async def use() -> None:
        client = Client(running.web)
        user = await client.user(await client.redeem(url.rpartition("=")[2]))
        assert user and (user.uid, user.name) == (GAMES, "games")
        its = await client.agent(user)
        thread = threading.Thread(target=accept)
        thread.start()
        (await its.connect()).close()
        thread.join()
        for path in (secret, short_dir / "trap"):
            with pytest.raises(RefusedError, match="Permission denied"):
                await client.read_as(user, user.uid, str(path))
        assert read_tail(await client.read_as(user, user.uid, str(own)), 9)[0] == b"text"
        with pytest.raises(RefusedError, match="Permission denied"):
            await client.read_as(user, 0, str(secret))  # whatever the web server says: it is no root session
        root = await client.user(await client.redeem(running.token()))
        assert root
        with pytest.raises(RefusedError, match="Permission denied"):
            await client.read_as(root, GAMES, str(short_dir / "trap"))  # with the owner's rights, not with root's
        assert read_tail(await client.read_as(root, GAMES, str(own)), 9)[0] == b"text"

    asyncio.run(use())
    assert peers == [GAMES]


def test_open_file_takes_regular_files_only(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    fd = agent.open_file(str(tmp_path / "f"))
    assert stat.S_ISREG(os.fstat(fd).st_mode)
    os.close(fd)
    with pytest.raises(OSError, match="is not a regular file"):
        agent.open_file("/dev/null")


@pytest.mark.parametrize("path", ["/proc/self/maps", "/proc/thread-self/environ", "/proc/self/root/proc/stat", "link"])
def test_open_file_takes_nothing_of_proc(tmp_path: Path, path: str) -> None:
    """An agent's own memory is the broker's: it was forked."""
    (tmp_path / "link").symlink_to("/proc/self/smaps")
    with pytest.raises(OSError, match="is not a regular file"):
        os.close(agent.open_file(path if path.startswith("/") else str(tmp_path / path)))


def test_callers_that_leave_do_not_end_the_line_for_others() -> None:
    """The answer to a question whose caller was cancelled is read and dropped."""

    async def ask() -> wire.Message:
        ours, theirs = wire.pair()
        theirs.setblocking(False)
        line = _Line(ours)
        left = [asyncio.create_task(line.ask({"number": number})) for number in range(3)]
        await asyncio.sleep(0)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        last = asyncio.create_task(line.ask({"number": 3}))
        for _ in range(4):
            while True:
                try:
                    wire.send(theirs, wire.receive(theirs))
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
        answer, _fd = await last
        theirs.close()
        line.close()
        return answer

    assert asyncio.run(ask()) == {"number": 3}


def test_a_user_who_was_removed_has_neither_sessions_nor_links(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(Settings("", "http://c"), None, None, 0)  # type: ignore[arg-type]
    cookie = broker.sessions.open(os.geteuid(), "alice", time.monotonic_ns())
    made = broker._share(os.geteuid(), {"job_id": 7, "span_s": 3600})
    secret = made["url"].rpartition("/")[2]
    asked = {"cookie": cookie, "source": "", "secret": secret}
    assert broker._session(asked)[0]["uid"] == os.geteuid() and broker._shared(asked)[0]["job_id"] == 7
    monkeypatch.setattr(module, "_name", lambda uid: None)
    assert broker._session(asked)[0] == {} and broker._shared(asked)[0] == {}
    assert broker._share(os.geteuid(), {"job_id": 7, "span_s": 3600}) == {
        "error": f"uid {os.geteuid()} is no user of this host"
    }


def test_a_link_acts_for_its_user_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may have the agent of every user, by a log-in; not by a link."""
    broker = Broker(Settings("", "http://c"), None, None, 0)  # type: ignore[arg-type]
    _, secret = broker.shares.make(0, "root", 7, 3600 * 10**9, module._boot_ns())
    answer, fd = broker._agent({"cookie": "", "source": "", "share": secret, "uid": 5})
    assert answer == {"error": "a shared link acts for no other user"} and fd == -1
    assert broker._agent({"cookie": "", "source": "", "share": "x"}) == ({"error": "not logged in"}, -1)


def test_an_open_stream_does_not_keep_a_log_in_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(Settings("", ""), None, None, 0)  # type: ignore[arg-type]
    now_ns = time.monotonic_ns()
    cookie = broker.sessions.open(os.geteuid(), "alice", now_ns)
    later_ns = now_ns
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: later_ns)
    for minutes in (30, 59):
        later_ns = now_ns + minutes * 60 * 10**9
        assert broker._session({"cookie": cookie, "source": "", "is_use": False})[0]
    later_ns = now_ns + 61 * 60 * 10**9
    assert broker._session({"cookie": cookie, "source": "", "is_use": False})[0] == {}
