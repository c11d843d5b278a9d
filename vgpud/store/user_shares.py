"""The share of the database that a user may fill with what has ended: jobs, with what they ran, and usage.

Below state_bytes_max nothing is forgotten before its time. Above it, what is oldest of the users who have most goes
first, so that whoever writes without end forgets their own past, and no other's. Of usage only the detail goes: a
user's rows of a queue and a day become one, so that no one loses the sums by writing more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from vgpud.core.queue.accounting import ROW_NS, Row
from vgpud.store import usage

#: jobs, or rows of usage, that are forgotten at once
FORGET_MAX = 1000
#: of a row of usage with its part of the indexes, about
ROW_BYTES = 300
#: below the bound by this part it is enough
SPARE_PART = 16
DAY_NS = 24 * 3600 * 1_000_000_000
#: rows that began before as long may not grow any more
CLOSED_NS = 2 * ROW_NS
#: of a job's row besides its three long texts, about
JOB_BYTES = 200
#: the store's migration to these columns and indexes
TABLES = (
    "ALTER TABLE jobs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0",
    "UPDATE jobs SET bytes = length(spec) + coalesce(length(launch), 0) + length(state) + 200",  # JOB_BYTES
    "CREATE INDEX jobs_of_user ON jobs (uid, ended, id, bytes)",
    "CREATE INDEX usage_of_user ON usage (uid, end_ns)",
)
#: the first job of an array has what the others run
NOT_NEEDED = (
    "NOT (json_extract(spec, '$.array') > 0 AND EXISTS (SELECT 1 FROM jobs AS other"
    " WHERE other.id > jobs.id AND other.id < jobs.id + 10000 AND other.launch = '@' || jobs.id))"
)


def size_bytes(spec: str, launch: str | None, state: str) -> int:
    """What a job takes, for `jobs.bytes`."""
    return len(spec) + len(launch or "") + len(state) + JOB_BYTES


def used_bytes(db: Any) -> int:
    """Bytes of the database's pages that hold something."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return int((pages - free) * size)


def forget_excess(db: Any, most_bytes: int, now_ns: int, needed: Collection[int]) -> dict[int, int]:
    """Forgets a part of what is above the bound. `needed`: jobs that stay. Returns how many jobs were forgotten, and
    rows summed up, by user."""
    held = dict(db.execute("SELECT uid, sum(bytes) FROM jobs GROUP BY uid").fetchall())
    for uid, rows in db.execute("SELECT uid, count(*) FROM usage GROUP BY uid").fetchall():
        held[uid] = held.get(uid, 0) + rows * ROW_BYTES
    forgotten = {}
    # of each byte, since pages are larger than what is in them
    kept = (most_bytes - most_bytes // SPARE_PART) / used_bytes(db)
    for uid, more in _above_share(held, int(sum(held.values()) * kept)).items():
        count = _forget_jobs(db, uid, more, needed) or _sum_rows(db, uid, now_ns)
        if count:
            forgotten[uid] = count
    return forgotten


def _above_share(held: dict[int, int], most: int) -> dict[int, int]:
    """By user, the bytes above what the others leave: each is left that, and no more than an equal share."""
    above = {}
    for at, (uid, size) in enumerate(sorted(held.items(), key=lambda one: one[1])):
        kept = min(size, most // (len(held) - at))
        most -= kept
        if size > kept:
            above[uid] = size - kept
    return above


def _forget_jobs(db: Any, uid: int, more_bytes: int, needed: Collection[int]) -> int:
    """The oldest of a user, until so many bytes are free."""
    oldest = db.execute(
        f"SELECT id, bytes FROM jobs WHERE uid = ? AND ended AND {NOT_NEEDED} ORDER BY ended, id LIMIT ?",  # noqa: S608
        (uid, FORGET_MAX + len(needed)),
    ).fetchall()
    gone: list[tuple[int]] = []
    for job_id, size in oldest:
        if more_bytes <= 0 or len(gone) >= FORGET_MAX:
            break
        if job_id not in needed:
            gone.append((job_id,))
            more_bytes -= size
    db.executemany("DELETE FROM jobs WHERE id = ?", gone)
    db.executemany("DELETE FROM job_notes WHERE job_id = ?", gone)
    return len(gone)


def _sum_rows(db: Any, uid: int, now_ns: int) -> int:
    """The oldest rows of a user, one for each queue and day in their place; how many fewer there are."""
    found = db.execute(
        "SELECT rowid, * FROM usage WHERE uid = ? AND end_ns < ? ORDER BY end_ns LIMIT ?",
        (uid, now_ns - CLOSED_NS, FORGET_MAX),
    ).fetchall()
    sums: dict[tuple[str, int], Row] = {}
    for _, *values in found:
        row = Row(*values)
        day = row.queue, row.end_ns // DAY_NS
        name = f"sum-{uid}-{row.queue}-{row.end_ns // DAY_NS}"
        one = sums.get(day) or replace(row, slice_uid=name, slice="sum", job_id=0, asked=0, granted=0, used=0)
        sums[day] = replace(
            one,
            begin_ns=min(one.begin_ns, row.begin_ns),
            end_ns=max(one.end_ns, row.end_ns),
            asked=one.asked + row.asked,
            granted=one.granted + row.granted,
            used=one.used + row.used,
        )
    if len(sums) == len(found):
        return 0
    db.executemany("DELETE FROM usage WHERE rowid = ?", [(rowid,) for rowid, *_ in found])
    usage.save(db, sums.values())
    return len(found) - len(sums)
