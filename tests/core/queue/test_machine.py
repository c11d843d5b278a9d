"""One queue: first in, first out, preemption, claims."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import make_small_device
from tests.core.queue.world import POLICIES, Shell, gpus, make_policy, queue, shell
from tests.examples import examples
from vgpud.core.jobs.events import Cancelled, JobEnded, JobSuspended, SaveJob, StartFailed, StartJob, Submitted, Woken
from vgpud.core.jobs.model import SECOND_NS, Ask, How, Job, JobSpec, Node
from vgpud.core.model import Spec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine


def test_a_job_that_has_completed_says_what_its_code_does_not() -> None:
    at = shell(1)
    job = at.submit(gpus(1))
    at.send(JobEnded(job, 1, 0, "out of memory"))
    assert (at.state(job), at.reason(job)) == ("completed", "out of memory")


def test_a_resume_does_not_begin_a_job_again() -> None:
    at = shell(1, queue(policy="priority"))
    at.now_ns = 5
    low = at.submit(gpus(1))
    at.now_ns = 20
    high = at.submit(gpus(1, priority=1))
    assert (at.state(low), at.job(low).began_ns) == ("suspended", 5)
    at.now_ns = 50
    at.end(high)
    assert (at.state(low), at.job(low).began_ns, at.job(low).started_ns) == ("running", 5, 50)
    again = replace(at.job(low), attempt=2, first_started_ns=1)
    assert again.began_ns == 50 - 15, "the machine does not know when, only how long it has run"
    assert replace(again, executed_ns=0).began_ns == 50
    assert Job(7, gpus(1), 0).began_ns == -1


def test_jobs_start_in_order_and_small_ones_pass() -> None:
    at = shell(2)
    first, wide, half = at.submit(gpus(1.5)), at.submit(gpus(2)), at.submit(gpus(0.5))
    assert at.starts == [first, half]
    assert at.state(wide) == "pending"
    at.now_ns = 7
    at.end(first)
    at.end(half)
    assert at.starts == [first, half, wide]
    assert at.state(first) == "completed" and at.job(first).ended_ns == 7 and at.job(first).attained == 7 * 1500


def test_a_job_is_saved_before_it_starts() -> None:
    at = shell(1)
    commands = at.machine.step(Submitted((1,), gpus(1)), 0)
    saved = [i for i, c in enumerate(commands) if isinstance(c, SaveJob)]
    started = next(i for i, c in enumerate(commands) if isinstance(c, StartJob))
    assert saved[-1] < started


def test_strict_keeps_those_behind_waiting() -> None:
    at = shell(2, queue(strict=True, backfill=False))
    at.submit(gpus(1.5))
    at.submit(gpus(2))
    half = at.submit(gpus(0.5))
    assert at.starts == [1] and at.state(half) == "pending"
    assert "strict" in at.reason(half) and "job 2" in at.reason(half)


def test_better_jobs_take_the_capacity_of_worse_ones() -> None:
    at = shell(2, queue(policy="priority"))
    low, mid = at.submit(gpus(1)), at.submit(gpus(1, priority=1))
    high = at.submit(gpus(1, priority=2))
    assert at.running == {mid, high}
    assert at.state(low) == "suspended" and at.job(low).preemptions == 1
    at.end(high)
    assert at.running == {mid, low}
    assert at.job(low).attempt == 1


def test_capacity_is_claimed_while_victims_stop() -> None:
    at = shell(2, queue(policy="priority"), slow=True)
    low = at.submit(gpus(2))
    high = at.submit(gpus(1, priority=2))
    assert at.state(high) == "pending" and "job 1 must stop" in at.reason(high)
    late = at.submit(gpus(1, priority=1))  # what the victim leaves beside the claim is this one's
    assert at.state(late) == "pending"
    at.answer_stops()
    assert at.running == {high, late}
    assert at.state(low) == "suspended"


def test_a_claim_is_given_up_when_its_job_is_cancelled() -> None:
    at = shell(2, queue(policy="priority", limit_milli=2000), slow=True)
    low, high = at.submit(gpus(2)), at.submit(gpus(2, priority=2))
    at.send(Cancelled(high, "by its user"))
    assert at.state(high) == "cancelled"
    at.answer_stops()
    assert at.running == {low}


def test_a_victim_that_ends_by_itself_frees_capacity_as_well() -> None:
    at = shell(2, queue(policy="priority"), slow=True)
    low, high = at.submit(gpus(2)), at.submit(gpus(2, priority=2))
    at.end(low)
    assert at.state(low) == "completed" and at.running == {high}


def test_ends_of_other_attempts_are_ignored() -> None:
    at = shell(1)
    job = at.submit(gpus(1))
    at.send(JobEnded(job, 0, 0), JobSuspended(job, How.EVICT), StartFailed(job, 7, "x", True))
    assert at.state(job) == "running"


GIB = 1 << 30


def with_memory(gib: int, priority: int) -> JobSpec:
    """A whole device's time and so much memory."""
    return JobSpec(Ask(Spec(1000, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB)), priority=priority)


def device_of_16_gib() -> Shell:
    device = make_small_device()
    hows = (How.PAUSE, How.EVICT, How.REQUEUE)
    cluster = Cluster([Node("n", (device,))])
    return Shell(Machine((queue(policy="priority"),), cluster, make_policy, hows=hows), slow=True)


def test_paused_jobs_keep_the_memory_that_no_job_needs() -> None:
    at = device_of_16_gib()
    jobs = []
    for priority in range(4):
        jobs.append(at.submit(with_memory(4 if priority < 3 else 1, priority)))
        at.answer_stops()
    assert at.running == {jobs[3]}
    high = at.submit(with_memory(12, 9))
    assert [(s.job_id, s.how) for s in at.stops] == [(4, How.EVICT), (1, How.EVICT), (2, How.EVICT)]
    at.answer_stops()
    assert at.running == {high} and at.job(3).suspended_how is How.PAUSE


def test_a_pause_when_memory_is_left_and_a_checkpoint_when_it_is_not() -> None:
    at = device_of_16_gib()
    low, mid = at.submit(with_memory(10, 0)), at.submit(with_memory(2, 1))
    assert [(s.job_id, s.how) for s in at.stops] == [(low, How.PAUSE)]
    at.answer_stops()
    high = at.submit(with_memory(10, 2))
    assert [(s.job_id, s.how) for s in at.stops] == [(mid, How.PAUSE), (low, How.EVICT)]
    assert at.reason(high) == "its GPUs are being freed: jobs 2, 1 must stop first"
    at.answer_stops()
    assert at.running == {high}
    assert at.job(low).preemptions == 1 and at.job(low).suspended_how is How.EVICT
    assert at.reason(mid) == (
        "it can resume only where it was, but device 0 of n has 0 GPU free of 1 needed; job 3 is there"
    )
    at.end(high)
    assert at.running == {mid}, "where its memory is"
    at.end(mid)
    assert at.running == {low}


def walk(at: Shell, total_milli: int) -> set[int]:
    """From scratch: in order, whatever still fits."""
    policy = POLICIES[at.machine.queue("default").policy]()
    jobs = [j for j in at.machine.jobs.values() if not j.state.is_final]
    policy.before_all(jobs, at.now_ns)
    for job in at.machine.jobs.values():
        if job.state.is_final:
            policy.record_end(job)
    chosen = set()
    for job in sorted(jobs, key=lambda j: (policy.key(j, at.now_ns), j.job_id)):
        if job.width_milli <= total_milli:
            total_milli -= job.width_milli
            chosen.add(job.job_id)
    return chosen


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(["priority", "least", "shortest", "rank", "learning"]),
    st.lists(
        st.one_of(
            st.tuples(st.just("submit"), st.integers(1, 8), st.integers(0, 4)),
            st.tuples(st.just("end"), st.integers(0, 50), st.just(0)),
            st.tuples(st.just("sleep"), st.integers(1, 20), st.just(0)),
        ),
        max_size=60,
    ),
)
def test_who_runs_is_who_a_walk_from_scratch_chooses(policy: str, events: list[tuple[str, int, int]]) -> None:
    at = shell(8, queue(policy=policy))
    for what, number, priority in events:
        if what == "submit":
            at.submit(gpus(number, priority=priority, duration_ns=(priority + 1) * 10 * SECOND_NS))
        elif what == "end" and at.running:
            at.end(sorted(at.running)[number % len(at.running)])
        elif what == "sleep":
            at.sleep(number)
            at.send(Woken())
        assert at.running == walk(at, 8000)


def test_a_claim_waits_for_memory_that_a_paused_job_still_has() -> None:
    """Though that job has a claim as well: it is there all the time."""

    def part(milli: int, gib: int, priority: int) -> JobSpec:
        spec = Spec(milli, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB)
        return JobSpec(Ask(spec), priority=priority)

    at = device_of_16_gib()
    low, mid = at.submit(part(500, 10, 0)), at.submit(part(600, 2, 1))
    at.answer_stops()
    assert at.running == {mid} and at.job(low).suspended_how is How.PAUSE
    at.send(Cancelled(mid, "enough"))
    late = at.submit(part(400, 5, 0))
    assert at.reason(low) == at.reason(late) == f"its GPUs are being freed: job {mid} must stop first"
    at.answer_stops()
    assert at.running == {low, late}
