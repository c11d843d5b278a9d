"""Opens the state database at the daemon's start: private, checked, of this version; or a copy in memory.

A full or read-only disk is no reason not to start: without a daemon programs may run without limits. What can be read
is served from memory then, and nothing is written until recover() of database.py succeeds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vgpud.errors import StoreError
from vgpud.host import private_files
from vgpud.store import backups, environments, salvage, write_ahead_log
from vgpud.store.connecting import connect
from vgpud.store.quarantine import quarantine
from vgpud.store.sqlite_errors import PASSING, DamagedError, Fault, fault_of

Migrations = tuple[tuple[str, ...], ...]
#: what integrity_check lists at most
_FAULTS_MAX = 20


@dataclass(slots=True)
class Opened:
    """`why`: nothing can be written, and the database is a copy in memory; "" = it is the file."""

    db: sqlite3.Connection
    why: str = ""
    notes: list[str] = field(default_factory=list)  # what the operator should know, a sentence each


def open_state(path: Path, migrations: Migrations, busy_s: float) -> Opened:
    """Raises sqlite3.Error, OSError, StoreError: what is there cannot be served."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise StoreError(f"cannot open the state database {path}: it is not a file; move it away")
    told: list[str] = []
    try:
        return Opened(_open_file(path, migrations, busy_s, told), notes=told)
    except (sqlite3.Error, OSError) as error:
        if fault_of(error) not in PASSING:
            raise
        why = f"{error}; {fault_of(error).value}"
    told.clear()
    return Opened(_open_copy(path, migrations, told), why, told)


def reopen(path: Path, migrations: Migrations, busy_s: float) -> Opened:
    """The file again, after open_state() could not write to it. Raises as that, and what kept us from writing."""
    told: list[str] = []
    return Opened(_open_file(path, migrations, busy_s, told), notes=told)


def _open_file(path: Path, migrations: Migrations, busy_s: float, notes: list[str]) -> sqlite3.Connection:
    was_empty = path.exists() and not path.stat().st_size
    private_files.create(path)
    _check_log(path, notes)
    try:
        check_head(path)
        return _prepare_database(path, migrations, busy_s, notes, began_empty=was_empty)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if fault_of(error) not in (Fault.DAMAGED, Fault.SCHEMA, Fault.CONTENT):
            raise
        _replace(path, migrations, str(error), notes)
    return _prepare_database(path, migrations, busy_s, notes)


def check_head(path: Path) -> None:
    """SQLite opens a file of an unknown format read-only, without an error. Raises DamagedError."""
    with path.open("rb") as file:
        head = file.read(20)
    if len(head) == 20 and not (head[18] in (1, 2) and head[19] in (1, 2)):
        raise DamagedError("its head is damaged")


def _check_log(path: Path, notes: list[str]) -> None:
    log = path.with_name(f"{path.name}-wal")
    lost = write_ahead_log.lost_changes(log)
    if lost:
        aside = backups.find_free_path(log, "damaged")
        private_files.create(aside)
        try:
            shutil.copyfile(log, aside)
        except OSError:  # no free space: this is tried again every second
            aside.unlink(missing_ok=True)
            raise
        backups.prune(log, "damaged")
        notes.append(
            f"the newest changes of the state database are lost ({lost}): its log as it was is kept as {aside};"
            " compare vgpu slice ls and vgpu job ls with what should be there"
        )


def _prepare_database(
    path: Path, migrations: Migrations, busy_s: float, notes: list[str], *, began_empty: bool = False
) -> sqlite3.Connection:
    db = connect(path, busy_s)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA secure_delete = ON")
        check(db, path, migrations)
        if began_empty and backups.existing(path):
            raise DamagedError("the file is empty")
        _migrate(db, path, migrations, notes)
        _tend(db, notes)
    except BaseException:
        db.close()
        raise
    return db


def _schema(db: sqlite3.Connection) -> dict[str, str]:
    """Name -> statement, of what was made by statements."""
    rows = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: " ".join(sql.split()) for name, sql in rows}


def _made_by(migrations: Migrations) -> dict[str, str]:
    with contextlib.closing(connect(":memory:")) as db:
        for statements in migrations:
            for statement in statements:
                db.execute(statement)
        return _schema(db)


def check(db: sqlite3.Connection, path: Path, migrations: Migrations) -> None:
    """Whether it is a sound database of a version that this vgpud reads. Raises DamagedError, StoreError."""
    faults = [row[0] for row in db.execute(f"PRAGMA integrity_check({_FAULTS_MAX})")]
    if faults != ["ok"]:
        raise DamagedError(str(faults[0])[:200].replace("\n", " "))
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not 0 <= version <= len(migrations):
        raise StoreError(_newer(path, version, len(migrations)))
    there, wanted = _schema(db), _made_by(migrations[:version])
    missing = sorted(name for name, sql in wanted.items() if there.get(name) != sql)
    if missing:
        raise DamagedError(f"{missing[0]} is not as version {version} made it")
    if version == 0 and there:
        raise DamagedError("it has tables, but no version")


def _newer(path: Path, version: int, supported_version: int) -> str:
    """The refusal of a newer vgpud's database, with the way back where there is one."""
    text = f"{path} was written by a newer vgpud (version {version}, this"
    text += f" one knows {supported_version}): install that one again"
    fitting = [one for one in backups.existing(path) if 0 < _version(one) <= supported_version]
    if not fitting:
        return text
    command = f"vgpu restore --state-dir {path.parent} {fitting[-1]}"
    return f"{text}, or go back to the state from before its upgrade: `{command}`"


def _version(path: Path) -> int:
    """The version of a backup, 0 if it cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            return int(db.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return 0


def _migrate(db: sqlite3.Connection, path: Path, migrations: Migrations, notes: list[str]) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if 0 < version < len(migrations):
        notes.append(backups.back_up(db, path, version))
    for number, statements in enumerate(migrations[version:], version + 1):
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise


def _tend(db: sqlite3.Connection, notes: list[str]) -> None:
    """Sets damaged rows aside, and takes out what must not be there any longer."""
    notes += quarantine(db, time.time_ns())
    db.execute("BEGIN IMMEDIATE")
    try:
        highest = "max(coalesce((SELECT max(id) FROM jobs), 0), coalesce((SELECT max(job_id) FROM usage), 0))"
        lowest = f"(SELECT 1 + {highest})"
        db.execute(f"INSERT INTO job_ids SELECT {lowest} WHERE NOT EXISTS (SELECT 1 FROM job_ids)")  # noqa: S608
        db.execute(f"UPDATE job_ids SET next = {lowest} WHERE next < {lowest}")  # noqa: S608  our own text
        db.execute("DELETE FROM job_ids WHERE rowid > (SELECT min(rowid) FROM job_ids)")
        environments.forget_all_ended(db)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    if db.execute("SELECT 1 FROM upkeep WHERE task = 'vacuum'").fetchone():
        try:
            _vacuum(db)
        except sqlite3.Error as error:
            if fault_of(error) not in PASSING:
                raise
            text = f"environments of jobs that have ended may still lie in unused parts of the database: {error};"
            notes.append(
                f"{text} the cleanup needs free disk space of the file's size, and is tried again at the next start"
            )
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _vacuum(db: sqlite3.Connection) -> None:
    """Rewrites the file: earlier versions did not zero what they overwrote."""
    db.execute("VACUUM")
    db.execute("DELETE FROM upkeep WHERE task = 'vacuum'")


def _replace(path: Path, migrations: Migrations, why: str, notes: list[str]) -> None:
    """Puts what can be read of a damaged database in its place, else the newest backup. Raises StoreError."""
    schema = [statement for statements in migrations for statement in statements]
    try:
        notes.append(salvage.rebuild(path, schema, len(migrations), why))
        return
    except salvage.NothingReadableError:
        pass
    for backup in reversed(backups.existing(path)):
        if _is_sound(backup):
            new = path.with_name(f"{path.name}.rebuilding")
            new.unlink(missing_ok=True)
            private_files.create(new)
            shutil.copyfile(backup, new)
            aside = backups.replace(path, new)
            notes.append(
                f"the state database could not be read ({why}): it was set aside as {aside}, and the backup {backup}"
                " was put in its place; what was made since then is lost: compare vgpu slice ls with what should be"
            )
            return
    text = f"cannot read the state database {path}: {why}; nothing of it can be read, and there is no backup. Programs"
    text += " keep their shares while vgpud is away; to begin without the slices and jobs kept in it, run mv"
    raise StoreError(f"{text} {path} {path}.damaged")


def _is_sound(path: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            return [row[0] for row in db.execute("PRAGMA integrity_check(1)")] == ["ok"]
    except sqlite3.Error:
        return False


# ---- where nothing can be written ----


def _open_copy(path: Path, migrations: Migrations, notes: list[str]) -> sqlite3.Connection:
    """The database in memory, as the file has it. Raises sqlite3.Error, OSError, StoreError."""
    db = connect(":memory:")
    try:
        if path.exists() and path.stat().st_size:
            read_into(db, path)
        check(db, path, migrations)
        (version,) = db.execute("PRAGMA user_version").fetchone()
        for statements in migrations[version:]:
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(migrations)}")
        notes += quarantine(db, time.time_ns())
    except BaseException:
        db.close()
        raise
    return db


def read_into(db: sqlite3.Connection, path: Path) -> None:
    """Reads the file with its log into an empty database. SQLite wants to write beside a log that it reads, so both are
    copied to memory."""
    folders: list[Callable[[], str | None]] = [lambda: "/dev/shm", lambda: None]
    problem: Exception | None = None
    for folder in folders:
        try:
            with tempfile.TemporaryDirectory(prefix="vgpud-", dir=folder()) as scratch:  # mode 0700
                copy = Path(scratch) / path.name
                for end in ("", "-wal"):
                    source = path.with_name(path.name + end)
                    if source.exists():
                        private_files.create(copy.with_name(copy.name + end))
                        shutil.copyfile(source, copy.with_name(copy.name + end))
                with contextlib.closing(connect(copy)) as found:
                    found.execute("PRAGMA journal_mode = DELETE")  # there is no log of a database in memory
                    found.backup(db)
            return
        except OSError as error:
            problem = error
    raise problem or FileNotFoundError(os.fspath(path))
