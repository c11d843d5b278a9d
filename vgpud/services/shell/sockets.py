"""WebSockets and other upgrades (RFC 9110, 7.8) through the address of a service: the handshake is made with a replica
as any request is, then bytes pass in both directions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import h11

from vgpud.services.shell.http1 import STUCK_S, Headers, Wire, find_header, keep_headers
from vgpud.tunnels.ends import End
from vgpud.tunnels.frames import GOING_AWAY, INTERNAL_ERROR, FrameWatch, close_frame
from vgpud.tunnels.passing import pass_between

#: until the replica has made the handshake
HANDSHAKE_S = 60.0
#: for both sides to close, once one is to
CLOSE_S = 2.0
_WEBSOCKET = b"websocket"


def upgrade_of(headers: Headers) -> bytes:
    """The protocol that a request asks for instead of HTTP/1.1; b"": none that is passed on. HTTP/2 would have requests
    of its own, whose token is not looked at."""
    words = [word.strip().lower() for word in find_header(headers, b"connection").split(b",")]
    protocol = find_header(headers, b"upgrade").strip()
    is_http = protocol.lower().startswith((b"h2", b"http", b"tls"))
    return b"" if is_http or b"upgrade" not in words else protocol


def upgrade_headers(protocol: bytes) -> Headers:
    """Those of a message that asks for it, or changes to it; b"": none."""
    return [(b"connection", b"Upgrade"), (b"upgrade", protocol)] if protocol else []


@dataclass(eq=False)
class _Socket:
    """One that is open."""

    job_id: int
    order: asyncio.Event = field(default_factory=asyncio.Event)  # it is to be closed


class Sockets:
    """Those of one service that are open."""

    def __init__(self) -> None:
        self._open: set[_Socket] = set()

    def end(self, job_id: int) -> bool:
        """Has those of a replica closed. Whether there are any left: not for longer than they may take."""
        mine = [one for one in self._open if one.job_id == job_id]
        for one in mine:
            one.order.set()
        return bool(mine)

    async def pass_on(self, job_id: int, client: Wire, program: Wire, answer: h11.InformationalResponse) -> None:
        """Until it is over: then both connections close once they have taken what was written. `answer`: with which
        the program has changed the protocol. Raises BrokenError."""
        headers = [*keep_headers(answer.headers.raw_items()), *upgrade_headers(find_header(answer.headers, b"upgrade"))]
        await client.send(h11.InformationalResponse(status_code=101, headers=headers, reason=b"Switching Protocols"))
        has_frames = find_header(answer.headers, b"upgrade").lower() == _WEBSOCKET
        near, far = (End(STUCK_S, FrameWatch() if has_frames else None) for _ in range(2))
        await client.hand_over(near)
        await program.hand_over(far)
        socket = _Socket(job_id)
        self._open.add(socket)
        try:
            await pass_between(near, far, socket.order.wait())
            if has_frames and not near.closed.is_set():
                await _close(near, far, is_ordered=socket.order.is_set())
        finally:
            self._open.discard(socket)
            near.close()
            far.close()


async def _close(near: End, far: End, *, is_ordered: bool) -> None:
    """The client learns by a close frame that its replica goes, or has gone; then, by the client's own one, the
    replica learns of it."""
    code, why = (GOING_AWAY, "this replica ends") if is_ordered else (INTERNAL_ERROR, "this replica has ended")
    far.end_with(close_frame(code, why))
    steps = [asyncio.ensure_future(work) for work in (near.ending.wait(), near.closed.wait())]
    try:
        await asyncio.wait(steps, timeout=CLOSE_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for step in steps:
            step.cancel()
        await asyncio.gather(*steps, return_exceptions=True)
