"""What `vgpu cluster` must not lose with its process: the queue's jobs, which of Slurm's jobs they are, what has run.

Losing this file loses service that jobs have attained and the accounting, no job: those are Slurm's.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job
from vgpud.core.queue.record import decode, encode
from vgpud.errors import DeniedError, StoreError
from vgpud.host import private_files
from vgpud.store import orders
from vgpud.store.connecting import connect

FILE_NAME = "cluster.sqlite3"
#: one statement list per version, as in database.py
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, body TEXT NOT NULL)",
        "CREATE TABLE bindings (key TEXT PRIMARY KEY, job_id INTEGER NOT NULL, attempt INTEGER NOT NULL,"
        " restarts INTEGER NOT NULL, giving_up INTEGER NOT NULL)",
        "CREATE TABLE usage (job_id INTEGER PRIMARY KEY, key TEXT NOT NULL, queue TEXT NOT NULL, uid INTEGER NOT NULL,"
        " submitted_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, gpus_milli INTEGER NOT NULL,"
        " members INTEGER NOT NULL, ran_ns INTEGER NOT NULL, preemptions INTEGER NOT NULL, state TEXT NOT NULL)",
        "CREATE TABLE history (queue TEXT PRIMARY KEY, average INTEGER NOT NULL, at_ns INTEGER NOT NULL)",
        "CREATE TABLE ids (next INTEGER NOT NULL)",
    ),
    orders.TABLES,
)
#: columns of `vgpu usage -o csv`, which `vgpu whatif` reads, and what is known here besides
USAGE_COLUMNS: tuple[str, ...] = (
    "job_id",
    "queue",
    "uid",
    "submitted_s",
    "ended_s",
    "gpus_milli",
    "members",
    "duration_s",
    "state",
    "slurm_id",
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a controller finds when it starts. `bindings`: (key, job, attempt, restarts, giving up)."""

    jobs: tuple[Job, ...]
    bindings: tuple[tuple[str, int, int, int, bool], ...]
    next_id: int
    histories: dict[str, int]
    history_at_ns: int
    latest_ns: int  # no time in here is later
    orders: dict[str, dict[str, Any]]  # by queue, what its order had learnt

    @property
    def past(self) -> dict[str, object]:
        """What queues had used before, for a recording."""
        return {"histories": self.histories, "history_at_ns": self.history_at_ns}


class ClusterStore:
    """The file of one controller. All methods raise StoreError with a one-line message."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        with self._faults("open"):
            private_files.create(self._path)
            self._db = connect(self._path)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # an order to Slurm has been decided for good
            self._migrate()

    def _migrate(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            text = f"{self._path} was written by a newer vgpu (version {version}, this one knows {len(MIGRATIONS)})"
            raise StoreError(f"{text}: install that one again")
        with self._transaction():
            for statements in MIGRATIONS[version:]:
                for statement in statements:
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @contextlib.contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot {what} {self._path}: {error}") from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def load(self) -> Kept:
        """Jobs that have not ended, and what belongs to them."""
        with self._faults("read"):
            bodies = self._db.execute("SELECT body FROM jobs ORDER BY id").fetchall()
            bindings = self._db.execute("SELECT * FROM bindings").fetchall()
            histories = self._db.execute("SELECT * FROM history").fetchall()
            (highest,) = self._db.execute("SELECT max(next) FROM ids").fetchone()
            (last_ns,) = self._db.execute("SELECT max(ended_ns) FROM usage").fetchone()
            known_orders = orders.load(self._db)
        try:
            jobs: tuple[Job, ...] = tuple(decode(Job, json.loads(body)) for (body,) in bodies)
        except ValueError as error:
            raise StoreError(f"{self._path} has a job that cannot be read ({error}): move the file away") from error
        known = {job.job_id for job in jobs}
        times = [at for job in jobs for at in (job.submitted_ns, job.started_ns, job.waiting_since_ns)]
        return Kept(
            jobs,
            tuple((key, job_id, a, r, bool(g)) for key, job_id, a, r, g in bindings if job_id in known),
            highest or 1,
            {queue: average for queue, average, _ in histories},
            max((at_ns for *_, at_ns in histories), default=0),
            max([*times, last_ns or 0, *(at_ns for *_, at_ns in histories)]),
            {queue: knowledge for queue, _, knowledge in known_orders},
        )

    def save(
        self,
        jobs: Iterable[Job],
        bindings: Mapping[str, tuple[int, int, int, bool] | None],
        ended_jobs: Sequence[tuple[str, Job]],
        next_id: int,
        learnt_orders: Mapping[str, dict[str, Any] | None],
        now_ns: int,
    ) -> None:
        """One step of the controller, in one transaction: on the disk when this returns."""
        with self._faults("write"), self._transaction():
            for job in jobs:
                if not job.state.is_final:
                    body = json.dumps(encode(job))
                    self._db.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", (job.job_id, body))
            for key, binding in bindings.items():
                if binding is None:
                    self._db.execute("DELETE FROM bindings WHERE key = ?", (key,))
                else:
                    self._db.execute("INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?)", (key, *binding))
            for key, job in ended_jobs:
                self._db.execute("DELETE FROM jobs WHERE id = ?", (job.job_id,))
                values = _usage(key, job)
                marks = ", ".join("?" * len(values))
                self._db.execute(f"INSERT OR REPLACE INTO usage VALUES ({marks})", values)  # noqa: S608  our own text
            orders.save(self._db, learnt_orders, now_ns)
            self._db.execute("DELETE FROM ids")
            self._db.execute("INSERT INTO ids VALUES (?)", (next_id,))

    def save_history(self, histories: Mapping[str, int], at_ns: int) -> None:
        """What queues have used on average, for fair shares."""
        with self._faults("write"), self._transaction():
            self._db.execute("DELETE FROM history")
            for queue, average in histories.items():
                self._db.execute("INSERT INTO history VALUES (?, ?, ?)", (queue, average, at_ns))

    def close(self) -> None:
        self._db.close()


def _usage(key: str, job: Job) -> tuple[object, ...]:
    spec = job.spec
    times = (job.submitted_ns, job.ended_ns)
    amounts = (spec.ask.width_milli, spec.members, job.executed_ns, job.preemptions)
    return (job.job_id, key, spec.queue, spec.uid, *times, *amounts, job.state.value)


def usage(directory: Path, since_ns: int = 0, until_ns: int = NEVER_NS) -> list[tuple[object, ...]]:
    """Rows of USAGE_COLUMNS, of jobs that ended between these times, by submission. A controller may run meanwhile.
    Raises StoreError."""
    path = directory / FILE_NAME
    try:
        path.stat()
        with contextlib.closing(connect(f"{path}")) as db:
            db.execute("PRAGMA query_only = ON")
            found = db.execute(
                "SELECT job_id, queue, uid, submitted_ns, ended_ns, gpus_milli, members, ran_ns, state, key FROM usage"
                " WHERE ended_ns >= ? AND ended_ns < ? ORDER BY submitted_ns, job_id",
                (since_ns, until_ns),
            ).fetchall()
    except FileNotFoundError as error:
        raise StoreError(f"there is no {path}: name the state directory of `vgpu cluster run` (--state-dir)") from error
    except PermissionError as error:
        text = f"{path} is for admins and the user of the controller: `sacct` and `squeue` show your own jobs"
        raise DeniedError(text) from error
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    return [(*row[:3], _seconds(row[3]), _seconds(row[4]), *row[5:7], _seconds(row[7]), *row[8:]) for row in found]


def _seconds(ns: int) -> str:
    whole, rest = divmod(ns, SECOND_NS)
    return f"{whole}.{rest:09}".rstrip("0").rstrip(".")
