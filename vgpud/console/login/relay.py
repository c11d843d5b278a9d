"""A connection to another machine's daemon, made in the process that acts as its user: the user's key stays there. The
web server gets a socket on which the bytes pass that TLS carries."""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  # of host names: the process may lose the right to load it
import select
import socket
import ssl
import threading
from collections.abc import Callable

from vgpud.client.contexts import Context
from vgpud.client.tls import make_settings

CONNECT_S = 5.0
#: of one user
RELAYS_MAX = 64
#: held in each direction
_HELD_BYTES_MAX, _PIECE_BYTES = 256 * 1024, 64 * 1024
_places = threading.BoundedSemaphore(RELAYS_MAX)


class TooManyError(Exception):
    """The user has too many connections to other machines."""


def open_relay(context: Context) -> int:
    """A descriptor of the socket; it is closed when the daemon does not answer, or the connection ends. Does not wait.
    Raises TooManyError."""
    places = _places
    if not places.acquire(blocking=False):
        raise TooManyError(f"{RELAYS_MAX} connections to other nodes are open, which is the limit")
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    threading.Thread(target=_run, args=(context, ours, places.release), daemon=True).start()
    return its.detach()


def _run(context: Context, ours: socket.socket, give_place_back: Callable[[], None]) -> None:
    try:
        with ours, contextlib.suppress(OSError, ValueError):
            name, _, port = context.host.rpartition(":")
            name = name.strip("[]")
            with socket.create_connection((name, int(port)), CONNECT_S) as raw:
                with make_settings(context).wrap_socket(raw, server_hostname=name) as tls:
                    _pass(tls, ours)
    finally:
        give_place_back()


def _pass(tls: ssl.SSLSocket, ours: socket.socket) -> None:
    """Bytes in both directions, in one thread as OpenSSL needs it, until either side closes. Raises OSError."""
    tls.setblocking(False)
    ours.setblocking(False)
    to_tls, to_ours = bytearray(), bytearray()
    while True:
        readers = [sock for sock, held in ((tls, to_ours), (ours, to_tls)) if len(held) < _HELD_BYTES_MAX]
        writers = [sock for sock, held in ((tls, to_tls), (ours, to_ours)) if held]
        ready, _, _ = select.select(readers, writers, [])
        del ready  # TLS may hold bytes that the kernel has given out already: both are tried
        if not (_read(tls, to_ours) and _read(ours, to_tls)):
            return
        _write(tls, to_tls)
        _write(ours, to_ours)


def _read(sock: socket.socket, held: bytearray) -> bool:
    """Takes what there is. Returns False when the other side has closed."""
    while len(held) < _HELD_BYTES_MAX:
        try:
            data = sock.recv(_PIECE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        if not data:
            return False
        held += data
    return True


def _write(sock: socket.socket, held: bytearray) -> None:
    with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        while held:
            del held[: sock.send(held[:_PIECE_BYTES])]
