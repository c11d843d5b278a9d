"""Jobs that their users suspend: their GPUs are others' until they are resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import make_small_device
from tests.core.queue.world import Shell, gpus, make_policy, queue, shell
from vgpud.core.jobs.events import Cancelled, Event, JobSuspended, Note, Requeued, Resumed, StopJob, Suspended
from vgpud.core.jobs.model import Ask, Elastic, How, JobSpec, JobState, Node, UserWait
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine


def test_a_suspended_job_gives_its_gpus_to_others_and_waits_for_its_user() -> None:
    at = shell(1)
    first = at.submit(gpus(1))
    second = at.submit(gpus(1))
    at.send(Suspended(first))
    assert at.state(first) == "suspended" and at.running == {second}
    assert at.reason(first) == "its user has suspended it: resume it with vgpu job resume 1"
    at.end(second)
    at.sleep(3600)
    assert at.state(first) == "suspended", "capacity alone does not resume it"
    at.send(Resumed(first))
    assert at.running == {first} and at.job(first).attempt == 1
    assert at.job(first).preemptions == 0
    notes = [command.kind for command in at.log if isinstance(command, Note) and command.job_id == first]
    assert notes == ["job.started", "job.suspended", "job.resumed"]


def test_it_waits_for_capacity_when_it_is_resumed() -> None:
    at = shell(1)
    first = at.submit(gpus(1))
    at.send(Suspended(first))
    second = at.submit(gpus(1))
    at.send(Resumed(first))
    assert at.running == {second} and at.state(first) == "suspended"
    assert "suspended it" not in at.reason(first)
    at.end(second)
    assert at.running == {first}


def test_its_memory_is_to_move_and_may_stay() -> None:
    """The shell says in which way it has been suspended."""
    at = shell(1, slow=True, hows=(How.PAUSE, How.EVICT), moves=False)
    first = at.submit(gpus(1))
    (stop,) = [command for command in at.send(Suspended(first)) if isinstance(command, StopJob)]
    assert stop.how is How.EVICT
    at.stops.clear()
    at.running.clear()
    at.send(JobSuspended(first, How.PAUSE))
    assert at.job(first).suspended_how is How.PAUSE
    at.send(Resumed(first))
    assert at.running == {first}


def small(hows: tuple[How, ...]) -> tuple[Shell, JobSpec]:
    """A device of 16 GiB, and a job that has 12 of them."""
    cluster = Cluster([Node("n", (make_small_device(0),))])
    at = Shell(Machine((queue(),), cluster, make_policy, hows=hows), slow=True)
    spec = replace(gpus(0.5).ask.spec, mem_min_bytes=12 << 30, mem_max_bytes=12 << 30)
    return at, replace(gpus(0.5), ask=Ask(spec))


def test_its_memory_is_not_others_before_it_has_moved() -> None:
    at, large = small((How.PAUSE, How.EVICT, How.REQUEUE))
    first = at.submit(large)
    at.send(Suspended(first))
    other = at.submit(large)
    assert other not in at.running
    at.answer_stops()
    assert at.running == {other} and at.job(first).suspended_how is How.EVICT


def test_memory_that_could_not_move_is_taken_when_another_job_needs_it() -> None:
    """Else a user could keep it from all others for ever, outside of every quota."""
    at, large = small((How.PAUSE, How.EVICT, How.REQUEUE))
    first = at.submit(large)
    at.send(Suspended(first))
    at.stops.clear()
    at.running.clear()
    at.send(JobSuspended(first, How.PAUSE))
    other = at.submit(large)
    (stop,) = [c for c in at.log if isinstance(c, StopJob) and c.job_id == first][1:]
    assert stop.how is How.EVICT and stop.why.endswith("and its user had suspended it")
    at.stops.clear()
    at.send(JobSuspended(first, How.REQUEUE))  # it has several programs, which cannot move
    assert at.running == {other} and at.state(first) == "pending"
    at.end(other)
    assert not at.running, "its user has suspended it still"
    at.send(Resumed(first))
    assert at.running == {first}


def test_an_end_or_a_requeue_takes_the_suspension_back() -> None:
    at = shell(2)
    first, second = at.submit(gpus(1)), at.submit(gpus(1))
    at.send(Suspended(first), Suspended(second))
    at.send(Cancelled(first, "by its owner"), Requeued(second))
    assert at.state(first) == "cancelled"
    assert at.running == {second} and at.job(second).attempt == 2


def test_a_restarted_daemon_keeps_it_suspended() -> None:
    before = shell(1)
    first = before.submit(gpus(1))
    before.send(Suspended(first))
    after = shell(1)
    after.restore([replace(before.job(first))])
    after.sleep(60)
    assert after.state(first) == "suspended" and not after.running
    after.send(Resumed(first))
    assert after.running == {first}


def test_a_daemon_that_was_killed_in_between_moves_its_memory_as_was_decided() -> None:
    before = shell(1, slow=True, hows=(How.PAUSE, How.EVICT))
    first = before.submit(gpus(1))
    before.send(Suspended(first))
    after = shell(1, slow=True, hows=(How.PAUSE, How.EVICT))
    after.running.add(first)
    (stop,) = [c for c in after.restore([replace(before.job(first))]) if isinstance(c, StopJob)]
    assert stop.how is How.EVICT
    after.answer_stops()
    assert after.state(first) == "suspended" and after.job(first).user_wait is UserWait.RESUME


@pytest.mark.parametrize(
    ("prepare", "event", "why"),
    [
        ((), Resumed(1), "its user has not suspended it"),
        ((Suspended(1),), Suspended(1), "its user has suspended it already"),
    ],
)
def test_what_is_refused(prepare: tuple[Event, ...], event: Event, why: str) -> None:
    at = shell(1)
    at.submit(gpus(1))
    at.send(*prepare)
    denied = at.machine.refusal(event)
    assert denied and denied.message.endswith(why)


def test_jobs_that_do_not_run_or_have_workers_are_not_suspended() -> None:
    at = shell(1, slow=True)
    workers = at.submit(gpus(0.5, elastic=Elastic(least_members=1, most_members=2)))
    denied = at.machine.refusal(Suspended(workers))
    assert denied and "workers" in denied.message
    one = at.submit(gpus(0.5))
    waiting = at.submit(gpus(1))
    denied = at.machine.refusal(Suspended(waiting))
    assert denied and "only running jobs" in denied.message
    assert at.job(one).state is JobState.RUNNING
    at.send(Suspended(one))
    denied = at.machine.refusal(Resumed(one))
    assert denied and "try again" in denied.message, "its memory is about to move"
