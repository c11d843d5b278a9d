"""`vgpu restore`: puts a copy of the state in the database's place, while no daemon runs, and keeps what was there.

Any copy is taken: of `vgpu backup`, of a daemon before it brought the database to its version, and one that was set
aside here. Everything is checked on a copy of the copy before the database is touched. Rows are checked, and older
versions brought to this one, by the daemon when it starts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
from dataclasses import dataclass
from pathlib import Path

from vgpud.errors import DeniedError, ExitCode, StoreError
from vgpud.host import private_files
from vgpud.host.directories import DirectoryLock
from vgpud.store import backups, write_ahead_log
from vgpud.store.connecting import connect
from vgpud.store.database import FILE_NAME, MIGRATIONS
from vgpud.store.manual_backup import Contents, contents
from vgpud.store.opening import check, check_head, read_into
from vgpud.store.sqlite_errors import DamagedError, Fault, fault_of

_OTHERS_WRITE = 0o022


@dataclass(frozen=True, slots=True)
class Restored:
    """old_copy: what was there before, None if nothing was."""

    contents: Contents
    old_copy: Path | None


def restore(directory: Path, file: Path) -> Restored:
    """Replaces the state in `directory` by `file`. Raises VgpudError; nothing was changed then."""
    lock = DirectoryLock(directory, "--state-dir")
    new = directory / f"{FILE_NAME}.restoring"
    try:
        try:
            _copy(file, new)
            found = _prepare_copy(file, new, directory / FILE_NAME)
            return Restored(found, _put_in_place(directory / FILE_NAME, new))
        except (sqlite3.Error, OSError) as error:
            if fault_of(error) in (Fault.DAMAGED, Fault.SCHEMA, Fault.CONTENT):
                raise StoreError(f"{file} is not a sound copy of the state: {error}; take another one") from error
            raise StoreError(f"cannot restore {file} in {directory}: {error}; {fault_of(error).value}") from error
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            new.with_name(new.name + end).unlink(missing_ok=True)
        lock.close()


def _copy(file: Path, new: Path) -> None:
    """With its log, if it has one. Raises StoreError, DeniedError, OSError."""
    for end in ("", "-wal"):
        target = new.with_name(new.name + end)
        target.unlink(missing_ok=True)
        try:
            source = file.with_name(file.name + end).open("rb")
        except FileNotFoundError:
            if not end:
                raise StoreError(f"there is no file {file}: name a copy of the state", ExitCode.NOT_FOUND) from None
            continue
        except PermissionError as error:
            raise DeniedError(f"cannot read {file}: {error.strerror}; run it as the user of the daemon") from error
        with source:
            _check_owner(file, os.fstat(source.fileno()))
            with open(target, "xb", opener=private_files.opener) as made:
                shutil.copyfileobj(source, made)


def _check_owner(file: Path, info: os.stat_result) -> None:
    """Jobs in it run as the users that it names: a user who could write it could run anything as any user."""
    if not stat.S_ISREG(info.st_mode):
        raise StoreError(f"{file} is not a file: name a copy of the state")
    if info.st_uid not in (0, os.geteuid()) or info.st_mode & _OTHERS_WRITE:
        who = f"belongs to uid {info.st_uid} and has mode {stat.S_IMODE(info.st_mode):o}"
        text = f"{file} {who}: others can put jobs of any user into it"
        raise DeniedError(f"{text}; if it is what you made, run chown {os.geteuid()} {file} && chmod 600 {file}")


def _prepare_copy(file: Path, new: Path, path: Path) -> Contents:
    """Checks the copy and makes a database of this place of it. Raises DamagedError, StoreError, sqlite3.Error."""
    if lost := write_ahead_log.lost_changes(new.with_name(f"{new.name}-wal")):
        raise DamagedError(f"of its log, {lost}")
    check_head(new)
    with contextlib.closing(connect(new)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        found = contents(db)
        if found.version > len(MIGRATIONS):
            needed = f"install vgpud {found.release} or newer" if found.release else "install the vgpud that made it"
            text = f"{file} is of a newer vgpud (database version {found.version}, this one reads up to"
            raise StoreError(f"{text} {len(MIGRATIONS)}): {needed}, then restore it")
        if not found.version:
            raise DamagedError("it is not a database of vgpud")
        check(db, new, MIGRATIONS)
        db.execute("DROP TABLE IF EXISTS origin")
        _skip_job_ids(db, path)
    backups.sync(new)
    return found


def _skip_job_ids(db: sqlite3.Connection, path: Path) -> None:
    """Numbers of jobs that the replaced state has given are not given again: users and files name jobs by them."""
    found = None
    if path.exists():
        with contextlib.closing(connect(":memory:")) as before, contextlib.suppress(sqlite3.Error, OSError):
            read_into(before, path)
            found = before.execute("SELECT max(next) FROM job_ids WHERE typeof(next) = 'integer'").fetchone()
    if found and found[0]:
        with contextlib.suppress(sqlite3.OperationalError):  # of before there were jobs
            db.execute("UPDATE job_ids SET next = ?1 WHERE next < ?1", (found[0],))


def _put_in_place(path: Path, new: Path) -> Path | None:
    if os.path.lexists(path):
        return backups.replace(path, new, "replaced")
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)  # SQLite would take it for the log of the new one
    new.replace(path)
    backups.sync(path)
    return None
