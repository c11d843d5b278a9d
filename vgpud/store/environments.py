"""The lifetime of jobs' environments in the database: each goes when nothing can start its job any more.

Environments hold passwords and API keys. The row of an array's first job holds the environment of all its jobs, so that
one goes with the last of them. What is overwritten is zeroed by SQLite (secure_delete); database.py then has the log
written back and cut, so that no file holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vgpud.core.checksums import seal, unseal

#: jobs of an array, at most (core/queue/check.py): their numbers follow that of the first one
ARRAY_JOBS_MAX = 10_000
_HOLDS = "launch IS NOT NULL AND substr(launch, 1, 1) <> '@'"
_FILLED = "instr(launch, '\"environment\": [[')"
_LIVE_FOLLOWER = (
    "SELECT 1 FROM jobs AS other WHERE NOT other.ended AND other.id > ?1 AND other.id < ?1 + ?2"
    " AND other.launch = '@' || ?1 LIMIT 1"
)
_ENDED = f"SELECT launch FROM jobs WHERE id = ? AND ended AND {_HOLDS}"  # noqa: S608  our own text
_ALL_ENDED = f"SELECT id FROM jobs WHERE ended AND {_HOLDS} AND {_FILLED}"  # noqa: S608  the same
_ALL = f"SELECT id FROM jobs WHERE {_HOLDS} AND {_FILLED}"  # noqa: S608  the same


def without_environment(launch: str) -> str | None:
    """The text of a launch without its environment; None where there is nothing to take out."""
    try:
        body = unseal(launch)
    except (ValueError, RecursionError):
        return None  # a damaged one: the rows are checked, and set aside, elsewhere
    if not body.get("environment"):
        return None
    return seal(body | {"environment": []})


def forget(db: Any, job_ids: Iterable[int]) -> bool:
    """Removes the environments of those of these jobs that have ended, where no other job needs them. Returns whether
    any was removed."""
    taken = False
    for job_id in sorted({find_holder(db, job_id) for job_id in job_ids}):
        row = db.execute(_ENDED, (job_id,)).fetchone()
        if row is None or db.execute(_LIVE_FOLLOWER, (job_id, ARRAY_JOBS_MAX)).fetchone():
            continue
        kept = without_environment(row[0])
        if kept is not None:
            db.execute("UPDATE jobs SET launch = ? WHERE id = ?", (kept, job_id))
            taken = True
    return taken


def find_holder(db: Any, job_id: int) -> int:
    """The job whose row says what this one runs: itself, or the first of its array."""
    row = db.execute("SELECT launch FROM jobs WHERE id = ?", (job_id,)).fetchone()
    follows = row is not None and isinstance(row[0], str) and row[0][:1] == "@" and row[0][1:].isdecimal()
    return int(row[0][1:]) if follows else job_id


def forget_all_ended(db: Any) -> bool:
    """The same for every ended job: those of earlier versions, and of a backup."""
    return forget(db, [job_id for (job_id,) in db.execute(_ALL_ENDED).fetchall()])


def forget_in_copy(copy: Any, db: Any) -> bool:
    """Takes out of a copy of the database what the database itself has no more. Returns whether the copy still holds
    an environment."""
    held, needed = ({job_id for (job_id,) in one.execute(_ALL).fetchall()} for one in (copy, db))
    for job_id in held - needed:
        (launch,) = copy.execute("SELECT launch FROM jobs WHERE id = ?", (job_id,)).fetchone()
        copy.execute("UPDATE jobs SET launch = ? WHERE id = ?", (without_environment(launch), job_id))
    return not held.isdisjoint(needed)
