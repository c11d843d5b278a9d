"""What was decided on jobs waits for a store that cannot take it, and is written as a whole when it can."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vgpud.core.jobs.model import Ask, Job, JobSpec
from vgpud.core.model import Denied, Reason, Spec
from vgpud.daemon.jobs import saver as savers
from vgpud.daemon.jobs.saver import JobSaver
from vgpud.errors import StoreBusyError, StoreError
from vgpud.store.database import Store
from vgpud.store.jobs import JobStore, Request


class Disk(JobStore):
    """`fault`: what every writing raises."""

    fault: StoreError | None = None

    def save(self, *arguments: Any) -> None:
        if self.fault:
            raise self.fault
        super().save(*arguments)


class World:
    def __init__(self, directory: Path) -> None:
        self.disk = Disk(Store(directory))
        queues: Any = SimpleNamespace(unsaved_rows=(), mark_saved=lambda: None)
        clock: Any = SimpleNamespace(now_ns=lambda: 5)
        no_machine: Any = None
        self.saver = JobSaver(self.disk, no_machine, queues, clock, 1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def job(job_id: int) -> Job:
    return Job(job_id, JobSpec(Ask(Spec(500))), 0)


def test_what_could_not_be_written_is_written_with_the_rest(world: World) -> None:
    world.disk.fault = StoreError("the disk is full")
    with pytest.raises(StoreError):
        world.saver.write({1: job(1)})
    assert not world.saver.has_all_jobs
    world.disk.fault = None
    world.saver.write({2: job(2)})
    assert world.saver.has_all_jobs
    assert [one.job_id for one in world.disk.load().jobs] == [1, 2]


def test_no_job_is_queued_while_earlier_decisions_cannot_be_written(world: World) -> None:
    assert world.saver.refusal() is None
    world.disk.fault = StoreError("the disk is full")
    with pytest.raises(StoreError):
        world.saver.write({1: job(1)})
    assert world.saver.refusal() == Denied(Reason.UNAVAILABLE, "nothing was changed: the disk is full")
    world.disk.fault = StoreBusyError("held")
    assert world.saver.refusal() is None, "for a moment only"
    world.disk.fault = None
    assert world.saver.refusal() is None and world.saver.has_all_jobs


def test_a_submission_is_known_before_it_is_written(world: World) -> None:
    request = Request(7, "once", "f", (1,), 100)
    world.saver.add_request(request)
    assert world.saver.find_request(7, "once") == request
    assert world.saver.find_request(8, "once") is None
    world.saver.write_rest()
    assert world.saver.find_request(7, "once") == request
    world.saver.add_request(Request(7, "once", "f", (1,), 0))  # it was taken back
    assert world.saver.find_request(7, "once") is None


def test_the_trail_is_whole_at_any_moment_and_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.saver.write({1: job(1)})
    world.saver.note("job.warning", 1, "first")
    world.saver.write_rest()
    monkeypatch.setattr(savers, "NOTES_MAX", 2)
    for text in ("second", "third", "too much"):
        world.saver.note("job.warning", 1, text)
    assert [fact.text for fact in world.saver.trail(1)] == ["first", "second", "third"]
