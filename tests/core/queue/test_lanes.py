"""Waiting jobs in lanes: one after the other as if all had been sorted by the keys of the moment."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.policy.world import make_job
from tests.examples import examples
from vgpud.core.jobs.model import SECOND_NS, Job, JobState, QueueSpec
from vgpud.core.order import Entry
from vgpud.core.policy.registry import make
from vgpud.core.queue.lanes import LanedOrder
from vgpud.core.queue.quota import Account
from vgpud.core.queue.waiting import JobQueue

POLICIES = ["fair", "fair(1=3,half-life=1)", "ftf"]
NOW_NS = 5000 * SECOND_NS
Row = tuple[int, int, int, int, float, bool]
#: seconds that it takes and has run, when it was submitted, user, GPUs, whether it runs
ROWS = st.lists(
    st.tuples(
        st.one_of(st.integers(960, 1023), st.integers(0, 40), st.integers(0, 10**7)),
        st.one_of(st.just(0), st.integers(0, 3000)),
        st.integers(0, 2000),
        st.integers(1, 4),
        st.sampled_from([0.5, 1, 2, 8]),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=60,
)


def make_jobs(rows: list[Row]) -> list[Job]:
    jobs = []
    for number, (seconds, ran_s, at_s, uid, gpus, runs) in enumerate(rows, 1):
        job = make_job(number, gpus, seconds, at_s, uid=uid)
        if runs:
            job.state, job.started_ns = JobState.RUNNING, NOW_NS - ran_s * SECOND_NS
        elif ran_s:
            job.state, job.executed_ns = JobState.SUSPENDED, ran_s * SECOND_NS
        jobs.append(job)
    return jobs


def make_queue(policy: str, jobs: list[Job]) -> JobQueue:
    spec = QueueSpec("default", policy=policy)
    line = JobQueue(spec, make(policy), Account(spec, 0, None))
    for job in jobs:
        line.policy.touch(job, NOW_NS)
        if job.state is JobState.RUNNING:
            line.run(job, line.policy.key(job, NOW_NS))
        else:
            line.enqueue(job, line.policy.key(job, NOW_NS), is_pinned=False)
    line.refresh({job.job_id: job for job in jobs}, NOW_NS)
    return line


def sort_again(policy: str, jobs: list[Job]) -> tuple[list[Entry], list[Entry]]:
    """Those that wait, and those that run."""
    known = make(policy)
    for job in jobs:
        known.touch(job, NOW_NS)
    known.before_all(jobs, NOW_NS)
    entries = sorted((known.key(job, NOW_NS), job.job_id) for job in jobs)
    running = {job.job_id for job in jobs if job.state is JobState.RUNNING}
    return [one for one in entries if one[1] not in running], [one for one in entries if one[1] in running]


def walk(line: JobQueue, every: int, starting_ids: set[int]) -> Iterator[Entry]:
    """As a decision does: some jobs start, and others' shapes are skipped from then on."""
    cursor, skip = None, 0
    while (cursor := line.waiting.next(cursor, skip)) is not None:
        yield cursor
        if cursor[1] in starting_ids:
            line.dequeue(cursor[1])
        elif cursor[1] % every == 0:
            skip |= line.waiting.bit(cursor[1])


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(200), deadline=None)
@given(rows=ROWS, every=st.integers(1, 50), starting_ids=st.sets(st.integers(1, 60)))
def test_the_next_job_is_that_of_all_sorted_again(
    policy: str, rows: list[Row], every: int, starting_ids: set[int]
) -> None:
    jobs = make_jobs(rows)
    line = make_queue(policy, jobs)
    assert isinstance(line.waiting, LanedOrder)
    waiting, running = sort_again(policy, jobs)
    assert [line.waiting.entry(job_id) for job_id in line.waiting] == waiting
    assert [line.running.entry(job_id) for job_id in line.running] == running
    assert [line.waiting.rank(job_id) for _, job_id in waiting] == list(range(len(waiting)))
    expected, skip = [], 0
    for entry in waiting:
        bit = line.waiting.bit(entry[1])
        if not bit & skip:
            expected.append(entry)
            if entry[1] not in starting_ids and entry[1] % every == 0:
                skip |= bit
    assert list(walk(line, every, starting_ids)) == expected


def test_a_job_behind_in_its_lane_may_be_before_those_of_other_lanes() -> None:
    """Many that need about as long and have waited about as long."""
    draw = random.Random(1)
    rows = [(draw.randint(900, 1300), 0, draw.randint(0, 400), 1, 1.0, False) for _ in range(300)]
    jobs = make_jobs(rows)
    waiting, _ = sort_again("ftf", jobs)
    assert list(walk(make_queue("ftf", jobs), 1000, set())) == waiting


@pytest.mark.parametrize("policy", [*POLICIES, "fifo"])
@settings(max_examples=examples(30), deadline=None)
@given(rows=ROWS)
def test_neighbours_are_as_if_all_were_sorted(policy: str, rows: list[Row]) -> None:
    line = make_queue(policy, make_jobs(rows))
    entries = [line.waiting.entry(job_id) for job_id in line.waiting]
    for index, entry in enumerate(entries):
        behind = entries[1] if len(entries) > 1 else None
        assert line.waiting.find_neighbour(entry) == (entries[index - 1] if index else behind)
