"""The store's tables of what jobs do while they run: workers, notes, and pairs that must not share a device.

jobs.py writes them with the jobs themselves, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vgpud.store.connection import Database

#: the store's migration to these tables
TABLES = (
    "CREATE TABLE job_crews (job_id INTEGER PRIMARY KEY, body TEXT NOT NULL)",
    "CREATE TABLE job_notes (job_id INTEGER NOT NULL, at_ns INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL)",
    "CREATE INDEX job_notes_by_job ON job_notes (job_id)",
    "CREATE TABLE job_pairs (one TEXT NOT NULL, other TEXT NOT NULL, at_ns INTEGER NOT NULL, PRIMARY KEY (one, other))",
)
#: notes of one job, of which the oldest are dropped first but for those of its beginning; pairs of similarity classes
NOTES_MAX, NOTES_KEPT = 100, 10
PAIRS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Noted:
    """What was noted of a job, at that time of the queue's clock."""

    job_id: int
    at_ns: int
    kind: str
    text: str


def save(db: Any, groups: Mapping[int, str | None], notes: Iterable[Noted]) -> None:
    """Worker groups as they are now, None: it has ended; and what was noted since."""
    for job_id, body in groups.items():
        if body is None:
            db.execute("DELETE FROM job_crews WHERE job_id = ?", (job_id,))
        else:
            db.execute("INSERT OR REPLACE INTO job_crews VALUES (?, ?)", (job_id, body))
    touched = set()
    for note in notes:
        db.execute("INSERT INTO job_notes VALUES (?, ?, ?, ?)", (note.job_id, note.at_ns, note.kind, note.text))
        touched.add(note.job_id)
    for job_id in sorted(touched):
        (count,) = db.execute("SELECT count(*) FROM job_notes WHERE job_id = ?", (job_id,)).fetchone()
        if count > NOTES_MAX:
            db.execute(
                "DELETE FROM job_notes WHERE rowid IN"
                " (SELECT rowid FROM job_notes WHERE job_id = ? ORDER BY rowid LIMIT ? OFFSET ?)",
                (job_id, count - NOTES_MAX, NOTES_KEPT),
            )


def forget(db: Any) -> None:
    """What was noted of jobs that are no more."""
    db.execute("DELETE FROM job_notes WHERE job_id NOT IN (SELECT id FROM jobs)")


class ElasticStore:
    """All methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def groups(self) -> dict[int, str]:
        def read(db: Any) -> dict[int, str]:
            return dict(db.execute("SELECT job_id, body FROM job_crews").fetchall())

        return self._db.read(read)  # type: ignore[no-any-return]

    def notes(self, job_id: int) -> list[Noted]:
        """In the order in which they were noted."""

        def read(db: Any) -> list[Noted]:
            rows = db.execute("SELECT * FROM job_notes WHERE job_id = ? ORDER BY rowid", (job_id,)).fetchall()
            return [Noted(*row) for row in rows]

        return self._db.read(read)  # type: ignore[no-any-return]

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of similarity classes whose jobs slow each other down."""

        def read(db: Any) -> tuple[tuple[str, str], ...]:
            return tuple(db.execute("SELECT one, other FROM job_pairs ORDER BY one, other").fetchall())

        return self._db.read(read)  # type: ignore[no-any-return]

    def add_pair(self, one: str, other: str, at_ns: int) -> None:
        first, second = sorted((one, other))

        def write(db: Any) -> None:
            db.execute("INSERT OR REPLACE INTO job_pairs VALUES (?, ?, ?)", (first, second, at_ns))
            old = "SELECT rowid FROM job_pairs ORDER BY at_ns DESC LIMIT -1 OFFSET ?"
            db.execute(f"DELETE FROM job_pairs WHERE rowid IN ({old})", (PAIRS_MAX,))  # noqa: S608  our own text

        self._db.write(write)
