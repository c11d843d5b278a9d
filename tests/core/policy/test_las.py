"""LAS: levels by service, narrow jobs first where that is wanted, promotion that neither starves nor thrashes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.policy.world import World, make_job, mean_jct_s
from tests.examples import examples
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.policy.registry import make


def running(job: Job, since_s: float = 0) -> Job:
    job.state = JobState.RUNNING
    job.started_ns = job.first_started_ns = int(since_s * SECOND_NS)
    return job


def waiting(job: Job, since_s: float, executed_s: float) -> Job:
    job.state = JobState.SUSPENDED
    job.waiting_since_ns = int(since_s * SECOND_NS)
    job.executed_ns = int(executed_s * SECOND_NS)
    job.attained = job.executed_ns * job.width_milli
    return job


@pytest.mark.parametrize(
    ("policy", "gpus", "falls_s"),
    [
        ("2d-las(100,300)", 1, [100, 300]),
        ("2d-las(100,300)", 2, [50, 150]),
        ("2d-las(100,300)", 0.5, [200, 600]),
        ("las(100,300)", 0.5, [100, 300]),
        ("las(100,300)", 16, [100, 300]),
    ],
)
def test_falls_when_its_service_says_so(policy: str, gpus: float, falls_s: list[int]) -> None:
    """Half a device counts half in two dimensions, and as much as sixteen in time only."""
    las, job = make(policy), running(make_job(1, gpus, 10_000))
    now_ns, found = 0, []
    las.touch(job, now_ns)
    while (now_ns := las.changes_at(job, now_ns)) < NEVER_NS:
        las.touch(job, now_ns - 1)
        before = job.level
        las.touch(job, now_ns)
        assert job.level == before + 1, "not a nanosecond earlier"
        found.append(now_ns / SECOND_NS)
    assert found == falls_s


def test_threshold_that_is_no_whole_nanosecond_is_reached_after_it() -> None:
    las, job = make("2d-las(1)"), running(make_job(1, 3, 100))
    at_ns = las.changes_at(job, 0)
    assert at_ns == math.ceil(SECOND_NS / 3)
    las.touch(job, at_ns)
    assert job.level == 1


def test_a_job_without_compute_never_falls() -> None:
    las, job = make("2d-las(1)"), running(make_job(1, 0, 100))
    assert las.changes_at(job, 0) == NEVER_NS


def test_within_a_level_who_runs_goes_first_then_who_is_in_it_longest() -> None:
    las = make("2d-las(100)")
    first, second = running(make_job(1, 1, 500), since_s=20), running(make_job(2, 1, 500), since_s=10)
    old, new = make_job(3, 1, 500, at=30), make_job(4, 1, 500, at=40)
    jobs = [new, old, first, second]
    assert sorted(jobs, key=lambda job: las.key(job, 0)) == [second, first, old, new]


def test_narrow_ones_first_within_a_level_and_only_there() -> None:
    """In the first level those that run are left alone, in the others they are not."""
    las = make("las(100,narrow)")
    wide, narrow = make_job(1, 8, 500), make_job(2, 0.5, 500, at=5)
    fallen, fallen_narrow = waiting(make_job(3, 2, 500), 150, 100), waiting(make_job(4, 0.25, 500), 150, 100)
    jobs = [fallen, fallen_narrow, wide, narrow]
    for job in jobs:
        las.touch(job, 150 * SECOND_NS)
    assert sorted(jobs, key=lambda job: las.key(job, 0)) == [narrow, wide, fallen_narrow, fallen]
    for job in (wide, fallen):
        running(job, since_s=150)
        las.touch(job, 150 * SECOND_NS)
    assert sorted(jobs, key=lambda job: las.key(job, 0)) == [wide, narrow, fallen_narrow, fallen]


def test_promoted_when_it_has_waited_for_as_many_times_as_it_ran() -> None:
    las = make("2d-las(100,promote=3,quantum=50)")
    job = waiting(make_job(1, 1, 10_000), since_s=1000, executed_s=200)
    las.touch(job, 1000 * SECOND_NS)
    at_ns = las.changes_at(job, 1000 * SECOND_NS)
    assert (job.level, at_ns) == (1, (1000 + 3 * 200) * SECOND_NS)
    las.touch(job, at_ns - 1)
    assert job.level == 1
    las.touch(job, at_ns)
    assert (job.level, las.changes_at(job, at_ns)) == (0, NEVER_NS)
    # it keeps the level for as long again as it had run, though the threshold comes earlier
    job.state, job.started_ns = JobState.RUNNING, at_ns
    assert las.changes_at(job, at_ns) == at_ns + 200 * SECOND_NS
    las.touch(job, at_ns + 200 * SECOND_NS - 1)
    assert job.level == 0
    las.touch(job, at_ns + 200 * SECOND_NS)
    assert job.level == 1


def test_a_short_run_counts_as_a_quantum() -> None:
    las = make("las(10,promote=2,quantum=50)")
    job = waiting(make_job(1, 1, 10_000), since_s=100, executed_s=10)
    las.touch(job, 100 * SECOND_NS)
    assert las.changes_at(job, 100 * SECOND_NS) == (100 + 2 * 50) * SECOND_NS


def test_no_job_is_promoted_without_the_knob_nor_out_of_the_first_level() -> None:
    job = waiting(make_job(1, 1, 10_000), since_s=0, executed_s=10)
    for policy in ("las(5)", "las(100,promote=2)"):
        las = make(policy)
        las.touch(job, 0)
        assert las.changes_at(job, 0) == NEVER_NS


def beside_a_stream(policy: str, seconds: int, gap_s: int = 90, width: int = 2) -> World:
    """One long job on a cluster that short ones alone can fill for ever."""
    world = World(make(policy), width, until_ns=seconds * SECOND_NS)
    stream = [make_job(2 + i, width, 95, at=1000 + i * gap_s) for i in range(seconds // gap_s)]
    world.run([make_job(1, width, seconds), *stream])
    return world


def test_starves_without_promotion_and_not_with_it() -> None:
    seconds = 100_000
    assert beside_a_stream("2d-las(300)", seconds).jobs[1].executed_ns == 1000 * SECOND_NS
    promoted = beside_a_stream("2d-las(300,promote=4,quantum=600)", seconds).jobs[1]
    assert promoted.executed_at(seconds * SECOND_NS) >= seconds * SECOND_NS / 4 / 4


@settings(max_examples=examples(60), deadline=None)
@given(
    knob=st.integers(1, 8),
    quantum=st.integers(100, 3000),
    gap_s=st.integers(60, 94),
    width=st.integers(1, 4),
)
def test_no_wait_is_longer_than_the_knob_allows(knob: int, quantum: int, gap_s: int, width: int) -> None:
    """But for those that are in the first level already when it is promoted: more come all the time than can run."""
    seconds = 40_000
    world = beside_a_stream(f"las(200,promote={knob},quantum={quantum})", seconds, gap_s, width)
    job = world.jobs[1]
    ran_ns = job.executed_at(world.now_ns)
    ahead_ns = 95 * SECOND_NS * (seconds // gap_s) - (seconds - 1000) * SECOND_NS + ran_ns
    assert world.waits_ns[1] <= knob * max(ran_ns, quantum * SECOND_NS) + ahead_ns + 2 * 95 * SECOND_NS
    assert job.preemptions <= math.log2(max(ran_ns / (quantum * SECOND_NS), 1)) + 2


def test_continuously_service_is_looked_at_once_in_a_while() -> None:
    las, job = make("2d-las(every=10)"), running(make_job(1, 2, 100))
    las.touch(job, 0)
    assert las.changes_at(job, 0) == 10 * SECOND_NS
    key = las.key(job, 0)
    assert las.key(job, 10 * SECOND_NS - 1) == key
    las.touch(job, 10 * SECOND_NS)
    assert las.key(job, 10 * SECOND_NS) > key


def test_with_two_equal_jobs_continuous_las_shares_and_levels_take_turns_never() -> None:
    def jobs() -> list[Job]:
        return [make_job(1, 1, 100), make_job(2, 1, 100)]

    shared, kept = jobs(), jobs()
    World(make("las(every=10)"), 1).run(shared)
    World(make("las(10,50)"), 1).run(kept)
    assert mean_jct_s(shared) == 195
    assert mean_jct_s(kept) < mean_jct_s(shared)
