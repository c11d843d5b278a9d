"""Jobs, queues and accounting rows in the database, and what the rows add up to."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from vgpud.core.events import Command
from vgpud.core.jobs.events import Woken
from vgpud.core.jobs.facts import JobFilter, Launch, UsageRow
from vgpud.core.jobs.model import NEVER_NS, Ask, Job, JobSpec, JobState, Place, QueueSpec, Reservation
from vgpud.core.model import DEFAULT_QUEUE, PAUSED, Share, SiteLimits, Slice, Spec, State
from vgpud.core.observed import SliceStats
from vgpud.core.origins import Container, User
from vgpud.core.origins import Job as Running
from vgpud.core.queue.accounting import BYS, ROW_NS, Counts, Ledger, Row, make_waiting_row, sums
from vgpud.daemon.jobs.queues import QueueRegistry
from vgpud.store import database as store_module
from vgpud.store.database import Store
from vgpud.store.jobs import JobStore, Request
from vgpud.store.queue_recorder import Recorder
from vgpud.store.usage import INTEGER_MAX

S = 1_000_000_000
SHARE = Share("GPU-0", 500, 1000, 1, 1 << 30)

#: every job that has ended
EVERY = JobFilter(has_ended_jobs=True)


def launch(**fields: object) -> Launch:
    given = {
        "uid": 1000,
        "gid": 1000,
        "gids": (1000, 27),
        "command": ("sh", "-c", "exit 3"),
        "image": "",
        "directory": "/tmp",
        "environment": (("A", "ü\n"), ("PATH", "/bin")),
        "umask": 0o27,
        "limits": (("nofile", 10, -1),),
        "log": "/tmp/%j.log",
    }
    return Launch(**(given | fields))  # type: ignore[arg-type]


def job(job_id: int = 1, state: JobState = JobState.PENDING, **fields: object) -> Job:
    spec = JobSpec(Ask(Spec(500)), uid=1000, run=launch(), after=(3, 4), after_fail=(4,), name="n", members=2)
    given = {"submitted_ns": 5 * S, "waiting_since_ns": 5 * S} | fields
    return Job(job_id, spec, state=state, **given)  # type: ignore[arg-type]


def reopen(directory: Path) -> JobStore:
    return JobStore(Store(directory))


def plain(record: Job) -> dict[str, object]:
    return {name: getattr(record, name) for name in Job.__slots__}


def test_a_job_comes_back_as_it_was(tmp_path: Path) -> None:
    running = job(7, JobState.RUNNING, started_ns=9 * S, attempt=2, placement=(Place("n1", (SHARE,), 5, 6),) * 2)
    held = job(8, JobState.HELD)
    jobs = JobStore(Store(tmp_path))
    jobs.save([job(7), held], next_id=9)
    jobs.save([running])
    kept = reopen(tmp_path).load()
    assert [plain(found) for found in kept.jobs] == [plain(running), plain(held)]
    assert kept.next_id == 9
    assert kept.latest_ns == 9 * S


def test_ended_jobs_are_found_and_not_loaded(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    done = job(1, JobState.FAILED, ended_ns=20 * S, exit_code=3, reason="it ended with 3")
    jobs.save([done, job(2), job(3, JobState.COMPLETED, ended_ns=30 * S)])
    assert [found.job_id for found in jobs.load().jobs] == [2, 3], "and what they come after"
    done.spec = replace(done.spec, run=launch(environment=()))
    assert plain(jobs.find(1) or job()) == plain(done)
    assert jobs.find(4) is None
    assert [found.job_id for found in jobs.ended_after(0, 9, EVERY)] == [1, 3]
    assert [found.job_id for found in jobs.ended_after(1, 9, JobFilter(True, 1000, DEFAULT_QUEUE))] == [3]
    assert jobs.ended_after(0, 9, JobFilter(True, 1001)) == jobs.ended_after(0, 9, JobFilter(True, queue="other")) == []
    assert [found.job_id for found in jobs.ended_after(0, 9, JobFilter(True, since_ns=25 * S))] == [3]
    failed = JobFilter(True, states=(JobState.FAILED, JobState.TIMED_OUT))
    assert [found.job_id for found in jobs.ended_after(0, 9, failed)] == [1]
    assert [found.job_id for _, found in jobs.ended_from(25 * S, 0, 9)] == [3]


def test_a_job_that_its_user_has_changed_is_written_again(tmp_path: Path) -> None:
    jobs, one = JobStore(Store(tmp_path)), job(1)
    jobs.save([one])
    one.spec, one.changed = replace(one.spec, queue="team", priority=-7), True
    jobs.save([one])
    (found,) = reopen(tmp_path).load().jobs
    assert (found.spec.queue, found.spec.priority, found.changed) == ("team", -7, True)


def test_reservations_are_kept_and_damaged_ones_set_aside(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    one, two = (Reservation(name, "n", ("GPU-1",), 5 * S, 9 * S, "team", "why") for name in ("a", "b"))
    jobs.save_reservations([one, two])
    assert reopen(tmp_path).load().reservations == (one, two)
    jobs = reopen(tmp_path)
    jobs.save_reservations([two])
    assert reopen(tmp_path).load().reservations == (two,)
    with sqlite3.connect(tmp_path / "vgpud.sqlite3") as db:
        db.execute("UPDATE reservations SET body = replace(body, 'team', 'meat')")
    assert reopen(tmp_path).load().reservations == ()


def test_what_a_job_comes_after_is_loaded_with_it(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    jobs.save([job(3, JobState.COMPLETED, ended_ns=S), job(4, JobState.COMPLETED, ended_ns=S)])
    jobs.save([job(5, JobState.COMPLETED, ended_ns=S), job(6)])
    assert [found.job_id for found in jobs.load().jobs] == [3, 4, 6]


def test_what_is_old_is_forgotten_and_numbers_are_not(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    jobs.save(
        [job(1, JobState.COMPLETED, ended_ns=10 * S), job(2, JobState.FAILED, ended_ns=20 * S), job(5)], next_id=6
    )
    jobs.save_rows([row(1, 5, "x", 0, 10), row(2, 5, "x", 10, 20)])
    jobs.forget_before(15 * S, 15 * S)
    assert [found.job_id for found in jobs.ended_after(0, 9, EVERY)] == [2]
    assert [found.job_id for found in all_rows(jobs)] == [2]
    assert [found.job_id for found in jobs.load().jobs] == [5]
    assert jobs.load().next_id == 6


def test_the_jobs_of_an_array_share_what_they_run(tmp_path: Path) -> None:
    """Ten thousand environments would fill the disk."""
    many = [
        replace(job(n, JobState.FAILED, ended_ns=n * S), spec=replace(job().spec, array=1, index=n)) for n in (1, 2, 3)
    ]
    for one in many:
        one.spec = replace(one.spec, run=launch(command=("sh", "-c", "x" * 100_000)))
    store = Store(tmp_path)
    jobs = JobStore(store)
    jobs.save(many)
    sizes = store.read(lambda db: [size for (size,) in db.execute("SELECT length(launch) FROM jobs ORDER BY id")])
    assert sizes[0] > 100_000 and sizes[1:] == [2, 2]
    kept = launch(command=("sh", "-c", "x" * 100_000), environment=())
    assert [found.spec.run for found in jobs.ended_after(0, 9, EVERY)] == [kept] * 3
    jobs.forget_before(3 * S, 3 * S)
    assert [found.job_id for found in jobs.ended_after(0, 9, EVERY)] == [1, 3], "the first for the last's sake"
    last = reopen(tmp_path).find(3)
    assert last and last.spec.run == kept
    for _ in range(2):
        jobs.forget_before(9 * S, 9 * S)
    assert not jobs.ended_after(0, 9, EVERY)


def test_a_failed_transaction_keeps_nothing(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    broken = job(2)
    broken.spec = replace(broken.spec, run=launch(log=b"\xff"))
    with pytest.raises(store_module.StoreError):
        jobs.save([job(1), broken], next_id=3)
    kept = jobs.load()
    assert (kept.jobs, kept.next_id) == ((), 1)


def test_a_request_is_remembered_for_its_user(tmp_path: Path) -> None:
    made = Request(1000, "r", "f", (4, 5), 100)
    JobStore(Store(tmp_path)).save([job(4), job(5)], [made])
    jobs = reopen(tmp_path)
    assert jobs.requested(1000, "r", 99) == made
    assert jobs.requested(1000, "r", 100) is None
    assert jobs.requested(1001, "r", 99) is None


def test_queues_and_facts(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    team = QueueSpec("team", limit_milli=1500, policy="2d-las(3250,7200)", strict=True)
    jobs.save_queue(QueueSpec("team"), ())
    jobs.save_queue(team, ("uid:1000",))
    jobs.save_queue(QueueSpec("gone"), ())
    jobs.delete_queue("gone")
    jobs.save([job(1)])
    jobs.set_facts(1, {"cpu_ns": 5, "stop": "requeue"})
    jobs.save_history({"team": 5, "gone": 7}, 40)
    jobs.save_history({"team": 6}, 50)
    kept = reopen(tmp_path).load()
    assert (kept.histories, kept.history_at_ns) == ({"team": 6}, 50)
    assert reopen(tmp_path).load().queues == ((team, ("uid:1000",)),)
    assert jobs.facts(1) == {"cpu_ns": 5, "stop": "requeue"}
    assert jobs.facts(9) == {}


def test_a_database_of_before_gets_the_tables(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / store_module.FILE_NAME) as db:
        for statements in store_module.MIGRATIONS[:3]:
            for statement in statements:
                db.execute(statement)
        db.execute("PRAGMA user_version = 3")
        body = '{"cdi_device": false, "cdi_used": false, "created_wall_ns": 1, "ephemeral": false, "name": "a",'
        body += ' "owner_uid": 7, "revision": 1, "serial": 1, "shares": [], "uid": "u", "spec": {"gpus_milli": 500,'
        body += ' "device_uuids": []}}'
        db.execute("INSERT INTO slices VALUES ('u', 'a', ?)", (body,))
    store = Store(tmp_path)
    (old,) = store.load(10).slices
    assert (old.queue, old.origin, old.suspended) == (DEFAULT_QUEUE, User("a"), "")
    assert JobStore(store).load().jobs == ()


# ---- the accounting ----


def make_slice(milli: int = 500, **fields: object) -> Slice:
    share = Share("GPU-0", milli, 1000, 1, 1 << 30)
    return replace(Slice(User("a"), "u", 1, Spec(800), (share,), 1000, 0, queue="team"), **fields)  # type: ignore[arg-type]


def test_a_slice_is_charged_as_it_was_when_last_seen() -> None:
    ledger = Ledger()
    ledger.open(make_slice(), 10 * S)
    row = ledger.see(make_slice(200), Counts(S), 14 * S)
    assert (row.requested_service, row.granted, row.used) == (800 * 4 * S, 500 * 4 * S, 1000 * S)
    row = ledger.see(make_slice(suspended=PAUSED), Counts(3 * S), 15 * S)
    assert (row.granted, row.used) == (500 * 4 * S + 200 * S, 3000 * S)
    row = ledger.close(make_slice(), Counts(3 * S), 18 * S)
    assert row.granted == 500 * 4 * S + 200 * S, "paused: its time is others'"
    assert not ledger.knows("u")


def copies_of(row: Row | UsageRow) -> tuple[int, int]:
    return row.copy_to_device_bytes, row.copy_from_device_bytes


def drop_copies(db: sqlite3.Connection) -> None:
    """The table of usage as it was before copies were accounted."""
    for name in ("copy_from_device_bytes", "copy_to_device_bytes"):
        db.execute(f"ALTER TABLE usage DROP COLUMN {name}")


def all_rows(jobs: JobStore, since_ns: int = 0) -> list[Row]:
    found: list[Row] = []
    at = since_ns, INTEGER_MAX
    while part := jobs.rows_from(*at, 1):
        found += [row for _, row in part]
        at = part[-1][1].end_ns, part[-1][0]
    return found


def test_rows_are_bounded_in_time_and_counters_may_begin_again(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    ledger = Ledger()
    ledger.open(make_slice(), 0)
    for hour in range(1, 4):
        jobs.save_rows([ledger.see(make_slice(), Counts(hour * 7 * S, hour * 40, hour), hour * ROW_NS)])
    again = Ledger()  # the daemon was away for a while, and its arbiters count from 0
    again.open(make_slice(), jobs.last_end("u"))
    jobs.save_rows([again.close(make_slice(), Counts(2 * S, 5, 0), 4 * ROW_NS)])
    rows = all_rows(jobs)
    assert [(row.begin_ns, row.end_ns) for row in rows] == [(h * ROW_NS, (h + 1) * ROW_NS) for h in range(4)]
    assert sum(row.granted for row in rows) == 500 * 4 * ROW_NS
    assert sum(row.used for row in rows) == 23 * 1000 * S
    assert [copies_of(row) for row in rows] == [(40, 1)] * 3 + [(5, 0)]
    assert all_rows(jobs, 2 * ROW_NS) == rows[2:], "one at a time, and none twice"


def test_a_large_job_may_wait_for_months(tmp_path: Path) -> None:
    """What it asks for is more than SQLite counts to, and all of it is kept."""
    large = replace(job(7), spec=JobSpec(Ask(Spec(8000)), uid=1000, members=4))
    waits = make_waiting_row(large, 5 * S + 100 * 86_400 * S)
    assert waits is not None and waits.requested_service > 1 << 63
    jobs = JobStore(Store(tmp_path))
    jobs.save([large], rows=[waits])
    jobs.save([large], rows=[waits])
    kept = all_rows(jobs)
    assert (kept[0].begin_ns, kept[-1].end_ns) == (waits.begin_ns, waits.end_ns)
    assert [a.end_ns for a in kept[:-1]] == [b.begin_ns for b in kept[1:]]
    assert sum(part.requested_service for part in kept) == waits.requested_service


def test_more_bytes_than_are_numbers_of_the_database_are_the_most_that_it_holds(tmp_path: Path) -> None:
    """Programs say what they have copied, and may say anything."""
    jobs, lies = JobStore(Store(tmp_path)), INTEGER_MAX * 5
    ledger = Ledger()
    ledger.open(make_slice(), S)
    jobs.save_rows([ledger.see(make_slice(), Counts(0, lies, 7), S)])  # in no time at all
    assert [copies_of(row) for row in all_rows(jobs)] == [(INTEGER_MAX, 7)]


def row(job_id: int, uid: int, queue: str, begin_s: int, end_s: int, milli: int = 1000) -> Row:
    """It copies a byte to the device in each microsecond, and half as much from it."""
    amount, copied = milli * (end_s - begin_s) * S, (end_s - begin_s) * 1_000_000
    name = f"j-{job_id}" if job_id else "a"
    return Row(
        f"u-{name}-{uid}",
        begin_s * S,
        end_s * S,
        name,
        job_id,
        queue,
        uid,
        amount,
        amount // 2,
        amount // 4,
        copy_to_device_bytes=copied,
        copy_from_device_bytes=copied // 2,
    )


def test_sums_by_job_user_and_queue() -> None:
    rows = [row(1, 5, "x", 0, 10), row(1, 5, "x", 10, 20), row(2, 6, "x", 0, 10), row(0, 5, "y", 0, 4)]
    first = job(1, JobState.COMPLETED, first_started_ns=6 * S, ended_ns=20 * S, executed_ns=14 * S)
    by_job = sums(rows, {1: first}, "job", 0, NEVER_NS)
    assert [(u.job_id, u.slice, u.requested_service // S, u.jobs) for u in by_job] == [
        (0, "a", 4000, 0),
        (1, "", 20_000, 1),
        (2, "", 10_000, 1),
    ]
    assert (by_job[1].submitted_ns, by_job[1].ran_ns, by_job[1].members) == (5 * S, 14 * S, 2)
    by_user = sums(rows, {}, "user", 0, NEVER_NS)
    assert [(u.uid, u.granted // S, u.jobs) for u in by_user] == [(5, 12_000, 1), (6, 5000, 1)]
    by_queue = sums(rows, {}, "queue", 5 * S, 15 * S)
    assert [(u.queue, u.requested_service // S, u.jobs) for u in by_queue] == [("x", 15_000, 2)], (
        "in proportion to the time"
    )


@pytest.mark.parametrize("by", BYS)
def test_copies_are_summed_up_as_time_is(by: str) -> None:
    """Whole, and in proportion to the time. Each sum is of the same rows: so its copies are as its used time is."""
    pods = [{"namespace": name, "pod": "p"} for name in ("lab", "lab", "team", "team")]
    rows = [row(1, 5, "x", 0, 10), row(1, 5, "x", 10, 20), row(2, 6, "x", 0, 10), row(0, 5, "y", 0, 4)]
    rows = [replace(one, **pod) for one, pod in zip(rows, pods, strict=True)]
    for since_ns, until_ns, seconds in ((0, NEVER_NS, 34), (5 * S, 15 * S, 15)):
        found = sums(rows, {}, by, since_ns, until_ns)
        copied = [copies_of(one) for one in found]
        assert copied == [(one.used // 250_000, one.used // 500_000) for one in found]
        assert sum(to_bytes for to_bytes, _ in copied) == seconds * 1_000_000


def test_sums_by_namespace_and_pod_are_of_claims_alone(tmp_path: Path) -> None:
    both, one = {"namespace": "team", "pod": ""}, {"namespace": "team", "pod": "train-0"}
    other = {"namespace": "lab", "pod": "train-0"}
    rows = [row(0, 5, "x", 0, 9)] + [
        replace(row(0, 0, "x", n, n + 4), slice_uid=f"u{n}", **pod) for n, pod in enumerate((both, one, one, other))
    ]
    kept = JobStore(Store(tmp_path))
    kept.save_rows(rows)
    assert all_rows(kept) == sorted(rows, key=lambda one: one.end_ns)
    by_namespace = sums(rows, {}, "namespace", 0, NEVER_NS)
    assert [(u.namespace, u.pod, u.granted // S, u.uid) for u in by_namespace] == [
        ("lab", "", 2000, -1),
        ("team", "", 6000, -1),
    ]
    by_pod = sums(rows, {}, "pod", 0, NEVER_NS)
    assert [(u.namespace, u.pod, u.granted // S) for u in by_pod] == [
        ("lab", "train-0", 2000),
        ("team", "", 2000),
        ("team", "train-0", 4000),
    ]


def test_waiting_is_asked_and_nothing_else() -> None:
    found = make_waiting_row(job(3), 9 * S)
    assert found is not None
    assert (found.requested_service, found.granted, found.used) == (500 * 2 * 4 * S, 0, 0)
    assert make_waiting_row(job(3), 5 * S) is None


class NoSlices:
    """The machine of slices, as QueueRegistry needs it."""

    state = State()

    def run(self, event: object) -> list[Command]:
        return []


class NoCounters:
    def of_slice(self, slice_: Slice) -> tuple[SliceStats, ...]:
        return ()


def test_what_a_suspended_job_asks_for_is_in_its_slices_rows_alone(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    now = [5 * S]
    registry = QueueRegistry(NoSlices(), NoCounters(), jobs, jobs.load(), lambda: now[0])
    one = job(7)
    for state, second in ((JobState.PENDING, 5), (JobState.RUNNING, 8), (JobState.SUSPENDED, 20)):
        one.state, now[0] = state, second * S
        one.waiting_since_ns = one.waiting_since_ns if state is JobState.RUNNING else now[0]
        registry.job_changed(one)
    now[0] = 100 * S
    (row,) = asyncio.run(registry.usage(0, NEVER_NS, "job", None, [one]))
    assert row.requested_service == 500 * 2 * 3 * S, "while it was pending"
    one.state = JobState.RUNNING
    registry.job_changed(one)
    assert asyncio.run(registry.usage(0, NEVER_NS, "job", None, [one]))[0].requested_service == row.requested_service


class OfSlices:
    """The machine of a daemon that has found these slices, and what its arbiters have counted since it started."""

    def __init__(self, *slices: Slice) -> None:
        self.state = State(slices={one.name: one for one in slices})
        self.now: dict[str, list[SliceStats]] = {}

    def run(self, event: object) -> list[Command]:
        return []

    def of_slice(self, slice_: Slice) -> list[SliceStats]:
        return self.now.get(slice_.uid, [])


def stats(used_s: int, to_bytes: int, from_bytes: int) -> SliceStats:
    return SliceStats(charged_ns=used_s * S, copy_to_device_bytes=to_bytes, copy_from_device_bytes=from_bytes)


def test_copies_are_accounted_over_a_restart_of_the_daemon(tmp_path: Path) -> None:
    """Of the slices of a job, of a user and of a container; on all devices of a slice together."""
    slices = [
        make_slice(origin=Running(7), uid="u-job", owner_uid=5),
        make_slice(origin=User("a"), uid="u-user", owner_uid=6),
        make_slice(origin=Container("c"), uid="u-container", owner_uid=6),
    ]
    now_ns = 10 * S

    def start() -> tuple[QueueRegistry, OfSlices]:
        jobs, machine = reopen(tmp_path), OfSlices(*slices)
        return QueueRegistry(machine, machine, jobs, jobs.load(), lambda: now_ns), machine

    registry, machine = start()
    now_ns = 20 * S
    machine.now = {
        "u-job": [stats(4, 1000, 10), stats(1, 500, 0)],
        "u-user": [stats(1, 70, 7)],
        "u-container": [stats(0, 3, 0)],
    }
    registry.save()
    registry, machine = start()  # its arbiters count from 0
    now_ns = 30 * S
    machine.now = {"u-job": [stats(2, 200, 5)], "u-container": [stats(0, 0, 4)]}
    registry.slice_changed(slices[0])
    machine.now["u-job"] = [stats(3, 300, 5)]
    registry.slice_goes(slices[0])
    by_job = asyncio.run(registry.usage(0, NEVER_NS, "job", None, []))
    assert {(row.slice, row.job_id, row.used // 1000 // S, *copies_of(row)) for row in by_job} == {
        ("", 7, 8, 1800, 15),
        ("a", 0, 1, 70, 7),
        ("c", 0, 0, 3, 4),
    }
    by_user = asyncio.run(registry.usage(0, NEVER_NS, "user", 6, []))
    assert [(row.uid, *copies_of(row)) for row in by_user] == [(6, 73, 11)]


def test_a_queue_that_has_gone_before_its_last_job_is_there_again(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    left = job(1)
    left.spec = replace(left.spec, queue="team")
    jobs.save([left])
    registry = QueueRegistry(NoSlices(), NoCounters(), jobs, jobs.load(), lambda: S)
    assert [spec.name for spec in registry.specs] == [DEFAULT_QUEUE, "team"]
    registry.delete("team")
    assert [spec.name for spec in registry.specs] == [DEFAULT_QUEUE]


def test_the_default_queue_keeps_its_order_over_a_restart_with_jobs(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    before = QueueRegistry(NoSlices(), NoCounters(), jobs, jobs.load(), lambda: S).specs[0]
    jobs.save([job(1)])
    assert QueueRegistry(NoSlices(), NoCounters(), jobs, jobs.load(), lambda: S).specs[0] == before


def test_the_accounting_sees_of_ended_jobs_what_it_needs(tmp_path: Path) -> None:
    """And decodes no more of them: a month may have a hundred thousand."""
    jobs = JobStore(Store(tmp_path))
    ended = job(1, JobState.FAILED, first_started_ns=6 * S, ended_ns=20 * S, executed_ns=14 * S)
    never = job(2, JobState.CANCELLED, ended_ns=7 * S)
    never.spec = replace(never.spec, members=1)
    jobs.save([ended, never, job(3)])
    rows = [row(one.job_id, 1000, "x", 5, 6) for one in (ended, never)]
    seen = {one.job_id: one for _, one in jobs.ended_from(0, 0, 9)}
    assert sums(rows, seen, "job", 0, NEVER_NS) == sums(rows, {1: ended, 2: never}, "job", 0, NEVER_NS)
    assert {owner for owner, _ in jobs.ended_from(0, 0, 9)} == {1000}
    assert not jobs.ended_from(20 * S, 1, 9)


def test_a_recording_that_cannot_be_written_ends_and_nothing_else_does() -> None:
    recorder = Recorder("/dev/full")
    recorder.begin((), (), SiteLimits(), (), ())
    recorder.add(1, [Woken()], [])
    recorder.close()


def test_what_orders_have_learnt_with_the_jobs_that_ended_since(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    for number in range(1, 5):
        store.save([replace(job(number, JobState.COMPLETED, ended_ns=10 * number * S))])
    queue = job(1).spec.queue
    store.save_orders({queue: {"policy": "2d-gittins", "all": {"costs": [1 << 90]}}, "gone": {"policy": "x"}}, 20 * S)
    store.save_orders({"gone": None}, 21 * S)
    (order,) = reopen(tmp_path).load().orders
    assert (order.queue, order.knowledge["all"]) == (queue, {"costs": [1 << 90]})
    assert [ended.job_id for ended in order.ended_jobs] == [3, 4]
    store.delete_queue(queue)
    assert reopen(tmp_path).load().orders == ()


def test_what_the_newest_jobs_asked_for(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    for number in range(1, 5):
        made = job(number)
        made.spec = replace(made.spec, ask=replace(made.spec.ask, cpu_milli=number), after=())
        store.save([made])
    assert [one.cpu_milli for one in store.asks(3)] == [2, 3, 4]
    assert store.asks(3)[0] == replace(job(2).spec.ask, cpu_milli=2)


def test_durations_of_the_last_jobs_that_were_done_or_ran_out_of_time(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    states = [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT, JobState.RUNNING]
    for number, state in enumerate(states * 2, 1):
        made = job(number, state, executed_ns=number * S, ended_ns=(100 - number) * S if state.is_final else -1)
        made.spec = replace(made.spec, kinds=(f"exact-{number}", "size-1"), after=())
        store.save([made])
    unclassed = job(20, JobState.COMPLETED, executed_ns=S, ended_ns=99 * S)
    never_ran = job(21, JobState.COMPLETED, ended_ns=99 * S)
    never_ran.spec = replace(never_ran.spec, kinds=("x",))
    store.save([unclassed, never_ran])
    found = reopen(tmp_path).durations(100)
    assert [(ran.kinds[0], ran.ran_ns // S, ran.ended) for ran in found] == [
        ("exact-9", 9, False),
        ("exact-6", 6, True),
        ("exact-4", 4, False),
        ("exact-1", 1, True),
    ]
    assert found[-1].kinds == ("exact-1", "size-1")
    assert [ran.ran_ns // S for ran in store.durations(2)] == [4, 1], "the last that ended"
