"""Fair share and finish-time fairness: the user who has least, or is slowed down most, goes first."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.policy.world import World, make_job
from tests.core.queue.world import CountedCluster, Shell, gpus, queue
from vgpud.core.jobs.events import Requeued
from vgpud.core.jobs.model import SECOND_NS, Ask, How, Job, JobSpec, JobState
from vgpud.core.model import Spec
from vgpud.core.policy.fair import GIB, STEP_FACTOR, STEP_ONE_BITS, STEPS, Fair
from vgpud.core.policy.finish_time import FinishTimeFairness
from vgpud.core.policy.registry import make
from vgpud.core.queue.machine import Machine

HOUR_S = 3600
DAY_S = 24 * HOUR_S


def held(world: World, uid: int) -> int:
    """Milli-GPU."""
    return sum(j.width_milli for j in world.jobs.values() if j.spec.uid == uid and j.state is JobState.RUNNING)


def crowd(policy: str, gpus: int, users: dict[int, int], until_s: int = 100) -> World:
    """`users`: how many endless jobs of one GPU each has, all submitted at once, one user after the other."""
    world = World(make(policy), gpus, until_ns=until_s * SECOND_NS)
    owners = [uid for uid, count in users.items() for _ in range(count)]
    world.run([make_job(number, 1, 10 * DAY_S, uid=uid) for number, uid in enumerate(owners, 1)])
    return world


def test_equal_shares_in_any_order_of_arrival() -> None:
    world = crowd("fair", 8, {1: 100, 2: 100, 3: 2})
    assert [held(world, uid) for uid in (1, 2, 3)] == [3000, 3000, 2000]


def test_shares_follow_weights() -> None:
    world = crowd("fair(1=3,2=0.5,3=0.5)", 8, {1: 100, 2: 100, 3: 100})
    assert [held(world, uid) for uid in (1, 2, 3)] == [6000, 1000, 1000]


def test_a_newcomer_gets_its_share_and_no_more_is_preempted_than_that_takes() -> None:
    world = World(make("fair"), 8, until_ns=1000 * SECOND_NS)
    world.run(
        [
            *(make_job(i, 1, DAY_S, uid=1) for i in range(1, 9)),
            *(make_job(i, 1, DAY_S, 10, uid=2) for i in range(9, 20)),
        ]
    )
    assert (held(world, 1), held(world, 2), world.preemptions) == (4000, 4000, 4)


def memory_job(job_id: int, uid: int, gpus_milli: int, gib: int) -> Job:
    return Job(job_id, JobSpec(Ask(Spec(gpus_milli, mem_min_bytes=gib * GIB)), uid=uid), 0)


def test_memory_counts_where_it_is_more_of_a_device_than_the_compute() -> None:
    fair = make("fair(memory=80)")
    assert isinstance(fair, Fair)
    assert [fair.share_ppm(memory_job(1, 1, milli, gib)) for milli, gib in ((500, 20), (500, 60), (100, 80))] == [
        500_000,
        750_000,
        1_000_000,
    ]
    assert make("fair").share_ppm(memory_job(1, 1, 500, 60)) == 500_000  # type: ignore[attr-defined]


def test_dominant_resource_fairness_of_its_papers_example() -> None:
    """9 CPUs and 18 GB; A's tasks take 1 and 4, B's 3 and 1: A gets 3 tasks, B 2. Here 9 GPUs of 2 GiB."""
    fair = Fair("", memory_gib=2, half_life_h=0, weights={})  # type: ignore[arg-type]
    jobs = [memory_job(i, 1, 1000, 4) for i in range(1, 10)] + [memory_job(i, 2, 3000, 1) for i in range(10, 20)]
    fair.before_all(jobs, 0)
    order = sorted(jobs, key=lambda job: (fair.key(job, 0), job.job_id))
    assert [job.spec.uid for job in order[:5]] == [1, 2, 1, 2, 1]


def test_history_counts_and_is_forgotten() -> None:
    """A user who had the cluster alone for a day stands back; after 60 days that is forgotten."""
    for pause_s, first in ((0, 2), (60 * DAY_S, 1)):
        fair = make("fair(half-life=24)")
        past = make_job(1, 8, DAY_S, uid=1)
        past.executed_ns = DAY_S * SECOND_NS
        fair.record_end(past)
        now_ns = pause_s * SECOND_NS
        mine, yours = make_job(2, 1, 10, pause_s, uid=1), make_job(3, 1, 10, pause_s, uid=2)
        fair.before_all([mine, yours], now_ns)
        assert min([mine, yours], key=lambda job: fair.key(job, now_ns)).spec.uid == first


def test_history_halves_in_a_half_life_and_does_not_depend_on_how_often_it_is_asked() -> None:
    assert pytest.approx(0.5) == STEP_FACTOR**STEPS / (1 << STEP_ONE_BITS * STEPS)
    kept = []
    for asked_s in (DAY_S, HOUR_S, 600):
        fair = make("fair(half-life=24)")
        assert isinstance(fair, Fair)
        past = make_job(1, 1, DAY_S, uid=1)
        past.executed_ns = DAY_S * SECOND_NS
        fair.record_end(past)
        for now_s in range(0, DAY_S + 1, asked_s):
            fair.before_all([], now_s * SECOND_NS)
        kept.append(fair.past[1])
    assert kept == pytest.approx([past.executed_ns * 1_000_000 / 2] * 3, rel=1e-6)


def test_what_runs_is_charged_once() -> None:
    fair = make("fair(half-life=1000)")
    assert isinstance(fair, Fair)
    job = make_job(1, 2, 500, uid=1)
    job.state, job.started_ns = JobState.RUNNING, 0
    for now_s in (100, 100, 300):
        fair.before_all([job], now_s * SECOND_NS)
    job.executed_ns, job.state = 500 * SECOND_NS, JobState.COMPLETED
    job.attained = job.executed_ns * job.width_milli
    fair.record_end(job)
    assert fair.past[1] == 2_000_000 * 500 * SECOND_NS
    fair.before_all([], 500 * SECOND_NS)
    assert (fair.charged_ns, fair.users) == ({}, {})


def test_a_requeue_wipes_nothing_out_and_charges_nothing_twice() -> None:
    fair = make("fair(half-life=1000)")
    assert isinstance(fair, Fair)
    at = Shell(Machine((queue(policy="fair"),), CountedCluster(1000), lambda name: fair, hows=(How.REQUEUE,)))
    job = at.submit(gpus(1, uid=1))
    at.now_ns += 3600 * SECOND_NS
    at.send(Requeued(job))
    at.now_ns += 60 * SECOND_NS
    at.send(Requeued(job))
    at.now_ns += 40 * SECOND_NS
    at.end(job)
    ran_s = 3600 + 60 + 40
    assert fair.past[1] == pytest.approx(1_000_000 * ran_s * SECOND_NS, rel=1e-2)


@settings(deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.integers(1, 12))
def test_no_user_has_more_than_one_that_waits_but_for_one_job(owners: list[int], gpus: int) -> None:
    counts = {uid: owners.count(uid) for uid in sorted(set(owners))}
    world = crowd("fair", gpus, counts)
    assert sum(held(world, uid) for uid in counts) == min(gpus, len(owners)) * 1000
    for waits in counts:
        if held(world, waits) < counts[waits] * 1000:
            assert all(held(world, uid) <= held(world, waits) + 1000 for uid in counts)


# ---- least finish-time fairness ----


def ftf() -> FinishTimeFairness:
    made = make("ftf(lease=100)")
    assert isinstance(made, FinishTimeFairness)
    return made


def test_rho_is_time_shared_over_time_alone() -> None:
    job = make_job(1, 1, 100)
    assert ftf().rho_ppm(job, 0) == 1_000_000
    assert ftf().rho_ppm(job, 100 * SECOND_NS) == 2_000_000
    job.executed_ns = 50 * SECOND_NS
    assert ftf().rho_ppm(job, 100 * SECOND_NS) == 1_500_000
    unknown = make_job(2, 1, 0)
    unknown.executed_ns = 500 * SECOND_NS
    assert ftf().rho_ppm(unknown, 500 * SECOND_NS) == 1_000_000
    late = make_job(3, 1, 100)
    late.executed_ns = 400 * SECOND_NS
    assert ftf().rho_ppm(late, 400 * SECOND_NS) == 1_000_000


def test_a_lease_is_kept_and_then_the_worst_off_has_its_turn() -> None:
    world = World(make("ftf(lease=100)"), 1)
    jobs = [make_job(1, 1, 1000), make_job(2, 1, 200, at=10)]
    world.run(jobs)
    assert jobs[1].first_started_ns == 100 * SECOND_NS
    assert jobs[1].ended_ns < 400 * SECOND_NS
    assert world.preemptions == 1


def test_it_narrows_the_gap_between_the_slowdowns() -> None:
    def worst_slowdown(policy: str) -> float:
        jobs = [make_job(i, 1, 4000 if i % 2 else 400, at=i) for i in range(1, 21)]
        World(make(policy), 2).run(jobs)
        return max((job.ended_ns - job.submitted_ns) / job.spec.duration_ns for job in jobs)

    assert worst_slowdown("ftf(lease=100)") < 0.5 * worst_slowdown("fifo")


def test_leases_do_not_swap_equals_at_every_event() -> None:
    jobs = [make_job(1, 1, 1000), make_job(2, 1, 1000), *(make_job(i, 1, 1e-3, at=i) for i in range(3, 900))]
    world = World(make("ftf(lease=100)"), 1)
    world.run(jobs)
    ends = sorted(job.ended_ns for job in jobs)
    assert all(a <= b for a, b in pairwise(ends))
    assert jobs[0].preemptions + jobs[1].preemptions <= 2 * 1000 / 100 + 2
