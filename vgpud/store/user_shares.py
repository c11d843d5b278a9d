"""The share of the database that a user may fill with what has ended: jobs, with what they ran, and usage.

Below state_bytes_max nothing is forgotten before its time. Above it, what is oldest of the users who have most goes
first, so that whoever writes without end forgets their own past, and no other's. Of usage only the detail goes: a
user's rows of a queue and a day become one, so that no user loses the sums by writing more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from vgpud.core.queue.accounting import ROW_NS, Amounts, Row
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
    "CREATE INDEX jobs_that_follow ON jobs (launch) WHERE substr(launch, 1, 1) = '@'",
    "CREATE INDEX usage_of_user ON usage (uid, end_ns)",
)
#: the first job of an array has what the others run
NOT_NEEDED = (
    "NOT EXISTS (SELECT 1 FROM jobs AS other WHERE substr(other.launch, 1, 1) = '@' AND other.launch = '@' || jobs.id)"
)


def size_bytes(spec: str, launch: str | None, state: str) -> int:
    """What a job takes, for `jobs.bytes`."""
    return len(spec) + len(launch or "") + len(state) + JOB_BYTES


def measure(db: Any, job_ids: Iterable[int]) -> None:
    """Brings `jobs.bytes` of jobs whose texts have become shorter up to now."""
    for job_id in job_ids:
        row = db.execute("SELECT spec, launch, state FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row:
            db.execute("UPDATE jobs SET bytes = ? WHERE id = ?", (size_bytes(*row), job_id))


def used_bytes(db: Any) -> int:
    """Bytes of the database's pages that hold something."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return int((pages - free) * size)


def sum_bytes(db: Any) -> dict[int, int]:
    """What each user fills it with, by uid; to be called in a transaction that writes. Summed up once: each second it
    would take longer the more rows there are."""
    if not db.execute("SELECT 1 FROM sqlite_temp_master WHERE name = 'user_bytes'").fetchone():
        _begin_sums(db)
    return dict(db.execute("SELECT uid, bytes FROM user_bytes").fetchall())


def _begin_sums(db: Any) -> None:
    """The sums are the connection's own, and triggers keep them right, so that nothing else has to know of them: a
    job never changes its user. Rows that are replaced: see database._set_up()."""
    db.execute("CREATE TEMP TABLE user_bytes (uid INTEGER PRIMARY KEY, bytes INTEGER NOT NULL)")
    rows = f"SELECT uid, bytes FROM jobs UNION ALL SELECT uid, {ROW_BYTES} FROM usage"  # noqa: S608
    db.execute(f"INSERT INTO user_bytes SELECT uid, sum(bytes) FROM ({rows}) GROUP BY uid")  # noqa: S608
    for table, change, uid, more in (
        ("jobs", "INSERT", "new.uid", "new.bytes"),
        ("jobs", "UPDATE OF bytes", "new.uid", "new.bytes - old.bytes"),
        ("jobs", "DELETE", "old.uid", "-old.bytes"),
        ("usage", "INSERT", "new.uid", f"{ROW_BYTES}"),
        ("usage", "DELETE", "old.uid", f"-{ROW_BYTES}"),
    ):
        db.execute(
            f"CREATE TEMP TRIGGER {table}_{change.split()[0]} AFTER {change} ON main.{table} BEGIN"  # noqa: S608
            # without a conflict: OR REPLACE of the statement that fires a trigger holds in it, too
            f" INSERT INTO user_bytes SELECT {uid}, 0 WHERE NOT EXISTS (SELECT 1 FROM user_bytes WHERE uid = {uid});"
            f" UPDATE user_bytes SET bytes = bytes + {more} WHERE uid = {uid};"
            f" DELETE FROM user_bytes WHERE uid = {uid} AND NOT bytes; END"
        )


def forget_excess(db: Any, most_bytes: int, now_ns: int, dependencies: Collection[int]) -> dict[int, int]:
    """Forgets a part of what is above the bound. `dependencies`: jobs that stay. Returns how many jobs were forgotten,
    or rows of usage summed up, by user."""
    held = sum_bytes(db)
    forgotten: dict[int, int] = {}
    # of each byte, since pages are larger than what is in them
    kept = (most_bytes - most_bytes // SPARE_PART) / used_bytes(db)
    for uid, more in _above_share(held, int(sum(held.values()) * kept)).items():
        left = FORGET_MAX - sum(forgotten.values())
        count = left > 0 and (_forget_jobs(db, uid, more, dependencies, left) or _sum_rows(db, uid, now_ns, left))
        if count:
            forgotten[uid] = count
    return forgotten


def _above_share(held: dict[int, int], limit_bytes: int) -> dict[int, int]:
    """By user, the bytes above what the others leave: each is left that, and no more than an equal share."""
    above = {}
    for at, (uid, size) in enumerate(sorted(held.items(), key=lambda one: one[1])):
        kept = min(size, limit_bytes // (len(held) - at))
        limit_bytes -= kept
        if size > kept:
            above[uid] = size - kept
    return above


def _forget_jobs(db: Any, uid: int, more_bytes: int, dependencies: Collection[int], jobs_max: int) -> int:
    """The oldest of a user, until so many bytes are free."""
    oldest = db.execute(
        f"SELECT id, bytes FROM jobs WHERE uid = ? AND ended > 0 AND {NOT_NEEDED} ORDER BY ended, id LIMIT ?",  # noqa: S608
        (uid, jobs_max + len(dependencies)),
    ).fetchall()
    gone: list[tuple[int]] = []
    for job_id, size in oldest:
        if more_bytes <= 0 or len(gone) >= jobs_max:
            break
        if job_id not in dependencies:
            gone.append((job_id,))
            more_bytes -= size
    db.executemany("DELETE FROM jobs WHERE id = ?", gone)
    db.executemany("DELETE FROM job_notes WHERE job_id = ?", gone)
    return len(gone)


def _sum_rows(db: Any, uid: int, now_ns: int, rows_max: int) -> int:
    """The oldest rows of a user, one for each queue, namespace and day in their place; how many fewer there are."""
    found = db.execute(
        "SELECT rowid, * FROM usage WHERE uid = ? AND end_ns < ? AND slice_uid NOT GLOB 'sum-*'"
        " ORDER BY end_ns LIMIT ?",
        (uid, now_ns - CLOSED_NS, rows_max),
    ).fetchall()
    by_sum: dict[str, list[tuple[int, Row]]] = {}
    for rowid, *values in found:
        row = Row(*values)
        by_sum.setdefault(f"sum-{uid}/{row.queue}/{row.namespace}/{row.end_ns // DAY_NS}", []).append((rowid, row))
    fewer = 0
    for name, rows in by_sum.items():
        before = db.execute("SELECT rowid, * FROM usage WHERE slice_uid = ?", (name,)).fetchall()
        rows += [(rowid, Row(*values)) for rowid, *values in before]
        db.executemany("DELETE FROM usage WHERE rowid = ?", [(rowid,) for rowid, _ in rows])
        usage.save(db, [_sum(name, [row for _, row in rows])])
        fewer += len(rows) - 1
    return fewer


def _sum(name: str, rows: Sequence[Row]) -> Row:
    totals = Amounts(*(sum(amounts) for amounts in zip(*(row.amounts for row in rows), strict=True)))
    return replace(
        rows[0],
        slice_uid=name,
        slice="sum",
        job_id=0,
        pod="",
        begin_ns=min(row.begin_ns for row in rows),
        end_ns=max(row.end_ns for row in rows),
        **totals._asdict(),
    )
