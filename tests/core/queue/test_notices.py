"""Events of jobs of which their users are notified, and how many."""

from __future__ import annotations

from tests.core.queue.world import Shell, gpus, queue, shell
from vgpud.core.jobs.events import Cancelled, Notify, SaveJob
from vgpud.core.jobs.model import SECOND_NS
from vgpud.core.queue.notices import PER_HOUR_MAX, wrong_events


def list_notices(at: Shell) -> list[tuple[int, str]]:
    return [(command.job_id, command.event) for command in at.log if isinstance(command, Notify)]


def test_start_and_end_are_notified_once_each() -> None:
    at = shell(1)
    job = at.submit(gpus(1, notify=("start", "end", "failure")))
    assert list_notices(at) == [(job, "start")]
    at.end(job)
    assert list_notices(at) == [(job, "start"), (job, "end")]
    command_types = [type(command) for command in at.log]
    assert command_types.index(SaveJob) < command_types.index(Notify), "it is saved before"


def test_a_failure_is_one_notice_and_only_the_last_try_counts() -> None:
    at = shell(3)
    both, failure, end = (at.submit(gpus(1, notify=n)) for n in (("end", "failure"), ("failure",), ("end",)))
    for job in (both, failure, end):
        at.end(job, exit_code=1)
    assert list_notices(at) == [(both, "failure"), (failure, "failure"), (end, "failure")]
    again = at.submit(gpus(1, notify=("failure",), retries=1))
    at.end(again, exit_code=1)
    assert len(list_notices(at)) == 3
    at.sleep(11)
    at.end(again, exit_code=1)
    assert list_notices(at)[3:] == [(again, "failure")]


def test_what_was_not_asked_for_is_not_notified() -> None:
    at = shell(2)
    good, other = at.submit(gpus(1, notify=("failure",))), at.submit(gpus(1))
    at.end(good)
    at.end(other, exit_code=1)
    assert list_notices(at) == []


def test_a_cancelled_job_has_ended_and_a_timed_out_one_has_failed() -> None:
    at = shell(1)
    late = at.submit(gpus(1, notify=("failure",), time_limit_ns=SECOND_NS))
    waits = at.submit(gpus(1, notify=("end",)))
    at.send(Cancelled(waits, "by its user"))
    at.sleep(2)
    assert list_notices(at) == [(waits, "end"), (late, "failure")]


def test_a_job_that_is_resumed_has_not_started_again() -> None:
    at = shell(1, queue(policy="priority"))
    job = at.submit(gpus(1, notify=("start",)))
    ahead = at.submit(gpus(1, priority=5))
    at.end(ahead)
    assert at.running == {job} and list_notices(at) == [(job, "start")]


def test_a_user_has_so_many_notices_in_an_hour() -> None:
    at = shell(1000)
    first = at.submit(gpus(0.001, notify=("start",), index=1), 300)
    other = at.submit(gpus(0.001, notify=("start",), uid=7))
    assert len(list_notices(at)) == PER_HOUR_MAX + 1 and list_notices(at)[-1] == (other, "start")
    at.sleep(3600 / PER_HOUR_MAX * 5)
    later = [at.submit(gpus(0.001, notify=("start",))) for _ in range(9)]
    assert list_notices(at)[PER_HOUR_MAX + 1 :] == [(job, "start") for job in later[:5]]
    assert first == 1


def test_events_are_named() -> None:
    assert wrong_events(("start", "lunch")) == "'lunch' is no event of a job: choose from start, end, failure"
    assert not wrong_events(("start", "end", "failure"))
