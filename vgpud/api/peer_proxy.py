"""The door of the API: accepts on its public socket, asks the kernel who is there, and leads them to gRPC.

gRPC's server cannot say who is at the other end of a unix socket. It listens on a socket of its own that only the
daemon can reach, and everybody gets a connection there of their own, from an abstract name with a random word in it:
who it was made for stands in a table here, and nowhere else. Bytes are passed on both ways and never looked at.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vgpud.api.turns import CALL_NS, CONNECTION_NS, FRAME_NS, KIB_NS, READ_NS, Turns
from vgpud.core.fairness.accounts import ADMINS
from vgpud.core.fairness.frames import Frames
from vgpud.host import processes

log = logging.getLogger("vgpud.api")

#: connections of one user and of all together; root and the daemon's own user have ROOT_MORE beyond both
PER_UID_MAX, ALL_MAX, ROOT_MORE = 128, 1024, 256
BACKLOG = 1024
#: connections that the loop accepts before it does anything else
ACCEPTED_AT_ONCE = 8
#: bytes kept for who does not read, each way; then the other side is not read either
BUFFER_BYTES = 64 * 1024
#: of one user's bytes so many are passed on at once, and one call at most
PIECE_BYTES = 4096
#: who has connected must have said something by then
SILENT_S = 10.0
#: who lets their buffer stay full for so long is hung up on; a stream on which nothing is sent lives for ever
STALLED_S = 300.0
#: what is still to be sent when the other side has gone may take so long
GOODBYE_S = 5.0
#: how long gRPC's backlog may be full, and how often it is tried
CONNECT_S, CONNECT_EVERY_S = 5.0, 0.02
#: refused connections are told of in the log so often
TELL_EVERY_S = 10.0
_PREFIX = "vgpu-peer"


@dataclass(frozen=True, slots=True)
class Peer:
    """Who has connected, by the kernel's word."""

    uid: int
    gid: int
    gids: tuple[int, ...]  # further groups
    pid: int  # 0 = it has ended already, or lives where we cannot see it
    started: int  # its start time: peers.open_process(pid, started) never is another process

    @property
    def trusted(self) -> bool:
        return self.uid in (0, os.geteuid())


def look(sock: socket.socket) -> Peer:
    """Who is at the other end. Raises OSError when they have gone."""
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


class _Side(asyncio.Protocol):
    """One end of a connection that is passed on: a visitor's, or ours to gRPC."""

    def __init__(self, lost: asyncio.Future[None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self.heard = False
        self.early = bytearray()  # from before the other end was there
        self._stopped: set[str] = set()  # why nothing is read
        self._lost = lost  # done when either end has gone
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if self.other and self.other.transport:
            self.other.transport.write(data)
            return
        # Python before 3.11.3 reads although connection_made() has paused that (its issue 100348): nothing may be lost
        self.early += data
        if len(self.early) > BUFFER_BYTES and self.transport:
            self.transport.abort()

    def stop_reading(self, why: str) -> None:
        self._stopped.add(why)
        if self.transport:
            self.transport.pause_reading()

    def go_on_reading(self, why: str) -> None:
        self._stopped.discard(why)
        if self.transport and not self._stopped and not self.transport.is_closing():
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self.other:
            self.other.stop_reading("full")
        if self.transport:
            self._stalled = asyncio.get_running_loop().call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._quiet()
        if self.other:
            self.other.go_on_reading("full")

    def connection_lost(self, exc: Exception | None) -> None:
        self._quiet()
        if not self._lost.done():
            self._lost.set_result(None)

    def _quiet(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None


class _Visitor(_Side):
    """The visitor's end: nothing of theirs is read before the other end is there.

    What users send is passed on in small pieces, when it is their turn. Until then it stays in their socket.
    """

    def __init__(self, door: Door) -> None:
        super().__init__(asyncio.get_running_loop().create_future())
        self._door = door
        self._uid = ADMINS
        self._frames = Frames()
        self._held = bytearray()
        self._passing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.stop_reading("alone")
        self._door.welcome(self, self._lost)

    def is_from(self, uid: int) -> None:
        """Whose it is, ADMINS for every admin."""
        self._uid = uid
        self._door.turns.charge(uid, CONNECTION_NS)

    async def turn(self) -> None:
        """Until it may come in."""
        if not self._door.turns.is_free(self._uid):
            await self._door.turns.wait_apart(self._uid, arriving=True)

    def charge_answer(self, size_bytes: int) -> None:
        """So much is passed to them."""
        self._door.turns.charge(self._uid, READ_NS + size_bytes * KIB_NS // 1024)

    def data_received(self, data: bytes) -> None:
        if not (self.other and self.other.transport) or self._uid == ADMINS:
            self._door.turns.charge(self._uid, READ_NS)
            super().data_received(data)
            return
        self.heard = True
        self._held += data
        if self._passing is None and self._door.turns.is_free(self._uid):
            self._pass_piece()
        if self._held and self._passing is None:
            self.stop_reading("turn")
            self._passing = asyncio.get_running_loop().create_task(self._pass_on())

    def _pass_piece(self) -> None:
        piece = self._frames.piece(self._held, PIECE_BYTES)
        cost_ns = READ_NS + piece.calls * CALL_NS + piece.others * FRAME_NS + piece.size_bytes * KIB_NS // 1024
        self._door.turns.charge(self._uid, cost_ns)
        super().data_received(bytes(self._held[: piece.size_bytes]))
        del self._held[: piece.size_bytes]

    async def _pass_on(self) -> None:
        while self._held:
            await self._door.turns.wait_apart(self._uid, arriving=True)
            self._pass_piece()
        self._passing = None
        self.go_on_reading("turn")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._passing:
            self._passing.cancel()
        super().connection_lost(exc)


class _Ours(_Side):
    """Our end to gRPC of a visitor's connection."""

    def __init__(self, lost: asyncio.Future[None], visitor: _Visitor) -> None:
        super().__init__(lost)
        self._visitor = visitor

    def data_received(self, data: bytes) -> None:
        self._visitor.charge_answer(len(data))
        super().data_received(data)


@dataclass
class _Guests:
    """Who is inside: by the word in their connection's name, and how many of each user."""

    by_word: dict[str, Peer] = field(default_factory=dict)
    by_uid: Counter[int] = field(default_factory=Counter)

    def why_not(self, peer: Peer) -> str:
        more = ROOT_MORE if peer.trusted else 0
        if len(self.by_word) >= ALL_MAX + more:
            return f"{len(self.by_word)} connections are open, which is the limit"
        if self.by_uid[peer.uid] >= PER_UID_MAX and not peer.trusted:
            return f"uid {peer.uid} has {PER_UID_MAX} connections open, which is the limit"
        return ""

    def add(self, word: str, peer: Peer) -> None:
        self.by_word[word] = peer
        self.by_uid[peer.uid] += 1

    def remove(self, word: str) -> None:
        peer = self.by_word.pop(word)
        self.by_uid[peer.uid] -= 1
        if not self.by_uid[peer.uid]:
            del self.by_uid[peer.uid]


class Door:
    """The public socket. peer() says who a connection of gRPC's is from."""

    def __init__(self, inside: Path, turns: Turns | None = None) -> None:
        self._inside = inside  # gRPC's own socket
        self.turns = turns or Turns()
        self.is_admin: Callable[[Peer], bool] = lambda peer: peer.trusted
        self._guests = _Guests()
        self._server: asyncio.Server | None = None
        self._public = self._made = Path()
        self._rights = (0o600, -1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._told_ns = 0
        self._stand_in_uid = processes.stand_in_uid()

    def peer(self, address: str) -> Peer | None:
        """Who is at a peer address of gRPC's; None for whoever has not come through the door, or is any of many."""
        prefix, _, word = address.rpartition("/")
        peer = self._guests.by_word.get(word) if prefix.startswith(f"unix-abstract:{_PREFIX}/") else None
        return None if peer and peer.uid == self._stand_in_uid else peer

    async def open(self, public: Path, mode: int, gid: int) -> None:
        """Accepts at `public`, made beside gRPC's socket first so that it never has wrong rights. Raises OSError."""
        self._public, self._made = public, self._inside.with_name("door.sock")
        self._rights = mode, gid
        await self._listen()

    async def _listen(self) -> None:
        """A new listener in the place of the present one. Raises OSError: the present one is kept then."""
        mode, gid = self._rights
        self._made.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.bind(str(self._made))
            self._made.chmod(mode)
            if gid >= 0:
                os.chown(self._made, -1, gid)
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(lambda: _Visitor(self), sock=sock, backlog=ACCEPTED_AT_ONCE)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        old, self._server = self._server, server
        if old:
            old.close()
        self._link()

    def _link(self) -> None:
        self._public.unlink(missing_ok=True)
        self._public.hardlink_to(self._made)

    def lead_to(self, inside: Path) -> None:
        """Whoever connects from now on is led to this socket of gRPC's."""
        self._inside = inside

    async def repair(self) -> bool:
        """Makes the public name anew when somebody has removed it; whether that was needed. Raises OSError."""
        if self._server is None or (self._public.exists() and self._made.exists()):
            return False
        if self._made.exists():
            self._link()
        else:
            await self._listen()
        return True

    def shut(self) -> None:
        """Nobody comes in any more; who is inside goes on."""
        if self._server:
            self._server.close()
            self._server = None
            self._public.unlink(missing_ok=True)
            self._made.unlink(missing_ok=True)

    async def clear(self) -> None:
        """Waits until everybody has gone and hangs up on the rest: call it when gRPC has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GOODBYE_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- one visitor ----

    def welcome(self, visitor: _Visitor, lost: asyncio.Future[None]) -> None:
        """Leads a new connection to gRPC, or closes it."""
        assert visitor.transport
        try:
            peer = look(visitor.transport.get_extra_info("socket"))
        except OSError:
            visitor.transport.abort()
            return
        why = self._guests.why_not(peer)
        if why:
            self._tell(f"a connection of uid {peer.uid} (pid {peer.pid}) was refused: {why}")
            visitor.transport.abort()
            return
        visitor.is_from(ADMINS if self.is_admin(peer) else peer.uid)
        word = secrets.token_hex(16)
        self._guests.add(word, peer)
        task = asyncio.get_running_loop().create_task(self._lead(visitor, lost, peer, word))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lead(self, visitor: _Visitor, lost: asyncio.Future[None], peer: Peer, word: str) -> None:
        inner = _Ours(lost, visitor)
        visitor.other, inner.other = inner, visitor
        loop = asyncio.get_running_loop()
        assert visitor.transport
        silence: asyncio.TimerHandle | None = None
        try:
            await visitor.turn()
            silence = loop.call_later(SILENT_S, self._if_silent, visitor)
            sock = await self._connect(f"{_PREFIX}/{peer.uid}/{peer.pid}/{word}")
            await loop.create_unix_connection(lambda: inner, sock=sock)
            early = bytes(visitor.early)
            visitor.early.clear()
            visitor.go_on_reading("alone")
            if early:
                visitor.data_received(early)
            await lost
        except OSError as error:
            self._tell(f"a connection of uid {peer.uid} (pid {peer.pid}) did not get in: {error.strerror or error}")
        finally:
            if silence:
                silence.cancel()
            self._guests.remove(word)
            for side in (visitor, inner):
                if side.transport:
                    side.transport.close()  # what is still to be sent is sent
                    loop.call_later(GOODBYE_S, side.transport.abort)

    async def _connect(self, name: str) -> socket.socket:
        """A connection to gRPC from this abstract name. Raises OSError."""
        deadline = time.monotonic() + CONNECT_S
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.bind(b"\0" + name.encode())
            while True:
                try:
                    sock.connect(str(self._inside))
                    return sock
                except BlockingIOError:  # its backlog is full; poll() would not tell
                    if time.monotonic() > deadline:
                        raise
                await asyncio.sleep(CONNECT_EVERY_S)
        except BaseException:
            sock.close()
            raise

    def _if_silent(self, visitor: _Side) -> None:
        if visitor.transport and not visitor.heard:
            visitor.transport.abort()

    def _tell(self, text: str) -> None:
        """A line in the log, not more often than others may make us write."""
        now_ns = time.monotonic_ns()
        if not self._told_ns or now_ns - self._told_ns > TELL_EVERY_S * 1e9:
            self._told_ns = now_ns
            log.warning("%s", text)
