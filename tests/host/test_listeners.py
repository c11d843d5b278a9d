"""Bounds of listeners: places, the user at the other end, sockets that hand out no more, and the table in the docs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from vgpud._shim import lib
from vgpud.host import listeners
from vgpud.host.listeners import Bound, BoundedListener, Places, source

ROOT = Path(__file__).resolve().parents[2]
SMALL = Bound(all_max=4, share_max=2, reserved_max=1, deadline_s=1.0)


def test_a_share_leaves_places_for_others() -> None:
    places = Places(SMALL)
    assert [places.take("a") for _ in range(4)] == [True, True, False, False]
    assert [places.take("b") for _ in range(2)] == [True, True]
    assert not places.take("c"), "all are taken"
    assert places.take(0) and not places.take(0), "root has one more"
    for who in ("a", "a", "b", "b", 0):
        places.give_back(who)
    assert places.connection_count == 0 and places.take("c")


def pair_at(family: socket.AddressFamily, host: str) -> tuple[socket.socket, socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.bind((host, 0))
        listening.listen()
        ours = socket.create_connection(listening.getsockname()[:2])
        return ours, listening.accept()[0]


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_user_is_known_over_loopback(family: socket.AddressFamily, host: str) -> None:
    try:
        ours, its = pair_at(family, host)
    except OSError:
        pytest.skip("the machine has no IPv6")
    with ours, its:
        assert source(its) == os.geteuid()


@pytest.mark.root
def test_another_user_is_known_over_loopback() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        pid = os.fork()
        if pid == 0:
            try:
                os.setresuid(4242, 4242, 4242)
                with socket.create_connection(listening.getsockname()) as ours:
                    ours.recv(1)
            finally:
                os._exit(0)
        with listening.accept()[0] as its:
            assert source(its) == 4242
        os.waitpid(pid, 0)


def test_a_peer_that_has_closed_is_only_loopback() -> None:
    ours, its = pair_at(socket.AF_INET, "127.0.0.1")
    ours.close()
    with its:
        assert source(its) == "loopback"


def test_users_of_unix_sockets_and_networks_of_addresses(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as ours:
        listening.bind(str(short_dir / "s"))
        listening.listen()
        ours.connect(str(short_dir / "s"))
        with listening.accept()[0] as its:
            assert source(its) == os.geteuid()
    assert listeners._network("10.0.0.1") == "10.0.0.1"
    assert listeners._network("fe80::1:2%eth0") == listeners._network("fe80::9") == "fe80::/64"


def test_a_bounded_listener_in_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "source", lambda sock: sock.getpeername()[0])

    async def use() -> None:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        bounded = BoundedListener(listening, SMALL)

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(1))
            await reader.read(1)
            writer.close()

        server = await asyncio.start_server(echo, sock=bounded)
        port = bounded.getsockname()[1]

        async def ask(host: str) -> tuple[bytes, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
            writer.write(b"x")
            try:
                return await reader.read(1), writer
            except OSError:
                return b"", writer

        first = [await ask("127.0.0.2") for _ in range(10)]
        assert [said for said, _ in first] == [b"x"] * 2 + [b""] * 8
        second = [await ask("127.0.0.3") for _ in range(2)]
        assert [said for said, _ in second] == [b"x"] * 2
        for _, writer in first + second:
            writer.close()
        while bounded.connection_count:
            await asyncio.sleep(0.01)
        assert (await ask("127.0.0.2"))[0] == b"x"
        server.close()

    asyncio.run(use())


def _simulated_bound() -> Bound:
    header = (ROOT / "shim/simgpu/server/places.h").read_text()
    names = ("PLACES_MAX", "PLACES_OF_USER_MAX", "PLACES_MORE", "GREETING_NS")
    found = [int(re.search(rf"#define {name} (\d+)", header)[1]) for name in names]  # type: ignore[index]
    return Bound(*found[:3], found[3] / 1e9)


ROWS = {
    "metrics": listeners.METRICS,
    "API, `": listeners.API,
    "API over": listeners.REMOTE,
    "runtime": listeners.RUNTIME,
    "console,": listeners.CONSOLE,
    "`vgpu console open`": listeners.CONSOLE_OPEN,
    "sessions' ports, requests": listeners.CONSOLE_SESSIONS,
    "sessions' ports, connections": listeners.API_SESSIONS,
    "log-ins with": listeners.CONSOLE_OIDC,
    "kubelet": listeners.KUBELET,
    "simulated": _simulated_bound(),
    "attach": Bound(lib.VG_WAITING_MAX, lib.VG_WAITING_SILENT_SHARE_MAX, 0, lib.VG_WAITING_SILENT_NS / 1e9),
}


@pytest.mark.parametrize("begin", ROWS)
def test_the_docs_have_the_numbers(begin: str) -> None:
    lines = (ROOT / "docs/security/listeners.md").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("| " + begin)]
    numbers = [int(re.match(r"\d+", cell.strip())[0]) for cell in line.split("|")[4:8]]  # type: ignore[index]
    bound = ROWS[begin]
    assert numbers == [bound.all_max, bound.share_max, bound.reserved_max, bound.deadline_s]


@pytest.mark.root
@pytest.mark.parametrize("uid", [5, 0])
@pytest.mark.parametrize("accepts", [True, False])
def test_the_user_of_a_program_that_listens_is_known(uid: int, accepts: bool) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.setuid(uid)
            server = socket.create_server(("127.0.0.1", 0))
            os.write(writer, str(server.getsockname()[1]).encode())
            taken = server.accept() if accepts else None
            os.write(writer, b"x")
            signal.pause()
            del taken
        os._exit(0)
    try:
        port = int(os.read(reader, 8).rstrip(b"x"))
        with socket.create_connection(("127.0.0.1", port)) as sock:
            if accepts:
                os.read(reader, 1)
            assert listeners.server_uid(port, sock.getsockname()) == uid
            assert listeners.server_uid(port, sock.getsockname(), is_published=True) == uid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)


def test_who_may_serve_for_a_user() -> None:
    """Root where an engine publishes the port of the user's container, and no other."""
    rows = [
        (7, False, True),
        (7, True, True),
        (0, False, False),
        (0, True, True),
        (8, True, False),
        (None, True, False),
    ]
    for uid, is_published, may in rows:
        assert listeners.may_serve(uid, 7, is_published=is_published) is may


def test_a_program_that_listens_no_more_is_of_no_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        sock = socket.create_connection(("127.0.0.1", port))
        taken, _ = server.accept()
    with sock, taken:
        assert listeners.server_uid(port, sock.getsockname()) is None
