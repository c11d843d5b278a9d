"""What an error of SQLite or of the file system means for the database, and what an operator does about it."""

from __future__ import annotations

import errno
import sqlite3
from enum import Enum

from vgpud.project.addresses import ask_for_report


class Fault(Enum):
    """The value is the remedy: the end of a sentence that names the file and the error."""

    BUSY = "check which other process has it open"
    FULL = "check that its disk has free space"
    READ_ONLY = "check that its file system and the file can be written to"
    DEVICE = "check that its disk has free space and works (dmesg)"
    MISSING = "check that its directory exists and that vgpud's user may read and write it"
    MEMORY = "check that the machine has free memory"
    DAMAGED = "the file is damaged: `vgpu restore` a backup (vgpud.sqlite3.backup-*), or move it away to begin empty"
    SCHEMA = "its tables are not those of this version: `vgpu restore` a backup (vgpud.sqlite3.backup-*)"
    CONTENT = "a value in it is not what vgpud writes: when it starts it checks all rows and sets bad ones aside"
    OTHER = ask_for_report()


#: faults that may pass by themselves, or by freeing space: nothing is lost, and writes are tried again
PASSING = frozenset({Fault.FULL, Fault.READ_ONLY, Fault.DEVICE, Fault.MISSING, Fault.MEMORY})

#: primary result codes (sqlite3.h); before Python 3.11 only the text identifies them
_BY_CODE = {
    1: Fault.SCHEMA,
    3: Fault.MISSING,
    5: Fault.BUSY,
    6: Fault.BUSY,
    7: Fault.MEMORY,
    8: Fault.READ_ONLY,
    10: Fault.DEVICE,
    11: Fault.DAMAGED,
    13: Fault.FULL,
    14: Fault.MISSING,
    18: Fault.CONTENT,
    19: Fault.CONTENT,
    20: Fault.CONTENT,
    23: Fault.MISSING,
    26: Fault.DAMAGED,
}
_BY_TEXT = {
    "is locked": Fault.BUSY,
    "disk is full": Fault.FULL,
    "readonly database": Fault.READ_ONLY,
    "I/O error": Fault.DEVICE,
    "unable to open": Fault.MISSING,
    "out of memory": Fault.MEMORY,
    "malformed JSON": Fault.CONTENT,
    "decode to UTF-8": Fault.CONTENT,
    "disk image is malformed": Fault.DAMAGED,
    "malformed database schema": Fault.DAMAGED,
    "not a database": Fault.DAMAGED,
    "no such": Fault.SCHEMA,
    "already exists": Fault.SCHEMA,
    "has no column": Fault.SCHEMA,
    "values were supplied": Fault.SCHEMA,
}
_BY_ERRNO = {
    errno.ENOSPC: Fault.FULL,
    errno.EDQUOT: Fault.FULL,
    errno.EFBIG: Fault.FULL,
    errno.EROFS: Fault.READ_ONLY,
    errno.EIO: Fault.DEVICE,
    errno.ENOMEM: Fault.MEMORY,
}


class DamagedError(sqlite3.DatabaseError):
    """The file is not what SQLite, or vgpud, wrote."""


def fault_of(error: Exception) -> Fault:
    """The class of any exception that working with the database raised."""
    if isinstance(error, OSError):
        return _BY_ERRNO.get(error.errno or 0, Fault.MISSING)
    if not isinstance(error, sqlite3.Error):
        return Fault.CONTENT
    if isinstance(error, DamagedError):
        return Fault.DAMAGED
    text = str(error)
    named = next((fault for words, fault in _BY_TEXT.items() if words in text), None)
    code = getattr(error, "sqlite_errorcode", None)
    return named or (Fault.OTHER if code is None else _BY_CODE.get(code & 0xFF, Fault.OTHER))
