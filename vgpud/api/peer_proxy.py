"""gRPC exposes no peer credentials (grpc issue 28755), so a proxy on the public socket asks the kernel for them.

gRPC listens on a private socket that only the daemon can reach. The proxy accepts each connection at the public socket,
reads its credentials (SO_PEERCRED) and connects to gRPC from an abstract name with a random token in it. gRPC reports
that name as the peer's address, and a table here says which credentials belong to the token. Bytes are passed on
unchanged in both directions; the frames of users are only counted, for their accounts (core/fairness).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpud.api.turns import CALL_NS, CONNECTION_NS, FRAME_NS, KIB_NS, READ_NS, Turns
from vgpud.core.fairness.accounts import ADMINS
from vgpud.core.fairness.frames import Frames
from vgpud.host import processes
from vgpud.host.listeners import API

log = logging.getLogger("vgpud.api")

#: connections of one user and of all together; root and the daemon's own user have ROOT_MORE beyond both
PER_UID_MAX, ALL_MAX, ROOT_MORE = API.share_max, API.all_max, API.reserved_max
BACKLOG = 1024
#: connections that the loop accepts before it does anything else
ACCEPTED_AT_ONCE = 8
#: how long none is accepted when there are no descriptors left
PAUSE_S = 0.2
#: bytes kept for a side that does not read, in each direction; at the limit the other side is no longer read
BUFFER_BYTES = 64 * 1024
#: bytes of one user that are passed on at once, and one call at most
PIECE_BYTES = 4096
#: a client that has sent nothing by then is disconnected
SILENT_S = API.deadline_s
#: a side whose buffer stays full for so long is disconnected; a stream on which nothing is sent lives for ever
STALLED_S = 300.0
#: time for sending the rest when the other side has closed
FLUSH_S = 5.0
#: how long gRPC's backlog may be full, and how often a connection is tried
CONNECT_S, CONNECT_EVERY_S = 5.0, 0.02
#: refused connections are logged at most this often
LOG_EVERY_S = 10.0
_PREFIX = "vgpu-peer"


@dataclass(frozen=True, slots=True)
class Peer:
    """Credentials of a client, as the kernel reports them."""

    uid: int
    gid: int
    gids: tuple[int, ...]  # further groups
    pid: int  # 0 = it has ended already, or is in a pid namespace that we cannot see
    start_ticks: int  # its start time: processes.open_process(pid, start_ticks) is never another process
    certificate: str = ""  # SHA-256 of the certificate of a connection over TLS
    refusal: str = ""  # why all its calls are refused, one sentence

    @property
    def is_trusted(self) -> bool:
        return _is_trusted(self.uid)


def _is_trusted(uid: int) -> bool:
    return uid in (0, os.geteuid())


def credentials(sock: socket.socket) -> Peer:
    """Of the process at the other end. Raises OSError when it has disconnected."""
    pid, uid, gid = processes.all_credentials(sock)
    gids = processes.groups(sock)
    if pid <= 0:
        return Peer(uid, gid, gids, 0, 0)
    try:
        pidfd = processes.peer_pidfd(sock, pid)
    except OSError:
        return Peer(uid, gid, gids, 0, 0)
    try:
        started = processes.start_time(pid)  # of the same process, if that still lives afterwards
        return Peer(uid, gid, gids, pid, started) if not processes.has_ended(pidfd) else Peer(uid, gid, gids, 0, 0)
    finally:
        os.close(pidfd)


def _has_gone(sock: socket.socket) -> bool:
    """The other end is closed, and nothing is left to be read."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False


class _Side(asyncio.Protocol):
    """One of the two connections that bytes are passed between: the client's, or ours to gRPC."""

    def __init__(self, close_future: asyncio.Future[None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self.has_received_data = False
        self.early_data = bytearray()  # received before the other side was connected
        self._stopped: set[str] = set()  # reasons why nothing is read
        self._lost = close_future  # done when either side has closed
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self.has_received_data = True
        if self.other and self.other.transport:
            self.other.transport.write(data)
            return
        # Python before 3.11.3 reads although connection_made() has paused that (its issue 100348): nothing may be lost
        self.early_data += data
        if len(self.early_data) > BUFFER_BYTES and self.transport:
            self.transport.abort()

    def stop_reading(self, why: str) -> None:
        self._stopped.add(why)
        if self.transport:
            self.transport.pause_reading()

    def resume_reading(self, why: str) -> None:
        self._stopped.discard(why)
        if self.transport and not self._stopped and not self.transport.is_closing():
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self.other:
            self.other.stop_reading("full")
        if self.transport:
            self._stalled = asyncio.get_running_loop().call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_stall_timer()
        if self.other:
            self.other.resume_reading("full")

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_stall_timer()
        if not self._lost.done():
            self._lost.set_result(None)

    def _cancel_stall_timer(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None


class _ClientSide(_Side):
    """The client's connection: nothing is read from it before the other side is connected.

    What a user sends is passed on in small pieces, when it is the user's turn. Until then it stays in the socket.
    """

    def __init__(self, proxy: PeerProxy, accept: Callable[[_ClientSide, asyncio.Future[None]], None]) -> None:
        """`accept` is called when it is connected, over TLS: when the handshake has succeeded."""
        super().__init__(asyncio.get_running_loop().create_future())
        self._proxy = proxy
        self._accept = accept
        self._uid = ADMINS
        self._frames = Frames()
        self._held = bytearray()
        self._passing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.stop_reading("alone")
        self._accept(self, self._lost)

    def set_user(self, uid: int) -> None:
        """The user that it belongs to: a uid, ADMINS for every admin."""
        self._uid = uid
        self._proxy.turns.charge(uid, CONNECTION_NS)

    async def wait_for_turn(self) -> None:
        """Until the user's account allows a new connection."""
        if not self._proxy.turns.is_free(self._uid):
            await self._proxy.turns.wait_apart(self._uid, arriving=True)

    def charge_answer(self, size_bytes: int) -> None:
        """Charges the user for bytes that are passed to the client."""
        self._proxy.turns.charge(self._uid, READ_NS + size_bytes * KIB_NS // 1024)

    def data_received(self, data: bytes) -> None:
        if not (self.other and self.other.transport) or self._uid == ADMINS:
            self._proxy.turns.charge(self._uid, READ_NS)
            super().data_received(data)
            return
        self.has_received_data = True
        self._held += data
        if self._passing is None and self._proxy.turns.is_free(self._uid):
            self._pass_piece()
        if self._held and self._passing is None:
            self.stop_reading("turn")
            self._passing = asyncio.get_running_loop().create_task(self._pass_on())

    def _pass_piece(self) -> None:
        piece = self._frames.piece(self._held, PIECE_BYTES)
        cost_ns = READ_NS + piece.calls * CALL_NS + piece.others * FRAME_NS + piece.size_bytes * KIB_NS // 1024
        self._proxy.turns.charge(self._uid, cost_ns)
        super().data_received(bytes(self._held[: piece.size_bytes]))
        del self._held[: piece.size_bytes]

    async def _pass_on(self) -> None:
        while self._held:
            await self._proxy.turns.wait_apart(self._uid, arriving=True)
            self._pass_piece()
        self._passing = None
        self.resume_reading("turn")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._passing:
            self._passing.cancel()
        super().connection_lost(exc)


class _ServerSide(_Side):
    """Our connection to gRPC for one client."""

    def __init__(self, close_future: asyncio.Future[None], client: _ClientSide) -> None:
        super().__init__(close_future)
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.charge_answer(len(data))
        super().data_received(data)


@dataclass
class _Connections:
    """Open connections: credentials by the token in the connection's name, and how many each user has."""

    by_token: dict[str, Peer] = field(default_factory=dict)
    by_uid: Counter[int] = field(default_factory=Counter)
    waiting: Counter[int] = field(default_factory=Counter)  # accepted ones for which nothing is made yet, by user

    def refusal(self, uid: int) -> str:
        """Why a new connection of this user is refused; "" when it is not."""
        is_trusted, count = _is_trusted(uid), len(self.by_token) + self.waiting.total()
        if count >= ALL_MAX + (ROOT_MORE if is_trusted else 0):
            return f"{count} connections are open, which is the limit"
        if self.by_uid[uid] + self.waiting[uid] >= PER_UID_MAX and not is_trusted:
            return f"uid {uid} has {PER_UID_MAX} connections open, which is the limit"
        return ""

    def add(self, token: str, peer: Peer) -> None:
        self.by_token[token] = peer
        self.by_uid[peer.uid] += 1

    def remove(self, token: str) -> None:
        peer = self.by_token.pop(token)
        self.by_uid[peer.uid] -= 1
        if not self.by_uid[peer.uid]:
            del self.by_uid[peer.uid]


#: says whose a connection over TLS is
Identify = Callable[[asyncio.Transport], Awaitable[Peer]]


class PeerProxy:
    """The public socket. peer() says whose connection one of gRPC's is."""

    def __init__(self, private: Path, turns: Turns | None = None) -> None:
        self._private = private  # gRPC's own socket
        self.turns = turns or Turns()
        self.is_admin: Callable[[Peer], bool] = lambda peer: peer.is_trusted
        self._connections = _Connections()
        self._listening: socket.socket | None = None
        self._public = self._made = Path()
        self._rights = (0o600, -1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged_ns = 0
        self._stand_in_uid = processes.stand_in_uid()

    def peer(self, address: str) -> Peer | None:
        """The credentials behind a peer address that gRPC reports.

        None for a connection that is not ours, and for users outside our user namespace: all of them have one uid.
        """
        prefix, _, token = address.rpartition("/")
        peer = self._connections.by_token.get(token) if prefix.startswith(f"unix-abstract:{_PREFIX}/") else None
        return None if peer and peer.uid == self._stand_in_uid else peer

    async def open(self, public: Path, mode: int, gid: int) -> None:
        """Accepts at `public`, created beside gRPC's socket so that it never has wrong permissions. Raises OSError."""
        self._public, self._made = public, self._private.with_name("proxy.sock")
        self._rights = mode, gid
        self._listen()

    def _listen(self) -> None:
        """Replaces the present listener. Raises OSError: the present one is kept then."""
        mode, gid = self._rights
        self._made.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.bind(str(self._made))
            self._made.chmod(mode)
            if gid >= 0:
                os.chown(self._made, -1, gid)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        self._stop_listening()
        self._listening = sock
        self._wait_for_connections()
        self._link()

    def _stop_listening(self) -> None:
        if self._listening:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
        self._listening = None

    def _wait_for_connections(self) -> None:
        if self._listening:
            asyncio.get_running_loop().add_reader(self._listening, self._take_waiting)

    def _link(self) -> None:
        self._public.unlink(missing_ok=True)
        self._public.hardlink_to(self._made)

    def forward_to(self, private: Path) -> None:
        """New connections go to this socket of gRPC's from now on."""
        self._private = private

    async def repair(self) -> bool:
        """Recreates the public name if it was removed. Returns whether it was. Raises OSError."""
        if self._listening is None or (self._public.exists() and self._made.exists()):
            return False
        if self._made.exists():
            self._link()
        else:
            self._listen()
        return True

    def stop_accepting(self) -> None:
        """Refuses new connections; open ones continue."""
        if self._listening:
            self._stop_listening()
            self._public.unlink(missing_ok=True)
            self._made.unlink(missing_ok=True)

    async def drain(self) -> None:
        """Waits until all connections are closed and closes the rest: call it when gRPC has stopped."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FLUSH_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- one connection ----

    def _take_waiting(self) -> None:
        """Some of the connections that wait."""
        listening = self._listening
        assert listening
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors
                self._log(f"no connection was accepted: {error.strerror}")
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(PAUSE_S, self._wait_for_connections)
                return
            self._take(sock)

    def _take(self, sock: socket.socket) -> None:
        """One beyond its user's share costs little: it is closed before anything is made for it."""
        sock.setblocking(False)
        uid = processes.credentials(sock)[1]
        why = self._connections.refusal(uid)
        if why:
            sock.close()
            self._log(f"a connection of uid {uid} was refused: {why}")
            return
        self._connections.waiting[uid] += 1
        self._start(self._connect_client(sock, uid))

    async def _connect_client(self, sock: socket.socket, uid: int) -> None:
        """When it is the user's turn. Many have gone by then that only connect and hang up: they cost little as well.
        An admin has no account by uid, and does not wait."""
        loop = asyncio.get_running_loop()
        try:
            await self._wait_to_connect(uid)
            if _has_gone(sock):
                sock.close()
            else:
                await loop.connect_accepted_socket(lambda: _ClientSide(self, self._accept), sock)
        except OSError:
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise

    async def _wait_to_connect(self, uid: int) -> None:
        try:
            if not self.turns.is_free(uid):
                await self.turns.wait_apart(uid, arriving=True)
        finally:
            self._connections.waiting[uid] -= 1
            self._connections.waiting += Counter()  # removes zero counts

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self, client: _ClientSide, close_future: asyncio.Future[None]) -> None:
        """Forwards a new connection to gRPC, or closes it."""
        assert client.transport
        try:
            peer = credentials(client.transport.get_extra_info("socket"))
        except OSError:
            client.transport.abort()
            return
        self._admit(client, close_future, peer)

    def remote_client(
        self, identify: Identify, on_admit: Callable[[asyncio.Transport, Peer], None]
    ) -> asyncio.Protocol:
        """The protocol of a connection over TLS, when its handshake has succeeded; `identify` says whose it is, and
        `on_admit` gets it when it is forwarded."""

        def accept(client: _ClientSide, close_future: asyncio.Future[None]) -> None:
            assert client.transport
            self._start(self._welcome(client, close_future, identify, on_admit))

        return _ClientSide(self, accept)

    async def _welcome(
        self,
        client: _ClientSide,
        close_future: asyncio.Future[None],
        identify: Identify,
        on_admit: Callable[[asyncio.Transport, Peer], None],
    ) -> None:
        assert client.transport
        try:
            peer = await identify(client.transport)
        except BaseException:
            client.transport.abort()
            raise
        if not close_future.done() and self._admit(client, close_future, peer):
            on_admit(client.transport, peer)

    def _admit(self, client: _ClientSide, close_future: asyncio.Future[None], peer: Peer) -> bool:
        """Forwards a connection of this peer unless there are too many. Returns whether it does."""
        assert client.transport
        why = self._connections.refusal(peer.uid)
        if why:
            self._log(f"a connection of uid {peer.uid} (pid {peer.pid}) was refused: {why}")
            client.transport.abort()
            return False
        client.set_user(ADMINS if self.is_admin(peer) else peer.uid)
        token = secrets.token_hex(16)
        self._connections.add(token, peer)
        self._start(self._forward_connection(client, close_future, peer, token))
        return True

    async def _forward_connection(
        self, client: _ClientSide, close_future: asyncio.Future[None], peer: Peer, token: str
    ) -> None:
        server = _ServerSide(close_future, client)
        client.other, server.other = server, client
        loop = asyncio.get_running_loop()
        assert client.transport
        silence: asyncio.TimerHandle | None = None
        try:
            await client.wait_for_turn()
            silence = loop.call_later(SILENT_S, self._abort_if_silent, client)
            sock = await self._connect(f"{_PREFIX}/{peer.uid}/{peer.pid}/{token}")
            await loop.create_unix_connection(lambda: server, sock=sock)
            early = bytes(client.early_data)
            client.early_data.clear()
            client.resume_reading("alone")
            if early:
                client.data_received(early)
            await close_future
        except OSError as error:
            self._log(f"a connection of uid {peer.uid} (pid {peer.pid}) was not forwarded: {error.strerror or error}")
        finally:
            if silence:
                silence.cancel()
            self._connections.remove(token)
            for side in (client, server):
                if side.transport:
                    side.transport.close()  # after the rest has been sent
                    loop.call_later(FLUSH_S, side.transport.abort)

    async def _connect(self, name: str) -> socket.socket:
        """A connection to gRPC from this abstract name. Raises OSError."""
        deadline = time.monotonic() + CONNECT_S
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.bind(b"\0" + name.encode())
            while True:
                try:
                    sock.connect(str(self._private))
                    return sock
                except BlockingIOError:  # its backlog is full, which poll() does not report
                    if time.monotonic() > deadline:
                        raise
                await asyncio.sleep(CONNECT_EVERY_S)
        except BaseException:
            sock.close()
            raise

    def _abort_if_silent(self, client: _Side) -> None:
        if client.transport and not client.has_received_data:
            client.transport.abort()

    def _log(self, text: str) -> None:
        """A line in the log, rate-limited since clients cause it."""
        now_ns = time.monotonic_ns()
        if not self._logged_ns or now_ns - self._logged_ns > LOG_EVERY_S * 1e9:
            self._logged_ns = now_ns
            log.warning("%s", text)
