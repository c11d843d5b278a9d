"""Checks whether SQLite's write-ahead log holds changes that SQLite would skip silently.

SQLite reads a log up to the first frame that is not as it was written, and takes the rest for a leftover. After a power
failure that is right; with a flipped bit it loses changes that were confirmed to users. Format:
https://www.sqlite.org/fileformat2.html#walformat
"""

from __future__ import annotations

import struct
from pathlib import Path

_MAGIC = 0x377F0682  # the last bit is the byte order of the checksums
_HEADER = struct.Struct(">IIIIIIII")
_FRAME = struct.Struct(">IIIIII")
_PAGE_MAX = 65536


def _add(words: tuple[int, ...], sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def lost_changes(path: Path) -> str:
    """Why changes in the log at this path cannot be read, in a few words; "" where all of it can, or there is none."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ""
    if len(raw) < _HEADER.size:
        return ""
    magic, _version, page, _number, salt_1, salt_2, sum_1, sum_2 = _HEADER.unpack_from(raw)
    order = ">" if magic & 1 else "<"
    sums = _add(struct.unpack_from(f"{order}6I", raw), (0, 0))
    if magic & ~1 != _MAGIC or sums != (sum_1, sum_2) or not 512 <= page <= _PAGE_MAX:
        return "its head is damaged" if len(raw) > _HEADER.size else ""
    size, words = _FRAME.size + page, struct.Struct(f"{order}{page // 4}I")
    broken = 0
    for number in range((len(raw) - _HEADER.size) // size):
        at = _HEADER.size + number * size
        _page, commit, *salts, frame_1, frame_2 = _FRAME.unpack_from(raw, at)
        mine = salts == [salt_1, salt_2]
        if not broken:
            sums = _add(words.unpack_from(raw, at + _FRAME.size), _add(struct.unpack_from(f"{order}2I", raw, at), sums))
            broken = 0 if mine and sums == (frame_1, frame_2) else number + 1
            if broken and not mine:
                commit = 0
        if broken and mine and commit:
            return f"frame {broken} of it is damaged"
    return ""
