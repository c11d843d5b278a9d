"""Connections to the database that damaged texts do not end: what is no UTF-8 reads as the sign for it, U+FFFD."""

from __future__ import annotations

import sqlite3
from pathlib import Path


def connect(path: Path | str, timeout_s: float = 5.0, *, any_thread: bool = False) -> sqlite3.Connection:
    """Without transactions of Python's own. `any_thread`: the caller sees to it that one thread at a time uses it.
    Raises sqlite3.Error."""
    db = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=not any_thread)
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return db
