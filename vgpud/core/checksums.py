"""Checksums of the JSON texts in the database: SQLite has none, and a flipped bit in a number is a valid number.

The checksum is the text's last member, so that SQL can look into the rest as before. A text without one was written by
an older version, or by hand, and is believed as far as it makes sense.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

_MARK = ', "crc": '
_END = re.compile(r"(\d{1,10})\}")


class ChecksumError(ValueError):
    """The text is not what was written."""


def seal(body: dict[str, Any]) -> str:
    """The JSON text of an object, with its checksum."""
    text = json.dumps(body)
    return text if not body else f'{text[:-1]}, "crc": {zlib.crc32(text.encode())}}}'


def _parts(text: str) -> tuple[str, int | None]:
    """The text without its checksum, and that; None: it has none."""
    at = text.rfind(_MARK)
    found = _END.fullmatch(text, at + len(_MARK)) if at >= 0 else None
    return (text[:at] + "}", int(found[1])) if found else (text, None)


def is_sealed(text: str) -> bool:
    """Whether it is as it was written; False: it has no checksum. Raises ChecksumError."""
    bare, written = _parts(text)
    if written is not None and zlib.crc32(bare.encode()) != written:
        raise ChecksumError("its checksum does not match")
    return written is not None


def unseal(text: str) -> dict[str, Any]:
    """The object again. Raises ValueError: no JSON object, or ChecksumError."""
    is_sealed(text)
    body = json.loads(_parts(text)[0])
    if not isinstance(body, dict):
        raise ValueError("it is not a JSON object")
    return body


def checksum(*values: object) -> int:
    """Of the values of a row that has a column for it."""
    return zlib.crc32(json.dumps(values).encode())
