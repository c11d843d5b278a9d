"""Jobs that are paused because no user uses them, and continue with their next use."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import make_small_device
from tests.core.queue.world import Shell, gpus, make_policy, queue, shell
from vgpud.core.jobs.events import Cancelled, Idled, Note, Requeued, StopJob, Used
from vgpud.core.jobs.model import Ask, How, Node, UserWait
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine

WHY = "it was not used for 30 min"
HOWS = (How.PAUSE, How.EVICT, How.REQUEUE)
GIB = 1 << 30


def test_an_idle_job_waits_for_its_use_and_not_for_capacity() -> None:
    at = shell(1, hows=HOWS, moves=False)
    job = at.submit(gpus(1))
    at.send(Idled(job, WHY))
    stop = next(command for command in at.log if isinstance(command, StopJob))
    assert (stop.how, stop.why) == (How.PAUSE, WHY)
    at.sleep(3600)
    assert at.state(job) == "suspended" and at.running == set()
    assert at.reason(job) == "it was not used, and is paused until it is: opening its page continues it"
    assert [note.text for note in at.log if isinstance(note, Note) and note.kind == "job.paused"] == [WHY]
    assert at.job(job).preemptions == 0
    other = at.submit(gpus(0.5))
    assert at.running == {other}, "its SM time is free"
    at.send(Used(job))
    assert at.state(job) == "suspended" and "0.5 GPUs are free" in at.reason(job)
    at.end(other)
    assert at.running == {job} and (at.job(job).attempt, at.job(job).user_wait) == (1, None)


def test_a_job_that_is_not_preempted_is_not_paused() -> None:
    at = shell(1, queue(guarantee_milli=1000), hows=HOWS, moves=False)
    job = at.submit(gpus(1, preemptible=False))
    at.send(Idled(job, WHY))
    assert at.running == {job} and at.job(job).user_wait is None


def test_its_use_while_it_is_being_paused_continues_it() -> None:
    at = shell(1, hows=HOWS, moves=False, slow=True)
    job = at.submit(gpus(1))
    at.send(Idled(job, WHY))
    assert at.reason(job) == f"it is being stopped: {WHY}"
    at.send(Used(job))
    at.answer_stops()
    assert at.running == {job}


def test_an_idle_job_is_ended_or_requeued_by_its_user() -> None:
    at = shell(1, hows=HOWS, moves=False)
    first, second = at.submit(gpus(0.5)), at.submit(gpus(0.5))
    at.send(Idled(first, WHY), Idled(second, WHY))
    at.send(Cancelled(first, "by its user"), Requeued(second))
    assert (at.state(first), at.state(second), at.job(second).attempt) == ("cancelled", "running", 2)


def test_a_restart_keeps_an_idle_job_paused() -> None:
    at = shell(1, hows=HOWS, moves=False)
    job = at.submit(gpus(1))
    at.send(Idled(job, WHY))
    again = shell(1, hows=HOWS, moves=False)
    again.restore([replace(at.job(job))])
    again.sleep(3600)
    assert again.state(job) == "suspended" and again.running == set()
    again.send(Used(job))
    assert again.running == {job}


def test_its_memory_makes_way_for_jobs_that_are_used() -> None:
    """Of devices with 16 GiB; a paused job keeps its memory until another one needs it."""
    cluster = Cluster([Node("n", (make_small_device(0),))])
    at = Shell(Machine((queue(),), cluster, make_policy, hows=HOWS))
    large = replace(gpus(0.5), ask=Ask(replace(gpus(0.5).ask.spec, mem_min_bytes=12 * GIB, mem_max_bytes=12 * GIB)))
    idle = at.submit(large)
    at.send(Idled(idle, WHY))
    other = at.submit(large)
    assert at.running == {other} and at.job(idle).suspended_how is How.EVICT and at.job(idle).user_wait is UserWait.USE
    at.send(Used(idle))
    assert at.state(idle) == "suspended"
    at.end(other)
    assert at.running == {idle}
