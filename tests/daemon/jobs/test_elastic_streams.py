"""Streams of elastic jobs' workers: how they begin and end, with a job controller of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest

from tests.core.elastic.worker_world import job_of
from vgpud.api import workers as api_workers
from vgpud.api.rpc import RefusedError
from vgpud.api.workers import Mailbox, WorkCalls
from vgpud.core.elastic.live_group import Deadline
from vgpud.core.elastic.worker_group import Membership, ProgressReport, new_group
from vgpud.core.jobs.model import Job, JobState
from vgpud.core.model import Denied
from vgpud.core.queue import group_record
from vgpud.daemon.jobs.elastic import ElasticController
from vgpud.errors import StoreError
from vgpud.v1alpha1 import vgpud_pb2 as pb


class Jobs:
    """The job controller, as far as streams need it. The disk takes what is saved as soon as `disk` is set."""

    def __init__(self, workers: int) -> None:
        self.job = job_of(workers)
        self.machine = SimpleNamespace(jobs={1: self.job})
        self.saved_groups: list[str | None] = []
        self.notes: list[str] = []
        self.disk = asyncio.Event()
        self.disk.set()
        self.full = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.saver = self.attempts = self
        self.elastic = ElasticController(self, {1: group_record.dump(new_group(self.job))})  # type: ignore[arg-type]

    def save_group(self, job_id: int, text: str | None) -> None:
        self.saved_groups.append(text)

    async def on_disk(self, job_ids: object) -> None:
        await self.disk.wait()
        if self.full:
            raise StoreError("the disk is full")

    def note(self, kind: str, job: Job, text: str) -> None:
        self.notes.append(text)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    @asynccontextmanager
    async def job_lock(self, job_id: int) -> Any:
        yield

    def hello(self, worker: int, generation: int = 0) -> Mailbox:
        mailbox = self.elastic.streams.open_stream(ProgressReport(1, 1, worker, generation))
        assert isinstance(mailbox, Mailbox)
        return mailbox


async def take_message(mailbox: Mailbox) -> Membership | Denied | None:
    return await asyncio.wait_for(mailbox.take(), 10)


def run_on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(test(*arguments, **options))

    return run


@run_on_loop
async def test_a_membership_is_sent_when_the_disk_has_it() -> None:
    jobs = Jobs(1)
    jobs.disk.clear()
    mailbox = jobs.hello(0)
    await asyncio.sleep(0.05)
    assert mailbox._message is None
    assert jobs.saved_groups and jobs.saved_groups[-1] and group_record.parse(jobs.saved_groups[-1]).generation == 1
    jobs.disk.set()
    assert await take_message(mailbox) == Membership(1, (0,), reason="all started workers are ready")


@run_on_loop
async def test_a_disk_that_is_full_does_not_keep_workers_apart() -> None:
    jobs = Jobs(1)
    jobs.full = True
    assert isinstance(await take_message(jobs.hello(0)), Membership)


@run_on_loop
async def test_another_stream_of_a_worker_takes_the_place_of_the_first() -> None:
    jobs = Jobs(1)
    first = jobs.hello(0)
    second = jobs.hello(0, 1)
    assert await take_message(first) is None
    jobs.elastic.streams.close_stream(first)
    assert isinstance(await take_message(second), Membership)
    jobs.elastic.streams.hear(ProgressReport(1, 1, 0, generation=1, has_lost_peers=True))
    assert isinstance(await take_message(second), Membership)


@run_on_loop
async def test_streams_end_with_their_attempt() -> None:
    jobs = Jobs(1)
    mailbox = jobs.hello(0)
    await take_message(mailbox)
    jobs.elastic.forget(1)
    denied = await take_message(mailbox)
    assert isinstance(denied, Denied) and "attempt 1 of job 1 has ended" in denied.message
    assert jobs.saved_groups[-1] is None
    jobs.job.state = JobState.COMPLETED
    assert isinstance(jobs.elastic.streams.open_stream(ProgressReport(1, 1, 0)), Denied)


@run_on_loop
async def test_memberships_without_end_leave_no_timers_behind() -> None:
    jobs = Jobs(1)
    loop = asyncio.get_running_loop()
    for generation in range(200):
        await take_message(jobs.hello(0, 2 * generation))
    timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    assert len(timers) < 10


@run_on_loop
async def test_after_a_failure_later_deadlines_are_still_met() -> None:
    jobs = Jobs(1)
    await take_message(jobs.hello(0))
    group = jobs.elastic.groups.of_job(jobs.job)
    assert group and group.deadlines
    group.limit(Deadline.LOST, 1, 0)
    jobs.save_group = lambda job_id, text: 1 // 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(ZeroDivisionError):
        await jobs.elastic._steps._tick(group)
    assert list(jobs.elastic._steps._timers) == [1]


@run_on_loop
async def test_a_stream_that_cannot_be_read_any_more_ends() -> None:
    workers: Any = SimpleNamespace()
    calls, box = WorkCalls(workers, {1: 7}.get), Mailbox(1, 0)

    def fails(report: ProgressReport) -> None:
        raise ZeroDivisionError

    async def requests() -> AsyncIterator[pb.WorkRequest]:
        yield pb.WorkRequest(job_id=1, attempt=1, steps=1)

    workers.hear = fails
    with pytest.raises(ZeroDivisionError):
        await calls._read(requests(), ProgressReport(1, 1, 0), box)
    assert await asyncio.wait_for(box.take(), 10) is None


@run_on_loop
async def test_streams_that_say_nothing_are_not_without_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_workers, "caller", lambda: SimpleNamespace(uid=7))
    no_workers: Any = None
    calls = WorkCalls(no_workers, {1: 7}.get)

    async def silence() -> AsyncIterator[pb.WorkRequest]:
        await asyncio.sleep(60)
        yield pb.WorkRequest()

    most = api_workers.SILENT_PER_USER_MAX
    waiting = [asyncio.create_task(calls._hello(silence())) for _ in range(most)]
    await asyncio.sleep(0.05)
    with pytest.raises(RefusedError, match=f"uid 7 has {most} streams open"):
        await asyncio.wait_for(calls._hello(silence()), 5)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not calls._silent, "and nobody is remembered who has none"
