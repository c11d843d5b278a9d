"""Lists that change while they are made, as other users' requests are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.api.job_world import ALICE, ROOT, Context, World
from vgpud.api import jobs
from vgpud.api.caller import set_caller
from vgpud.core.jobs.facts import JobFilter, QueueNow
from vgpud.core.jobs.model import NEVER_NS, Ask, Job, JobSpec, JobState, QueueSpec
from vgpud.core.model import Spec
from vgpud.daemon.jobs.job_reader import JobReader
from vgpud.v1alpha1 import vgpud_pb2 as pb


def job(job_id: int, state: JobState = JobState.PENDING) -> Job:
    return Job(job_id, JobSpec(Ask(Spec(100))), 0, state=state, ended_ns=1 if state.is_final else -1)


class Listing:
    """Jobs of the machine, and those that the store has as ended."""

    def __init__(self, live: Sequence[Job], stored_jobs: Sequence[Job]) -> None:
        self.looked_at: list[int] = []
        machine = SimpleNamespace(jobs=self, reason=lambda job_id, now_ns: "")
        store = SimpleNamespace(ended_after=self.ended_after)
        backend: Any = SimpleNamespace(
            machine=machine,
            store=store,
            clock=SimpleNamespace(now_ns=lambda: 0),
            saver=SimpleNamespace(next_id=len(live) + len(stored_jobs) + 1),
        )
        self._live = {one.job_id: one for one in live}
        self._kept = stored_jobs
        host: Any = SimpleNamespace(node=SimpleNamespace(name="n"))
        self.reader = JobReader(host, backend)

    def __iter__(self) -> Any:
        return iter(self._live)

    def get(self, job_id: int) -> Job | None:
        self.looked_at.append(job_id)
        return self._live.get(job_id)

    def ended_after(self, after: int, count: int, *_: object) -> list[Job]:
        return [one for one in self._kept if one.job_id > after][:count]

    def list_jobs(self, after: int, count: int = NEVER_NS, *, with_ended: bool = True) -> list[tuple[int, bool]]:
        found = asyncio.run(self.reader.jobs(after, count, JobFilter(with_ended)))
        return [(one.job_id, one.state.is_final) for one in found]


def test_a_job_that_ends_while_the_list_is_made_is_in_it_once() -> None:
    """It was seen as pending, and is in the store by the time that this is read."""
    world = Listing([job(1), job(2), job(3)], [job(2, JobState.COMPLETED)])
    assert world.list_jobs(0) == [(1, False), (2, True), (3, False)]


def test_a_job_whose_end_is_not_written_yet_is_in_the_list() -> None:
    world = Listing([job(1, JobState.FAILED), job(2)], [])
    assert world.list_jobs(0) == [(1, True), (2, False)]
    assert world.list_jobs(0, with_ended=False) == [(2, False)]


def test_a_page_looks_at_its_own_jobs_only() -> None:
    """Jobs that were loaded after a restart may be out of order."""
    world = Listing([job(number) for number in (5, *range(10, 1000), 1)], [])
    assert [number for number, _ in world.list_jobs(5, 3)] == [10, 11, 12]
    assert world.looked_at == [10, 11, 12]


def test_a_queue_that_is_removed_while_queues_are_listed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests go first between the queues; what is not there has no state to be shown."""
    world = World()
    for name in ("a", "b", "c"):
        world.backend.tree[name] = QueueSpec(name)

    def queue_now(name: str) -> QueueNow:
        world.backend.tree.pop("b", None)
        assert name in world.backend.tree
        return QueueNow((), 0, 0, 0, 0)

    monkeypatch.setattr(world.backend, "queue_now", queue_now)
    listed = world.call(world.queues.ListQueues, pb.ListQueuesRequest(), ROOT).queues
    assert [queue.name for queue in listed if queue.name in "abc"] == ["a", "c"]


def test_others_go_first_between_the_jobs_that_a_watch_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands, and each that has ended is read from the store."""
    world = World()
    steps: list[str] = []
    find = world.backend.job

    async def job(job_id: int) -> Job | None:
        steps.append("read")
        return await find(job_id)

    async def breathe() -> None:
        steps.append("others")

    async def first() -> None:
        set_caller(ALICE)
        stream: Any = world.jobs.WatchJobs(pb.WatchJobsRequest(job_ids=[1, 2, 3]), Context())
        await anext(stream)
        await stream.aclose()

    for _ in range(3):
        world.submit()
    monkeypatch.setattr(world.backend, "job", job)
    monkeypatch.setattr(jobs, "breathe", breathe)
    asyncio.run(first())
    assert steps[:6] == ["read", "others"] * 3


def test_others_go_first_between_the_jobs_that_one_comes_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a thousand, and each that has ended is read from the store."""
    world = World()
    ids = [job_id for _ in range(3) for job_id in world.submit()]
    breaths = 0

    async def breathe() -> None:
        nonlocal breaths
        breaths += 1

    monkeypatch.setattr(jobs, "breathe", breathe)
    set_caller(ALICE)
    asyncio.run(world.jobs._check_after(JobSpec(Ask(Spec(100)), after=tuple(ids))))
    assert breaths == 3
