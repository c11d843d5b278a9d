"""Shells that say when a job has started: what has run before that is no progress."""

from __future__ import annotations

from tests.core.queue.world import CountedCluster, Shell, gpus, queue
from vgpud.core.jobs.events import JobSuspended, Started
from vgpud.core.jobs.model import SECOND_NS, How
from vgpud.core.policy.registry import make
from vgpud.core.queue.machine import Machine


def make_machine() -> Machine:
    return Machine((queue(policy="srtf"),), CountedCluster(1000), make, hows=(How.EVICT,), reports_starts=True)


def progress_s(at: Shell, job_id: int) -> float:
    return at.job(job_id).progress_at(at.now_ns) / SECOND_NS


def test_progress_begins_when_the_start_is_reported() -> None:
    at = Shell(make_machine())
    job = at.submit(gpus(1, duration_ns=100 * SECOND_NS))
    at.sleep(20)
    assert progress_s(at, job) == 0
    at.send(Started(job, 1))
    at.sleep(5)
    assert progress_s(at, job) == 5
    at.send(Started(job, 1), Started(job, 2), Started(99, 1))
    assert progress_s(at, job) == 5, "it is said once, of the attempt that runs"


def test_what_each_start_took_is_not_progress_and_is_run_time() -> None:
    at = Shell(make_machine(), slow=True)
    job = at.submit(gpus(1, duration_ns=100 * SECOND_NS))
    at.sleep(20)
    at.send(Started(job, 1))
    at.sleep(5)
    short = at.submit(gpus(1, duration_ns=SECOND_NS))
    at.sleep(3)
    at.stops.clear(), at.running.discard(job)
    at.send(JobSuspended(job, How.EVICT))
    assert (progress_s(at, job), at.job(job).executed_ns) == (5, 25 * SECOND_NS)
    at.sleep(1)
    at.end(short)
    at.sleep(7)
    assert (at.state(job), progress_s(at, job)) == ("running", 5)
    at.send(Started(job, 1))
    at.sleep(1)
    assert progress_s(at, job) == 6


def test_one_that_is_stopped_before_it_has_started_has_made_no_progress() -> None:
    at = Shell(make_machine())
    job = at.submit(gpus(1, duration_ns=100 * SECOND_NS))
    at.sleep(20)
    at.submit(gpus(1, duration_ns=SECOND_NS))
    assert (at.state(job), progress_s(at, job), at.job(job).executed_ns) == ("suspended", 0, 20 * SECOND_NS)


def test_a_restarted_daemon_takes_a_start_that_it_has_not_heard_of_for_immediate() -> None:
    at = Shell(make_machine())
    job = at.submit(gpus(1, duration_ns=100 * SECOND_NS))
    again = Shell(make_machine(), at.now_ns)
    again.restore([at.job(job)])
    again.sleep(20)
    assert progress_s(again, job) == 20
