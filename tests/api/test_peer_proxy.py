"""The proxy at the API's socket: peer credentials, limits on connections, and bytes that arrive unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from vgpud.api import peer_proxy
from vgpud.api.peer_proxy import PeerProxy
from vgpud.host import processes

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users: only root can")
#: connects as UID:GID with the groups, sends one line and prints what comes back
CLIENT = """
import os, socket, sys
uid, gid, groups = int(sys.argv[2]), int(sys.argv[3]), [int(g) for g in sys.argv[4].split(",") if g]
sock = socket.socket(socket.AF_UNIX)
os.setgroups(groups); os.setgid(gid); os.setuid(uid)
sock.connect(sys.argv[1])
sock.sendall(b"hello")
sock.settimeout(30)
print(sock.recv(65536).decode())
"""


class Inner:
    """In gRPC's place: answers everything with the peer that the proxy reports."""

    def __init__(self, path: Path) -> None:
        self.path, self.proxy = path, PeerProxy(path)
        self.addresses: list[str] = []
        self.server: asyncio.Server | None = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        address = f"unix-abstract:{name[1:].decode()}"
        self.addresses.append(address)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(str(self.proxy.peer(address)).encode() if data == b"hello" else data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def open_proxy(directory: Path, mode: int = 0o666) -> AsyncIterator[tuple[Inner, Path]]:
    inner = Inner(directory / "inner.sock")
    inner.server = await asyncio.start_unix_server(inner._serve, str(inner.path))
    public = directory / "public.sock"
    await inner.proxy.open(public, mode, -1)
    yield inner, public
    inner.proxy.stop_accepting()
    inner.server.close()
    await asyncio.wait_for(inner.proxy.drain(), 30)


async def connect_as(public: Path, uid: int, gid: int, groups: tuple[int, ...] = ()) -> str:
    arguments = [str(public), str(uid), str(gid), ",".join(map(str, groups))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, *arguments, stdout=subprocess.PIPE, cwd="/"
    )
    answer, _ = await asyncio.wait_for(process.communicate(), 60)
    return answer.decode().strip()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    return tmp_path


@needs_root
@pytest.mark.parametrize("count", [0, 3])
def test_peer_credentials(directory: Path, count: int) -> None:
    groups = tuple(range(2000, 2000 + count))

    async def main() -> None:
        async with open_proxy(directory) as (inner, public):
            reply = await connect_as(public, 1234, 1235, groups)
            assert reply.startswith(f"Peer(uid=1234, gid=1235, gids={groups}, pid=")
            assert "pid=0" not in reply
            assert await connect_as(public, 0, 0) != ""
            (first, _second) = inner.addresses
            assert inner.proxy.peer(first) is None  # gone, and forgotten

    asyncio.run(main())


@needs_root
def test_all_of_many_groups(directory: Path) -> None:
    """More than Python's getsockopt can answer."""

    async def main() -> None:
        async with open_proxy(directory) as (_inner, public):
            groups = tuple(range(2000, 2400))
            assert f"gids={groups}" in await connect_as(public, 1234, 1235, groups)

    asyncio.run(main())


def test_a_connection_past_the_proxy_has_no_peer(directory: Path) -> None:
    async def main() -> None:
        async with open_proxy(directory) as (inner, public):
            reader, writer = await asyncio.open_unix_connection(str(public))
            writer.write(b"hello")
            assert (await reader.read(500)).startswith(b"Peer(")
            token = inner.addresses[0].rpartition("/")[2]
            for address in ("unix:", "unix:" + token, f"unix-abstract:other/{token}", f"unix-abstract:{token}", ""):
                assert inner.proxy.peer(address) is None
            assert inner.proxy.peer(inner.addresses[0]) is not None
            own = socket.socket(socket.AF_UNIX)
            own.bind(b"\0vgpu-peer/0/0/1/guessed")
            own.connect(str(inner.path))
            own.sendall(b"hello")
            own.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(own, 100) == b"None"
            own.close()
            writer.close()

    asyncio.run(main())


def test_bytes_both_ways_and_a_bound_on_them(directory: Path) -> None:
    """A side that does not read stops the other one, and loses nothing."""
    size = 16 << 20

    async def main() -> None:
        async with open_proxy(directory) as (_inner, public):
            reader, writer = await asyncio.open_unix_connection(str(public), limit=1 << 16)
            data = os.urandom(size)
            writer.write(data)
            await asyncio.sleep(0.2)  # the echo fills every buffer on its way
            left = writer.transport.get_write_buffer_size()
            assert left > size // 2, "nothing bounds what is kept for a client that does not read"
            assert await asyncio.wait_for(reader.readexactly(size), 60) == data
            writer.close()

    asyncio.run(main())


def test_nothing_is_lost_where_python_reads_although_reading_is_paused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 3.11.3 a pause in connection_made() did not last: Debian 12 has such a one."""
    connect = PeerProxy._connect

    async def late(self: PeerProxy, name: str) -> socket.socket:
        await asyncio.sleep(0.1)
        return await connect(self, name)

    monkeypatch.setattr(PeerProxy, "_connect", late)
    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "pause_reading", lambda self: None)  # type: ignore[attr-defined]

    async def run() -> None:
        async with open_proxy(directory) as (_inner, public):
            reader, writer = await asyncio.open_unix_connection(str(public))
            for piece in (b"PRI", b" * HTTP/2.0"):
                writer.write(piece)
                await asyncio.sleep(0.02)
            assert await asyncio.wait_for(reader.readexactly(14), 30) == b"PRI * HTTP/2.0"
            writer.close()
            reader, writer = await asyncio.open_unix_connection(str(public))
            writer.write(bytes(peer_proxy.BUFFER_BYTES + 1))
            assert await _answer(reader) == b"", "and no client fills the memory this way"

    asyncio.run(run())


def test_limits_count_open_connections_only(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_proxy, "PER_UID_MAX", 3)
    monkeypatch.setattr(peer_proxy, "_is_trusted", lambda _uid: False)

    async def main() -> None:
        async with open_proxy(directory) as (_inner, public):
            inside = [await asyncio.open_unix_connection(str(public)) for _ in range(3)]
            for reader, writer in inside:
                writer.write(b"hello")
                assert await reader.read(500)
            reader, writer = await asyncio.open_unix_connection(str(public))
            assert await asyncio.wait_for(reader.read(500), 30) == b""
            writer.close()
            inside[0][1].close()
            for _ in range(1000):
                reader, writer = await asyncio.open_unix_connection(str(public))
                writer.write(b"hello")
                if await _answer(reader):
                    break
                writer.close()
            else:
                pytest.fail("a closed connection still counts")
            for _reader, w in [*inside[1:], (reader, writer)]:
                w.close()

    asyncio.run(main())


def test_connections_of_a_user_who_waits_are_bounded_and_those_that_hang_up_cost_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[socket.socket] = []

    def look(sock: socket.socket) -> peer_proxy.Peer:
        looked_at.append(sock)
        return credentials(sock)

    credentials = peer_proxy.credentials
    monkeypatch.setattr(peer_proxy, "credentials", look)
    monkeypatch.setattr(peer_proxy, "PER_UID_MAX", 3)
    monkeypatch.setattr(peer_proxy, "_is_trusted", lambda _uid: False)

    async def main() -> None:
        async with open_proxy(directory) as (inner, public):
            waits = asyncio.Event()

            async def wait_apart(uid: int, *, arriving: bool = False) -> None:
                assert uid == os.geteuid() and arriving
                await waits.wait()

            with monkeypatch.context() as patch:
                patch.setattr(inner.proxy.turns, "is_free", lambda _uid: False)
                patch.setattr(inner.proxy.turns, "wait_apart", wait_apart)
                made = [await asyncio.open_unix_connection(str(public)) for _ in range(4)]
                assert await asyncio.wait_for(made[3][0].read(500), 5) == b"", "the fourth waits for no turn"
                for _reader, writer in made[:2]:
                    writer.close()
                    await writer.wait_closed()
                waits.set()
                made[2][1].write(b"hello")
                assert (await asyncio.wait_for(made[2][0].read(500), 30)).startswith(b"Peer(")
            assert len(looked_at) == 1
            again = [await asyncio.open_unix_connection(str(public)) for _ in range(2)]
            for reader, writer in again:
                writer.write(b"hello")
                assert (await asyncio.wait_for(reader.read(500), 30)).startswith(b"Peer("), "places are given back"
            for _reader, writer in [*made[2:], *again]:
                writer.close()

    asyncio.run(main())


async def _answer(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(500), 30)
    except ConnectionError:
        return b""


def test_silent_and_stalled_clients_are_disconnected(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_proxy, "SILENT_S", 0.2)
    monkeypatch.setattr(peer_proxy, "STALLED_S", 0.3)

    async def main() -> None:
        async with open_proxy(directory) as (_inner, public):
            talker_in, talker = await asyncio.open_unix_connection(str(public))
            talker.write(b"hello")
            assert await talker_in.read(500)
            reader, writer = await asyncio.open_unix_connection(str(public))
            assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()
            stuck = socket.socket(socket.AF_UNIX)
            stuck.setblocking(False)
            await asyncio.get_running_loop().sock_connect(stuck, str(public))
            with pytest.raises(ConnectionError):  # never reads, until nothing can be sent either
                await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(stuck, bytes(64 << 20)), 30)
            stuck.close()
            talker.write(b"hello")  # said something once: lives
            assert (await talker_in.read(500)).startswith(b"Peer(")
            talker.close()

    asyncio.run(main())


def test_permissions_and_a_name_that_was_removed(directory: Path) -> None:
    async def main() -> None:
        async with open_proxy(directory, 0o640) as (inner, public):
            assert public.stat().st_mode & 0o777 == 0o640
            assert not await inner.proxy.repair()
            public.unlink()
            assert await inner.proxy.repair()
            _reader, writer = await asyncio.open_unix_connection(str(public))
            writer.close()
        assert not public.exists()

    asyncio.run(main())


def test_users_outside_our_namespace_have_no_peer(tmp_path: Path) -> None:
    """They all have the same uid here."""
    (tmp_path / "self").mkdir()
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/overflowuid").write_text("65534\n")
    (tmp_path / "self/uid_map").write_text("         0          0 4294967295\n")
    assert processes.stand_in_uid(tmp_path) == -1
    (tmp_path / "self/uid_map").write_text("         0     100000      65536\n")
    assert processes.stand_in_uid(tmp_path) == 65534

    async def main() -> None:
        async with open_proxy(tmp_path) as (inner, public):
            inner.proxy._stand_in_uid = os.geteuid()
            reader, writer = await asyncio.open_unix_connection(str(public))
            writer.write(b"hello")
            assert await reader.read(500) == b"None"
            writer.close()

    asyncio.run(main())


def test_nothing_is_left_of_closed_connections(directory: Path) -> None:
    """However they closed: descriptors, tasks and entries."""

    async def main() -> None:
        async with open_proxy(directory) as (inner, public):
            before = len(os.listdir("/proc/self/fd"))
            for number in range(150):
                _reader, writer = await asyncio.open_unix_connection(str(public))
                if number % 3:
                    writer.write(b"hello" if number % 2 else bytes(1 << 20))
                if number % 2:
                    await asyncio.sleep(0)
                writer.transport.abort() if number % 5 else writer.close()
            for _ in range(3000):
                left = len(os.listdir("/proc/self/fd")), len(inner.proxy._tasks), len(inner.proxy._connections.by_token)
                if left[0] <= before and left[1:] == (0, 0):
                    break
                await asyncio.sleep(0.01)
            else:
                pytest.fail(f"descriptors (of {before}), tasks and places that are left: {left}")
            assert not inner.proxy._connections.by_uid

    asyncio.run(main())


def test_limits_of_a_process_are_setrlimits() -> None:
    found = processes.resource_limits(os.getpid())
    assert {"nofile", "memlock", "cpu", "as", "nproc"} <= found.keys()
    for name, both in found.items():
        assert both == resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}")), name
