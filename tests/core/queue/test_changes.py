"""Users change jobs: waiting ones as a whole, of others the time limit and the GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.queue.world import Shell, gpus, queue, shell
from vgpud.core.jobs.events import Changed, SaveJob
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Elastic
from vgpud.core.model import Reason


def change(at: Shell, job_id: int, *, by_admin: bool = False, **fields: Any) -> None:
    event = Changed(job_id, replace(at.job(job_id).spec, **fields), by_admin)
    assert at.machine.refusal(event) is None
    at.send(event)


def test_a_waiting_job_that_becomes_smaller_starts() -> None:
    at = shell(2)
    at.submit(gpus(1.5))
    waits = at.submit(gpus(1))
    assert at.running == {1}
    change(at, waits, ask=gpus(0.5).ask)
    assert at.running == {1, waits}
    saved = [command.job for command in at.log if isinstance(command, SaveJob)]
    assert saved[-1].job_id == waits and saved[-1].changed


def test_a_priority_moves_a_job_within_its_queue() -> None:
    at = shell(1, queue(policy="priority"))
    at.submit(gpus(1, priority=9))
    first, second = at.submit(gpus(1)), at.submit(gpus(1))
    assert (at.machine.position(first), at.machine.position(second)) == (1, 2)
    change(at, second, priority=5)
    assert (at.machine.position(first), at.machine.position(second)) == (2, 1)


def test_a_job_moves_to_another_queue_with_its_quota() -> None:
    at = shell(4, queue(limit_milli=1000), queue("team"))
    at.submit(gpus(1))
    waits, held = at.submit(gpus(1)), at.submit(gpus(1), held=True)
    assert "queue default has 1 of its limit" in at.reason(waits)
    change(at, waits, queue="team")
    assert at.running == {1, waits}
    change(at, held, queue="team")
    assert at.state(held) == "held" and at.job(held).spec.queue == "team"


def test_a_job_with_a_claim_gives_it_back_when_it_changes() -> None:
    at = shell(2, queue(policy="priority"), slow=True)
    at.submit(gpus(2))
    claims = at.submit(gpus(2, priority=1))
    assert "its GPUs are being freed" in at.reason(claims)
    change(at, claims, ask=gpus(1.5).ask)
    assert at.job(claims).placement[0].shares[0].min_milli == 1500, "a claim of its new size"
    at.answer_stops()
    assert at.running == {claims}


def test_a_running_jobs_time_limit_is_lowered_and_raised() -> None:
    at = shell(1)
    job = at.submit(gpus(1, time_limit_ns=100 * SECOND_NS))
    change(at, job, time_limit_ns=50 * SECOND_NS)
    at.sleep(40)
    change(at, job, by_admin=True, time_limit_ns=200 * SECOND_NS)
    at.sleep(159)
    assert at.state(job) == "running", "neither of the earlier ends counts"
    at.sleep(2)
    assert at.state(job) == "timed_out"


def test_a_time_limit_that_has_passed_ends_the_job_at_once() -> None:
    at = shell(1)
    job = at.submit(gpus(1))
    at.sleep(10)
    change(at, job, time_limit_ns=5 * SECOND_NS)
    at.sleep(1)
    assert at.state(job) == "timed_out"


def test_a_changed_time_limit_outlives_a_restart() -> None:
    at = shell(1)
    job = at.submit(gpus(1, time_limit_ns=100 * SECOND_NS))
    change(at, job, time_limit_ns=50 * SECOND_NS)
    after = shell(1)
    after.now_ns = 30 * SECOND_NS
    after.running = {job}
    after.restore([at.job(job)])
    after.sleep(19)
    assert after.state(job) == "running"
    after.sleep(2)
    assert after.state(job) == "timed_out"


@pytest.mark.parametrize(
    ("job_id", "fields", "by_admin", "reason", "says"),
    [
        (1, {"priority": 1}, True, Reason.PRECONDITION, "job 1 is running: only its time limit and GPUs can be"),
        (1, {"time_limit_ns": NEVER_NS}, False, Reason.DENIED, "only admins raise the time limit of a job"),
        (1, {"time_limit_ns": 0}, False, Reason.INVALID, "a time limit of 0 ns is out of range"),
        (2, {"queue": "none"}, False, Reason.NOT_FOUND, "there is no queue 'none': choose one of default"),
        (2, {"ask": gpus(9).ask}, False, Reason.INVALID, "9 GPUs are more than there are"),
        (2, {"priority": 1001}, True, Reason.INVALID, "priority 1001 is out of range: write -1000 to 1000"),
        (3, {"ask": gpus(1).ask}, False, Reason.PRECONDITION, "job 3 is elastic: its size stays within its bounds"),
        (4, {"priority": 1}, True, Reason.PRECONDITION, "job 4 is completed: there is nothing to change"),
        (9, {}, True, Reason.NOT_FOUND, "there is no job 9"),
    ],
)
def test_changes_that_are_refused(job_id: int, fields: Any, by_admin: bool, reason: Reason, says: str) -> None:
    at = shell(2)
    at.submit(gpus(1.5, time_limit_ns=100 * SECOND_NS))
    at.submit(gpus(2))
    at.submit(gpus(0.75, elastic=Elastic(750, 1000)))
    done = at.submit(gpus(0.5))
    at.end(done)
    spec = at.job(min(job_id, 4)).spec
    denied = at.machine.refusal(Changed(job_id, replace(spec, **fields), by_admin))
    assert denied is not None and denied.reason is reason and says in denied.message
