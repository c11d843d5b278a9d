"""What every policy must keep: its keys hold until it says so, two runs are equal, no job is lost and no capacity."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.policy.world import World, make_job
from tests.examples import examples
from vgpud.core.jobs.model import Job
from vgpud.core.policy.registry import make

POLICIES = [
    "fifo",
    "priority",
    "priority(preempt)",
    "srtf",
    "srsf",
    "las(50,200)",
    "las(50,200,narrow,promote=2,quantum=30)",
    "2d-las(50,200,promote=0.5,quantum=10)",
    "las(every=25)",
    "2d-las(every=25,keep)",
    "gittins",
    "2d-gittins",
    "2d-gittins(30,60,90,600)",
    "fair",
    "fair(half-life=0.1,memory=80,1=2)",
    "ftf(lease=40)",
]


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    """Up to 25, wide and narrow, halves too, of few users, with and without durations that are worth anything."""
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from([0.25, 0.5, 1, 2, 3, 4]),
                st.integers(1, 700),
                st.integers(0, 900),
                st.integers(1, 3),
                st.integers(-1, 1),
            ),
            min_size=1,
            max_size=25,
        )
    )
    return [
        make_job(number, gpus, seconds, at, uid=uid, priority=priority)
        for number, (gpus, seconds, at, uid, priority) in enumerate(rows, 1)
    ]


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(40), deadline=None)
@given(jobs=jobs())
def test_keys_hold_until_the_policy_says_so_and_all_jobs_end(policy: str, jobs: list[Job]) -> None:
    World(make(policy), 4, watch=True).run(jobs)
    assert all(job.ended_ns - job.submitted_ns >= job.spec.duration_ns == job.executed_ns for job in jobs)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(20), deadline=None)
@given(jobs=jobs())
def test_two_runs_are_equal_in_whatever_order_jobs_are_given(policy: str, jobs: list[Job]) -> None:
    again = copy.deepcopy(jobs)
    World(make(policy), 4).run(jobs)
    World(make(policy), 4).run(again[::-1])
    assert [(j.started_ns, j.ended_ns, j.preemptions) for j in jobs] == [
        (j.started_ns, j.ended_ns, j.preemptions) for j in again
    ]


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(20), deadline=None)
@given(jobs=jobs())
def test_keys_are_integers_of_one_length(policy: str, jobs: list[Job]) -> None:
    made = make(policy)
    for job in jobs:
        made.touch(job, job.submitted_ns)
    made.before_all(jobs, 10**12)
    keys = [made.key(job, 10**12) for job in jobs]
    assert {type(part) for key in keys for part in key} <= {int}
    assert len({len(key) for key in keys}) == 1
