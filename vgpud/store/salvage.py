"""Makes a database of what can still be read of a damaged one, and sets the damaged one aside.

The alternative, to refuse to start, would leave every program that starts meanwhile without limits. Recovered rows are
checked like all others afterwards, so this copies whatever it finds.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vgpud.host import private_files
from vgpud.store import backups
from vgpud.store.connecting import connect

#: for one table: a damaged tree may lead in circles
TABLE_S = 20.0
#: gaps that are stepped over in one table
GAPS_MAX = 2000


class NothingReadableError(Exception):
    """No table of the damaged database can be read."""


def rebuild(path: Path, schema: list[str], version: int, why: str) -> str:
    """Replaces a damaged database by a new one; returns a sentence about what was done.

    `schema`: statements that create the tables, of `version`. Raises NothingReadableError (nothing was changed),
    sqlite3.Error, OSError.
    """
    new = path.with_name(f"{path.name}.rebuilding")
    new.unlink(missing_ok=True)
    private_files.create(new)
    try:
        with contextlib.closing(connect(new)) as target:
            target.execute("BEGIN")
            for statement in schema:
                target.execute(statement)
            counts, lossy = _copy_all(path, target)
            target.execute(f"PRAGMA user_version = {version}")
            target.execute("COMMIT")
        descriptor = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
        os.fsync(descriptor)
        os.close(descriptor)
        aside = backups.replace(path, new)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    read = ", ".join(f"{counts.get(name, 0)} {name}" for name in ("slices", "containers", "jobs", "queues"))
    lost = f"; rows of {', '.join(lossy)} could not be read" if lossy else ""
    return f"the state database was damaged ({why}): it was set aside as {aside}, and {read} were read from it{lost}"


def _copy_all(path: Path, target: sqlite3.Connection) -> tuple[dict[str, int], list[str]]:
    counts: dict[str, int] = {}
    lossy: list[str] = []
    tables = [name for (name,) in target.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    with contextlib.closing(connect(path)) as source:
        source.execute("PRAGMA writable_schema = ON")  # else SQLite opens no file that is shorter than its header says
        for table in tables:
            source.set_progress_handler(_late_after(TABLE_S), 10_000)
            try:
                counts[table], whole = _copy(source, target, table)
            except sqlite3.Error:
                whole = False
            if not whole:
                lossy.append(table)
    if len(lossy) == len(tables):
        raise NothingReadableError
    return counts, lossy


def _late_after(seconds: float) -> Callable[[], bool]:
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    return lambda: time.monotonic_ns() > end_ns


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> tuple[int, bool]:
    """(rows copied, whether that is all of them)."""
    theirs = {row[1] for row in source.execute(f"PRAGMA table_info({table})")}
    names = [row[1] for row in target.execute(f"PRAGMA table_info({table})") if row[1] in theirs]
    if not names:
        return 0, False
    values = ", ".join(
        f"typeof({name}), CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END" for name in names
    )
    places = ((2 * number + 1, 2 * number + 2) for number in range(len(names)))
    ours = ", ".join(f"CASE ?{kind} WHEN 'text' THEN CAST(?{at} AS TEXT) ELSE ?{at} END" for kind, at in places)
    insert = f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({ours})"  # noqa: S608  our own names
    count, position, step, gaps = 0, -(1 << 63), 1, 0
    if table == "job_ids":
        target.execute("DELETE FROM job_ids")
    while True:
        try:
            rows = source.execute(
                f"SELECT rowid, {values} FROM {table} WHERE rowid > ? ORDER BY rowid",  # noqa: S608
                (position,),
            )
            for row in rows:
                if row[0] <= position:
                    raise sqlite3.DatabaseError("rows are out of order")
                position, step = row[0], 1
                count += _insert(target, insert, row[1:])
            return count, not gaps
        except sqlite3.Error as error:
            gaps += 1
            position = max(position, 0) + step
            step *= 2
            if gaps > GAPS_MAX or position >= 1 << 62 or "interrupted" in str(error):
                return count, False


def _insert(target: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> int:
    try:
        target.execute(statement, values)
    except sqlite3.IntegrityError:  # a NULL where none may be
        return 0
    return 1
