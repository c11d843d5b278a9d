"""What jobs can ask for: dependencies, arrays, gangs, holds, retries, time limits, cancelling, requeueing; reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from tests.core.queue.world import CountedCluster, Shell, gpus, make_policy, queue, shell
from vgpud.core.jobs.events import (
    Cancelled,
    Changed,
    Held,
    Note,
    Released,
    Requeued,
    SignalJob,
    StartFailed,
    StopJob,
    Submitted,
)
from vgpud.core.jobs.model import SECOND_NS, How, Job, JobSpec, JobState, Placement
from vgpud.core.model import SiteLimits
from vgpud.core.queue import estimate
from vgpud.core.queue.machine import Machine, members_max


def test_a_job_comes_after_another_has_completed() -> None:
    at = shell(4)
    first = at.submit(gpus(1))
    then = at.submit(gpus(1, after=(first,)))
    assert at.running == {first}
    assert at.reason(then) == "it waits for job 1 to complete"
    at.now_ns = 5
    at.end(first)
    assert at.running == {then} and at.job(then).waiting_since_ns == 5


def test_what_comes_after_a_failed_job_ends_with_it_and_says_so() -> None:
    at = shell(1)
    first = at.submit(gpus(1))
    then = at.submit(gpus(1, after=(first,)))
    last = at.submit(gpus(1, after=(then,)), held=True)
    whatever = at.submit(gpus(1, after=(first,), after_any=True))
    at.end(first, exit_code=3)
    assert at.state(first) == "failed" and at.reason(first) == "it ended with exit code 3"
    assert at.state(then) == "cancelled" and at.reason(then) == "job 1, which it comes after, is failed"
    assert at.state(last) == "cancelled" and at.reason(last) == "job 2, which it comes after, is cancelled"
    assert at.running == {whatever}


def test_what_comes_after_a_failure_starts_when_the_job_fails() -> None:
    at = shell(4)
    first, second, third = (at.submit(gpus(1)) for _ in range(3))
    spec = gpus(1, after=(first, second, third), after_fail=(second,), after_end=(third,))
    then = at.submit(spec)
    assert at.reason(then) == "it waits for job 1 to complete and job 2 to fail and job 3 to end"
    at.end(first)
    at.end(third, exit_code=1)
    assert at.state(then) == "pending" and at.reason(then) == "it waits for job 2 to fail"
    at.end(second, exit_code=1)
    assert at.running == {then}


@pytest.mark.parametrize("how", ["cancelled", "timed_out"])
def test_an_end_without_completing_is_a_failure(how: str) -> None:
    at = shell(4)
    first = at.submit(gpus(1, time_limit_ns=10 * SECOND_NS))
    then = at.submit(gpus(1, after=(first,), after_fail=(first,)))
    if how == "cancelled":
        at.send(Cancelled(first, "its owner"))
    else:
        at.sleep(11)
    assert at.state(first) == how and at.running == {then}


def test_what_comes_after_a_failure_ends_when_the_job_completes() -> None:
    at = shell(4)
    first = at.submit(gpus(1))
    then = at.submit(gpus(1, after=(first,), after_fail=(first,), after_any=True))
    last = at.submit(gpus(1, after=(then,), after_fail=(then,)))
    at.end(first)
    assert at.state(then) == "cancelled" and at.reason(then) == "job 1, whose failure it waits for, is completed"
    assert at.running == {last}, "the other was cancelled, which is no completion"
    denied = at.machine.check(gpus(1, after=(first,), after_fail=(first,)), 1)
    assert denied is not None and "the dependency on job 1 cannot be satisfied, it is completed" in denied.message
    assert at.machine.check(gpus(1, after=(first,), after_end=(first,)), 1) is None


def copying(spec: JobSpec) -> JobSpec:
    return replace(spec, ask=replace(spec.ask, spec=replace(spec.ask.spec, copy_min_milli=100)))


@pytest.mark.parametrize(
    ("spec", "says", "field"),
    [
        (gpus(1, after=(9,)), "there is no job 9 for it to come after", "after"),
        (gpus(1, after=(1,)), "the dependency on job 1 cannot be satisfied, it is cancelled", "after"),
        (gpus(5), "5 GPUs are more than there are", "gpus_milli"),
        (gpus(1, members=0), "a gang of 0 members", "members"),
        (gpus(1, members=5), "5 GPUs are more than there are", "gpus_milli"),
        (gpus(1, queue="nobody"), "there is no queue 'nobody': choose one of default", "queue"),
        (gpus(1, time_limit_ns=-1), "a time limit of -1 ns", "time_limit"),
        (gpus(1, duration_ns=-1), "an expected duration of -1 ns", "expected_duration"),
        (gpus(1, retries=-1), "retries -1", "retries"),
        (gpus(1, priority=1001), "priority 1001", "priority"),
        (gpus(1, index=-1), "array index -1", "array"),
        (copying(gpus(1)), "copy_min is for slices that are made directly", "copy_min_milli"),
        (gpus(3), "3 GPUs are more than queue default may ever have: its limit is 2.5", "gpus_milli"),
    ],
)
def test_refusals_name_the_field(spec: JobSpec, says: str, field: str) -> None:
    at = shell(4, queue(limit_milli=2500) if "limit is 2.5" in says else queue())
    at.submit(gpus(1))
    at.send(Cancelled(1, "by its user"))
    denied = at.machine.check(spec)
    assert denied is not None and says in denied.message and denied.field == field
    assert "\n" not in denied.message


def test_an_array_of_a_million_is_refused() -> None:
    denied = shell(4).machine.check(gpus(1), 1_000_000)
    assert denied is not None and "an array of 1000000 jobs: 1 to 10000" in denied.message


def test_an_array_is_a_job_for_each_index() -> None:
    at = shell(2)
    first = at.submit(gpus(1, index=3), count=4)
    specs = [at.job(i).spec for i in range(first, first + 4)]
    assert [(s.array, s.index) for s in specs] == [(1, 3), (1, 4), (1, 5), (1, 6)]
    assert at.running == {1, 2} and at.machine.position(4) == 2


def test_a_gang_starts_whole_or_not_at_all() -> None:
    at = shell(5)
    small = at.submit(gpus(2))
    gang = at.submit(gpus(2.5, members=2))
    assert at.running == {small}
    at.end(small)
    assert at.running == {gang} and at.job(gang).width_milli == 5000


def test_a_held_job_waits_for_its_release() -> None:
    at = shell(1)
    job = at.submit(gpus(1), held=True)
    assert at.state(job) == "held" and "vgpu job release 1" in at.reason(job)
    at.send(Released(job))
    assert at.running == {job}
    other = at.submit(gpus(1))
    at.send(Held(other))
    at.end(job)
    assert at.state(other) == "held" and not at.running and at.machine.position(other) == 0


def test_a_failed_job_is_tried_again_later_and_later() -> None:
    at = shell(1)
    job = at.submit(gpus(1, retries=2))
    at.end(job, exit_code=1)
    assert at.state(job) == "pending" and at.reason(job) == "it failed: its next try begins in 10 s"
    at.sleep(9.9)
    assert not at.running
    at.sleep(0.1)
    assert at.running == {job} and at.job(job).attempt == 2
    at.end(job, exit_code=1)
    assert at.reason(job) == "it failed: its next try begins in 20 s"
    at.sleep(20)
    at.end(job, exit_code=7)
    assert at.state(job) == "failed" and at.reason(job) == "it ended with exit code 7 in the last of 3 tries"
    assert at.job(job).exit_code == 7


def test_a_start_that_failed_is_repeated_when_that_may_help() -> None:
    at = shell(1)
    job = at.submit(gpus(1))
    at.running.clear()
    at.send(StartFailed(job, 1, "no slice was free", again=True))
    assert at.reason(job) == "it could not be started: its next try begins in 1 s"
    at.sleep(1)
    at.running.clear()
    at.send(StartFailed(job, 2, "no such program", again=False))
    assert at.state(job) == "failed" and at.reason(job) == "it could not be started: no such program"


def test_a_time_limit_ends_a_job() -> None:
    at = shell(1)
    job = at.submit(gpus(1, time_limit_ns=90 * SECOND_NS))
    at.sleep(89)
    assert at.state(job) == "running"
    at.sleep(1)
    assert at.state(job) == "timed_out" and at.reason(job) == "its time limit of 1 min 30 s has run out"


def signals(at: Shell) -> list[tuple[int, int]]:
    """Jobs and attempts that got their signal."""
    return [(command.job_id, command.attempt) for command in at.log if isinstance(command, SignalJob)]


def test_a_signal_is_sent_once_before_the_time_limit_in_each_attempt() -> None:
    at = shell(1)
    job = at.submit(gpus(1, time_limit_ns=90 * SECOND_NS, signal_lead_ns=30 * SECOND_NS, retries=1))
    at.sleep(59)
    assert signals(at) == []
    at.sleep(1)
    assert signals(at) == [(job, 1)] and at.running == {job}
    assert [note.text for note in at.log if isinstance(note, Note) and note.kind == "job.signalled"] == [
        "its time limit is 30 s away"
    ]
    at.sleep(20)
    at.end(job, exit_code=1)
    at.sleep(10)
    assert at.running == {job} and at.job(job).attempt == 2
    at.sleep(60)
    assert signals(at) == [(job, 1), (job, 2)]
    at.sleep(30)
    assert at.state(job) == "timed_out" and len(signals(at)) == 2


def test_a_signal_follows_a_changed_limit_and_a_restart() -> None:
    at = shell(1)
    spec = gpus(1, time_limit_ns=90 * SECOND_NS, signal_lead_ns=30 * SECOND_NS)
    job = at.submit(spec)
    at.send(Changed(job, replace(spec, time_limit_ns=120 * SECOND_NS), by_admin=True))
    at.sleep(89)
    assert signals(at) == []
    at.sleep(1)
    assert signals(at) == [(job, 1)]
    again = shell(1)
    again.now_ns = at.now_ns
    again.restore([replace(at.job(job))])
    again.sleep(29)
    assert signals(again) == [] and again.state(job) == "running"
    again.sleep(1)
    assert again.state(job) == "timed_out"
    early = shell(1)
    early.now_ns = at.now_ns
    early.restore([replace(at.job(job), signal_attempt=0)])
    early.sleep(1)
    assert signals(early) == [(job, 1)], "it was due while no daemon ran"


def test_a_signal_waits_while_a_job_is_suspended() -> None:
    at = shell(1, queue(policy="priority"))
    job = at.submit(gpus(1, time_limit_ns=10 * SECOND_NS, signal_lead_ns=4 * SECOND_NS))
    at.sleep(5)
    other = at.submit(gpus(1, priority=1))
    assert at.state(job) == "suspended"
    at.sleep(100)
    assert signals(at) == []
    at.end(other)
    at.sleep(0.5)
    assert signals(at) == []
    at.sleep(0.5)
    assert signals(at) == [(job, 1)]


def test_a_signal_comes_at_once_when_its_time_is_over() -> None:
    at = shell(1)
    spec = gpus(1, time_limit_ns=90 * SECOND_NS, signal_lead_ns=30 * SECOND_NS)
    job = at.submit(spec)
    at.sleep(10)
    at.send(Changed(job, replace(spec, time_limit_ns=20 * SECOND_NS)))
    at.sleep(1)
    assert signals(at) == [(job, 1)] and at.running == {job}


def test_a_time_limit_does_not_count_while_a_job_is_suspended() -> None:
    at = shell(1, queue(policy="priority"))
    job = at.submit(gpus(1, time_limit_ns=10 * SECOND_NS))
    at.sleep(6)
    other = at.submit(gpus(1, priority=1))
    at.sleep(100)
    assert at.state(job) == "suspended"
    at.end(other)
    at.sleep(3.9)
    assert at.state(job) == "running"
    at.sleep(0.1)
    assert at.state(job) == "timed_out"


def test_a_running_job_that_is_cancelled_is_stopped_and_its_capacity_given_on() -> None:
    at = shell(1, slow=True)
    job, other = at.submit(gpus(1)), at.submit(gpus(1))
    commands = at.send(Cancelled(job, "by its user"))
    assert [(c.job_id, c.how) for c in commands if isinstance(c, StopJob)] == [(job, None)]
    assert at.state(job) == "running" and at.reason(job) == "it is being stopped: by its user"
    assert at.running == {job} and at.reason(other) == "its GPUs are being freed: job 1 must stop first"
    at.answer_stops()
    assert at.state(job) == "cancelled" and at.running == {other}


def test_a_suspended_job_can_be_cancelled() -> None:
    at = shell(1, queue(policy="priority"))
    job = at.submit(gpus(1))
    other = at.submit(gpus(1, priority=1))
    at.send(Cancelled(job, "by its user"))
    assert at.state(job) == "cancelled"
    at.end(other)
    assert not at.running


def test_a_job_that_is_being_preempted_can_be_cancelled() -> None:
    at = shell(1, queue(policy="priority"), slow=True)
    job = at.submit(gpus(1))
    other = at.submit(gpus(1, priority=1))
    at.send(Cancelled(job, "by its user"))
    at.answer_stops()
    assert at.state(job) == "cancelled" and at.running == {other}


def test_a_user_can_requeue() -> None:
    at = shell(1)
    job = at.submit(gpus(1))
    at.sleep(5)
    at.send(Requeued(job))
    assert at.running == {job} and at.job(job).attempt == 2 and at.job(job).executed_ns == 0


def test_requests_that_cannot_be_granted_are_refused() -> None:
    at = shell(1)
    job, waiting = at.submit(gpus(1)), at.submit(gpus(1))
    refused = {
        Held(job): "job 1 is running: only pending jobs can be held",
        Released(waiting): "job 2 is pending: only held jobs can be released",
        Requeued(waiting): "job 2 is pending: it waits already",
        Cancelled(7, ""): "there is no job 7: see vgpu job ls",
    }
    for event, says in refused.items():
        denied = at.machine.refusal(event)  # type: ignore[arg-type]
        assert denied is not None and denied.message == says
    assert at.machine.refusal(Held(waiting)) is None
    at.end(job)
    denied = at.machine.refusal(Cancelled(job, ""))
    assert denied is not None and denied.message == "job 1 is completed: there is nothing to cancel"


def test_positions_and_estimated_starts() -> None:
    at = shell(2)
    at.submit(gpus(2, time_limit_ns=100 * SECOND_NS))
    second = at.submit(gpus(1, duration_ns=50 * SECOND_NS))
    third = at.submit(gpus(2))
    fourth = at.submit(gpus(1))
    at.sleep(10)
    assert [at.machine.position(i) for i in (1, second, third, fourth)] == [0, 1, 2, 3]
    expected = [at.machine.estimated_start(i, at.now_ns) // SECOND_NS for i in (second, third)]
    assert expected == [100, 150]
    assert at.machine.estimated_start(fourth, at.now_ns) == 1 << 62, "the third may run for ever"


def test_backfill_fills_until_the_first_can_start() -> None:
    at = shell(4, queue(strict=True))
    running = at.submit(gpus(3, time_limit_ns=100 * SECOND_NS))
    first = at.submit(gpus(4))
    long = at.submit(gpus(1, time_limit_ns=101 * SECOND_NS))
    unknown = at.submit(gpus(1))
    short = at.submit(gpus(1, duration_ns=100 * SECOND_NS))
    assert at.running == {running, short}
    assert at.state(long) == at.state(unknown) == "pending"
    assert "job 2 is ahead of this job; job 2 is expected to start in 1 min 40 s" in at.reason(long)
    at.sleep(99)
    at.end(short)
    at.sleep(1)
    assert at.running == {first}


def test_no_job_passes_when_the_first_may_start_at_any_time() -> None:
    at = shell(2, queue(strict=True))
    at.submit(gpus(1))  # for as long as it likes
    at.submit(gpus(2))
    behind = [at.submit(gpus(1)), at.submit(gpus(1, time_limit_ns=SECOND_NS))]
    assert at.running == {1}
    assert at.reason(behind[0]) == "queue default is strict, and job 2 is ahead of this job"
    at.end(1)
    assert at.running == {2}


def test_jobs_go_on_after_a_restart() -> None:
    at = shell(2, queue(policy="priority"))
    suspended = at.submit(gpus(2))
    at.sleep(3)
    running = at.submit(gpus(1.5, priority=1, time_limit_ns=60 * SECOND_NS))
    waiting = at.submit(gpus(1, priority=2, after=(running,)))
    held = at.submit(gpus(1), held=True)
    at.sleep(4)
    jobs: list[Job] = list(at.machine.jobs.values())
    again = shell(2, queue(policy="priority"))
    again.now_ns, again.running = at.now_ns, {running}
    again.restore(jobs)
    again.sleep(55)
    assert again.running == {running} and again.machine.reason(waiting, 0) == "it waits for job 2 to complete"
    again.sleep(1)
    assert again.state(running) == "timed_out" and again.state(waiting) == "cancelled"
    assert again.state(held) == "held"
    assert again.running == {suspended} and again.job(suspended).executed_ns == 3 * SECOND_NS


def test_a_dependency_that_is_met_and_forgotten_does_not_matter_after_a_restart() -> None:
    at = shell(1)
    first, wall = at.submit(gpus(1)), at.submit(gpus(1))
    then = at.submit(gpus(1, after=(first,)))
    at.end(first)
    jobs = [at.job(wall), at.job(then)]
    again = shell(1)
    again.running = {wall}
    again.restore(jobs)
    again.end(wall)
    assert again.running == {then}


def test_jobs_that_were_to_stop_are_stopped_again_after_a_restart() -> None:
    at = shell(1, queue(policy="priority"), slow=True)
    victim = at.submit(gpus(1))
    winner = at.submit(gpus(1, priority=1))
    again = shell(1, queue(policy="priority"), slow=True)
    again.running = {victim}
    again.restore(at.machine.jobs.values())
    assert [c.job_id for c in again.stops] == [victim]
    again.answer_stops()
    assert again.running == {winner} and again.state(victim) == "suspended"


def test_ended_jobs_can_be_forgotten() -> None:
    at = shell(1)
    job = at.submit(gpus(1))
    at.machine.forget([job])
    assert job in at.machine.jobs
    at.end(job)
    at.machine.forget([job])
    assert job not in at.machine.jobs


def test_a_job_after_one_that_is_not_known_ends_with_a_sentence() -> None:
    at = shell(1)
    at.send(Submitted((1,), gpus(1, after=(8,))))
    assert at.job(1).state is JobState.CANCELLED
    assert at.reason(1) == "job 8, which it comes after, is not known"


def test_a_job_that_has_ended_is_not_queued_again() -> None:
    """Its environment, which may hold passwords, was deleted at its end."""
    at = shell(4)
    job_id = at.submit(gpus(2))
    at.end(job_id)
    denied = at.machine.refusal(Requeued(job_id))
    assert denied is not None
    assert denied.message == "job 1 is completed: its environment was deleted when it ended, submit it again"
    at.send(Requeued(job_id))  # it ended between the question and the event
    assert at.state(job_id) == "completed" and not at.running


def test_a_chain_longer_than_any_stack_ends_with_its_first() -> None:
    at = shell(1)
    first = last = at.submit(gpus(1))
    for _ in range(2000):
        last = at.submit(gpus(1, after=(last,)))
    at.send(Cancelled(first, "enough"))
    at.answer_stops()
    assert at.state(last) == "cancelled"
    assert at.reason(last) == f"job {last - 1}, which it comes after, is cancelled"


def test_a_job_that_comes_after_two_of_which_both_fail_ends_once() -> None:
    at = shell(1)
    first = at.submit(gpus(1), held=True)
    second = at.submit(gpus(1, after=(first,)))
    third = at.submit(gpus(1, after=(first, second)))
    at.send(Cancelled(first, "enough"))
    assert [at.state(job_id) for job_id in (first, second, third)] == ["cancelled"] * 3
    assert sum(isinstance(said, Note) and said.job_id == third for said in at.log) == 1


def test_a_start_that_failed_once_is_forgotten_when_it_has_run() -> None:
    at = shell(1)
    job = at.submit(gpus(1, retries=1))
    at.running.discard(job)
    at.send(StartFailed(job, 1, "the node was full", True))
    at.sleep(2)
    at.end(job, 1)
    assert at.reason(job) == "it failed: its next try begins in 10 s"


def test_so_many_waits_for_others_are_refused_and_those_that_are_over_do_not_count() -> None:
    at = shell(1)
    firsts = tuple(range(1, 12))
    at.submit(gpus(1), 11)
    denied = at.machine.check(gpus(1, after=firsts), 10_000)
    assert denied is not None and denied.field == "after"
    assert "10000 job(s) that each wait for 11 others, beside 0 such waits of uid 0: at most 100000 are allowed" in str(
        denied
    )
    at.submit(gpus(1, after=firsts[:10]), 9_999)
    assert at.machine.check(gpus(1, after=firsts[:10]), 1) is None
    assert at.machine.check(gpus(1, after=firsts), 1) is not None
    assert at.machine.check(gpus(1, after=firsts, uid=5), 1) is None, "each user has their own"
    at.end(1)
    assert at.machine.check(gpus(1, after=firsts), 1) is None
    at.send(*(Cancelled(job_id, "enough") for job_id in list(at.machine.jobs) if not at.job(job_id).state.is_final))
    at.answer_stops()
    assert not +at.machine._world.unmet_of


def test_what_is_the_same_for_many_who_ask_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a list asks about a thousand jobs, on the daemon's one loop."""
    asked: list[str] = []
    for name in ("_starts", "reserved_start_ns"):
        known = getattr(estimate, name)
        monkeypatch.setattr(estimate, name, lambda *a, name=name, known=known: asked.append(name) or known(*a))
    at = shell(1, queue(strict=True, backfill=False))
    at.submit(gpus(1, time_limit_ns=10 * SECOND_NS), 5)
    for _ in range(2):
        assert [at.machine.estimated_start(i, at.now_ns) // SECOND_NS for i in (2, 3, 4, 5)] == [10, 20, 30, 40]
        assert "expected to start in 10 s" in at.reason(5)
    assert asked == ["_starts", "reserved_start_ns"]
    at.end(1)
    assert at.machine.estimated_start(3, at.now_ns) // SECOND_NS == 10
    assert asked.count("_starts") == 2


def few_slices(policy: str = "fifo") -> Shell:
    cluster = CountedCluster(4000)
    return Shell(
        Machine((queue(policy=policy),), cluster, make_policy, members_max=members_max(SiteLimits(slices_max=4)))
    )


def test_no_more_members_run_than_there_are_slices_however_small() -> None:
    """Ten thousand gangs that ask for no guarantee would fit on any device, and start in one decision."""
    at = few_slices()
    at.submit(gpus(0), 10_000)
    assert at.running == {1, 2, 3}, "a quarter of the slices is left to those who make theirs otherwise"
    assert at.reason(4) == "3 of 3 job slices are in use; this job needs 1 more"
    at.end(2)
    assert at.running == {1, 3, 4}
    denied = at.machine.check(gpus(0, members=4))
    assert (
        denied is not None and denied.field == "members" and "at most 3 members of jobs run at once" in denied.message
    )


def test_the_first_job_takes_slices_as_well_and_then_nothing_stays_suspended() -> None:
    at = few_slices("priority")
    at.submit(gpus(1), 3)
    first = at.submit(gpus(1, priority=1))
    assert at.running == {1, 2, first}
    assert [(said.job_id, said.how) for said in at.log if isinstance(said, StopJob)] == [(3, How.REQUEUE)]
    assert at.state(3) == "pending" and at.job(3).suspended_how is None


@pytest.mark.parametrize(("policy", "looked_at"), [("fifo", 10), ("priority", 4)])
def test_one_users_many_shapes_do_not_hold_a_decision_up(policy: str, looked_at: int) -> None:
    """Each would be tried in every decision, and have those that run put aside to see whether it fits then."""

    class Counting(CountedCluster):
        asked_jobs: ClassVar[set[int]] = set()

        def place(self, job: Job) -> Placement | None:
            if job.spec.uid != 1:
                return super().place(job)
            self.asked_jobs.add(job.job_id)
            return None

    at = Shell(Machine((queue(policy=policy),), Counting(1000), make_policy, tries_max=40))
    at.submit(gpus(0.1, priority=-1, uid=3), 8)
    Counting.asked_jobs.clear()
    many = [Submitted((job_id,), gpus(job_id / 1000, uid=1)) for job_id in range(101, 141)]
    at.send(*many, Submitted((200,), gpus(0.1, uid=2)))
    assert 200 in at.running, "others' jobs are looked at all the same"
    assert len(Counting.asked_jobs) == looked_at
