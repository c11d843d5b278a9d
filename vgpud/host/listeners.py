"""The bounds of every listener but the attach sockets (attach/server.py, core/slices/bounds.py), in one place: how many
connections it holds, what share of them one user or one address may have, and by when a connection has sent its
request. docs/security/listeners.md shows all as a table.

A user of this machine is known by uid, over loopback as well: the kernel says whose socket is at the other end. A
client of another machine is known by its address; in IPv6 by its network, since one client has 2^64 addresses of that.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from vgpud.host import processes


@dataclass(frozen=True, slots=True)
class Bound:
    """Of one listener."""

    all_max: int
    share_max: int  # of one user or one address
    reserved_max: int  # for root and the listener's own user, beyond all_max and share_max
    deadline_s: float  # by then the request has come, or the connection is closed


#: `vgpud serve`: Prometheus
METRICS = Bound(all_max=128, share_max=8, reserved_max=8, deadline_s=5.0)
#: `vgpud serve`: the API's socket. The deadline is for the first byte: a stream on which nothing is sent lives for ever
API = Bound(all_max=1024, share_max=128, reserved_max=256, deadline_s=10.0)
#: `vgpud serve --listen`: TLS handshakes under way, by address; what has a certificate is counted as the API's
REMOTE = Bound(all_max=64, share_max=16, reserved_max=0, deadline_s=10.0)
#: `vgpud serve`: the runtime's socket, root's and the daemon's only; the share is that of a process
RUNTIME = Bound(all_max=64, share_max=32, reserved_max=0, deadline_s=5.0)
#: `vgpu console serve`: browsers. A proxy in front of it is one user, whoever sits behind it
CONSOLE = Bound(all_max=512, share_max=128, reserved_max=0, deadline_s=10.0)
#: the console: requests and WebSockets that it passes on to sessions at once, by user; by the deadline the session has
#: taken the connection
CONSOLE_SESSIONS = Bound(all_max=256, share_max=64, reserved_max=0, deadline_s=5.0)
#: `vgpud serve`: connections to sessions over the API at once, by user; by the deadline the session has taken it
API_SESSIONS = Bound(all_max=256, share_max=64, reserved_max=0, deadline_s=5.0)
#: the console's broker: `vgpu console open`
CONSOLE_OPEN = Bound(all_max=32, share_max=4, reserved_max=4, deadline_s=2.0)
#: a service's address: clients, by user or address; a proxy in front of it is one of them
SERVICE = Bound(all_max=4096, share_max=3072, reserved_max=0, deadline_s=30.0)
#: the same: connections that have not shown its token yet
SERVICE_UNKNOWN = Bound(all_max=1024, share_max=512, reserved_max=0, deadline_s=30.0)
#: a service's control port, on loopback
SERVICE_CONTROL = Bound(all_max=32, share_max=8, reserved_max=0, deadline_s=5.0)
#: the console: log-ins with an OpenID provider under way, by source; by the deadline the provider has answered
CONSOLE_OIDC = Bound(all_max=64, share_max=8, reserved_max=0, deadline_s=15.0)
#: `vgpud-k8s`: calls of kubelet under way; only root reaches the sockets
KUBELET = Bound(all_max=256, share_max=256, reserved_max=0, deadline_s=10.0)


class Places:
    """Who holds the connections of a listener."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._held: Counter[Hashable] = Counter()

    def take(self, who: Hashable) -> bool:
        """Whether there is a place for one more connection of this user or address, which then holds it."""
        more = self._bound.reserved_max if who in (0, os.geteuid()) else 0
        if self._held.total() >= self._bound.all_max + more or self._held[who] >= self._bound.share_max + more:
            return False
        self._held[who] += 1
        return True

    def give_back(self, who: Hashable) -> None:
        self._held[who] -= 1
        if not self._held[who]:
            del self._held[who]

    @property
    def connection_count(self) -> int:
        return self._held.total()


# ---- who it is ----

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ESTABLISHED, _LISTEN = 1, 10
_HEADER = struct.Struct("=IHHII")
#: of inet_diag_msg: where the state and the uid are, behind the header
_STATE_AT, _UID_AT = _HEADER.size + 1, _HEADER.size + 64
_MAPPED = "::ffff:"
#: connections of this machine whose user is not known
LOOPBACK = "loopback"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # no address
        return False


def source(sock: socket.socket) -> int | str:
    """Who is at the other end of an accepted connection: a uid of this machine, or an address. Raises OSError."""
    if sock.family == socket.AF_UNIX:
        return processes.credentials(sock)[1]
    return source_between(sock.getpeername()[:2], sock.getsockname()[:2])


def source_between(peer: tuple[str, int], own: tuple[str, int]) -> int | str:
    """The same of a TCP connection with these two ends, ours the second. Raises OSError: they are no addresses."""
    (host, port), (own_host, own_port) = peer, own
    host, own_host = host.removeprefix(_MAPPED), own_host.removeprefix(_MAPPED)
    uid = _uid_of_socket(host, port, own_host, own_port)
    return _network(host) if uid is None else uid


def _network(host: str) -> str:
    """An address, of IPv6 its network. This machine's own are one: a client that closes at once has no uid, and many of
    them."""
    host = host.partition("%")[0]
    if is_loopback(host):
        return LOOPBACK
    if ":" not in host:
        return host
    packed = socket.inet_pton(socket.AF_INET6, host)
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"


def _uid_of_socket(host: str, port: int, far_host: str, far_port: int) -> int | None:
    """The user of the connected TCP socket with these two ends, asked of the kernel; None: it is on no machine but
    another, in another network namespace, or is closed already."""
    found = _ask_for_socket(host, port, far_host, far_port)
    return found[1] if found and found[0] == _ESTABLISHED else None


def server_uid(port: int, own: tuple[str, int], *, is_published: bool = False) -> int | None:
    """The user whose program listens at this port of 127.0.0.1 and has our connection, whose end here is `own`; None:
    it has closed. What it has not accepted yet belongs to no user, so both sockets are looked at: a listener that was
    replaced after we connected has reset our connection. `is_published`: by a container engine, which holds the port as
    root and may lead connections away before a socket of this machine has them."""
    listening = _ask_for_socket("127.0.0.1", port, "0.0.0.0", 0)  # first: who listens later has not accepted ours
    accepted = _ask_for_socket("127.0.0.1", port, *own)
    if not listening or listening[0] != _LISTEN:
        return None
    if accepted is None and is_published and listening[1] == 0:
        return 0
    if not accepted or accepted[0] != _ESTABLISHED:
        return None
    return listening[1] if accepted[1] in (0, listening[1]) else None


def may_serve(uid: int | None, owner: int, *, is_published: bool) -> bool:
    """Whether what this user's program is asked may be `owner`'s secret. `is_published`: root's may, which leads a port
    to the owner's container, and could read it in any case."""
    return uid == owner or (is_published and uid == 0)


def listener_uid(port: int) -> int | None:
    """The user whose program listens at this port of 127.0.0.1, or of all addresses; None: no program does."""
    found = _ask_for_socket("127.0.0.1", port, "0.0.0.0", 0)
    return found[1] if found and found[0] == _LISTEN else None


def _ask_for_socket(host: str, port: int, far_host: str, far_port: int) -> tuple[int, int] | None:
    """State and user of the TCP socket with these two ends; far port 0: of the one that listens. None: there is
    none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ends = [socket.inet_pton(family, name.partition("%")[0]).ljust(16, b"\0") for name in (host, far_host)]
    asked = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    asked += struct.pack("!HH", port, far_port) + b"".join(ends) + struct.pack("=I8s", 0, b"\xff" * 8)
    header = _HEADER.pack(_HEADER.size + len(asked), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _SOCK_DIAG) as kernel:
            kernel.send(header + asked)
            said = kernel.recv(4096)  # it has answered by now
    except OSError:
        return None
    kind = _HEADER.unpack_from(said)[1]
    if kind != _SOCK_DIAG_BY_FAMILY or len(said) < _UID_AT + 4:
        return None
    return said[_STATE_AT], int(struct.unpack_from("=I", said, _UID_AT)[0])


# ---- a listener with places ----


#: connections that are refused before the server does anything else
_REFUSED_AT_ONCE = 32


class _Placed(socket.socket):
    """An accepted connection, which gives its place back when it is closed."""

    _places: Places | None = None
    _who: Hashable = None

    def hold(self, places: Places, who: Hashable) -> None:
        self._places, self._who = places, who

    def _real_close(self, *arguments: object) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.give_back(self._who)
        super()._real_close(*arguments)  # type: ignore[misc]

    def detach(self) -> int:
        raise OSError("this connection holds a place")


class BoundedListener(socket.socket):
    """A listening socket that hands out no more connections than its bound allows, for servers that only call
    accept(): the others are closed at once. Takes over the socket that it is made of."""

    def __init__(self, listening: socket.socket, bound: Bound) -> None:
        super().__init__(listening.family, listening.type, listening.proto, listening.detach())
        self._places = Places(bound)

    @property
    def connection_count(self) -> int:
        return self._places.connection_count

    def accept(self) -> tuple[socket.socket, object]:
        for _ in range(_REFUSED_AT_ONCE):
            sock, address = super().accept()
            try:
                who = source(sock)
            except OSError:  # it has gone
                sock.close()
                continue
            if self._places.take(who):
                placed = _Placed(sock.family, sock.type, sock.proto, sock.detach())
                placed.hold(self._places, who)
                return placed, address
            sock.close()
        raise BlockingIOError("one place after another was refused: the server does other work first")
