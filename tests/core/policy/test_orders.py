"""The policies that look at what users say: first come, priority, shortest remaining time and service."""

from __future__ import annotations

from tests.core.policy.world import World, make_job
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.policy.registry import make


def order(policy: str, jobs: list[Job]) -> list[int]:
    made = make(policy)
    return [job.job_id for job in sorted(jobs, key=lambda job: (made.key(job, 0), job.job_id))]


def ends_s(policy: str, jobs: list[Job], gpus: int = 1, strict: bool = False) -> list[int]:
    World(make(policy), gpus, strict=strict).run(jobs)
    return [job.ended_ns // SECOND_NS for job in jobs]


def test_fifo_goes_by_submission_and_preempts_no_job() -> None:
    assert order("fifo", [make_job(1, 1, 5, at=3), make_job(2, 1, 5, at=1), make_job(3, 1, 5, at=1)]) == [2, 3, 1]
    assert ends_s("fifo", [make_job(1, 1, 100), make_job(2, 1, 1, at=5, priority=9)]) == [100, 101]


def test_fifo_strict_keeps_all_waiting_behind_the_first_that_does_not_fit() -> None:
    def jobs() -> list[Job]:
        return [make_job(1, 1, 100), make_job(2, 2, 10), make_job(3, 1, 10)]

    assert ends_s("fifo", jobs(), gpus=2) == [100, 110, 10]
    assert ends_s("fifo", jobs(), gpus=2, strict=True) == [100, 110, 120]


def test_priority_first_then_submission() -> None:
    jobs = [
        make_job(1, 1, 5),
        make_job(2, 1, 5, priority=5),
        make_job(3, 1, 5, priority=-5),
        make_job(4, 1, 5, priority=5),
    ]
    assert order("priority", jobs) == [2, 4, 1, 3]


def test_priority_takes_capacity_only_where_it_is_configured_to() -> None:
    def jobs() -> list[Job]:
        return [make_job(1, 1, 100), make_job(2, 1, 10, at=5, priority=1)]

    assert ends_s("priority", jobs()) == [100, 110]
    assert ends_s("priority(preempt)", jobs()) == [110, 15]


def test_shortest_remaining_time_and_service() -> None:
    jobs = [make_job(1, 1, 100), make_job(2, 8, 20), make_job(3, 2, 30)]
    assert order("srtf", jobs) == [2, 3, 1]
    assert order("srsf", jobs) == [3, 1, 2]


def test_what_has_run_is_no_longer_remaining() -> None:
    """At 60 s the first has 40 s left: one of 50 s waits, one of 30 s does not."""
    assert ends_s("srtf", [make_job(1, 1, 100), make_job(2, 1, 50, at=60)]) == [100, 150]
    assert ends_s("srtf", [make_job(1, 1, 100), make_job(2, 1, 30, at=60)]) == [130, 90]


def test_who_gives_no_duration_comes_last() -> None:
    honest, silent = make_job(1, 1, 10_000), make_job(2, 1, 0)
    assert order("srtf", [silent, honest]) == order("srsf", [silent, honest]) == [1, 2]


def test_who_exceeds_its_duration_is_expected_to_need_half_of_what_it_has_had() -> None:
    """A little wrong: it ends soon. Very wrong: others go first, but those that say nothing do not."""
    for policy in ("srtf", "srsf"):
        honest, silent, short = make_job(1, 1, 100), make_job(2, 1, 0), make_job(3, 1, 1)
        exceeded = make_job(4, 1, 10)
        exceeded.executed_ns = 11 * SECOND_NS
        assert order(policy, [silent, honest, exceeded, short]) == [3, 4, 1, 2]
        exceeded.executed_ns = 400 * SECOND_NS
        assert order(policy, [silent, exceeded, honest, short]) == [3, 1, 4, 2]


def test_two_that_exceed_their_durations_do_not_take_turns_for_ever() -> None:
    """Each has the device until it has outlasted what it was expected to need by half."""
    policy, changes, now_s = make("srtf"), 0, 0
    jobs = [make_job(1, 1, 10), make_job(2, 1, 10)]
    for job in jobs:
        job.executed_ns = 11 * SECOND_NS
    for now_s in range(1000):
        first = min(jobs, key=lambda job: (policy.key(job, now_s * SECOND_NS), job.job_id))
        if first.state is not JobState.RUNNING:
            changes += 1
            other = jobs[0] if first is jobs[1] else jobs[1]
            other.executed_ns, other.state = other.executed_at(now_s * SECOND_NS), JobState.PENDING
            first.started_ns, first.state = now_s * SECOND_NS, JobState.RUNNING
    assert changes <= 24


def test_what_starting_a_job_takes_is_no_progress_and_would_be_paid_again() -> None:
    """The first has run for 40 s, of which its start took 30: 90 s are left, and stopping it costs 30 of these."""
    running = make_job(1, 1, 100)
    running.state, running.started_ns, running.working_since_ns = JobState.RUNNING, 0, 30 * SECOND_NS
    policy = make("srtf")
    now_ns = 40 * SECOND_NS
    assert policy.key(running, now_ns)[:2] == (0, (90 - 30) * SECOND_NS)
    assert policy.changes_at(running, now_ns) == 130 * SECOND_NS + 1
    running.working_since_ns = NEVER_NS
    assert policy.key(running, now_ns)[:2] == (0, 100 * SECOND_NS)
    assert (policy.pace(running), policy.changes_at(running, now_ns)) == (0, NEVER_NS)
