"""A user who writes without end forgets their own past: the database has a bound, and others' jobs and sums stay."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.test_jobs import EVERY, S, all_rows, drop_copies, job, launch, row
from vgpud.core.jobs.facts import JobFilter
from vgpud.core.jobs.model import Job, JobState
from vgpud.store import user_shares
from vgpud.store.database import FILE_NAME, MIGRATIONS, Store
from vgpud.store.elastic import Noted
from vgpud.store.jobs import JobStore, Request
from vgpud.store.user_shares import CLOSED_NS, DAY_NS, ROW_BYTES

ANN, EVE = 1000, 6666
MOST = 4 << 20


def make_ended_job(job_id: int, uid: int = EVE, size: int = 2000) -> Job:
    made = job(job_id, JobState.CANCELLED, ended_ns=job_id * S)
    run = launch(command=("sh", "-c", "x" * size), environment=(("A", "y" * size),))
    made.spec = replace(made.spec, uid=uid, run=run, after=())
    return made


def nothing() -> set[int]:
    return set()


def until_enough(jobs: JobStore, bytes_max: int = MOST, now_ns: int = 0) -> dict[int, int]:
    """Forgets part by part, as the daemon does; how many in all, by user."""
    sums: dict[int, int] = {}
    while part := jobs.forget_excess(bytes_max, now_ns, nothing):
        for uid, count in part.items():
            sums[uid] = sums.get(uid, 0) + count
    return sums


def used(jobs: JobStore) -> int:
    return int(jobs.database.read(user_shares.used_bytes))


def of(jobs: JobStore, uid: int) -> list[int]:
    return [found.job_id for found in jobs.ended_after(0, 100_000, JobFilter(True, uid))]


def test_the_user_who_writes_most_forgets_the_oldest(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    jobs.save([make_ended_job(n, ANN) for n in range(1, 21)])
    jobs.save([make_ended_job(n) for n in range(21, 3021)])
    assert used(jobs) > MOST
    gone = until_enough(jobs)
    assert gone.keys() == {EVE} and MOST * 0.8 < used(jobs) <= MOST
    assert of(jobs, ANN) == list(range(1, 21)), "the oldest of all"
    left = of(jobs, EVE)
    assert left == list(range(3021 - len(left), 3021)) and len(left) == 3000 - gone[EVE]


def test_below_the_bound_nothing_is_forgotten(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    jobs.save([make_ended_job(n) for n in range(1, 100)])

    def fail_if_asked() -> set[int]:
        raise AssertionError("needed only above it")

    assert jobs.forget_excess(MOST, 0, fail_if_asked) == {}
    assert len(of(jobs, EVE)) == 99


def test_jobs_that_live_count_and_stay_and_what_others_wait_for_stays(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    jobs.save([make_ended_job(n, ANN) for n in range(1, 101)])
    live = [replace(make_ended_job(n, size=30_000), state=JobState.PENDING, ended_ns=0) for n in range(101, 201)]
    jobs.save([*live, *(make_ended_job(n) for n in range(201, 301))])
    while jobs.forget_excess(MOST, 0, lambda: {205}):
        pass
    assert of(jobs, EVE) == [205] and len(of(jobs, ANN)) == 100, "it is above the bound, and not by Ann's"
    assert len([one for one in jobs.load().jobs if not one.state.is_final]) == 100


def test_what_the_jobs_of_an_array_run_stays_for_the_last_of_them(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    array = [make_ended_job(n) for n in (1, 2)]
    for one in array:
        one.spec = replace(one.spec, array=1)
    array[1].state, array[1].ended_ns = JobState.PENDING, 0
    jobs.save([*array, *(make_ended_job(n) for n in range(3, 2000))])
    until_enough(jobs)
    found = jobs.find(2)
    assert 1 in of(jobs, EVE) and found and found.spec.run


def test_the_notes_of_a_forgotten_job_go_with_it(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    many = [make_ended_job(n) for n in range(1, 2001)]
    jobs.save(many, notes=[Noted(one.job_id, 1, "job.warning", "w" * 100) for one in many])
    until_enough(jobs)
    notes = jobs.database.read(lambda db: [n for (n,) in db.execute("SELECT job_id FROM job_notes")])
    assert sorted(notes) == of(jobs, EVE)


def test_of_usage_only_the_detail_is_forgotten(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    eves = [replace(row(n, 5, "x", n, n + 1), uid=EVE, queue=("a", "b")[n % 2]) for n in range(1, 20_001)]
    anns = [replace(row(n, 5, "x", n, n + 1), uid=ANN) for n in range(20_001, 20_011)]
    jobs.save_rows([*eves, *anns])

    def total(uid: int) -> list[int]:
        mine = [one.amounts for one in all_rows(jobs) if one.uid == uid]
        return [sum(amounts) for amounts in zip(*mine, strict=True)]

    before = total(EVE), total(ANN)
    assert all(before[0]), "its copies as well"
    gone = until_enough(jobs, used(jobs) // 2, now_ns=100 * DAY_NS)
    assert gone.keys() == {EVE} and gone[EVE] > 5000
    assert (total(EVE), total(ANN)) == before
    assert len([one for one in all_rows(jobs) if one.uid == ANN]) == 10


def test_rows_of_many_days_are_summed_up_to_the_last(tmp_path: Path) -> None:
    jobs, day_s = JobStore(Store(tmp_path)), DAY_NS // S
    begins = [day * day_s + part for day in range(1500) for part in (100, 200)]
    jobs.save_rows([replace(row(n, 5, "x", at, at + 1), uid=EVE) for n, at in enumerate(begins, 1)])
    assert until_enough(jobs, 1, now_ns=3000 * DAY_NS) == {EVE: 1500}
    left = all_rows(jobs)
    assert len(left) == 1500 and {one.used for one in left} == {2 * row(1, 5, "x", 0, 1).used}


def test_rows_that_may_still_grow_are_left(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    jobs.save_rows([replace(row(n, 5, "x", n % 100, n % 100 + 1), uid=EVE) for n in range(1, 5001)])
    assert until_enough(jobs, 1000, now_ns=CLOSED_NS) == {}
    assert len(all_rows(jobs)) == 5000


def test_what_environments_took_is_not_counted_any_more(tmp_path: Path) -> None:
    jobs = JobStore(Store(tmp_path))
    jobs.save([replace(make_ended_job(1, size=50_000), state=JobState.PENDING, ended_ns=0)])
    jobs.save([make_ended_job(1, size=50_000)])
    sizes = jobs.database.read(
        lambda db: db.execute("SELECT bytes, length(spec) + length(launch) + length(state) FROM jobs").fetchone()
    )
    assert sizes[0] - ROW_BYTES <= sizes[1] <= sizes[0], sizes


def recount(db: Any) -> dict[int, int]:
    """What user_shares.sum_bytes() keeps, summed up again."""
    sums = dict(db.execute("SELECT uid, sum(bytes) FROM jobs GROUP BY uid").fetchall())
    for uid, rows in db.execute("SELECT uid, count(*) FROM usage GROUP BY uid").fetchall():
        sums[uid] = sums.get(uid, 0) + rows * ROW_BYTES
    return sums


WRITES = st.one_of(
    st.tuples(st.just("job"), st.integers(1, 9), st.sampled_from([ANN, EVE]), st.booleans()),
    st.tuples(st.just("row"), st.integers(1, 9), st.sampled_from([ANN, EVE]), st.booleans()),
    st.tuples(st.just("age"), st.integers(1, 9), st.just(0), st.just(False)),
    st.tuples(st.just("excess"), st.just(0), st.just(0), st.just(False)),
)


@given(st.lists(WRITES, max_size=20))
@settings(deadline=None)
def test_sums_stay_right_whatever_is_written(writes: list[tuple[str, int, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        jobs = JobStore(store)
        for what, number, uid, is_over in writes:
            if what == "job":
                one = make_ended_job(number, jobs.owner(number) or uid, 10 * number)
                jobs.save([one if is_over else replace(one, state=JobState.PENDING, ended_ns=0)])
            elif what == "row":
                jobs.save_rows([replace(row(number, 5, "x", number, number + 1 + is_over), uid=uid)])
            elif what == "age":
                jobs.forget_before(number * S, 0)
            else:
                jobs.forget_excess(1, 100 * DAY_NS, nothing)
            store.write(check_sums)
        store.close()


def check_sums(db: Any) -> None:
    assert user_shares.sum_bytes(db) == recount(db)


def test_a_look_above_the_bound_costs_no_more_with_many_rows(tmp_path: Path) -> None:
    steps = []
    for count in (100, 3000):
        (tmp_path / f"{count}").mkdir()
        store = Store(tmp_path / f"{count}")
        jobs = JobStore(store)
        live = [replace(make_ended_job(n, size=10), state=JobState.PENDING, ended_ns=0) for n in range(1, count + 1)]
        jobs.save(live, rows=[row(n, 5, "x", n, n + 1) for n in range(count)])
        jobs.forget_excess(1, 0, nothing)  # the first counts them

        def look(db: Any, jobs: JobStore = jobs) -> None:
            db.set_progress_handler(lambda: steps.__setitem__(-1, steps[-1] + 1), 10)

        steps.append(0)
        jobs.database.read(look)
        assert jobs.forget_excess(1, 0, nothing) == {}
        store.close()
    assert steps[1] <= 2 * steps[0], steps


def test_submissions_are_forgotten_when_they_are_not_remembered_any_more(tmp_path: Path) -> None:
    """Each has the numbers of all its jobs; they stayed for accounting_days."""
    jobs = JobStore(Store(tmp_path))
    jobs.save([make_ended_job(1)], [Request(EVE, f"r{n}", "f", (1,), until_ns=50 * S) for n in range(10)])
    count = "SELECT count(*) FROM job_requests"
    jobs.forget_before(0, 40 * S)
    assert jobs.database.read(lambda db: db.execute(count).fetchone()) == (10,)
    jobs.forget_before(0, 60 * S)
    assert jobs.database.read(lambda db: db.execute(count).fetchone()) == (0,)
    assert [found.job_id for found in jobs.ended_after(0, 9, EVERY)] == [1]


def test_jobs_of_before_have_their_size(tmp_path: Path) -> None:
    JobStore(Store(tmp_path)).save([make_ended_job(1)])
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        (size,) = db.execute("SELECT bytes FROM jobs").fetchone()
        for index in ("jobs_of_user", "jobs_that_follow", "usage_of_user"):
            db.execute(f"DROP INDEX {index}")
        db.execute("ALTER TABLE jobs DROP COLUMN bytes")
        drop_copies(db)
        db.execute(f"PRAGMA user_version = {MIGRATIONS.index(user_shares.TABLES)}")
        db.commit()
    sizes = JobStore(Store(tmp_path)).database.read(lambda db: db.execute("SELECT bytes FROM jobs").fetchall())
    assert sizes == [(size,)] and size > 2000
