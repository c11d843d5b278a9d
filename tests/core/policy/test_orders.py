"""The policies that look at what users say: first come, priority, shortest remaining time and service."""

from __future__ import annotations

from tests.core.policy.world import World, make_job
from vgpud.core.jobs.model import SECOND_NS, Job
from vgpud.core.policy.registry import make


def order(policy: str, jobs: list[Job]) -> list[int]:
    made = make(policy)
    return [job.job_id for job in sorted(jobs, key=lambda job: (made.key(job, 0), job.job_id))]


def ends_s(policy: str, jobs: list[Job], gpus: int = 1, strict: bool = False) -> list[int]:
    World(make(policy), gpus, strict=strict).run(jobs)
    return [job.ended_ns // SECOND_NS for job in jobs]


def test_fifo_goes_by_submission_and_preempts_nobody() -> None:
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


def test_priority_takes_room_only_where_it_is_told_to() -> None:
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


def test_who_gives_no_duration_or_exceeds_it_comes_last() -> None:
    honest, silent, exceeded = make_job(1, 1, 10_000), make_job(2, 1, 0), make_job(3, 1, 10)
    exceeded.executed_ns = 11 * SECOND_NS
    assert order("srtf", [exceeded, silent, honest]) == [1, 2, 3]
    assert order("srsf", [exceeded, silent, honest]) == [1, 2, 3]
