"""Frames of a WebSocket (RFC 6455), as far as they say whether its user does something, and where one ends: pings,
pongs and closes are the browser's own, messages are the page's. Pure; what is in a message is not looked at."""

from __future__ import annotations

#: opcodes from here on are of control frames (5.5); the one of a close frame
_FIRST_CONTROL, _CLOSE = 8, 8
_MASK_BYTES = 4
#: bytes of the length behind the first two, by what these say
_LONG = {126: 2, 127: 8}
#: of a close frame (7.4.1): the server goes away; it has failed
GOING_AWAY, INTERNAL_ERROR = 1001, 1011


class FrameWatch:
    """What one side sends, in pieces of any size."""

    def __init__(self) -> None:
        self._head = b""  # of a frame whose head is not complete
        self._left = 0  # bytes of the present frame that are still to come
        self.has_close = False  # it has begun a close frame, its last one

    @property
    def is_between(self) -> bool:
        """Whether a frame of another sender may stand here."""
        return not self._head and not self._left

    def has_message(self, data: bytes) -> bool:
        """Whether a message begins in this piece."""
        is_message, at = False, 0
        while at < len(data):
            at, is_first = self._read_on(data, at)
            is_message = is_message or is_first
        return is_message

    def finish(self, data: bytes) -> int:
        """How many bytes of this piece belong to the present frame."""
        at = 0
        while at < len(data) and not self.is_between:
            at, _ = self._read_on(data, at)
        return at

    def _read_on(self, data: bytes, at: int) -> tuple[int, bool]:
        """To the end of the frame at most. Returns how far, and whether the head of a message was completed."""
        if self._left:
            passed = min(self._left, len(data) - at)
            self._left -= passed
            return at + passed, False
        self._head += data[at : at + 1]
        at += 1
        if len(self._head) < 2:
            return at, False
        more = _LONG.get(self._head[1] & 0x7F, 0)
        if len(self._head) < 2 + more:
            return at, False
        size = int.from_bytes(self._head[2:], "big") if more else self._head[1] & 0x7F
        self._left = size + (_MASK_BYTES if self._head[1] & 0x80 else 0)
        opcode, self._head = self._head[0] & 0x0F, b""
        self.has_close = self.has_close or opcode == _CLOSE
        return at, opcode < _FIRST_CONTROL


def close_frame(code: int, reason: str) -> bytes:
    """As a server sends it; the reason has up to 123 bytes (5.5)."""
    payload = code.to_bytes(2, "big") + reason.encode()[:123]
    return bytes((0x80 | _CLOSE, len(payload))) + payload
