"""Takes damaged rows out of the tables before anything is read from them: the daemon starts with the rest.

A row is kept as it is in the table `quarantine`, with the reason; but of what a job runs no environment is kept.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from vgpud.store.environments import without_environment
from vgpud.store.row_checks import BULK, CHECKS, launch_error, why_damaged

#: the oldest go first
ROWS_MAX = 1000
TABLE = (
    "CREATE TABLE quarantine (wall_ns INTEGER NOT NULL, source TEXT NOT NULL, why TEXT NOT NULL, content TEXT NOT NULL)"
)
#: sentences of one start: the rest is counted
REPORTED_MAX = 20


class Text(bytes):
    """A TEXT as it is stored, which need be no UTF-8."""


#: as typeof() has it
_TYPES = {int: "integer", float: "real", type(None): "null", Text: "text", bytes: "blob"}


def _rows(db: sqlite3.Connection, table: str, where: str) -> Iterator[tuple[int, dict[str, str], dict[str, Any]]]:
    """(rowid, type of each column, its value)."""
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    before, db.text_factory = db.text_factory, Text
    try:
        for rowid, *values in db.execute(f"SELECT rowid, * FROM {table} {where}"):  # noqa: S608  our own names
            types = {name: _TYPES[type(value)] for name, value in zip(names, values, strict=True)}
            yield rowid, types, dict(zip(names, values, strict=True))
    finally:
        db.text_factory = before


def _find_damaged_rows(db: sqlite3.Connection) -> Iterator[tuple[str, int, str, dict[str, Any]]]:
    for table in CHECKS:
        for rowid, types, values in _rows(db, table, ""):
            if why := why_damaged(table, types, values):
                yield table, rowid, why, values
    for table, (columns, cannot_be) in BULK.items():
        wrong = " OR ".join([*(f"typeof({name}) <> '{kind}'" for name, kind in columns.items()), cannot_be])
        for rowid, _types, values in _rows(db, table, f"WHERE {wrong}"):
            yield table, rowid, "a value is of another type, or out of range", values


def _drop_unfinished(db: sqlite3.Connection) -> list[str]:
    """Removes jobs of arrays that were being submitted when the daemon was killed: the row of the first, which says
    what they run, is written last. Once it is there it stays as long as they do, or is set aside with them."""
    lost = "substr(launch, 1, 1) = '@' AND NOT EXISTS"
    lost += " (SELECT 1 FROM jobs AS first WHERE first.id = CAST(substr(jobs.launch, 2) AS INTEGER))"
    if not db.execute(f"SELECT 1 FROM jobs WHERE {lost} LIMIT 1").fetchone():  # noqa: S608  our own text
        return []
    count = db.execute(f"DELETE FROM jobs WHERE {lost}").rowcount  # noqa: S608  the same
    return [f"{count} jobs of an array that had not been submitted as a whole were removed"]


def _followers_without_first(db: sqlite3.Connection) -> Iterator[tuple[str, int, str, dict[str, Any]]]:
    """Jobs of an array whose first job, which says what they run, is missing."""
    lost = "WHERE substr(launch, 1, 1) = '@' AND NOT EXISTS (SELECT 1 FROM jobs AS first"
    lost += " WHERE first.id = CAST(substr(jobs.launch, 2) AS INTEGER) AND substr(first.launch, 1, 1) = '{')"
    for rowid, _types, values in _rows(db, "jobs", lost):
        yield "jobs", rowid, "the row that says what the jobs of its array run is damaged", values


def _plain(table: str, name: str, value: Any) -> Any:
    """A value as JSON has it; of what a job runs what is no secret."""
    if not isinstance(value, bytes):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = None
    if (table, name) == ("jobs", "launch") and not (text and text[:1] == "@"):
        kept = without_environment(text) if text and not launch_error(text) else None
        return kept or f"({len(value)} bytes that may hold the job's environment are not kept)"
    return {"hex": value.hex()} if text is None else text


def _name(table: str, values: dict[str, Any]) -> str:
    """The name by which users know the row."""
    by = {"slices": ("slice", "name"), "jobs": ("job", "id"), "containers": ("container", "id")}
    by |= {"drains": ("the drain of device", "device"), "queues": ("queue", "name"), "job_crews": ("job", "job_id")}
    by |= {"queue_orders": ("what was learnt of jobs by queue", "queue")}
    if table not in by:
        return f"a row of {table}"
    word, column = by[table]
    value = values[column]
    return f"{word} {value.decode('ascii', 'replace')[:64]!r}" if isinstance(value, bytes) else f"{word} {value}"


def _pass_on(db: sqlite3.Connection, values: dict[str, Any]) -> None:
    """What the jobs of an array run is in its first row: another one has it from now on."""
    launch = values["launch"]
    text = launch.decode("utf-8", "replace") if isinstance(launch, bytes) else ""
    if text[:1] != "{" or launch_error(text):
        return
    old = f"@{values['id']}"
    heir = db.execute("SELECT min(id) FROM jobs WHERE launch = ?", (old,)).fetchone()[0]
    if heir is not None:
        db.execute("UPDATE jobs SET launch = ? WHERE id = ?", (text, heir))
        db.execute("UPDATE jobs SET launch = ? WHERE launch = ?", (f"@{heir}", old))


def quarantine(db: sqlite3.Connection, wall_ns: int) -> list[str]:
    """Sets damaged rows aside, in one transaction; a sentence for each. Raises sqlite3.Error."""
    dropped = _drop_unfinished(db)
    found = list(_find_damaged_rows(db))
    if not found and not any(True for _ in _followers_without_first(db)):
        return dropped
    db.execute("BEGIN IMMEDIATE")
    try:
        for one in found:
            _set_aside(db, wall_ns, *one)
        followers = list(_followers_without_first(db))
        for one in followers:
            _set_aside(db, wall_ns, *one)
        db.execute(
            "DELETE FROM quarantine WHERE rowid NOT IN (SELECT rowid FROM quarantine ORDER BY rowid DESC LIMIT ?)",
            (ROWS_MAX,),
        )
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    notes = [*dropped]
    notes += [f"{_name(table, values)} was set aside in table quarantine: {why}" for table, _, why, values in found]
    notes += [f"{_name(table, values)} was set aside in table quarantine: {why}" for table, _, why, values in followers]
    more = len(notes) - REPORTED_MAX
    return notes if more <= 0 else [*notes[:REPORTED_MAX], f"{more} more rows were set aside in table quarantine"]


def _set_aside(db: sqlite3.Connection, wall_ns: int, table: str, rowid: int, why: str, values: dict[str, Any]) -> None:
    content = json.dumps({name: _plain(table, name, value) for name, value in values.items()})
    if table == "jobs":
        _pass_on(db, values)
    db.execute("INSERT INTO quarantine VALUES (?, ?, ?, ?)", (wall_ns, table, why, content))
    db.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))  # noqa: S608  our own names
