"""Frames of a WebSocket, as far as they say whether its user does something: pings, pongs and closes are the browser's
own, messages are the page's. Pure; what is in a message is not looked at."""

from __future__ import annotations

#: opcodes from here on are of control frames (RFC 6455, 5.5)
_FIRST_CONTROL = 8
_MASK_BYTES = 4
#: bytes of the length behind the first two, by what these say
_LONG = {126: 2, 127: 8}


class FrameWatch:
    """What one side sends, in pieces of any size."""

    def __init__(self) -> None:
        self._head = b""  # of a frame whose head is not complete
        self._left = 0  # bytes of the present frame that are still to come

    def has_message(self, data: bytes) -> bool:
        """Whether a message begins in this piece."""
        found, at = False, 0
        while at < len(data):
            if self._left:
                passed = min(self._left, len(data) - at)
                at, self._left = at + passed, self._left - passed
                continue
            self._head += data[at : at + 1]
            at += 1
            if len(self._head) < 2:
                continue
            more = _LONG.get(self._head[1] & 0x7F, 0)
            if len(self._head) < 2 + more:
                continue
            size = int.from_bytes(self._head[2:], "big") if more else self._head[1] & 0x7F
            self._left = size + (_MASK_BYTES if self._head[1] & 0x80 else 0)
            found = found or self._head[0] & 0x0F < _FIRST_CONTROL
            self._head = b""
        return found
