"""Messages between the daemon and the keeper of a job's terminal (shim/job/terminal.c): a letter and what follows it.

Pure. The keeper runs as the job's user, so nothing that it sends is taken for granted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

#: of output that a keeper has for whoever joins the terminal later
REPLAY_BYTES_MAX = 64 << 10
#: of what was typed, in one message
INPUT_BYTES_MAX = 4096
#: rows and columns of a window
SIZE_MAX = 65_535
#: longest message of a keeper
MESSAGE_BYTES_MAX = 1 + (16 << 10)


class Kind(Enum):
    """What a keeper says; the values are its letters."""

    REPLAY = b"R"  # output of before
    JOINED = b"A"  # that was all of it
    OUTPUT = b"O"
    LOST = b"L"  # this many bytes of output were left out
    TAKEN = b"T"  # another viewer has joined
    ENDED = b""  # nothing follows


@dataclass(frozen=True, slots=True)
class Heard:
    """One message of a keeper."""

    kind: Kind
    data: bytes = b""
    count: int = 0  # of LOST


def parse(message: bytes) -> Heard:
    """A message as it was received, b"" at the end. Raises ValueError."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {len(message)} bytes")
    kind, data = Kind(message[:1]), message[1:]
    if kind is Kind.LOST:
        if len(data) != 8:
            raise ValueError(f"a count of {len(data)} bytes")
        return Heard(kind, count=int.from_bytes(data, "little"))
    if kind in (Kind.JOINED, Kind.TAKEN) and data:
        raise ValueError(f"{kind.name} with {len(data)} bytes")
    return Heard(kind, data)


def encode_keys(keys: bytes) -> bytes:
    """What was typed, at most INPUT_BYTES_MAX."""
    return b"I" + keys


def encode_size(rows: int, columns: int) -> bytes:
    """The size of the window."""
    return b"W" + rows.to_bytes(2, "little") + columns.to_bytes(2, "little")
