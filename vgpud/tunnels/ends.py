"""The two ends of a WebSocket that is passed on: what one has received is written to the other at once, without a task
or a copy in between. A side that takes nothing stops the other one from being read."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from vgpud.tunnels.frames import FrameWatch


class End(asyncio.Protocol):
    """One connection. Until join(), it is read piece by piece; from then on it passes on by itself. `silent_s`: a side
    that takes nothing for so long is disconnected."""

    def __init__(self, silent_s: float, watch: FrameWatch | None = None) -> None:
        """`watch`: of the frames that this side sends."""
        self._silent_s = silent_s
        self._watch = watch
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []  # received before join()
        self._arrival = asyncio.Event()
        self._stalled: asyncio.TimerHandle | None = None
        self._peer: End | None = None
        self._last: bytes | None = None  # what its peer gets of it at the end
        self._is_silent = False  # its peer gets nothing any more
        self.closed = asyncio.Event()
        self.ending = asyncio.Event()  # it has sent a close frame
        self.passed_s = time.monotonic()
        self.has_message = False

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport
        return self._transport

    # ---- asyncio.Protocol ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._peer is None:
            self._pieces.append(data)
            self._arrival.set()
            self.transport.pause_reading()
            return
        self._pass(data)

    def eof_received(self) -> bool:
        self.closed.set()
        self._arrival.set()
        return True  # what was written is still sent

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()
        self._arrival.set()
        if self._stalled:
            self._stalled.cancel()

    def pause_writing(self) -> None:
        """This side takes nothing at present."""
        if self._peer and not self._peer.transport.is_closing():
            self._peer.transport.pause_reading()
        self._stalled = self._stalled or asyncio.get_running_loop().call_later(self._silent_s, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None
        if self._peer and not self._peer.transport.is_closing():
            self._peer.transport.resume_reading()

    # ---- use ----

    async def read(self) -> bytes:
        """The next piece, before join(); b"": it has closed."""
        while not self._pieces and not self.closed.is_set():
            self._arrival.clear()
            await self._arrival.wait()
        if not self._pieces:
            return b""
        data = self._pieces.pop(0)
        if not self._pieces:
            self.transport.resume_reading()
        return data

    def join(self, peer: End) -> None:
        """From now on what comes here goes there."""
        self._peer = peer
        pieces, self._pieces = self._pieces, []
        for data in pieces:
            self._pass(data)
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def _pass(self, data: bytes) -> None:
        self.passed_s = time.monotonic()
        if self._last is not None:
            self._pass_last(data)
            return
        if self._watch and self._watch.has_message(data):
            self.has_message = True
        if self._watch and self._watch.has_close:
            self.ending.set()
        self._give(data)

    def _give(self, data: bytes) -> None:
        assert self._peer
        if not self._peer.transport.is_closing():
            self._peer.transport.write(data)

    def end_with(self, last: bytes) -> None:
        """Its peer gets the rest of the frame that has begun, then these bytes, and nothing more. Not where it has sent
        a close frame, or none is known to end."""
        if self._watch is None or self._watch.has_close or self._last is not None:
            return
        self._last = last
        self._pass_last(b"")

    def _pass_last(self, data: bytes) -> None:
        assert self._watch
        if self._is_silent:
            return
        rest = data[: self._watch.finish(data)]
        self._is_silent = self._watch.is_between
        self._give(rest + (self._last or b"") if self._is_silent else rest)

    def take_use(self) -> bool:
        """Whether a message has come since the last call."""
        found, self.has_message = self.has_message, False
        return found

    def close(self) -> None:
        """What has been written may still be taken, for a while."""
        if self._transport:
            self._transport.close()
            asyncio.get_running_loop().call_later(self._silent_s, self._transport.abort)
