"""The simulator's elastic jobs have the worker groups that the daemon's would have."""

from __future__ import annotations

from tests.core.elastic.worker_world import job_of, places
from vgpud.core.elastic.worker_group import WorkerGroup
from vgpud.simulate.worker_groups import WorkerGroups


def members(group: WorkerGroup | None) -> tuple[int, tuple[int, ...]]:
    assert group
    return group.generation, group.members


def test_workers_join_and_leave_as_the_queue_resizes_the_job() -> None:
    groups, job = WorkerGroups(), job_of(2)
    groups.begin(job, 0)
    generation, first = members(groups.group(1))
    assert first == (0, 1)
    assert groups.resize(job, places("aabc"), 5) == places("aabc")
    grown, all_four = members(groups.group(1))
    assert grown > generation and all_four == (0, 1, 2, 3)
    assert groups.resize(job, places("ca"), 6) == places("ac"), "workers that stay keep their order"
    assert members(groups.group(1))[1] == (0, 3)
    groups.end(1, 7)
    assert groups.group(1) is None


def test_a_job_without_workers_has_what_it_is_given() -> None:
    assert WorkerGroups().resize(job_of(1), places("b"), 0) == places("b")
