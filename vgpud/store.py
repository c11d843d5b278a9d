"""Shell of the state database: slices, containers, answered requests and the event log in one SQLite file (WAL).

Writing never waits: neither for the disk (what is written outlives the daemon at once, and the machine after flush(),
which may run in another thread), nor for another process that holds the file (StoreBusyError: ask again). What is
answered to a user is flushed first. What is said of a container need only outlive the daemon, for no container outlives
the machine; events are written now and then, and the newest may be lost. A disk that is full or read-only is a
StoreError for the caller and never stops running tenants.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vgpud import store_elastic, store_jobs
from vgpud.core.events import (
    Command,
    ForgetContainer,
    ForgetDrain,
    ForgetSlice,
    SaveContainer,
    SaveDrain,
    SaveRequest,
    SaveSlice,
)
from vgpud.core.model import Container, Drain, Remembered, Share, Slice, Spec
from vgpud.core.observed import Entry
from vgpud.errors import StoreBusyError, StoreError

FILE_NAME = "vgpud.sqlite3"
#: another process (a curious administrator) may hold the file for this long
BUSY_S = 2.0
#: a log of this length is brought into the database's file
LOG_BYTES = 4 << 20

#: one statement list per version; never change one that was released, append the next
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE slices (uid TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
        "CREATE TABLE requests (id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, body TEXT, serial INTEGER NOT NULL)",
        "CREATE TABLE events (sequence INTEGER PRIMARY KEY, wall_ns INTEGER NOT NULL, kind TEXT NOT NULL,"
        " slice TEXT NOT NULL, device TEXT NOT NULL, process_id INTEGER NOT NULL, message TEXT NOT NULL)",
    ),
    ("CREATE TABLE containers (id TEXT PRIMARY KEY, body TEXT NOT NULL)",),
    (),  # specs have service_class and spread, which older versions would not read
    store_jobs.TABLES,  # and slices have a queue
    ("ALTER TABLE events ADD COLUMN owner_uid INTEGER NOT NULL DEFAULT -2",),  # observed.ADMINS
    ("CREATE TABLE drains (device TEXT PRIMARY KEY, reason TEXT NOT NULL, by_fault INTEGER NOT NULL)",),
    store_elastic.TABLES,
)

_Saved = SaveSlice | ForgetSlice | SaveContainer | ForgetContainer | SaveRequest | SaveDrain | ForgetDrain


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a daemon finds when it starts."""

    slices: tuple[Slice, ...]
    requests: tuple[tuple[str, Remembered], ...]
    events: tuple[Entry, ...]
    containers: tuple[Container, ...] = ()
    drains: tuple[Drain, ...] = ()


def _dump(given: Slice | None) -> str | None:
    return None if given is None else json.dumps(asdict(given), sort_keys=True)


def _parse(text: str | None) -> Slice | None:
    if text is None:
        return None
    body: dict[str, Any] = json.loads(text)
    spec = body.pop("spec")
    spec["device_uuids"] = tuple(spec["device_uuids"])
    shares = tuple(Share(**share) for share in body.pop("shares"))
    return Slice(spec=Spec(**spec), shares=shares, **body)


def saved_ones(commands: Iterable[Command]) -> list[_Saved]:
    """Those of them that concern the store."""
    return [c for c in commands if isinstance(c, _Saved)]


def _outlive(commands: Iterable[_Saved]) -> bool:
    """Whether a crash of the machine may not take these back: containers end with it, and so do their own slices."""
    return not any(isinstance(c, SaveContainer | ForgetContainer) for c in commands)


def _mend(error: Exception) -> str:
    """What to do about it: a full or read-only disk is an OperationalError, a damaged file another DatabaseError."""
    if isinstance(error, sqlite3.OperationalError | OSError):
        return "see that its disk has room and is writable"
    return "it is damaged: move it away, and the daemon starts without the slices kept in it"


def _begin_log(db: sqlite3.Connection) -> None:
    """Whoever writes first into a log that begins, waits for the disk: that shall be us. Writes what is there."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version = {version}")


class Store:
    """The database of one daemon. All methods raise StoreError with one line for people.

    unflushed: something was written that a crash of the machine may not take back, or the log is long. Whoever calls
    flush() clears it.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._log = directory / f"{FILE_NAME}-wal"
        self.unflushed = False
        self._db = self._guard("open", self._open)

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > len(MIGRATIONS):
                raise StoreError(f"{self._path} was written by a newer vgpud (version {version}): use that one")
            for number, statements in enumerate(MIGRATIONS[version:], version + 1):
                db.execute("BEGIN IMMEDIATE")
                for statement in statements:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {number}")
                db.execute("COMMIT")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA wal_autocheckpoint = 0")  # it waits for the disk: flush() does it
            db.execute("PRAGMA journal_size_limit = 0")  # a log that begins anew is short again
            _begin_log(db)
            db.execute("PRAGMA busy_timeout = 0")
        except BaseException:
            db.close()
            raise
        return db

    def _guard(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (sqlite3.Error, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            text = f"cannot {what} the state database {self._path}: {error}"
            if "is locked" in str(error):
                raise StoreBusyError(f"{text}; see who else has it open") from error
            raise StoreError(f"{text}; {_mend(error)}") from error

    def load(self, events_max: int) -> Loaded:
        """Everything kept."""
        return self._guard("read", lambda: self._load(events_max))  # type: ignore[no-any-return]

    def _load(self, events_max: int) -> Loaded:
        db = self._db
        slices = [_parse(body) for (body,) in db.execute("SELECT body FROM slices ORDER BY name")]
        requests = [
            (key, Remembered(fingerprint, _parse(body), 0))
            for key, fingerprint, body in db.execute("SELECT id, fingerprint, body FROM requests ORDER BY serial")
        ]
        rows = db.execute("SELECT * FROM events ORDER BY sequence DESC LIMIT ?", (events_max,)).fetchall()
        events = tuple(Entry(*row) for row in reversed(rows))
        bodies = db.execute("SELECT body FROM containers ORDER BY rowid").fetchall()
        containers = tuple(Container(**json.loads(body)) for (body,) in bodies)
        rows = db.execute("SELECT device, reason, by_fault FROM drains ORDER BY device").fetchall()
        drains = tuple(Drain(device, reason, bool(by_fault)) for device, reason, by_fault in rows)
        return Loaded(tuple(s for s in slices if s), tuple(requests), events, containers, drains)

    def apply(self, commands: Iterable[Command], requests_max: int = 4096) -> None:
        """Writes the commands that concern the store in one transaction; nothing when there are none."""
        mine = saved_ones(commands)
        if mine:
            self._guard("write", lambda: self._transaction(lambda: self._write(mine, requests_max)))
            self.unflushed |= _outlive(mine)

    def flush(self) -> None:
        """Waits until what was written before is on the disk. From any thread, one at a time."""
        self._guard("write", self._flush)

    def _flush(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # closed: all is in the database's file, and that on the disk
            log = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(log)
                long = os.fstat(log).st_size >= LOG_BYTES
            finally:
                os.close(log)
            if long:
                with contextlib.closing(sqlite3.connect(self._path, timeout=0, isolation_level=None)) as db:
                    db.execute("PRAGMA journal_size_limit = 0")
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
                    with contextlib.suppress(StoreBusyError):  # whoever holds it: next time
                        self._guard("write", lambda: _begin_log(db))

    def _write(self, commands: list[_Saved], requests_max: int) -> None:
        db = self._db
        for command in commands:
            if isinstance(command, SaveSlice):
                row = (command.slice.uid, command.slice.name, _dump(command.slice))
                db.execute("INSERT OR REPLACE INTO slices VALUES (?, ?, ?)", row)
            elif isinstance(command, ForgetSlice):
                db.execute("DELETE FROM slices WHERE uid = ?", (command.uid,))
            elif isinstance(command, SaveContainer):
                body = json.dumps(asdict(command.container), sort_keys=True)
                db.execute("INSERT OR REPLACE INTO containers VALUES (?, ?)", (command.container.container_id, body))
            elif isinstance(command, ForgetContainer):
                db.execute("DELETE FROM containers WHERE id = ?", (command.container_id,))
            elif isinstance(command, SaveDrain):
                drain = command.drain
                drained = (drain.device_uuid, drain.reason, drain.by_fault)
                db.execute("INSERT OR REPLACE INTO drains VALUES (?, ?, ?)", drained)
            elif isinstance(command, ForgetDrain):
                db.execute("DELETE FROM drains WHERE device = ?", (command.device_uuid,))
            else:
                kept = command.remembered
                db.execute(
                    "INSERT OR REPLACE INTO requests"
                    " VALUES (?, ?, ?, (SELECT coalesce(max(serial), 0) + 1 FROM requests))",
                    (command.request_id, kept.fingerprint, _dump(kept.answer)),
                )
                db.execute(
                    "DELETE FROM requests WHERE (SELECT count(*) FROM requests) > ? AND id ="  # as core.machine does
                    " (SELECT id FROM requests WHERE id != ? ORDER BY id GLOB ? DESC, serial LIMIT 1)",
                    (requests_max, command.request_id, command.request_id.partition("/")[0] + "/*"),
                )

    def forget_request(self, request_id: str) -> None:
        """A request whose effects were taken back."""
        self._guard("write", lambda: self._db.execute("DELETE FROM requests WHERE id = ?", (request_id,)))

    def _transaction(self, work: Callable[[], object]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            work()
            self._db.execute("COMMIT")
            self.unflushed |= self._log.stat().st_size >= LOG_BYTES
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # ---- what store_jobs.JobStore needs ----

    def write(self, work: Callable[[Any], object], *, outlive: bool = True) -> None:
        """One transaction. `outlive`: a crash of the machine may not take it back once it is flushed."""
        self._guard("write", lambda: self._transaction(lambda: work(self._db)))
        self.unflushed |= outlive

    def read(self, work: Callable[[Any], Any]) -> Any:
        return self._guard("read", lambda: work(self._db))

    def append_events(self, events: Iterable[Entry], events_max: int) -> None:
        """Adds to the event log and forgets the oldest beyond events_max."""
        rows = [
            (e.sequence, e.wall_ns, e.kind, e.slice_name, e.device_uuid, e.process_id, e.message, e.owner_uid)
            for e in events
        ]

        def write() -> None:
            self._db.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.execute(
                "DELETE FROM events WHERE sequence <= (SELECT max(sequence) FROM events) - ?", (events_max,)
            )

        if rows:
            self._guard("write", lambda: self._transaction(write))

    def close(self) -> None:
        self._db.close()
