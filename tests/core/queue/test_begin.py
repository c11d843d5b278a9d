"""Jobs that do not start before a time."""

from __future__ import annotations

from dataclasses import replace

from tests.core.queue.world import gpus, queue, shell
from vgpud.core.jobs.events import Changed
from vgpud.core.jobs.model import SECOND_NS


def test_a_job_starts_at_its_time_and_keeps_no_other_waiting() -> None:
    at = shell(1, queue(strict=True))
    later = at.submit(gpus(1, begin_ns=100 * SECOND_NS))
    assert at.reason(later) == "it was submitted to begin in 1 min 40 s at the earliest"
    now = at.submit(gpus(1))
    assert at.running == {now}
    at.sleep(99)
    at.end(now)
    assert at.running == set()
    at.sleep(1)
    assert at.running == {later}
    assert at.job(later).waiting_since_ns == 100 * SECOND_NS


def test_a_time_that_has_passed_is_none() -> None:
    at = shell(1)
    at.now_ns = 5 * SECOND_NS
    assert at.submit(gpus(1, begin_ns=SECOND_NS)) in at.running


def test_the_time_outlives_a_restart() -> None:
    at = shell(1)
    job = at.submit(gpus(1, begin_ns=100 * SECOND_NS))
    after = shell(1)
    after.now_ns = 50 * SECOND_NS
    after.restore([at.job(job)])
    after.sleep(49)
    assert after.running == set()
    after.sleep(1)
    assert after.running == {job}


def test_the_time_is_changed_and_taken_away() -> None:
    at = shell(2)
    one, two = at.submit(gpus(1, begin_ns=100 * SECOND_NS)), at.submit(gpus(1, begin_ns=100 * SECOND_NS))
    at.send(Changed(one, replace(at.job(one).spec, begin_ns=200 * SECOND_NS)))
    at.send(Changed(two, replace(at.job(two).spec, begin_ns=0)))
    assert at.running == {two}
    at.sleep(150)
    assert at.running == {two}
    at.sleep(50)
    assert at.running == {one, two}


def test_a_failed_job_waits_for_its_next_try_and_not_for_its_time() -> None:
    at = shell(1)
    job = at.submit(gpus(1, begin_ns=10 * SECOND_NS, retries=1))
    at.sleep(10)
    at.end(job, exit_code=1)
    assert at.reason(job) == "it failed: its next try begins in 10 s"
