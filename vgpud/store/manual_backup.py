"""The copy of the state that `vgpu backup` makes, of a database in use or not; vgpud/store/restore.py takes it back.

The daemon is not asked: SQLite's backup API reads one state of the database with its log, and no writer waits for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import vgpud
from vgpud.errors import ConflictError, DeniedError, ExitCode, StoreError
from vgpud.host import private_files
from vgpud.store import backups
from vgpud.store.connecting import connect
from vgpud.store.database import FILE_NAME, MIGRATIONS
from vgpud.store.opening import check_head
from vgpud.store.sqlite_errors import DamagedError, fault_of

#: of a copy alone: who made it, when and where. The daemon's own database has no such table
ORIGIN_TABLE = "CREATE TABLE origin (release TEXT NOT NULL, wall_ns INTEGER NOT NULL, node TEXT NOT NULL)"
#: another process holds the file at most for a moment
_BUSY_S = 10.0


@dataclass(frozen=True, slots=True)
class Contents:
    """What a copy of the state holds. release, node "", made_wall_ns 0: it does not say."""

    version: int  # of the database
    slices: int
    queues: int
    jobs: int  # that have not ended
    release: str = ""
    made_wall_ns: int = 0
    node: str = ""


def make(directory: Path, target: Path) -> Contents:
    """Copies the state in `directory` to the new file `target`, mode 0600. Raises VgpudError; there is no copy then."""
    source = directory / FILE_NAME
    try:
        if not source.is_file():
            text = f"there is no state database {source}: name the daemon's directory with --state-dir, or its --config"
            raise StoreError(text, ExitCode.NOT_FOUND)
        check_head(source)
        if os.path.lexists(target):
            raise _conflict_error(target)
        with tempfile.TemporaryDirectory(prefix="vgpu-backup-") as ours:
            made = Path(ours) / FILE_NAME
            with contextlib.closing(connect(source, _BUSY_S)) as db:
                db.execute("BEGIN")
                db.execute("SELECT count(*) FROM sqlite_master")  # one that locks the file is waited for, or an error
                backups.copy_to(db, made, _sign)
            found = _check_copy(made)
            _put(made, target)
    except PermissionError as error:
        raise DeniedError(f"cannot back up {source} to {target}: {error}; run it as the user of the daemon") from error
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"cannot back up {source} to {target}: {error}; {fault_of(error).value}") from error
    return found


def _put(temporary_copy: Path, target: Path) -> None:
    """Copies a file to a new one. Others may write to the directory, so SQLite, which follows names, has worked in one
    of ours; what has come under this name meanwhile is left as it is. Raises ConflictError, OSError."""
    try:
        copy = open(target, "xb", opener=private_files.opener)  # noqa: SIM115  not ours if that fails
    except FileExistsError:
        raise _conflict_error(target) from None
    try:
        with temporary_copy.open("rb") as source, copy:
            shutil.copyfileobj(source, copy)
        backups.sync(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _conflict_error(target: Path) -> ConflictError:
    return ConflictError(f"{target} exists: choose a name that is not taken")


def _sign(copy: sqlite3.Connection) -> None:
    """Notes the release that can read the copy: not known where a newer daemon wrote what an older `vgpu` copies."""
    copy.execute("DROP TABLE IF EXISTS origin")
    copy.execute(ORIGIN_TABLE)
    (version,) = copy.execute("PRAGMA user_version").fetchone()
    release = vgpud.__version__ if version <= len(MIGRATIONS) else ""
    copy.execute("INSERT INTO origin VALUES (?, ?, ?)", (release, time.time_ns(), socket.gethostname()))


def _check_copy(path: Path) -> Contents:
    with contextlib.closing(connect(path)) as db:
        faults = [row[0] for row in db.execute("PRAGMA integrity_check(1)")]
        if faults != ["ok"]:
            raise DamagedError(str(faults[0])[:200].replace("\n", " "))
        return contents(db)


def contents(db: sqlite3.Connection) -> Contents:
    """What a copy holds. Raises sqlite3.Error."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def count(table: str, where: str = "") -> int:
        if table not in tables:
            return 0
        return int(db.execute(f"SELECT count(*) FROM {table} {where}").fetchone()[0])  # noqa: S608  our own names

    origin = db.execute("SELECT release, wall_ns, node FROM origin").fetchone() if "origin" in tables else None
    (version,) = db.execute("PRAGMA user_version").fetchone()
    counts = count("slices"), count("queues"), count("jobs", "WHERE NOT ended")
    return Contents(version, *counts, *(origin or ("", 0, "")))
