"""Remote use: the listener for TLS connections, each of which needs a certificate that this site has issued.

A connection is decrypted here and then treated as one at the unix socket (peer_proxy.py): the same limits, the same
division of time, the same table of rights. The identity is that of the certificate in the site's list (vgpud.certs),
found by its SHA-256; names inside the certificate decide nothing. What is wrong with a listed certificate is answered
in one sentence to every call; a certificate of another authority, and a connection without one, ends in the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import os
import socket
import ssl
import time
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any

from vgpud.api.peer_proxy import LOG_EVERY_S, Peer, PeerProxy
from vgpud.certs.register import SERVER, USER, Issued, Register, when
from vgpud.errors import ConfigError, ConflictError, DeniedError, VgpudError
from vgpud.host import listeners, users
from vgpud.host.listeners import REMOTE

log = logging.getLogger("vgpud.api")

#: account of all callers whose certificate is not known yet, or not valid. A handshake is charged to its caller
STRANGER = -2
#: of sources
ACCOUNTS = 256
#: a turn of the loop, beside accepting connections and closing those whose sources have too many: 25 us for each
TURN_NS = 25_000
#: connections that are accepted in one turn
TAKEN_PER_TURN_MAX = 8
#: processor time of a handshake, with all that happens before the first call: 3.2 to 5.3 ms were measured
HANDSHAKE_NS = 4_000_000
HANDSHAKE_S = REMOTE.deadline_s
#: handshakes at a time, in all and of one address
HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX = REMOTE.all_max, REMOTE.share_max
#: a connection beyond these is lost, and its client tries again only after one second, then three
BACKLOG = 512
#: how often certificates of open connections are looked at again: for revoked and expired ones, and users that are gone
RECHECK_S = 5.0
#: a server's certificate that ends within this is reported, once a day
WARN_S, WARN_EVERY_S = 14 * 86_400, 86_400
#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME: expired certificates are refused by us, with a sentence
_NO_CHECK_TIME = 0x200000
#: how long nothing is accepted when there are no descriptors left
_PAUSE_S = 0.2
_ESTABLISHED = 1  # the first byte of TCP_INFO


def why_invalid(certificate: Issued | None, now_s: float) -> str:
    """Why a certificate with this entry in the list is refused, in one sentence; "" when it is valid."""
    if certificate is None or certificate.kind != USER:
        return "this certificate is not in the daemon's list: ask its admin for one (`vgpu cert user NAME`)"
    state = certificate.state(now_s)
    whose = f"the certificate of {certificate.name} with serial number {certificate.serial}"
    if state == "revoked":
        return f"{whose} was revoked on {when(certificate.revoked_s)}: ask the daemon's admin for a new one"
    if state == "expired":
        fix = f"ask the daemon's admin for a new one (`vgpu cert user {certificate.name}`)"
        return f"{whose} expired on {when(certificate.not_after_s)}, and the daemon's clock shows {when(now_s)}: {fix}"
    if state == "early":
        text = f"{whose} is valid from {when(certificate.not_before_s)}"
        return f"{text}, and the daemon's clock shows {when(now_s)}: ask its admin to set that clock"
    return ""


def why_no_user(certificate: Issued, user: users.User | None) -> str:
    """Why the user of this certificate may not connect; "" when nothing is wrong."""
    if user is None:
        return f"there is no user {certificate.name!r} on the daemon's machine: ask its admin to create the user"
    if user.uid != certificate.uid:
        text = (
            f"user {certificate.name} had uid {certificate.uid} when the certificate was issued and has {user.uid} now"
        )
        return f"{text}: ask the daemon's admin for a new one (`vgpu cert user {certificate.name}`)"
    return ""


@dataclass
class _Handshakes:
    """Those under way, by user of this machine or address."""

    by_address: Counter[Hashable] = field(default_factory=Counter)

    def begin(self, address: Hashable) -> bool:
        if self.by_address.total() >= HANDSHAKES_MAX or self.by_address[address] >= HANDSHAKES_PER_ADDRESS_MAX:
            return False
        self.by_address[address] += 1
        return True

    def end(self, address: Hashable) -> None:
        self.by_address[address] -= 1
        self.by_address += Counter()  # removes zero counts


class RemoteListener:
    """Accepts TLS connections and gives them to the proxy. open(), then close()."""

    def __init__(self, proxy: PeerProxy, register: Register, now_s: Callable[[], float] = time.time) -> None:
        self._proxy = proxy
        self._register = register
        self._now_s = now_s
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._loaded: tuple[int, int] = (0, 0)  # of the server's file: inode and time of change
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes = _Handshakes()
        self._open: dict[asyncio.Transport, Peer] = {}
        self._logged_s = 0.0
        self._warned_s = float(-WARN_EVERY_S)

    async def open(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listens; returns the addresses. Raises VgpudError with the remedy."""
        self._register.check(self._now_s())
        self._set_up()
        try:
            self._sockets = await self._bind(host, port)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        for sock in self._sockets:
            self._start(self._accept(sock))
        self._start(self._watch())
        return [sock.getsockname()[:2] for sock in self._sockets]

    async def close(self) -> None:
        """Accepts no more; open connections are the proxy's to end."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sock in self._sockets:
            sock.close()
        self._sockets = []

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_up(self) -> None:
        context = self._context
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
        context.num_tickets = 0  # no resumption: every connection shows its certificate
        context.set_alpn_protocols(["h2"])
        try:
            context.load_verify_locations(self._register.authority)
        except (OSError, ssl.SSLError) as error:
            text = f"cannot use {self._register.authority}: {error}"
            raise ConfigError(f"{text}; restore it from a backup") from error
        self._load()

    def _load(self) -> None:
        """Takes the server's certificate over when its file has changed. Raises ConfigError."""
        path = self._register.server
        try:
            info = path.stat()
            if self._loaded != (info.st_ino, info.st_mtime_ns):
                self._context.load_cert_chain(path)
                self._loaded = info.st_ino, info.st_mtime_ns
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot use {path}: {error}; run `vgpu cert init --renew`") from error

    async def _bind(self, host: str, port: int) -> list[socket.socket]:
        """Sockets at all addresses of the name, of one family if the other is not available."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        made: list[socket.socket] = []
        try:
            for family, kind, number, _, address in dict.fromkeys(found):
                sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, number)
                made.append(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(address)
                sock.listen(BACKLOG)
        except OSError:
            for sock in made:
                sock.close()
            raise
        return made

    # ---- one connection ----

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        turns = self._proxy.turns
        while True:
            if not turns.is_free(STRANGER):
                await turns.wait_apart(STRANGER, arriving=True)
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError as error:  # no descriptors, or the client has gone already
                self._log(f"no connection was accepted: {error.strerror}")
                await asyncio.sleep(_PAUSE_S)
                continue
            began_ns = time.thread_time_ns()
            self._take(sock)
            self._take_waiting(listening)
            turns.charge(STRANGER, TURN_NS + time.thread_time_ns() - began_ns)
            await asyncio.sleep(0)  # while connections wait, accepting does not: so many of them in a turn of the loop

    def _take_waiting(self, listening: socket.socket) -> None:
        """Those behind the first one. Most of a crowd are closed at once, and clients after it wait less."""
        with contextlib.suppress(OSError):  # none is left; what else it is, the next turn says
            for _ in range(TAKEN_PER_TURN_MAX - 1):
                self._take(listening.accept()[0])

    def _take(self, sock: socket.socket) -> None:
        """Begins the handshake, or closes the connection."""
        sock.setblocking(False)
        try:
            source, has_gone = listeners.source(sock), _has_gone(sock)
        except OSError:  # it has gone as well
            has_gone = True
        if has_gone:
            sock.close()
        elif self._handshakes.begin(source):
            self._start(self._shake_hands(sock, source))
        else:
            sock.close()
            self._log(f"a connection from {_words(source)} was closed: too many handshakes are under way")

    async def _shake_hands(self, sock: socket.socket, source: int | str) -> None:
        """Each source waits for its own account: one that makes handshakes without end delays no other's."""
        loop, turns, account = asyncio.get_running_loop(), self._proxy.turns, _account(source)
        client = self._proxy.remote_client(self._identify, self._add_connection)
        try:
            if not turns.is_free(account):
                await turns.wait_apart(account, arriving=True)
            if _has_gone(sock):
                raise ConnectionResetError(errno.ECONNRESET, "it has gone")
            turns.charge(account, HANDSHAKE_NS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                lambda: client, sock, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S
            )
        except (OSError, ssl.SSLError, asyncio.TimeoutError) as error:
            sock.close()
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            self._log(f"a connection from {_words(source)} was refused in the TLS handshake: {reason}")
        finally:
            self._handshakes.end(source)

    async def _identify(self, transport: asyncio.Transport) -> Peer:
        """Whose the connection is, or why its calls are refused."""
        tls = transport.get_extra_info("ssl_object")
        sha256 = hashlib.sha256(tls.getpeercert(binary_form=True)).hexdigest()
        if tls.selected_alpn_protocol() != "h2":
            return _make_refused_peer(sha256, "this port speaks gRPC only: use vgpu, or vgpud.client")
        return await self._standing(sha256)

    async def _standing(self, sha256: str) -> Peer:
        try:
            issued = self._register.read_certificates().get(sha256)
        except VgpudError as error:
            self._log(f"remote users are refused: {error}")
            return _make_refused_peer(
                sha256, "the daemon cannot read its list of certificates: ask its admin to see its log"
            )
        why = why_invalid(issued, self._now_s())
        if why or issued is None:
            return _make_refused_peer(sha256, why)
        user = await asyncio.get_running_loop().run_in_executor(None, users.find, issued.name)
        why = why_no_user(issued, user)
        if why or user is None:
            return _make_refused_peer(sha256, why)
        return Peer(user.uid, user.gid, user.gids, 0, 0, sha256)

    def _add_connection(self, transport: asyncio.Transport, peer: Peer) -> None:
        address = "{} port {}".format(*transport.get_extra_info("peername", ("?", "?"))[:2])
        if peer.refusal:
            self._log(f"calls from {address} are refused: {peer.refusal}")
        else:
            log.info("uid %d connected from %s with certificate %.16s", peer.uid, address, peer.certificate)
        self._open[transport] = peer

    # ---- again and again ----

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            with contextlib.suppress(Exception):  # what is wrong was logged; the next round tries again
                await self.recheck()

    async def recheck(self) -> None:
        """Ends connections whose certificate or user is not valid any more, and takes a renewed certificate over."""
        try:
            self._load()
            self._warn()
        except VgpudError as error:
            self._log(str(error))
        self._open = {transport: peer for transport, peer in self._open.items() if not transport.is_closing()}
        now = {sha256: await self._standing(sha256) for sha256 in {p.certificate for p in self._open.values()}}
        for transport, peer in list(self._open.items()):
            standing = now.get(peer.certificate)
            if standing is not None and standing != peer:
                log.info("a connection of uid %d was ended: %s", peer.uid, standing.refusal or "the user has changed")
                transport.abort()
                del self._open[transport]

    async def valid(self, sha256: str) -> bool:
        """Whether a connection with this certificate would be let in."""
        return not (await self._standing(sha256)).refusal

    def _warn(self) -> None:
        server = self._register.newest(SERVER)
        left_s = server.not_after_s - self._now_s() if server else 0.0
        if left_s < WARN_S and time.monotonic() - self._warned_s > WARN_EVERY_S:
            self._warned_s = time.monotonic()
            days = max(0, round(left_s / 86_400))
            log.warning("the server's certificate expires in %d days: run `vgpu cert init --renew`", days)

    def _log(self, text: str) -> None:
        """A line in the log, rate-limited, since any client that reaches the port can cause it."""
        now_s = time.monotonic()
        if not self._logged_s or now_s - self._logged_s > LOG_EVERY_S:
            self._logged_s = now_s
            log.warning("%s", text)


def _words(source: int | str) -> str:
    return source if isinstance(source, str) else f"uid {source} of this machine"


def _has_gone(sock: socket.socket) -> bool:
    """The other end is closed: no handshake is worth its time."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED


def _account(source: int | str) -> int:
    """A user of this machine has one for all: with several a user alone would use up what all users have together. Not
    root, who has none and may be a proxy. Others are below STRANGER, and few: a caller with many addresses could push
    users' accounts out."""
    if isinstance(source, int) and source > 0:
        return source
    return STRANGER - 1 - zlib.crc32(_words(source).encode()) % ACCOUNTS


def _make_refused_peer(sha256: str, why: str) -> Peer:
    return Peer(STRANGER, STRANGER, (), 0, 0, sha256, why)


def _cannot_listen(host: str, port: int, error: OSError) -> VgpudError:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return ConflictError(
            f"another program listens on {where}: stop it, or choose another port (--listen HOST:PORT)"
        )
    if error.errno == errno.EACCES:
        return DeniedError(f"no permission to listen on {where}: choose a port of 1024 or above (--listen HOST:PORT)")
    reason = error.strerror or os.strerror(error.errno or 0)
    return ConfigError(f"cannot listen on {where}: {reason}; write an address of this machine (--listen HOST:PORT)")
