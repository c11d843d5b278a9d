"""The store's tables of the queue: jobs with what they run, queues with their members, and the accounting's rows.

A job's specification is written once (that of an elastic job with its size, and one that a user has changed, again),
its state whenever that changes. Jobs
that have ended stay until the accounting forgets them; a number is never reused, not even after that.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from vgpud.core.checksums import checksum, seal, unseal
from vgpud.core.jobs.events import JobDuration
from vgpud.core.jobs.facts import JobFilter, Launch
from vgpud.core.jobs.model import Ask, Job, JobSpec, JobState, QueueSpec, Reservation
from vgpud.core.jobs.past_fields import rename_fields
from vgpud.core.model import Spec
from vgpud.core.queue.accounting import Row
from vgpud.core.queue.record import decode, encode
from vgpud.store import elastic, environments, orders, usage, user_shares
from vgpud.store.connection import Database
from vgpud.store.elastic import Noted
from vgpud.store.orders import KeptOrder

#: rows that are forgotten at once
FORGET_MAX = 1000
#: where the similarity classes are in a stored job
_CLASSES = "'$.kinds'"
#: the store's migration to these tables; jobs.ended is when, in ns, 0 = not yet
TABLES = (
    "CREATE TABLE jobs (id INTEGER PRIMARY KEY, ended INTEGER NOT NULL, uid INTEGER NOT NULL, queue TEXT NOT NULL,"
    " spec TEXT NOT NULL, launch TEXT, state TEXT NOT NULL, facts TEXT NOT NULL DEFAULT '{}')",
    "CREATE INDEX jobs_live ON jobs (id) WHERE NOT ended",
    "CREATE INDEX jobs_ended ON jobs (ended)",
    "CREATE TABLE job_ids (next INTEGER NOT NULL)",
    "INSERT INTO job_ids VALUES (1)",
    "CREATE TABLE job_requests (uid INTEGER NOT NULL, request_id TEXT NOT NULL, fingerprint TEXT NOT NULL,"
    " job_ids TEXT NOT NULL, until_ns INTEGER NOT NULL, PRIMARY KEY (uid, request_id))",
    "CREATE TABLE queues (name TEXT PRIMARY KEY, spec TEXT NOT NULL, members TEXT NOT NULL)",
    "CREATE TABLE queue_history (name TEXT PRIMARY KEY, history INTEGER NOT NULL, at_ns INTEGER NOT NULL)",
    "CREATE TABLE usage (slice_uid TEXT NOT NULL, begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,"
    " slice TEXT NOT NULL, job_id INTEGER NOT NULL, queue TEXT NOT NULL, uid INTEGER NOT NULL, asked INTEGER NOT NULL,"
    " granted INTEGER NOT NULL, used INTEGER NOT NULL, PRIMARY KEY (slice_uid, begin_ns))",
    "CREATE INDEX usage_ends ON usage (end_ns)",
    "CREATE INDEX usage_jobs ON usage (job_id)",
)


#: later migrations
USAGE_OF_PODS = tuple(f"ALTER TABLE usage ADD COLUMN {name} TEXT NOT NULL DEFAULT ''" for name in ("namespace", "pod"))
USAGE_OF_COPIES = tuple(
    f"ALTER TABLE usage ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0"
    for name in ("copy_to_device_bytes", "copy_from_device_bytes")
)
#: the queue `default` was fifo until it was set. New databases begin with another order; those that were used keep it
DEFAULT_QUEUE_AS_IT_WAS = (
    "INSERT OR IGNORE INTO queues (name, spec, members)"
    """ SELECT 'default', '{"name": "default", "policy": "fifo"}', '[]' FROM job_ids WHERE next > 1"""
    " OR EXISTS (SELECT 1 FROM events) OR EXISTS (SELECT 1 FROM slices) OR EXISTS (SELECT 1 FROM queues)",
)
RESERVATIONS_TABLE = ("CREATE TABLE reservations (name TEXT PRIMARY KEY, body TEXT NOT NULL)",)
#: the jobs of an array run the same, which its first has: the others have @ and its number instead
_JOBS = (
    "SELECT spec, CASE WHEN substr(launch, 1, 1) = '@' THEN (SELECT first.launch FROM jobs AS first"
    " WHERE first.id = CAST(substr(jobs.launch, 2) AS INTEGER)) ELSE launch END, state FROM jobs"
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a daemon finds when it starts."""

    jobs: tuple[Job, ...]  # jobs that have not ended, and jobs that these depend on
    queues: tuple[tuple[QueueSpec, tuple[str, ...]], ...]
    histories: dict[str, int]  # of the queues, as the machine had them at
    history_at_ns: int
    latest_ns: int  # the latest time that was written: the clock continues from there
    next_id: int
    reservations: tuple[Reservation, ...] = ()
    orders: tuple[KeptOrder, ...] = ()  # what those of queues had learnt

    @property
    def past(self) -> dict[str, object]:
        """What queues had used before, for a recording."""
        return {"histories": self.histories, "history_at_ns": self.history_at_ns}


@dataclass(frozen=True, slots=True)
class Request:
    """A submission under a name that its client made: repeated, it gets the first answer."""

    uid: int
    request_id: str
    fingerprint: str
    job_ids: tuple[int, ...]
    until_ns: int


def job_of(spec: str, launch: str | None, state: str) -> Job:
    """The job that was written. Raises ValueError."""
    body = unseal(state)
    run = _launch(launch) if launch else None
    made: JobSpec = replace(decode(JobSpec, unseal(spec)), run=run)
    job: Job = decode(Job, rename_fields(body) | {"spec": encode(JobSpec(made.ask))})
    job.spec = made
    if job.state.is_final:
        forget_environment(job)  # its array may still need it
    return job


def forget_environment(job: Job) -> None:
    """Nothing starts it any more: what it ran stays known, without its environment."""
    if isinstance(job.spec.run, Launch) and job.spec.run.environment:
        job.spec = replace(job.spec, run=replace(job.spec.run, environment=()))


@functools.lru_cache(maxsize=64)
def _launch(text: str) -> Any:
    """The jobs of an array run the same."""
    return decode(Launch, unseal(text))


@functools.lru_cache(maxsize=64)
def _launch_text(launch: Launch) -> str:
    return seal(encode(launch))


def _state(job: Job) -> str:
    return seal({key: value for key, value in encode(job).items() if key != "spec"})


class JobStore:
    """All methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self.database = self._db = database

    def load(self) -> Kept:
        def read(db: Any) -> Kept:
            rows = db.execute(f"{_JOBS} WHERE NOT ended ORDER BY id").fetchall()
            live = {job.job_id: job for job in (job_of(*row) for row in rows)}
            for job_id in {before for job in live.values() for before in job.spec.after} - live.keys():
                row = db.execute(f"{_JOBS} WHERE id = ?", (job_id,)).fetchone()
                live |= {job_id: job_of(*row)} if row else {}
            jobs = tuple(job for _, job in sorted(live.items()))
            queues = tuple(
                (decode(QueueSpec, unseal(spec)), tuple(json.loads(members)))
                for spec, members in db.execute("SELECT spec, members FROM queues ORDER BY name")
            )
            times = [t for job in jobs for t in (job.submitted_ns, job.started_ns, job.waiting_since_ns)]
            (usage_ns,) = db.execute("SELECT coalesce(max(end_ns), 0) FROM usage").fetchone()
            (ended_ns,) = db.execute("SELECT coalesce(max(ended), 0) FROM jobs").fetchone()
            (next_id,) = db.execute("SELECT next FROM job_ids").fetchone()
            history = db.execute("SELECT name, history, at_ns FROM queue_history").fetchall()
            at_ns = max((row[2] for row in history), default=0)
            by_name = {name: one for name, one, when_ns in history if when_ns == at_ns}
            kept = db.execute("SELECT body FROM reservations ORDER BY name").fetchall()
            reservations = tuple(decode(Reservation, unseal(body)) for (body,) in kept)
            latest_ns = max([0, usage_ns, ended_ns, at_ns, *times])
            return Kept(jobs, queues, by_name, at_ns, latest_ns, next_id, reservations, _load_orders(db))

        return self._db.read(read)  # type: ignore[no-any-return]

    # ---- jobs ----

    def save(
        self,
        jobs: Sequence[Job],
        requests: Sequence[Request] = (),
        next_id: int = 0,
        rows: Sequence[Row] = (),
        groups: Mapping[int, str | None] = MappingProxyType({}),
        notes: Sequence[Noted] = (),
    ) -> None:
        """Jobs as they are now, the requests that made them, what they have used, their workers and what was noted of
        them, in one transaction."""

        erased = False

        def write(db: Any) -> None:
            nonlocal erased
            for job in jobs:
                _save_job(db, job)
            over = [job.job_id for job in jobs if job.state.is_final]
            erased = environments.forget(db, over)
            if erased:
                user_shares.measure(db, {environments.find_holder(db, job_id) for job_id in over})
            if next_id:
                db.execute("UPDATE job_ids SET next = max(next, ?)", (next_id,))
            for request in requests:
                row = (request.uid, request.request_id, request.fingerprint, json.dumps(request.job_ids))
                row_sum = checksum(*row, request.until_ns)
                statement = "INSERT OR REPLACE INTO job_requests VALUES (?, ?, ?, ?, ?, ?)"
                db.execute(statement, (*row, request.until_ns, row_sum))
            usage.save(db, rows)
            elastic.save(db, groups, notes)

        if jobs or requests or rows or groups or notes:
            self._db.write(write)
        if erased:
            _launch.cache_clear()
            _launch_text.cache_clear()
            self._db.erase()

    def requested(self, uid: int, request_id: str, now_ns: int) -> Request | None:
        """The submission with this request id, while it is remembered."""

        def read(db: Any) -> Request | None:
            found = db.execute(
                "SELECT fingerprint, job_ids, until_ns FROM job_requests WHERE uid = ? AND request_id = ?",
                (uid, request_id),
            ).fetchone()
            if found is None or found[2] <= now_ns:
                return None
            return Request(uid, request_id, found[0], tuple(json.loads(found[1])), found[2])

        return self._db.read(read)  # type: ignore[no-any-return]

    def find(self, job_id: int) -> Job | None:
        """A job, whether it has ended or not, as it was last saved."""

        def read(db: Any) -> Job | None:
            row = db.execute(f"{_JOBS} WHERE id = ?", (job_id,)).fetchone()
            return job_of(*row) if row else None

        return self._db.read(read)  # type: ignore[no-any-return]

    def owner(self, job_id: int) -> int | None:
        """The owner of a job; None: there is no such job."""

        def read(db: Any) -> int | None:
            row = db.execute("SELECT uid FROM jobs WHERE id = ?", (job_id,)).fetchone()
            return int(row[0]) if row else None

        return self._db.read(read)  # type: ignore[no-any-return]

    def ended_after(self, job_id: int, count: int, job_filter: JobFilter, last: int = usage.INTEGER_MAX) -> list[Job]:
        """Jobs that have ended, with greater numbers up to `last`, in their order."""
        states = json.dumps([state.value for state in job_filter.states])

        def read(db: Any) -> list[Job]:
            rows = db.execute(
                f"{_JOBS} WHERE ended AND id > ? AND id <= ? AND (? IS NULL OR uid = ?)"  # noqa: S608  our own names
                " AND (? = '' OR queue = ?) AND ended >= ? AND (? = '[]' OR json_extract(state, '$.state') IN"
                " (SELECT value FROM json_each(?))) ORDER BY id LIMIT ?",
                (
                    job_id,
                    last,
                    job_filter.uid,
                    job_filter.uid,
                    job_filter.queue,
                    job_filter.queue,
                    job_filter.since_ns,
                    states,
                    states,
                    count,
                ),
            ).fetchall()
            return [job_of(*row) for row in rows]

        return self._db.read(read)  # type: ignore[no-any-return]

    def durations(self, count: int) -> tuple[JobDuration, ...]:
        """Running times of the last jobs that completed or ran out of time, the oldest first, with their classes."""
        classes, ran, state = f"json_extract(spec, {_CLASSES})", "json_extract(state, '$.executed_ns')", "'$.state'"

        def read(db: Any) -> tuple[JobDuration, ...]:
            rows = db.execute(
                f"SELECT {classes}, {ran}, json_extract(state, {state}) FROM jobs WHERE ended"  # noqa: S608  our own names
                f" AND json_extract(state, {state}) IN (?, ?) AND {ran} > 0 AND {classes} IS NOT NULL"
                " ORDER BY ended DESC, id DESC LIMIT ?",
                (JobState.COMPLETED.value, JobState.TIMED_OUT.value, count),
            ).fetchall()
            done = JobState.COMPLETED.value
            return tuple(JobDuration(tuple(json.loads(row[0])), row[1], row[2] == done) for row in reversed(rows))

        return self._db.read(read)  # type: ignore[no-any-return]

    def asks(self, count: int) -> tuple[Ask, ...]:
        """What the newest jobs asked for, the oldest of these first."""

        def read(db: Any) -> tuple[Ask, ...]:
            rows = db.execute("SELECT json_extract(spec, '$.ask') FROM jobs ORDER BY id DESC LIMIT ?", (count,))
            return tuple(decode(Ask, json.loads(ask)) for (ask,) in reversed(rows.fetchall()))

        return self._db.read(read)  # type: ignore[no-any-return]

    def set_facts(self, job_id: int, facts: dict[str, int | str]) -> None:
        """What is known of a job beside the core's Job; see daemon/jobs/controller.py."""
        self._db.write(lambda db: db.execute("UPDATE jobs SET facts = ? WHERE id = ?", (seal(facts), job_id)))

    def facts(self, job_id: int) -> dict[str, int | str]:
        def read(db: Any) -> dict[str, int | str]:
            row = db.execute("SELECT facts FROM jobs WHERE id = ?", (job_id,)).fetchone()
            return unseal(row[0]) if row else {}

        return self._db.read(read)  # type: ignore[no-any-return]

    def forget_before(self, wall_ns: int, now_ns: int) -> None:
        """Jobs that ended and what was used before that time, a part at a time, and submissions that are not remembered
        any more. Numbers of jobs are not given again."""

        def is_there(db: Any) -> bool:
            asked = (
                ("SELECT 1 FROM jobs WHERE ended AND ended < ? LIMIT 1", wall_ns),
                ("SELECT 1 FROM usage WHERE end_ns < ? LIMIT 1", wall_ns),
                ("SELECT 1 FROM job_requests WHERE until_ns < ? LIMIT 1", now_ns),
            )
            return any(db.execute(statement, (before_ns,)).fetchone() for statement, before_ns in asked)

        def forget(db: Any) -> None:
            gone = 0
            for table, column, more in (("jobs", "ended", f" AND {user_shares.NOT_NEEDED}"), ("usage", "end_ns", "")):
                old = f"SELECT rowid FROM {table} WHERE {column} AND {column} < ?{more} LIMIT {FORGET_MAX}"  # noqa: S608
                gone += db.execute(f"DELETE FROM {table} WHERE rowid IN ({old})", (wall_ns,)).rowcount  # noqa: S608
            db.execute("DELETE FROM job_requests WHERE until_ns < ?", (now_ns,))
            if gone:
                elastic.forget(db)

        if self._db.read(is_there):
            self._db.write(forget, outlive=False)

    def forget_excess(
        self, most_bytes: int, now_ns: int, dependencies: Callable[[], Collection[int]]
    ) -> dict[int, int]:
        """Forgets a part of what is above that size, of the users who have most. `dependencies`: jobs that stay, asked
        for only then. Returns how many jobs, or rows of usage, by user."""
        forgotten: dict[int, int] = {}

        def forget(db: Any) -> None:
            forgotten.update(user_shares.forget_excess(db, most_bytes, now_ns, dependencies()))

        if self._db.read(user_shares.used_bytes) > most_bytes:
            self._db.write(forget, outlive=False)
        return forgotten

    # ---- queues ----

    def save_queue(self, spec: QueueSpec, members: Sequence[str]) -> None:
        named = json.dumps(members)
        row = (spec.name, seal(encode(spec)), named, checksum(spec.name, named))
        self._db.write(lambda db: db.execute("INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?)", row))

    def delete_queue(self, name: str) -> None:
        def write(db: Any) -> None:
            db.execute("DELETE FROM queues WHERE name = ?", (name,))
            orders.save(db, {name: None}, 0)

        self._db.write(write)

    def save_reservations(self, reservations: Sequence[Reservation]) -> None:
        """All of them: others are forgotten."""
        rows = [(one.name, seal(encode(one))) for one in reservations]

        def write(db: Any) -> None:
            db.execute("DELETE FROM reservations")
            db.executemany("INSERT INTO reservations VALUES (?, ?)", rows)

        self._db.write(write)

    def save_history(self, histories: dict[str, int], at_ns: int) -> None:
        """Of all queues at one time, for fair shares after a restart. The newest may be lost with the machine."""
        rows = [(name, history, at_ns) for name, history in histories.items()]
        statement = "INSERT OR REPLACE INTO queue_history VALUES (?, ?, ?)"
        self._db.write(lambda db: db.executemany(statement, rows), outlive=False)

    def save_orders(self, knowledge_by_queue: Mapping[str, dict[str, Any] | None], at_ns: int) -> None:
        """What orders have learnt; None: nothing. The newest may be lost with the machine."""
        self._db.write(lambda db: orders.save(db, knowledge_by_queue, at_ns), outlive=False)

    # ---- the accounting ----

    def save_rows(self, rows: Sequence[Row]) -> None:
        """Rows that are new or have grown. The newest may be lost with the machine."""
        if rows:
            self._db.write(lambda db: usage.save(db, rows), outlive=False)

    def rows_from(self, end_ns: int, rowid: int, count: int) -> list[tuple[int, Row]]:
        """Rows in the order of their ends, each with its rowid, after the one that ends then and has that rowid."""

        def read(db: Any) -> list[tuple[int, Row]]:
            found = db.execute(
                "SELECT rowid, * FROM usage WHERE (end_ns, rowid) > (?, ?) ORDER BY end_ns, rowid LIMIT ?",
                (end_ns, rowid, count),
            ).fetchall()
            return [(number, Row(*values)) for number, *values in found]

        return self._db.read(read)  # type: ignore[no-any-return]

    def rows_of(self, job_id: int) -> list[Row]:
        def read(db: Any) -> list[Row]:
            found = db.execute("SELECT * FROM usage WHERE job_id = ?", (job_id,)).fetchall()
            return [Row(*values) for values in found]

        return self._db.read(read)  # type: ignore[no-any-return]

    def last_end(self, slice_uid: str) -> int:
        """Up to when a slice has been accounted for, 0 for never."""

        def read(db: Any) -> int:
            row = db.execute("SELECT coalesce(max(end_ns), 0) FROM usage WHERE slice_uid = ?", (slice_uid,)).fetchone()
            return int(row[0])

        return self._db.read(read)  # type: ignore[no-any-return]

    def ended_from(self, ended_ns: int, job_id: int, count: int) -> list[tuple[int, Job]]:
        """Jobs in the order of their ends, each with its owner, after the one that ended then and has that number: of
        each only what the accounting looks at, for there may be a hundred thousand of them."""
        states = ("submitted_ns", "state", "first_started_ns", "executed_ns")
        specs = ("ask.spec.gpus_milli", "members")
        names = [("state", name) for name in states] + [("spec", name) for name in specs]
        values = ", ".join(f"json_extract({column}, '$.{name}')" for column, name in names)

        def read(db: Any) -> list[tuple[int, Job]]:
            rows = db.execute(
                f"SELECT uid, id, ended, {values} FROM jobs WHERE ended"  # noqa: S608  our own names
                " AND (ended, id) > (?, ?) ORDER BY ended, id LIMIT ?",
                (ended_ns, job_id, count),
            )
            return [(uid, _summary(*row)) for uid, *row in rows]

        return self._db.read(read)  # type: ignore[no-any-return]


def _load_orders(db: Any) -> tuple[KeptOrder, ...]:
    found = []
    for queue, at_ns, knowledge in orders.load(db):
        rows = db.execute(
            f"{_JOBS} WHERE ended > ? AND queue = ? ORDER BY ended, id LIMIT ?",
            (at_ns, queue, orders.ENDED_MAX),
        ).fetchall()
        found.append(KeptOrder(queue, knowledge, tuple(job_of(*row) for row in rows)))
    return tuple(found)


def _summary(
    job_id: int,
    ended_ns: int,
    submitted_ns: int,
    state: str,
    first_started_ns: int | None,
    executed_ns: int | None,
    gpus_milli: int,
    members: int | None,
) -> Job:
    """What is left out has its default."""
    return Job(
        job_id,
        JobSpec(Ask(Spec(gpus_milli)), members=members or 1),
        submitted_ns,
        state=JobState(state),
        first_started_ns=-1 if first_started_ns is None else first_started_ns,
        ended_ns=ended_ns,
        executed_ns=executed_ns or 0,
    )


def _changes(spec: JobSpec) -> bool:
    """Whether a specification is not as it was submitted: it has the size of now, or what was measured."""
    return spec.elastic is not None or spec.ask.utilisation_milli >= 0


def _save_job(db: Any, job: Job) -> None:
    state = _state(job)
    ended_ns = job.ended_ns if job.state.is_final else 0
    changed = db.execute("UPDATE jobs SET ended = ?, state = ? WHERE id = ?", (ended_ns, state, job.job_id))
    if changed.rowcount:
        if job.changed or _changes(job.spec):
            values = (seal(encode(job.spec)), job.spec.queue, job.job_id)
            db.execute("UPDATE jobs SET spec = ?, queue = ? WHERE id = ?", values)
        return
    launch = None
    if isinstance(job.spec.run, Launch):
        follows = job.spec.array not in (0, job.job_id)
        launch = f"@{job.spec.array}" if follows else _launch_text(job.spec.run)
    spec = seal(encode(job.spec))
    size = user_shares.size_bytes(spec, launch, state)
    row = (job.job_id, ended_ns, job.spec.uid, job.spec.queue, spec, launch, state, size)
    names = "id, ended, uid, queue, spec, launch, state, bytes"
    db.execute(f"INSERT INTO jobs ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608  our own names
