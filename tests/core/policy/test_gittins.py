"""The Gittins index: against its definition, where it must rise and fall, and learnt from jobs as they come."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.policy.world import World, make_job
from vgpud.core.jobs.model import GPU_SECOND, NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.policy.gittins import ONE, UNKNOWN, Gittins, costs
from vgpud.core.policy.registry import make


def by_definition(needs: list[int], attained_service: int) -> Fraction:
    """sup over d of P(S - a <= d | S > a) / E[min(S - a, d) | S > a]; the best d ends where a job ends."""
    left = [service - attained_service for service in needs if service > attained_service]
    return max(Fraction(sum(x <= d for x in left), sum(min(x, d) for x in left)) for d in left)


@settings(deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40))
def test_index_of_a_table_is_its_definition(needs: list[int]) -> None:
    policy = Gittins("", by_width=False, table=[Fraction(value) for value in needs])
    for level, edge in enumerate(policy.edges[:-1]):
        index = by_definition(needs, edge // SECOND_NS)
        assert SECOND_NS / policy.all.costs[level] == pytest.approx(float(index), rel=1e-6)
    assert policy.all.costs[-1] == UNKNOWN


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.just(10)), min_size=1, max_size=30), st.booleans())
def test_hull_finds_what_trying_all_finds(ends: list[tuple[int, int]], has_even_ends: bool) -> None:
    edges = [0, *(1000 << level for level in range(len(ends)))]
    alive, spent = [ONE], [0]
    for level, (dividend, divisor) in enumerate(ends):
        alive.append(alive[-1] - alive[-1] * dividend // divisor)
        working = (alive[-2] + alive[-1]) // 2 if has_even_ends else alive[-2]
        spent.append(spent[-1] + working * (edges[level + 1] - edges[level]))
    for level, found in enumerate(costs(edges, ends, has_even_ends=has_even_ends)):
        tried = [
            (spent[then] - spent[level]) // (alive[level] - alive[then])
            for then in range(level + 1, len(edges))
            if alive[then] < alive[level]
        ]
        assert found == (min(tried) if tried else UNKNOWN)


def test_index_falls_where_who_has_lived_long_lives_longer_and_rises_where_not() -> None:
    """Decreasing hazard: the order of LAS. Jobs that all need the same: the one with most behind it goes first."""
    heavy = Gittins("", by_width=True)
    assert all(early < late for early, late in zip(heavy.all.costs, heavy.all.costs[1:], strict=False))
    alike = Gittins("", by_width=True, table=[Fraction(value) for value in range(1000, 1020)])
    assert all(early > late for early, late in zip(alike.all.costs[:-1], alike.all.costs[1:-1], strict=False))


def test_a_long_table_becomes_quantiles() -> None:
    policy = Gittins("", by_width=True, table=[Fraction(value) for value in range(1, 1001)])
    assert policy.levels == 64
    assert policy.edges[-1] == 1000 * GPU_SECOND
    assert 15 <= min(policy.all.ended_in) <= max(policy.all.ended_in) <= 16
    assert sum(policy.all.ended_in) == 1000


def test_beyond_the_table_comes_last() -> None:
    policy = make("2d-gittins(4,8,12)")
    job = make_job(1, 1, 100)
    job.state, job.started_ns = JobState.RUNNING, 0
    policy.touch(job, 12 * SECOND_NS)
    assert policy.key(job, 12 * SECOND_NS) > policy.key(make_job(2, 1, 100), 12 * SECOND_NS)
    assert policy.changes_at(job, 12 * SECOND_NS) == NEVER_NS


@pytest.mark.parametrize("policy", ["gittins(10,20)", "2d-gittins(10,20)"])
def test_narrow_ones_cost_less(policy: str) -> None:
    """In time only the GPUs divide the index; in two dimensions new jobs are equal, and the older goes first."""
    made = make(policy)
    wide, narrow = made.key(make_job(1, 8, 10), 0), made.key(make_job(2, 1, 10, at=1), 0)
    assert (narrow < wide) == policy.startswith("gittins")
    assert narrow != wide


def run_to_end(policy: Gittins, job_id: int, seconds: float) -> None:
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
    policy = Gittins("", by_width=False)
    before = policy.all.costs
    for job_id in range(200):
        run_to_end(policy, job_id, 1000)
    assert policy.epoch > 0
    assert policy.all.costs[1] < policy.all.costs[0] < policy.all.costs[2]
    assert before[1] > before[0]
    assert (policy.all.got_beyond[0], policy.all.ended_in[1], policy.counted_levels) == (200, 200, {})


def test_learns_from_those_that_go_on_too() -> None:
    policy = Gittins("", by_width=False)
    job = make_job(1, 1, 1e6)
    job.state, job.started_ns = JobState.RUNNING, 0
    policy.touch(job, 5000 * SECOND_NS)
    policy.touch(job, 5000 * SECOND_NS)
    assert policy.all.got_beyond[:4] == [1, 1, 1, 0]


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.TIMED_OUT])
def test_who_was_stopped_got_that_far_and_did_not_end(state: JobState) -> None:
    policy = Gittins("", by_width=False)
    job = make_job(1, 1, 1e6)
    job.state, job.started_ns = JobState.RUNNING, 0
    policy.touch(job, 2000 * SECOND_NS)
    job.executed_ns, job.state = 2000 * SECOND_NS, state
    policy.record_end(job)
    assert (policy.all.got_beyond[:3], sum(policy.all.ended_in), policy.counted_levels) == ([1, 1, 0], 0, {})


def test_jobs_of_the_past_are_learnt_though_it_has_never_touched_them() -> None:
    policy = Gittins("", by_width=False)
    job = make_job(1, 1, 5000)
    job.executed_ns, job.state = 5000 * SECOND_NS, JobState.FAILED
    policy.record_end(job)
    assert (policy.all.got_beyond[:4], policy.all.ended_in[:4]) == ([1, 1, 1, 0], [0, 0, 0, 1])


def test_keys_change_only_with_the_epoch() -> None:
    """It learns often at first, later when there is a sixteenth more to learn from."""
    policy = Gittins("", by_width=False)
    watched, epochs = make_job(0, 1, 10), set()
    for job_id in range(1, 400):
        before = policy.epoch, policy.key(watched, 0)
        run_to_end(policy, job_id, 50 * job_id)
        assert policy.epoch > before[0] or policy.key(watched, 0) == before[1]
        epochs.add(policy.epoch)
    assert 16 < len(epochs) < 100


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9000), st.integers(0, 9000)), min_size=1, max_size=25))
def test_every_job_is_counted_once(rows: list[tuple[int, int, int]]) -> None:
    policy = Gittins("", by_width=True)
    jobs: list[Job] = [make_job(i, gpus, seconds, at) for i, (gpus, seconds, at) in enumerate(rows, 1)]
    World(policy, 4).run(jobs)
    assert sum(policy.all.ended_in) == len(jobs)
    assert policy.counted_levels == {}
    reached = len(jobs)
    for ended_in, beyond in zip(policy.all.ended_in, policy.all.got_beyond, strict=True):
        assert ended_in + beyond == reached, "who reaches a level ends in it or gets beyond"
        reached = beyond


def test_a_class_of_which_enough_have_ended_has_costs_of_its_own() -> None:
    """All jobs need an hour, but those of one class a second: in the level of the first ten minutes these are cheap."""
    policy = Gittins("", by_width=False)
    quick, slow = (make_job(job_id, 1, 1, kinds=(kind, "all")) for job_id, kind in ((0, "quick"), (1, "slow")))
    assert policy.key(quick, 0) == policy.key(slow, 0)
    for job_id in range(2, 200):
        short = job_id % 4 == 0
        job = make_job(job_id, 1, 1, kinds=("quick" if short else "slow", "all"))
        job.executed_ns, job.state = (1 if short else 3600) * SECOND_NS, JobState.COMPLETED
        policy.record_end(job)
    unknown = make_job(1000, 1, 1, kinds=("new", "none"))
    assert policy.key(quick, 0)[0] < policy.key(unknown, 0)[0] < policy.key(slow, 0)[0]
    assert policy.key(unknown, 0)[0] == policy.all.costs[0] * 1000


def test_a_class_with_few_jobs_goes_by_all() -> None:
    policy = Gittins("", by_width=False)
    for job_id in range(100):
        job = make_job(job_id, 1, 1, kinds=("rare",) if job_id < 5 else ("other",))
        job.executed_ns, job.state = 3600 * SECOND_NS, JobState.COMPLETED
        policy.record_end(job)
    assert policy.key(make_job(200, 1, 1, kinds=("rare",)), 0)[0] == policy.all.costs[0] * 1000


def test_keys_of_classes_change_only_with_the_epoch_and_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpud.core.policy.gittins.CLASSES_MAX", 20)
    policy = Gittins("", by_width=False)
    watched = [make_job(0, 1, 10, kinds=(f"kind {number}",)) for number in range(60)]
    for job_id in range(1, 1500):
        before = policy.epoch, [policy.key(job, 0) for job in watched]
        job = make_job(job_id, 1, 1, kinds=(f"kind {job_id % 60}",))
        job.executed_ns, job.state = 50 * job_id * SECOND_NS, JobState.COMPLETED
        policy.record_end(job)
        assert policy.epoch > before[0] or [policy.key(job, 0) for job in watched] == before[1]
        assert len(policy.classes) <= 40
