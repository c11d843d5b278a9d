"""Divides what an HTTP/2 client sends into its calls, by the headers of the frames, so that each can wait for its turn.

Calls that are reset at once, name no method or are refused take processor time too, and never reach a handler.
"""

from __future__ import annotations

from dataclasses import dataclass

#: what a client sends first (RFC 9113, 3.4)
PREFACE_BYTES = 24
HEADER_BYTES = 9
#: frame type that opens a stream: one for each call
HEADERS = 0x1


@dataclass(frozen=True, slots=True)
class Piece:
    """What may be passed on at once."""

    size_bytes: int
    calls: int  # that begin in it, one at most
    others: int  # further frames


class Frames:
    """Of one connection, from its first byte on. Only the lengths and types of frames are read."""

    def __init__(self) -> None:
        self._skip = PREFACE_BYTES  # bytes until the next frame's header
        self._header = bytearray()  # what is known of it

    def piece(self, data: bytes | bytearray, size_max: int) -> Piece:
        """The next part of `data`, which begins where the last one ended: it ends before a second call begins."""
        end = min(len(data), size_max)
        calls = others = at = 0
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            if calls and not self._header and data[at + 3 : at + 4] in (b"", bytes([HEADERS])):
                break
            missing = HEADER_BYTES - len(self._header)
            self._header += data[at : min(at + missing, end)]
            at = min(at + missing, end)
            if len(self._header) < HEADER_BYTES:
                break
            self._skip = int.from_bytes(self._header[:3], "big")
            is_call = self._header[3] == HEADERS
            calls, others = calls + is_call, others + (not is_call)
            self._header.clear()
        return Piece(at, calls, others)
