"""Who takes the place of another worker, and when nobody does, with a desk of the test's own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.daemon.jobs.test_membership import Desk, alone
from vgpud.core.jobs.model import Job, JobState
from vgpud.daemon.jobs import elastic as daemon_elastic
from vgpud.daemon.jobs.elastic import ElasticDesk
from vgpud.jobs.messages import Result
from vgpud.jobs.worker_group import Crew, Worker


class Runner:
    def __init__(self) -> None:
        self.stopped: list[int] = []

    async def stop(self, job_id: int, attempt: int, grace_s: float, worker: int = -1) -> bool:
        self.stopped.append(worker)
        return True


@alone
async def test_who_takes_a_place_and_does_not_work_there_is_dismissed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_elastic, "STAND_IN_S", 0.02)
    desk: Any = Desk(2)
    desk.runner, desk.host = Runner(), SimpleNamespace(config=SimpleNamespace(job_grace_s=1))
    desk.note = lambda kind, job, text: desk.notes.append(text)
    desk.keep_crew = lambda job_id, text: None
    elastic = ElasticDesk(desk, {})
    elastic.crews = desk.crews
    crew = desk.crewed
    made, works = crew.add(crew.workers[1].place, stands_for=1), crew.add(crew.workers[1].place)
    for number in (made.number, works.number):
        elastic._give_time(crew, number)
    await asyncio.sleep(0.1)
    gone = crew.worker(made.number)
    assert gone and gone.leaving and gone.stands_for < 0
    assert set(desk.runner.stopped) == {made.number}, "the other one stands for nobody any more"
    assert [worker.number for worker in crew.staying] == [0, 1, works.number], "the straggler stays"
    assert "has not begun to work" in desk.notes[0]


@alone
async def test_while_a_job_is_suspended_no_worker_of_it_begins() -> None:
    for again in (False, True):
        for state, begins in ((JobState.SUSPENDED, []), (JobState.RUNNING, [2])):
            desk: Any = Desk(2)
            desk.note = lambda kind, job, text: None
            desk.keep_crew = lambda job_id, text: None
            desk.job.state, desk.job.spec = state, replace(desk.job.spec, retries=1)
            elastic, begun = ElasticDesk(desk, {}), []

            async def begin(job: Job, crew: Crew, worker: Worker, begun: list[int] = begun) -> str:
                begun.append(worker.number)
                return ""

            elastic._begin_or_drop = begin  # type: ignore[method-assign]
            crew = desk.crewed
            crew.change(1, leaving=again, again=again)
            worker = crew.worker(1)
            assert worker
            await elastic._count(desk.job, crew, worker, Result(3))
            assert begun == begins
            assert crew.worker(1) is None, "it has gone"
