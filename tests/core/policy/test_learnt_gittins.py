"""The Gittins index learnt from jobs as they come, and the rules that keep it from going wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.policy.world import World, make_job, mean_jct_s
from vgpud.core.jobs.model import SECOND_NS, Job, JobState
from vgpud.core.policy.base import Policy
from vgpud.core.policy.gittins import UNKNOWN
from vgpud.core.policy.learnt_gittins import CLASSES_MAX, DEFAULT_TUNING, LearntGittins, Tuning
from vgpud.core.policy.level_table import JOB
from vgpud.core.policy.registry import make

HOUR_S = 3600
#: without oblivion counts are whole jobs
REMEMBERING = replace(DEFAULT_TUNING, kept_ppm=1_000_000)


def in_time(tuning: Tuning = REMEMBERING) -> LearntGittins:
    return LearntGittins("", by_width=False, tuning=tuning)


def start(policy: Policy, job: Job, ran_s: float) -> None:
    """It runs, and has run for so long."""
    job.state, job.started_ns, job.executed_ns = JobState.RUNNING, 0, int(ran_s * SECOND_NS)
    job.attained = job.executed_ns * job.width_milli
    policy.touch(job, 0)


def end(policy: LearntGittins, job_id: int, seconds: float, *kinds: str, gpus: float = 1) -> None:
    """A job of the past, which the policy has never touched."""
    job = make_job(job_id, gpus, seconds, kinds=kinds)
    job.executed_ns, job.state = int(seconds * SECOND_NS), JobState.COMPLETED
    job.attained = job.executed_ns * job.width_milli
    policy.record_end(job)


def run_to_end(policy: LearntGittins, job_id: int, seconds: float) -> None:
    """As the machine does it: the job runs, is touched at each level, ends."""
    job = make_job(job_id, 1, seconds)
    job.state, job.started_ns = JobState.RUNNING, 0
    now_ns = 0
    while now_ns <= seconds * SECOND_NS:
        policy.touch(job, now_ns)
        now_ns = policy.changes_at(job, now_ns)
    job.executed_ns = int(seconds * SECOND_NS)
    job.attained = job.executed_ns * 1000
    job.state = JobState.COMPLETED
    policy.record_end(job)


def test_learns_what_jobs_need() -> None:
    """All need 1000 s: one that has run for 600 is nearly there, one that has run for longer than all is not."""
    policy = in_time()
    before = policy.all.costs
    for job_id in range(200):
        run_to_end(policy, job_id, 1000)
    assert policy.epoch > 0
    assert policy.all.costs[1] < policy.all.costs[0] < policy.all.costs[2]
    assert before[1] > before[0]
    assert (policy.all.got_beyond[0], policy.all.ended_in[1]) == (200 * JOB, 200 * JOB)
    assert policy.counted_levels == {}


def test_learns_from_jobs_that_still_run_too() -> None:
    policy, job = in_time(), make_job(1, 1, 1e6)
    start(policy, job, 5000)
    policy.touch(job, 0)
    assert policy.all.got_beyond[:4] == [JOB, JOB, JOB, 0]


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.TIMED_OUT])
def test_a_job_that_was_stopped_got_that_far_and_did_not_end(state: JobState) -> None:
    policy, job = in_time(), make_job(1, 1, 1e6)
    start(policy, job, 2000)
    job.state = state
    policy.record_end(job)
    assert (policy.all.got_beyond[:3], sum(policy.all.ended_in)) == ([JOB, JOB, 0], 0)
    assert policy.counted_levels == {}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9000), st.integers(0, 9000)), min_size=1, max_size=25))
def test_every_job_is_counted_once(rows: list[tuple[int, int, int]]) -> None:
    policy = LearntGittins("", by_width=True, tuning=REMEMBERING)
    jobs = [make_job(i, gpus, seconds, at) for i, (gpus, seconds, at) in enumerate(rows, 1)]
    World(policy, 4).run(jobs)
    assert sum(policy.all.ended_in) == len(jobs) * JOB
    assert policy.counted_levels == {}
    reached = len(jobs) * JOB
    for ended_in, beyond in zip(policy.all.ended_in, policy.all.got_beyond, strict=True):
        assert ended_in + beyond == reached, "a job that reaches a level ends in it or gets beyond"
        reached = beyond


def test_keys_change_only_with_the_epoch() -> None:
    """It learns often at first, later when a sixteenth of the jobs that count is new."""
    policy = in_time(DEFAULT_TUNING)
    watched, epochs = make_job(0, 1, 10), set()
    for job_id in range(1, 400):
        before = policy.epoch, policy.key(watched, 0)
        run_to_end(policy, job_id, 50 * job_id)
        assert policy.epoch > before[0] or policy.key(watched, 0) == before[1]
        epochs.add(policy.epoch)
    assert 16 < len(epochs) < 100


def test_a_trial_goes_first_and_is_not_preempted_for_another() -> None:
    """However good the jobs behind them are."""
    policy = make("2d-gittins")
    new, young, old = (make_job(job_id, 1, 1e6) for job_id in (1, 2, 3))
    for job, ran_s in ((young, 4000), (old, 5000)):
        start(policy, job, ran_s)
    assert policy.key(young, 0) < policy.key(new, 0) < policy.key(old, 0)


def test_long_jobs_that_end_first_do_not_keep_short_ones_waiting() -> None:
    """The lock-up: all that is known is that jobs need a day; a thousand short ones wait behind as many long ones."""
    jobs = [make_job(job_id, 1, 24 * HOUR_S) for job_id in range(1, 41)]
    jobs += [make_job(job_id, 1, 60, at=25 * HOUR_S + job_id) for job_id in range(41, 441)]
    World(LearntGittins("", by_width=True), 4).run(jobs)
    assert max(job.ended_ns - job.submitted_ns for job in jobs[40:]) < 2 * HOUR_S * SECOND_NS


def test_without_a_trial_the_first_jobs_decide() -> None:
    """What the trial is for: jobs of 2 hours that are taken for jobs of a day."""

    def mean_s(trial: int) -> float:
        short = [make_job(job_id, 1, 2000, at=49 * HOUR_S + 60 * job_id) for job_id in range(41, 241)]
        jobs = [make_job(job_id, 1, 24 * HOUR_S + job_id) for job_id in range(1, 41)] + short
        World(LearntGittins("", by_width=True, tuning=replace(DEFAULT_TUNING, trial=trial)), 4).run(jobs)
        return mean_jct_s(short)

    assert mean_s(DEFAULT_TUNING.trial) < 0.7 * mean_s(0)


def test_what_earlier_jobs_have_shown_is_forgotten() -> None:
    """A thousand jobs of an hour, then as many of a minute."""

    def costs(tuning: Tuning) -> list[int]:
        policy = in_time(tuning)
        for job_id in range(2000):
            end(policy, job_id, HOUR_S if job_id < 1000 else 60)
        return policy.all.costs

    assert costs(DEFAULT_TUNING)[0] < 0.6 * costs(REMEMBERING)[0]


def test_a_running_job_is_preempted_only_for_a_much_better_one() -> None:
    policy = in_time(DEFAULT_TUNING)
    running, near, better = (make_job(job_id, 1, 1e6) for job_id in (1, 2, 3))
    for job, ran_s in ((running, 20_000), (near, 10_000), (better, 4_300)):
        start(policy, job, ran_s)
    near.state = better.state = JobState.SUSPENDED
    assert policy.key(running, 0) < policy.key(near, 0)
    assert policy.key(better, 0) < policy.key(running, 0)
    running.state = JobState.SUSPENDED
    assert policy.key(near, 0) < policy.key(running, 0)


def test_a_class_has_costs_of_its_own_from_its_first_job_on_which_changes_little() -> None:
    policy = in_time()
    for job_id in range(100):
        end(policy, job_id, HOUR_S, "slow", "all")
    quick, slow = (make_job(job_id, 1, 1, kinds=(kind, "all")) for job_id, kind in ((200, "quick"), (201, "slow")))
    start(policy, quick, 5000)
    start(policy, slow, 5000)
    quick.state = slow.state = JobState.SUSPENDED
    unknown = policy.key(quick, 0)[1]
    end(policy, 300, 5100, "quick", "all")
    policy._publish()
    one = policy.key(quick, 0)[1]
    for job_id in range(301, 340):
        end(policy, job_id, 5100, "quick", "all")
    policy._publish()
    many = policy.key(quick, 0)[1]
    assert 0.3 * unknown < one < unknown
    assert many < 0.5 * one
    assert many < policy.key(slow, 0)[1]


def test_jobs_are_classed_by_gpus_though_they_have_no_kinds() -> None:
    policy = LearntGittins("", by_width=True, tuning=REMEMBERING)
    for job_id in range(60):
        end(policy, job_id, 5000 if job_id % 2 else 40_000, gpus=1 if job_id % 2 else 8)
    narrow, wide = make_job(100, 1, 1), make_job(101, 8, 1)
    start(policy, narrow, 4300)
    start(policy, wide, 4300 / 8)
    assert policy.key(narrow, 0)[:2] < policy.key(wide, 0)[:2]


def test_in_the_trial_gpus_do_not_count_and_users_earlier_jobs_do() -> None:
    policy = in_time()
    for job_id in range(60):
        end(policy, job_id, 60 if job_id % 2 else HOUR_S, f"user {job_id % 2}", "1000x1")
    first, then, wide = (
        make_job(job_id, gpus, 1, at=job_id - 100, kinds=(f"user {uid}", size))
        for job_id, gpus, uid, size in ((100, 1, 0, "1000x1"), (101, 1, 1, "1000x1"), (102, 8, 2, "1000x8"))
    )
    new = make_job(103, 1, 1, at=3, kinds=("user 3", "1000x1"))
    assert policy.key(then, 0) < policy.key(wide, 0) < policy.key(new, 0) < policy.key(first, 0)


def test_classes_are_bounded_and_their_keys_change_only_with_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpud.core.policy.learnt_gittins.CLASSES_MAX", 20)
    policy = in_time(DEFAULT_TUNING)
    watched = [make_job(0, 1, 10, kinds=(f"kind {number}", "all")) for number in range(60)]
    for job_id in range(1, 1500):
        before = policy.epoch, [policy.key(job, 0) for job in watched]
        end(policy, job_id, 50 * job_id, f"kind {job_id % 60}", "all")
        assert policy.epoch > before[0] or [policy.key(job, 0) for job in watched] == before[1]
        assert len(policy.classes) <= 40


def test_a_job_that_had_to_start_again_is_not_preempted_again() -> None:
    policy = make("2d-gittins")
    job, new = make_job(1, 1, 1e6), make_job(2, 1, 1)
    start(policy, job, 1e5)
    assert policy.key(new, 0) < policy.key(job, 0)
    job.preemptions, job.lost_runs = 1, 1
    assert policy.key(job, 0) < policy.key(new, 0)
    assert "start again" in policy.describe(job, 0)


def test_beyond_the_last_level_comes_last() -> None:
    policy = in_time()
    job, other = make_job(1, 1, 1), make_job(2, 1, 1)
    start(policy, job, 1e9)
    start(policy, other, 1e7)
    assert policy.all.costs[job.level] == UNKNOWN
    assert policy.key(other, 0) < policy.key(job, 0)
    assert "more than is known" in policy.describe(job, 0)


def test_it_says_what_a_place_follows_from() -> None:
    policy = LearntGittins("", by_width=True)
    for job_id in range(40):
        end(policy, job_id, 5000, "user-x", "size-y", gpus=2)
    new, old = (make_job(job_id, 2, 1, kinds=("user-x", "size-y")) for job_id in (100, 101))
    assert policy.describe(make_job(99, 1, 1), 0) == "is in its trial (0 of 4200 GPU-seconds used)"
    assert policy.describe(new, 0).startswith(
        "is in its trial (0 of 4200 GPU-seconds used), and jobs with the same user and size take about "
    )
    start(policy, old, 4800)
    assert policy.describe(old, 0).startswith("has used 9600 GPU-seconds, and jobs with the same user")
    assert policy.describe(old, 0).endswith(" more each")


# ---- what outlives a restart ----


def learn_some() -> LearntGittins:
    policy = LearntGittins("", by_width=True)
    for job_id in range(1, 40):
        end(policy, job_id, 100 * job_id, f"user {job_id % 3}", "size", gpus=1 + job_id % 2)
    job = make_job(99, 1, 1e6, kinds=("user 1", "size"))
    start(policy, job, 9000)
    policy.touch(job, 0)
    return policy


def test_knowledge_is_restored() -> None:
    former, later = learn_some(), LearntGittins("", by_width=True)
    later.restore_knowledge(json.loads(json.dumps(former.knowledge())))
    assert later.knowledge() == former.knowledge()
    assert (later.all, later.classes, later.counted_levels) == (former.all, former.classes, former.counted_levels)
    for policy in (former, later):
        for job_id in range(200, 240):
            end(policy, job_id, 3000, "user 1", "size")
    assert later.knowledge() == former.knowledge()


def test_knowledge_is_bounded() -> None:
    policy = LearntGittins("", by_width=True)
    for job_id in range(3 * CLASSES_MAX):
        end(policy, job_id, 100 + job_id, f"user {job_id}", "size")
    assert len(json.dumps(policy.knowledge())) < 2_000_000


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2},
        {"levels": "1d 600 16"},
        {"ends_left": -1},
        {"all": None},
        {"all": {"jobs": 1, "ended_in": [1 << 63], "got_beyond": [], "costs": []}},
        {"all": {"jobs": 1, "ended_in": [0] * 99, "got_beyond": [], "costs": []}},
        {"all": {"jobs": 1, "ended_in": [], "got_beyond": [], "costs": [1]}},
        {"all": {"jobs": True, "ended_in": [], "got_beyond": [], "costs": []}},
        {"classes": {}},
        {"classes": [["a"]]},
        {"classes": [["a", {}]]},
        {"counted_levels": [[1, -1]]},
        {"counted_levels": [[1, 99]]},
        {"counted_levels": [["1", 1]]},
    ],
)
def test_what_cannot_be_its_knowledge_is_refused_as_a_whole(damage: dict[str, Any]) -> None:
    known = learn_some().knowledge()
    policy = LearntGittins("", by_width=True)
    before = policy.knowledge()
    with pytest.raises(ValueError, match="it "):
        policy.restore_knowledge(known | damage)
    assert policy.knowledge() == before
