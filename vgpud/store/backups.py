"""Copies of the database that are kept beside it: before a migration, and what was set aside as damaged or replaced.

Names end in the time (UTC), so that the newest is the last. All of them are 0600.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from vgpud.host import private_files
from vgpud.store import environments
from vgpud.store.connecting import connect

log = logging.getLogger("vgpud")

#: of each kind that the daemon makes itself; the oldest goes first
KEPT_MAX = 3
DAMAGED = "damaged"


def find_free_path(path: Path, kind: str) -> Path:
    """A name beside the database that is not taken, like vgpud.sqlite3.backup-20260101T000000Z."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    base = path.with_name(f"{path.name}.{kind}-{stamp}")
    taken = (base, *(base.with_name(f"{base.name}.{number}") for number in range(1, 1000)))
    return next(name for name in taken if not os.path.lexists(name))


def existing(path: Path, kind: str = "backup") -> list[Path]:
    """The copies of a kind, oldest first."""
    found = path.parent.glob(f"{path.name}.{kind}-*")
    return sorted(one for one in found if not one.name.endswith(("-wal", "-shm", "-journal")))


def prune(path: Path, kind: str) -> None:
    for old in existing(path, kind)[:-KEPT_MAX]:
        for name in (old, old.with_name(f"{old.name}-wal")):
            with contextlib.suppress(OSError):
                name.unlink(missing_ok=True)


def back_up(db: sqlite3.Connection, path: Path, version: int) -> str:
    """Copies the database as it is now; returns a sentence with the name of the copy. Raises sqlite3.Error, OSError:
    there is no copy."""
    copy_path = find_free_path(path, "backup")
    copy_to(db, copy_path)
    prune(path, "backup")
    return f"the database is brought from version {version} to this one's; as it was, it is kept as {copy_path}"


def copy_to(db: sqlite3.Connection, path: Path, also: Callable[[sqlite3.Connection], object] | None = None) -> None:
    """Copies the database as it is now to a new private file without a log. Environments of ended jobs are not in the
    copy, those of other jobs are. `also`: what else is done to the copy. Raises sqlite3.Error, OSError: there is none.
    """
    try:
        private_files.create(path)
        with contextlib.closing(connect(path)) as copy:
            db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            if also:
                also(copy)
            if _has_jobs(copy):
                _at_once(copy, lambda: environments.forget_all_ended(copy))
                copy.execute("VACUUM")  # so that leftovers of overwritten environments are not copied
        sync(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _has_jobs(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobs'").fetchone())


def _at_once(copy: sqlite3.Connection, work: Callable[[], bool]) -> bool:
    """In one transaction: there may be a hundred thousand jobs, and each one by itself would wait for the disk."""
    copy.execute("BEGIN")
    result = work()
    copy.execute("COMMIT")
    return result


def sync(path: Path) -> None:
    """A file and its name are on the disk afterwards. Raises OSError."""
    for name in (path, path.parent):
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def forget_environments(path: Path, db: sqlite3.Connection) -> bool:
    """Takes out of all backups what the database has no more; whether one still holds an environment."""
    kept = False
    for name in existing(path):
        try:
            with contextlib.closing(connect(name)) as copy:
                copy.execute("PRAGMA secure_delete = ON")
                if _has_jobs(copy):
                    kept |= _at_once(copy, partial(environments.forget_in_copy, copy, db))
        except sqlite3.Error as error:  # one that is locked, or was compressed: the daemon continues
            kept = True
            _warn(name, str(error))
    return kept


@functools.lru_cache(maxsize=64)
def _warn(name: Path, error: str) -> None:
    """Once: it is tried again whenever a job ends."""
    text = "cannot take environments of jobs that have ended out of %s: %s; remove it if it holds any"
    log.warning(text, name, error)


def replace(path: Path, new: Path, kind: str = DAMAGED) -> Path:
    """Replaces a database by another file; returns its new name, under which it is kept with its log. At no moment is
    there no database: a daemon that was killed meanwhile would begin with an empty one. Raises OSError."""
    aside = find_free_path(path, kind)
    log, its_log = path.with_name(f"{path.name}-wal"), aside.with_name(f"{aside.name}-wal")
    os.link(path, aside)
    if log.exists():
        os.link(log, its_log)
        log.unlink()  # SQLite would take it for the log of the new one
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    new.replace(path)
    if kind == DAMAGED:  # of what an administrator has replaced, the first may be the one that is wanted again
        prune(path, kind)
    return aside
