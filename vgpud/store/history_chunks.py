"""Chunks of points as bytes: one column per field of Point, in 32-bit words, memory in MiB, compressed.

Bytes of the same weight lie together: limits hardly change and upper bytes are zero, so most of a chunk disappears.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Mapping

from vgpud.core.history.fold import MEMORY_UNIT_BYTES
from vgpud.core.history.points import Point, join

_WORD_BYTES = 4
_WORD_MAX = (1 << 32) - 1
_FIELDS = len(Point._fields)
_COLUMN = "I"
#: fields that are in bytes
_MEMORY = tuple(name.endswith("_bytes") for name in Point._fields)


def unpack(body: bytes, points: int) -> list[array[int]]:
    """The columns of a chunk. Raises ValueError for bytes that are no chunk of so many points."""
    length = _FIELDS * points * _WORD_BYTES
    try:
        planes = zlib.decompressobj().decompress(body, length + 1)
    except (TypeError, zlib.error) as error:
        raise ValueError(f"a chunk of the history is damaged: {error}") from error
    if len(planes) != length:
        raise ValueError(f"a chunk of the history has {len(planes)} bytes instead of {length}")
    words = bytearray(length)
    count = length // _WORD_BYTES
    for n in range(_WORD_BYTES):
        words[n::_WORD_BYTES] = planes[n * count : (n + 1) * count]
    column = array(_COLUMN)
    column.frombytes(words)
    if sys.byteorder == "big":
        column.byteswap()
    return [column[n * points : (n + 1) * points] for n in range(_FIELDS)]


def pack(columns: list[array[int]]) -> bytes:
    """The bytes of these columns."""
    all_words = array(_COLUMN)
    for column in columns:
        all_words.extend(column)
    if sys.byteorder == "big":
        all_words.byteswap()
    words = all_words.tobytes()
    return zlib.compress(b"".join(words[n::_WORD_BYTES] for n in range(_WORD_BYTES)), 6)


def empty(points: int) -> list[array[int]]:
    """The columns of a chunk without a value."""
    return [array(_COLUMN, bytes(points * _WORD_BYTES)) for _ in range(_FIELDS)]


def put(columns: list[array[int]], points: Mapping[int, Point]) -> None:
    """Joins points, by their place in the chunk, to those that it has."""
    for place, point in points.items():
        if columns[0][place]:
            point = join(_point_at(columns, place), point)
        for column, value, is_memory in zip(columns, point, _MEMORY, strict=True):
            unit = MEMORY_UNIT_BYTES if is_memory else 1
            column[place] = min(_WORD_MAX, max(0, round(value / unit)))


def _point_at(columns: list[array[int]], place: int) -> Point:
    values = (
        column[place] * (MEMORY_UNIT_BYTES if memory else 1) for column, memory in zip(columns, _MEMORY, strict=True)
    )
    return Point(*values)
