"""The file of the history: a SQLite database of its own (WAL), apart from the state, which it must not slow down.

Everything here may wait for the disk: it is called in a thread, one call at a time. A year of a large node stays below
BYTES_MAX: what ended first is forgotten first. Why SQLite and not a file for each series: docs/design/history.md.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vgpud.core.history import levels
from vgpud.core.history.fold import Folded
from vgpud.core.history.levels import LEVELS
from vgpud.core.history.points import Point
from vgpud.core.history.unsaved import Series
from vgpud.core.model import ANYONE
from vgpud.errors import StoreError, StoreUnwritableError
from vgpud.host import private_files
from vgpud.store import history_chunks
from vgpud.store.connecting import connect
from vgpud.store.sqlite_errors import Fault, fault_of

FILE_NAME = "history.sqlite3"
#: of the file, without its log of some MiB
BYTES_MAX = 290_000_000
#: series of everything: a job that ran for a minute has one, for a year
SERIES_MAX = 20_000
BUSY_S = 2.0
#: user_version: the layout of the tables, of chunks and of LEVELS
VERSION = 1
_TABLES = (
    "CREATE TABLE series (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL,"
    " owner_uid INTEGER NOT NULL, turn INTEGER NOT NULL, UNIQUE (kind, key))",
    "CREATE INDEX series_by_name ON series (kind, name)",
    "CREATE INDEX series_by_turn ON series (turn)",
    "CREATE TABLE chunks (level INTEGER NOT NULL, number INTEGER NOT NULL, turn INTEGER NOT NULL,"
    " PRIMARY KEY (level, number)) WITHOUT ROWID",
    # its id has series, level and number of the chunk: chunks of one series lie together in order of time
    "CREATE TABLE points (id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
)
#: bits of a point's id: 28 for the number of its chunk, 2 for its level, above those its series
_NUMBER_BITS, _SERIES_SHIFT = 28, 30
_ENDED_OF_MOST = """
SELECT id FROM series WHERE turn < ?1 AND owner_uid IS
    (SELECT owner_uid FROM series WHERE turn < ?1 GROUP BY owner_uid ORDER BY count(*) DESC LIMIT 1)
ORDER BY turn LIMIT ?2
"""
_FIND = (
    "SELECT id, key, name FROM series WHERE id IN (SELECT id FROM series WHERE kind = ? AND key = ?"
    " UNION SELECT id FROM series WHERE kind = ? AND name = ?) AND (? OR owner_uid IN (?, ?))"
    " ORDER BY turn DESC, id DESC LIMIT 1"
)
_FORGET_CHUNK = (
    "DELETE FROM points WHERE id IN (SELECT p.id FROM series AS s CROSS JOIN points AS p ON p.id = (s.id << 30) + ?)"
)
_FORGET_EMPTY_SERIES = (
    "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM points WHERE points.id"
    " BETWEEN series.id << 30 AND ((series.id + 1) << 30) - 1)"
)
#: ended series that are forgotten at once when there are too many
_FORGET_AT_ONCE = 64
#: faults of the file itself: it is set aside
_DAMAGE = frozenset({Fault.DAMAGED, Fault.SCHEMA, Fault.CONTENT})

T = TypeVar("T")
#: points of a save, by series, level and chunk: place in the chunk -> point
_Chunks = dict[tuple[int, int], dict[int, Point]]


@dataclass(frozen=True, slots=True)
class Found:
    """A series that has the name which was asked for."""

    series: int
    key: str
    name: str


def _first_id(series: int, level: int, number: int = 0) -> int:
    return series << _SERIES_SHIFT | level << _NUMBER_BITS | number


class HistoryFile:
    """The methods raise StoreError with a one-line message; when the file is damaged, it has been set aside then, and
    a new one has begun."""

    def __init__(self, directory: Path, bytes_max: int = BYTES_MAX, series_max: int = SERIES_MAX) -> None:
        self._path = directory / FILE_NAME
        self._bytes_max, self._series_max = bytes_max, series_max
        self._db: sqlite3.Connection | None = None

    def save(self, points: Mapping[tuple[str, str], Series]) -> None:
        """Adds the points to those that are there, and forgets what is too old or too much, in one transaction."""
        self._guard("write", lambda: self._transaction(lambda db: self._save(db, points)))

    def find(self, kind: str, name: str, uid: int | None) -> Found | None:
        """The last series of this name or key that this user may see; None: an admin."""
        return self._guard("read", lambda: self._find(kind, name, uid))

    def read(self, series: int, level: int, since_s: float, until_s: float, into: Folded) -> None:
        """Folds what is kept of that time."""
        self._guard("read", lambda: self._read(series, level, since_s, until_s, into))

    def bytes_used(self) -> int:
        """Of the file, without pages that are free."""
        return self._guard("read", lambda: self._bytes_used(self._open()))

    def close(self) -> None:
        if self._db:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    # ---- the file ----

    def _open(self) -> sqlite3.Connection:
        if self._db:
            return self._db
        private_files.create(self._path)
        db = connect(self._path, BUSY_S, any_thread=True)
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise ValueError(f"its version is {version}, not {VERSION}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA journal_size_limit = 4194304")
            if not version:
                self._create(db)
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    @staticmethod
    def _create(db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        for statement in _TABLES:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")

    def _guard(self, what: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            fault = fault_of(error)
            text = f"cannot {what} the history {self._path}: {error}"
            self.close()  # whatever state it is in; the next call opens it again
            if fault in _DAMAGE:
                raise StoreError(f"{text}; {self._set_aside()}") from error
            raise StoreUnwritableError(f"{text}; {fault.value}") from error

    def _set_aside(self) -> str:
        """Moves the file away, over one that was set aside before; what was done."""
        aside = self._path.with_name(f"{FILE_NAME}.damaged")
        try:
            self._path.replace(aside)
            for end in ("-wal", "-shm"):
                self._path.with_name(FILE_NAME + end).unlink(missing_ok=True)
        except OSError as error:
            return f"it cannot be set aside: {error}"
        return f"it was set aside as {aside.name}, and the history begins again"

    def _transaction(self, work: Callable[[sqlite3.Connection], None]) -> None:
        db = self._open()
        db.execute("BEGIN IMMEDIATE")
        try:
            work(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    # ---- writing ----

    def _save(self, db: sqlite3.Connection, points: Mapping[tuple[str, str], Series]) -> None:
        (turn,) = db.execute("SELECT coalesce(max(turn), 0) + 1 FROM series").fetchone()
        written: set[tuple[int, int]] = set()
        for (kind, key), series in points.items():
            chunks = _by_chunk(series.points)
            written.update(chunks)
            self._save_chunks(db, _series_id(db, kind, key, series, turn), chunks)
        db.executemany("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)", [(*chunk, turn) for chunk in sorted(written)])
        self._forget_old(db)
        self._forget_excess(db, turn)

    @staticmethod
    def _save_chunks(db: sqlite3.Connection, series: int, chunks: _Chunks) -> None:
        for (level, number), points in chunks.items():
            point_id = _first_id(series, level, number)
            row = db.execute("SELECT body FROM points WHERE id = ?", (point_id,)).fetchone()
            count = LEVELS[level].chunk_points
            columns = history_chunks.unpack(row[0], count) if row else history_chunks.empty(count)
            history_chunks.put(columns, points)
            db.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", (point_id, history_chunks.pack(columns)))

    def _forget_old(self, db: sqlite3.Connection) -> None:
        """Chunks that their level keeps no longer, and once a day series that have none."""
        for index, level in enumerate(LEVELS):
            for number in levels.find_old(_list_chunks(db, index), level):
                self._forget_chunk(db, index, number)

    @staticmethod
    def _forget_chunk(db: sqlite3.Connection, level: int, number: int) -> None:
        """Of all series."""
        db.execute(_FORGET_CHUNK, (_first_id(0, level, number),))
        db.execute("DELETE FROM chunks WHERE level = ? AND number = ?", (level, number))
        if level == len(LEVELS) - 1:
            db.execute(_FORGET_EMPTY_SERIES)

    def _forget_excess(self, db: sqlite3.Connection, turn: int) -> None:
        """Series that ended first go first, of the owner who has most of these; where none has ended, the first day
        of the year."""
        while self._is_excessive(db):
            ended = db.execute(_ENDED_OF_MOST, (turn, _FORGET_AT_ONCE)).fetchall()
            for (series,) in ended:
                bounds = _first_id(series, 0), _first_id(series + 1, 0) - 1
                db.execute("DELETE FROM points WHERE id BETWEEN ? AND ?", bounds)
                db.execute("DELETE FROM series WHERE id = ?", (series,))
            if not ended and not self._forget_first_chunk(db):
                return

    def _forget_first_chunk(self, db: sqlite3.Connection) -> bool:
        """Of the coarsest level that has several. Whether there was one."""
        for index in reversed(range(len(LEVELS))):
            chunks = sorted(_list_chunks(db, index))
            if len(chunks) > 1:
                self._forget_chunk(db, index, chunks[0][1])
                return True
        return False

    def _is_excessive(self, db: sqlite3.Connection) -> bool:
        (count,) = db.execute("SELECT count(*) FROM series").fetchone()
        return bool(count > self._series_max) or self._bytes_used(db) > self._bytes_max

    @staticmethod
    def _bytes_used(db: sqlite3.Connection) -> int:
        pages, unused, page_bytes = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - unused) * page_bytes)

    # ---- reading ----

    def _find(self, kind: str, name: str, uid: int | None) -> Found | None:
        row = self._open().execute(_FIND, (kind, name, kind, name, uid is None, uid, ANYONE)).fetchone()
        return Found(*row) if row else None

    def _read(self, series: int, level: int, since_s: float, until_s: float, into: Folded) -> None:
        size, chunk_s = LEVELS[level].chunk_points, LEVELS[level].chunk_s
        last = (1 << _NUMBER_BITS) - 1
        begin, end = (min(last, max(0, int(at_s // chunk_s))) for at_s in (since_s, until_s))
        bounds = _first_id(series, level, begin), _first_id(series, level, end)
        for point_id, body in self._open().execute("SELECT id, body FROM points WHERE id BETWEEN ? AND ?", bounds):
            number = point_id & last
            into.add_columns(number * size, history_chunks.unpack(body, size))


def _list_chunks(db: sqlite3.Connection, level: int) -> list[tuple[int, int]]:
    """(turn in which it was written last, number) of each chunk."""
    return db.execute("SELECT turn, number FROM chunks WHERE level = ?", (level,)).fetchall()


def _series_id(db: sqlite3.Connection, kind: str, key: str, series: Series, turn: int) -> int:
    """The number of a series, which is made if there is none."""
    db.execute(
        "INSERT INTO series (kind, key, name, owner_uid, turn) VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, key)"
        " DO UPDATE SET name = excluded.name, owner_uid = excluded.owner_uid, turn = excluded.turn",
        (kind, key, series.name, series.owner_uid, turn),
    )
    (number,) = db.execute("SELECT id FROM series WHERE kind = ? AND key = ?", (kind, key)).fetchone()
    return int(number)


def _by_chunk(points: Mapping[tuple[int, int], Point]) -> _Chunks:
    found: _Chunks = defaultdict(dict)
    for level, number, place, point in _places(points):
        found[level, number][place] = point
    return found


def _places(points: Mapping[tuple[int, int], Point]) -> Iterator[tuple[int, int, int, Point]]:
    for (level, slot), point in points.items():
        number, place = divmod(slot, LEVELS[level].chunk_points)
        yield level, number, place, point
