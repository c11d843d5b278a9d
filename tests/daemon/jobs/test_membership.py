"""Memberships of workers: who is told what and when, with a desk of the test's own. And crews as data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.api import workers as api_workers
from vgpud.api.rpc import RefusedError
from vgpud.api.workers import WorkCalls
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import Ask, Elastic, Job, JobSpec, JobState, Place
from vgpud.core.model import Denied, Share, Spec
from vgpud.daemon.jobs import membership
from vgpud.daemon.jobs.membership import WorkDesk
from vgpud.jobs import worker_group
from vgpud.jobs.worker_group import Crew, Mailbox, Membership, Said
from vgpud.v1 import vgpud_pb2 as pb


def place(device: str) -> Place:
    return Place("n1", (Share(device, 500, 500, 1, 1),))


class Desk:
    """JobDesk and ElasticDesk in one, as far as they are asked."""

    def __init__(self, workers: int, batch: int = 0, batch_max: int = 0) -> None:
        launch = Launch(0, 0, (), ("train",), "", "/", (), 0, (), "/log", batch=batch, batch_max=batch_max)
        spec = JobSpec(Ask(Spec(500)), members=workers, elastic=Elastic(0, 0, 1, 8), run=launch)
        self.job = Job(1, spec, 0, state=JobState.RUNNING, attempt=1, placement=(place("a"),) * workers)
        self.crewed = worker_group.begin(self.job)
        self.crews = {1: self.crewed}
        self.machine = SimpleNamespace(jobs={1: self.job})
        self.kept: list[int] = []
        self.notes: list[str] = []
        self.ended: list[int] = []
        self.silent: set[int] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.complete: list[tuple[int, ...]] = []
        self.work = WorkDesk(self, self)  # type: ignore[arg-type]
        self.work.on_complete = lambda crew: self.complete.append(crew.members)
        self.boxes: dict[int, Mailbox] = {}

    def crew(self, job: Job) -> Crew | None:
        return self.crews.get(job.job_id)

    def keep(self, crew: Crew) -> None:
        self.kept.append(crew.generation)

    async def on_disk(self, job_ids: object) -> None:
        assert self.kept, "it is saved before it is told"

    def note(self, kind: str, job: Job, text: str) -> None:
        self.notes.append(text)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    @asynccontextmanager
    async def alone_with(self, job_id: int) -> Any:
        yield

    def stand_ins_work(self, crew: Crew) -> None: ...

    async def stop_leaver(self, job_id: int, attempt: int, number: int) -> None:
        self.ended.append(number)

    async def replace_silent(self, job_id: int, generation: int, numbers: set[int]) -> None:
        self.silent |= numbers

    def hello(self, worker: int, generation: int = 0) -> Mailbox:
        box = self.work.open(Said(1, 1, worker, generation))
        assert isinstance(box, Mailbox)
        self.boxes[worker] = box
        return box

    def say(self, worker: int, **what: Any) -> None:
        self.work.heard(Said(1, 1, worker, **({"generation": self.crewed.generation} | what)))

    async def told(self, worker: int) -> Membership:
        news = await asyncio.wait_for(self.boxes[worker].take(), 10)
        assert isinstance(news, Membership), news
        return news

    async def hears_nothing(self, *workers: int) -> None:
        await asyncio.sleep(0.05)
        assert [self.boxes[worker]._news for worker in workers] == [None] * len(workers)

    async def begin(self, *workers: int) -> None:
        """All say hello and work together."""
        for worker in workers:
            self.hello(worker)
        await self.meet(*workers)

    async def meet(self, *workers: int) -> None:
        for worker in workers:
            assert (await self.told(worker)).workers == self.crewed.members
        self.say(self.crewed.members[0], store="127.0.0.1:5")
        for worker in workers:
            assert (await self.told(worker)).store == "127.0.0.1:5"
            self.say(worker, joined=True, idle_ns=5)
        await asyncio.sleep(0.01)


def alone(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*given_: Any, **named: Any) -> None:
        asyncio.run(test(*given_, **named))

    return run


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "LOST_S", 0.02)


@alone
async def test_the_first_membership_is_of_all_and_told_twice() -> None:
    desk = Desk(3)
    desk.hello(2)
    desk.hello(0)
    await desk.hears_nothing(0, 2)
    desk.hello(1)
    desk.say(2, store="127.0.0.1:6")  # which is the first one's to say
    await desk.meet(0, 1, 2)
    assert desk.crewed.members == (0, 1, 2)
    assert desk.crewed.store == "127.0.0.1:5"
    assert desk.complete == [(0, 1, 2)]
    assert len(desk.notes) == 1 and "3 workers work together" in desk.notes[0]


@alone
async def test_who_is_not_there_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "READY_S", 0.05)
    desk = Desk(2)
    desk.hello(1)
    await desk.meet(1)
    desk.hello(0)
    await desk.meet(0, 1)
    assert desk.crewed.members == (1, 0), "survivors first"


@alone
async def test_newcomers_are_told_when_all_of_them_are_ready_and_survivors_keep_their_rank() -> None:
    desk = Desk(2, batch=8, batch_max=20)
    await desk.begin(0, 1)
    for _ in range(2):
        desk.crewed.add(place("b"))
    desk.work.changed(desk.crewed, "there is room")
    desk.hello(3)
    await desk.hears_nothing(0, 1, 3)
    desk.hello(2)
    told = await desk.told(0)
    assert (told.workers, told.batch, told.reason) == ((0, 1, 2, 3), 20, "there is room")
    assert desk.crewed.generation == 2


@alone
async def test_who_leaves_is_told_and_has_time_until_the_others_go_on() -> None:
    desk = Desk(3)
    await desk.begin(0, 1, 2)
    desk.crewed.change(0, leaving=True)
    desk.work.changed(desk.crewed, "somebody waits")
    for worker in (0, 1, 2):
        assert (await desk.told(worker)).workers == (1, 2)
    assert desk.ended == []
    desk.crewed.remove(0)
    desk.work.changed(desk.crewed)
    assert desk.crewed.generation == 2, "that it has gone by now is nothing new"


@alone
async def test_one_that_leaves_and_never_said_a_word_is_ended_at_once() -> None:
    desk = Desk(2)
    desk.crewed.change(1, leaving=True)
    desk.work.changed(desk.crewed)
    await asyncio.sleep(0.02)
    assert desk.ended == [1]
    desk.hello(0)
    assert (await desk.told(0)).workers == (0,)


@alone
async def test_a_death_makes_a_new_membership_and_an_old_loss_none() -> None:
    desk = Desk(3)
    await desk.begin(0, 1, 2)
    made = desk.crewed.replace_gone(0)
    desk.work.changed(desk.crewed)
    told = await desk.told(1)
    assert (told.workers, told.reason) == ((1, 2), "worker 0 has ended")
    desk.say(1, generation=1, lost=True)
    desk.say(2, generation=1, lost=True)
    await asyncio.sleep(0.05)
    assert desk.crewed.generation == 2
    await desk.told(2)
    desk.say(1, lost=True)
    desk.say(2, lost=True)
    assert (await desk.told(1)).generation == 3
    await asyncio.sleep(0.05)
    assert (desk.crewed.generation, desk.crewed.members) == (3, (1, 2)), "once for both"
    desk.hello(made.number)
    told = await desk.told(made.number)
    assert (told.workers, told.reason) == ((1, 2, made.number), "more workers are there")


@alone
async def test_after_a_restart_nothing_is_told_to_those_who_work() -> None:
    before = Desk(2)
    await before.begin(0, 1)
    desk = Desk(2)
    desk.crewed = desk.crews[1] = worker_group.parse(worker_group.dump(before.crewed))
    desk.work.adopt(desk.crewed)
    desk.hello(0, 1)
    desk.hello(1, 1)
    await desk.hears_nothing(0, 1)
    assert desk.complete == [(0, 1)]
    assert desk.crewed.generation == 1


@alone
async def test_who_has_not_heard_of_the_newest_membership_is_told_again() -> None:
    before = Desk(2)
    await before.begin(0, 1)
    before.crewed.renew((0, 1))
    desk = Desk(2)
    desk.crewed = desk.crews[1] = worker_group.parse(worker_group.dump(before.crewed))
    desk.work.adopt(desk.crewed)
    desk.hello(0, 1)
    assert (await desk.told(0)).generation == 2
    desk.say(0, store="127.0.0.1:6")
    await desk.told(0)
    desk.hello(1, 1)
    assert (await desk.told(1)).store == "127.0.0.1:6"


@alone
async def test_a_generation_that_was_not_kept_is_never_given_again() -> None:
    desk = Desk(2)
    desk.hello(0, 7)
    desk.hello(1, 7)
    assert (await desk.told(1)).generation == 8


@alone
async def test_when_one_has_done_its_work_there_are_no_more_memberships() -> None:
    desk = Desk(2)
    await desk.begin(0, 1)
    made = desk.crewed.add(place("b"))
    desk.crewed.change(0, done=True)
    desk.hello(made.number)
    assert (await desk.told(made.number)).workers == ()
    desk.say(1, lost=True)
    assert (await desk.told(1)).workers == ()
    assert desk.crewed.generation == 1


@alone
async def test_another_stream_of_a_worker_takes_the_place_of_the_first() -> None:
    desk = Desk(1)
    first = desk.hello(0)
    second = desk.hello(0, 1)
    assert await asyncio.wait_for(first.take(), 10) is None
    desk.work.close(first)
    assert isinstance(await asyncio.wait_for(second.take(), 10), Membership)
    desk.say(0, lost=True)
    assert isinstance(await asyncio.wait_for(second.take(), 10), Membership)


@alone
async def test_streams_end_with_their_attempt() -> None:
    desk = Desk(1)
    box = desk.hello(0)
    await desk.told(0)
    desk.work.forget(1)
    denied = await box.take()
    assert isinstance(denied, Denied) and "attempt 1 of job 1 has ended" in denied.message
    desk.job.state = JobState.COMPLETED
    assert isinstance(desk.work.open(Said(1, 1, 0)), Denied)


@alone
async def test_one_that_never_comes_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "JOIN_MAX_S", 0.02)
    desk = Desk(2)
    for worker in (0, 1):
        desk.hello(worker)
    await desk.told(0)
    desk.say(0, store="127.0.0.1:5")
    desk.say(0, joined=True)
    await asyncio.sleep(0.1)
    assert desk.silent == {1}


@alone
async def test_memberships_without_end_leave_no_timers_behind() -> None:
    desk = Desk(1)
    loop = asyncio.get_running_loop()
    for generation in range(200):
        desk.hello(0, 2 * generation)
        await desk.told(0)
    timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    assert len(timers) < 10


@alone
async def test_a_stream_that_cannot_be_read_any_more_ends() -> None:
    calls, box = WorkCalls(), Mailbox(1, 0)

    def fails(said: Said) -> None:
        raise ZeroDivisionError

    async def requests() -> AsyncIterator[pb.WorkRequest]:
        yield pb.WorkRequest(job_id=1, attempt=1, steps=1)

    calls.backend = SimpleNamespace(heard_work=fails)
    with pytest.raises(ZeroDivisionError):
        await calls._read(requests(), Said(1, 1, 0), box)
    assert await asyncio.wait_for(box.take(), 10) is None


@alone
async def test_streams_that_say_nothing_are_not_without_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_workers, "caller", lambda: SimpleNamespace(uid=7))
    calls = WorkCalls()

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


# ---- crews ----


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_who_stays_stays_and_places_add_up(before: list[str], after: list[str]) -> None:
    crew = Crew(1, 1)
    for device in before:
        crew.add(place(device))
    leaving, places = worker_group.difference(crew.staying, tuple(map(place, after)))
    staying = [worker.place for worker in crew.workers if worker not in leaving]
    devices = [where.shares[0].device_uuid for where in [*staying, *places]]
    assert sorted(devices) == sorted(after)
    assert not {w.place for w in leaving} & set(places), "nobody is exchanged for the like"


@given(st.lists(st.sampled_from(["add", "leave", "gone", "renew", "fail"]), max_size=30), st.randoms())
def test_numbers_are_never_given_twice_and_survivors_keep_their_order(steps: list[str], chance: Any) -> None:
    crew = Crew(1, 1)
    given_, generations = set(), [0]
    for step in steps:
        numbers = [worker.number for worker in crew.workers]
        before = crew.members
        if step == "add":
            made = crew.add(place("a"))
        elif step == "fail" and numbers:
            made = crew.replace_gone(chance.choice(numbers))
        else:
            if step == "leave" and numbers:
                crew.change(chance.choice(numbers), leaving=True)
            elif step == "gone" and numbers:
                crew.remove(chance.choice(numbers))
            elif step == "renew":
                crew.renew(crew.next_members(set(numbers)))
                generations.append(crew.generation)
                kept = [number for number in before if number in crew.members]
                assert list(crew.members[: len(kept)]) == kept
            assert worker_group.parse(worker_group.dump(crew)) == crew
            continue
        assert made.number not in given_
        given_.add(made.number)
    assert generations == sorted(set(generations))
