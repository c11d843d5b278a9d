"""Shell of the state database: slices, containers, answered requests and the event log in one SQLite file (WAL).

Writing never waits: neither for the disk (what is written outlives the daemon at once, and the machine after flush(),
which may run in another thread), nor for another process that locks the file (StoreBusyError: try again). What is
answered to a user is flushed first. Data about a container need only outlive the daemon, since no container outlives
the machine; events are written periodically, and the newest may be lost. A full or read-only disk is a
StoreUnwritableError for the caller and never stops running tenants; a daemon that starts on one serves what can be read
(store/opening.py). Damaged rows are set aside before anything is read (store/quarantine.py).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vgpud.core.checksums import checksum, seal
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
from vgpud.core.model import Container, Drain, Remembered, Slice
from vgpud.core.observed import Entry
from vgpud.errors import StoreBusyError, StoreError, StoreFlushingError, StoreUnwritableError
from vgpud.host import private_files
from vgpud.store import backups, elastic, jobs, orders, user_shares
from vgpud.store import quarantine as quarantined
from vgpud.store.connecting import connect
from vgpud.store.opening import Opened, open_state, reopen
from vgpud.store.row_checks import container_of, slice_of
from vgpud.store.slice_bodies import write_slice
from vgpud.store.sqlite_errors import PASSING, Fault, fault_of

FILE_NAME = "vgpud.sqlite3"
#: another process (a curious administrator) may hold the file for this long
BUSY_S = 2.0
#: sizes in the log: of its head, and of a page with its own
_LOG_HEAD_BYTES, _LOG_PAGE_BYTES = 32, 24 + 4096
#: the daemon waits for an attempt to recover; after a slow one the next waits this many times as long. There is free
#: space for the attempt itself and then not for the backup of a large database
SLOW_S, SLOW_PAUSE = 0.1, 30
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
    jobs.TABLES,  # and slices have a queue
    ("ALTER TABLE events ADD COLUMN owner_uid INTEGER NOT NULL DEFAULT -2",),  # observed.ADMINS
    ("CREATE TABLE drains (device TEXT PRIMARY KEY, reason TEXT NOT NULL, by_fault INTEGER NOT NULL)",),
    elastic.TABLES,
    (
        quarantined.TABLE,
        "CREATE TABLE upkeep (task TEXT PRIMARY KEY)",
        "INSERT INTO upkeep VALUES ('vacuum')",  # environments of jobs that ended before lie in unused pages
        *(f"ALTER TABLE {name} ADD COLUMN crc INTEGER" for name in ("drains", "requests", "queues", "job_requests")),
    ),
    (),  # slices have a claim
    (),  # jobs can be changed
    (),  # arrays have a limit
    (),  # jobs have a time before which they do not start
    (),  # jobs have notifications
    jobs.RESERVATIONS_TABLE,
    (),  # containers have a name
    jobs.USAGE_OF_PODS,  # and claims have the names of their pods
    (),  # and the directory that docker has for them
    user_shares.TABLES,
    (),  # slices have their origin, which older versions would not read (slice_bodies.py reads theirs)
    jobs.DEFAULT_QUEUE_AS_IT_WAS,
    orders.TABLES,
    (),  # slices have a residency
    (),  # and a time since when their memory is on the host
    jobs.USAGE_OF_COPIES,
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


def saved_ones(commands: Iterable[Command]) -> list[_Saved]:
    """Those of them that concern the store."""
    return [c for c in commands if isinstance(c, _Saved)]


def _outlive(commands: Iterable[_Saved]) -> bool:
    """Whether a crash of the machine may not take these back: containers end with it, and so do their own slices."""
    return not any(isinstance(c, SaveContainer | ForgetContainer) for c in commands)


def _begin_log(db: sqlite3.Connection) -> None:
    """The process that writes first into a new log waits for the disk: let that be this one. Writes what is there."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version = {version}")


def _set_up(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")  # it waits for the disk: flush() does it
    db.execute("PRAGMA journal_size_limit = 0")  # a restarted log is short again
    db.execute("PRAGMA recursive_triggers = ON")  # only then a row that is replaced is a deleted one for user_shares
    db.execute("PRAGMA temp_store = MEMORY")  # its sums are in no file
    _begin_log(db)
    db.execute("PRAGMA busy_timeout = 0")


class Store:
    """The database of one daemon. All methods raise StoreError with a one-line message.

    needs_flush: something was written that must outlive a crash of the machine, or the log is long. The caller of
    flush() clears it. unwritable: why nothing is written (the disk was full or read-only at the start); "" while it can
    be. notes: sentences about the start, for the operator.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._log = directory / f"{FILE_NAME}-wal"
        self.needs_flush = False
        self._flushing = False  # a flush, perhaps in another thread, may hold the database
        self._erase = False  # something secret was taken out, which files still hold
        self._copies = True  # backups may hold environments
        self._recover_s = 0.0  # recover() is not worth trying before
        self._keep(self._guard("open", lambda: open_state(self._path, MIGRATIONS, BUSY_S)))

    def _keep(self, opened_state: Opened) -> None:
        if not opened_state.why:
            self._guard("open", lambda: _set_up(opened_state.db))
        self._db, self.notes, self.unwritable = opened_state.db, opened_state.notes, ""
        if not opened_state.why and backups.existing(self._path):
            self.erase()  # a daemon that was killed may have left environments in them
        if opened_state.why:
            self.unwritable = f"the state database {self._path} cannot be written: {opened_state.why}. Nothing new is"
            self.unwritable += " admitted until it can be; what is there is served"

    def recover(self) -> bool:
        """Whether it can be written again, after a start without; asked now and then. Raises nothing."""
        begin_s = time.monotonic()
        if begin_s < self._recover_s:
            return False
        probe = self._path.with_name(".writable")
        try:
            private_files.write(probe, "x" * 65536)  # the least that SQLite needs to begin
            probe.unlink()
            opened = self._guard("open", lambda: reopen(self._path, MIGRATIONS, BUSY_S))
            in_memory = self._db
            self._keep(opened)
        except (StoreError, OSError):
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)
            took_s = time.monotonic() - begin_s
            if took_s > SLOW_S:
                self._recover_s = begin_s + SLOW_PAUSE * took_s
            return False
        in_memory.close()
        return True

    def erase(self) -> None:
        """Something secret was taken out of the tables: the next flush takes it out of the files."""
        self._erase = self.needs_flush = True

    def _guard(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (sqlite3.Error, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            fault = fault_of(error)
            # other messages contain the value, which may be a secret
            known = isinstance(error, sqlite3.Error | OSError)
            shown = error if known else type(error).__name__
            text = f"cannot {what} the state database {self._path}: {shown}; {fault.value}"
            if fault is Fault.BUSY:
                raise (StoreFlushingError if self._flushing else StoreBusyError)(text) from error
            raise (StoreUnwritableError if fault in PASSING else StoreError)(text) from error

    def load(self, events_max: int) -> Loaded:
        """Everything kept."""
        return self._guard("read", lambda: self._load(events_max))  # type: ignore[no-any-return]

    def _load(self, events_max: int) -> Loaded:
        db = self._db
        slices = tuple(slice_of(body) for (body,) in db.execute("SELECT body FROM slices ORDER BY name"))
        requests = [
            (key, Remembered(fingerprint, None if body is None else slice_of(body), 0))
            for key, fingerprint, body in db.execute("SELECT id, fingerprint, body FROM requests ORDER BY serial")
        ]
        most = 2 * events_max  # it may have been lowered; and there may be some more than are kept
        rows = db.execute("SELECT * FROM events ORDER BY sequence DESC LIMIT ?", (most,)).fetchall()
        events = tuple(Entry(*row) for row in reversed(rows))
        bodies = db.execute("SELECT body FROM containers ORDER BY rowid").fetchall()
        containers = tuple(container_of(body) for (body,) in bodies)
        rows = db.execute("SELECT device, reason, by_fault FROM drains ORDER BY device").fetchall()
        drains = tuple(Drain(device, reason, bool(by_fault)) for device, reason, by_fault in rows)
        return Loaded(slices, tuple(requests), events, containers, drains)

    def apply(self, commands: Iterable[Command], requests_max: int = 4096) -> None:
        """Writes the commands that concern the store in one transaction; nothing when there are none."""
        mine = saved_ones(commands)
        if mine:
            self._guard("write", lambda: self._transaction(lambda: self._write(mine, requests_max)))
            self.needs_flush |= _outlive(mine)

    def flush(self) -> None:
        """Waits until what was written before is on the disk. From any thread, one at a time."""
        self._guard("write", self._flush)

    def _flush(self) -> None:
        if self.unwritable:
            raise StoreUnwritableError(self.unwritable)
        erase, self._erase = self._erase, False
        erased = not erase
        self._flushing = True
        try:
            with contextlib.suppress(FileNotFoundError):  # closed: all is in the database's file, and that on the disk
                log = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fdatasync(log)
                    long = os.fstat(log).st_size >= LOG_BYTES
                finally:
                    os.close(log)
                if long or erase:
                    erased |= self._restart_log(erase)
        finally:
            self._flushing = False
            if not erased:
                self.erase()

    def _restart_log(self, erase: bool) -> bool:
        """Brings the log into the database's file and cuts it. Whether nothing of before is left in it."""
        with contextlib.closing(connect(self._path, 0)) as db:
            db.execute("PRAGMA journal_size_limit = 0")
            _busy, pages, written = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            try:
                self._guard("write", lambda: _begin_log(db))
            except StoreBusyError:  # another process locks it: next time
                return False
            if erase and self._copies:
                self._copies = backups.forget_environments(self._path, db)
        is_restarted = self._log.stat().st_size < _LOG_HEAD_BYTES + pages * _LOG_PAGE_BYTES
        return bool(pages == written and (is_restarted or pages <= 1))

    def _write(self, commands: list[_Saved], requests_max: int) -> None:
        db = self._db
        for command in commands:
            if isinstance(command, SaveSlice):
                row = (command.slice.uid, command.slice.name, write_slice(command.slice))
                db.execute("INSERT OR REPLACE INTO slices VALUES (?, ?, ?)", row)
            elif isinstance(command, ForgetSlice):
                db.execute("DELETE FROM slices WHERE uid = ?", (command.uid,))
            elif isinstance(command, SaveContainer):
                body = seal(asdict(command.container))
                db.execute("INSERT OR REPLACE INTO containers VALUES (?, ?)", (command.container.container_id, body))
            elif isinstance(command, ForgetContainer):
                db.execute("DELETE FROM containers WHERE id = ?", (command.container_id,))
            elif isinstance(command, SaveDrain):
                drain = command.drain
                drained = (drain.device_uuid, drain.reason, int(drain.by_fault))
                db.execute("INSERT OR REPLACE INTO drains VALUES (?, ?, ?, ?)", (*drained, checksum(*drained)))
            elif isinstance(command, ForgetDrain):
                db.execute("DELETE FROM drains WHERE device = ?", (command.device_uuid,))
            else:
                kept = command.record
                db.execute(
                    "INSERT OR REPLACE INTO requests"
                    " VALUES (?, ?, ?, (SELECT coalesce(max(serial), 0) + 1 FROM requests), ?)",
                    (
                        command.request_id,
                        kept.fingerprint,
                        None if kept.answer is None else write_slice(kept.answer),
                        checksum(command.request_id, kept.fingerprint),
                    ),
                )
                db.execute(
                    "DELETE FROM requests WHERE (SELECT count(*) FROM requests) > ? AND id ="  # as slices.machine does
                    " (SELECT id FROM requests WHERE id != ? ORDER BY id GLOB ? DESC, serial LIMIT 1)",
                    (requests_max, command.request_id, command.request_id.partition("/")[0] + "/*"),
                )

    def forget_request(self, request_id: str) -> None:
        """A request whose effects were undone."""
        statement = "DELETE FROM requests WHERE id = ?"
        self._guard("write", lambda: self._transaction(lambda: self._db.execute(statement, (request_id,))))

    def _transaction(self, work: Callable[[], object]) -> None:
        if self.unwritable:
            raise StoreUnwritableError(self.unwritable)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            work()
            self._db.execute("COMMIT")
            self.needs_flush |= self._log.stat().st_size >= LOG_BYTES
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # ---- what jobs.JobStore needs ----

    def write(self, work: Callable[[Any], object], *, outlive: bool = True) -> None:
        """One transaction. `outlive`: a crash of the machine may not take it back once it is flushed."""
        self._guard("write", lambda: self._transaction(lambda: work(self._db)))
        self.needs_flush |= outlive

    def read(self, work: Callable[[Any], Any]) -> Any:
        return self._guard("read", lambda: work(self._db))

    def append_events(self, events: Iterable[Entry], events_max: int) -> None:
        """Adds to the event log and forgets what is beyond events_max (looked at when there is a sixteenth more), the
        oldest of the owners who have most."""
        rows = [
            (e.sequence, e.wall_ns, e.kind, e.slice_name, e.device_uuid, e.process_id, e.message, e.owner_uid)
            for e in events
        ]

        def write() -> None:
            self._db.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            (count,) = self._db.execute("SELECT count(*) FROM events").fetchone()
            if count > events_max + events_max // 16:
                self._forget_events(events_max)

        if rows:
            self._guard("write", lambda: self._transaction(write))

    def _forget_events(self, events_max: int) -> None:
        """As the log in memory does: each owner is left what the others leave, and no more than an equal share."""
        held = self._db.execute("SELECT owner_uid, count(*) FROM events GROUP BY owner_uid ORDER BY 2").fetchall()
        for at, (owner, count) in enumerate(held):
            kept = min(count, events_max // (len(held) - at))
            events_max -= kept
            self._db.execute(
                "DELETE FROM events WHERE sequence IN"
                " (SELECT sequence FROM events WHERE owner_uid = ? ORDER BY sequence LIMIT ?)",
                (owner, count - kept),
            )

    def close(self) -> None:
        self._db.close()
