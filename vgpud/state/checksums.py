"""Checksums of the JSON texts in the database: SQLite has none, and a flipped bit in a number is a valid number.

The checksum is the text's last member, so that SQL can look into the rest as before. A text without one was written by
an older version, or by hand, and is believed as far as it makes sense.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

_SEALED = re.compile(r'(?s)(.*), "crc": (\d{1,10})\}')


class ChecksumError(ValueError):
    """The text is not what was written."""


def seal(body: dict[str, Any]) -> str:
    """The JSON text of an object, with its checksum."""
    text = json.dumps(body)
    return text if not body else f'{text[:-1]}, "crc": {zlib.crc32(text.encode())}}}'


def sealed(text: str) -> bool:
    """Whether it has a checksum, right or wrong."""
    return _SEALED.fullmatch(text) is not None


def unseal(text: str) -> dict[str, Any]:
    """The object again. Raises ValueError: no JSON object, or ChecksumError."""
    found = _SEALED.fullmatch(text)
    if found:
        text, written = found[1] + "}", int(found[2])
        if zlib.crc32(text.encode()) != written:
            raise ChecksumError("its checksum does not match")
    body = json.loads(text)
    if not isinstance(body, dict):
        raise ValueError("it is no JSON object")
    return body
