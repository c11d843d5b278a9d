"""Elastic jobs in the queue's machine: which jobs shrink for which, which grow when, and what the shell may answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import make_small_device
from tests.core.queue.world import CountedCluster, Shell, gpus, make_policy, queue, shell
from vgpud.core.jobs.events import (
    Cancelled,
    Note,
    QueuesChanged,
    Requeued,
    Resized,
    ResizeJob,
    StartFailed,
    StartJob,
    StopJob,
    Submitted,
    Wished,
)
from vgpud.core.jobs.model import SECOND_NS, Ask, Elastic, How, JobSpec, Node
from vgpud.core.model import Reason
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine
from vgpud.core.queue.record import decode, encode, from_plain, to_plain

GIB = 1 << 30


def workers(least_members: int, most_members: int, width: float = 1, **fields: object) -> JobSpec:
    """An elastic job of so many workers."""
    return gpus(
        width, members=least_members, elastic=Elastic(least_members=least_members, most_members=most_members), **fields
    )


def make_elastic_spec(least_gpus: float, most_gpus: float, **fields: object) -> JobSpec:
    """A job with an elastic slice."""
    return gpus(
        least_gpus, elastic=Elastic(least_milli=round(least_gpus * 1000), most_milli=round(most_gpus * 1000)), **fields
    )


def size(at: Shell, job_id: int) -> int:
    return at.job(job_id).spec.members


def notes(at: Shell, kind: str) -> list[str]:
    return [c.text for c in at.log if isinstance(c, Note) and c.kind == kind]


# ---- growing ----


def test_it_starts_with_its_least_and_grows_after_a_minute_in_which_nothing_was_done() -> None:
    at = shell(8)
    job = at.submit(workers(2, 6))
    assert size(at, job) == 2
    at.sleep(59.9)
    assert size(at, job) == 2
    at.sleep(0.1)
    assert size(at, job) == len(at.job(job).placement) == 6 and not at.job(job).resizing
    assert notes(at, "job.resized") == [
        "from 2 workers to 6 workers: 4 GPUs were idle and nothing was started, stopped or resized for 1 min; 2 are"
        " left, and it wants no more than 6 workers"
    ]


def test_the_one_with_least_of_what_it_wants_grows_first() -> None:
    at = shell(8)
    one, other = at.submit(workers(2, 4)), at.submit(workers(1, 8))
    at.sleep(60)
    assert (size(at, one), size(at, other)) == (3, 5), "3 of 4 and 5 of 8"


def test_a_start_or_a_stop_puts_growing_off() -> None:
    at = shell(8)
    job = at.submit(workers(1, 8))
    at.sleep(50)
    at.submit(gpus(1))
    at.sleep(59)
    assert size(at, job) == 1
    at.sleep(1)
    assert size(at, job) == 7


def test_no_further_than_its_queues_limit_and_not_to_who_has_no_slices() -> None:
    at = shell(8, queue(limit_milli=5000))
    job = at.submit(workers(1, 8))
    at.sleep(60)
    assert size(at, job) == 5
    cluster = CountedCluster(8000)
    at = Shell(Machine((queue(),), cluster, make_policy, members_max=3))
    job = at.submit(workers(1, 3))
    at.submit(gpus(1))
    at.sleep(60)
    assert size(at, job) == 2


def test_no_more_workers_than_the_target() -> None:
    at = shell(8)
    job = at.submit(workers(1, 8))
    at.send(Wished(job, 3, "3 workers do 300 img/s, 4 would do 301"))
    at.sleep(60)
    assert size(at, job) == 3
    at.send(Wished(job, 2, "2 workers do 299 img/s"))
    assert size(at, job) == 2
    assert notes(at, "job.resized")[-1] == "from 3 workers to 2 workers: 2 workers do 299 img/s"
    at.send(Wished(job, 0, "nonsense"), Wished(job, -3, "nonsense"))
    assert size(at, job) == 1 and at.job(job).wished_members == 1, "never below its least"
    at.send(Wished(job, 99, "more"), Wished(12345, 1, "whose?"))
    at.sleep(60)
    assert size(at, job) == 8


def test_a_job_that_waits_for_a_limit_that_no_job_can_help_with_keeps_no_job_from_growing() -> None:
    at = shell(8, queue("a"), queue("b", limit_milli=1000))
    grows, first = at.submit(workers(1, 8, queue="a")), at.submit(gpus(1, queue="b"))
    for number in range(5):
        waits = at.submit(gpus(0.5 + number / 1000, queue="b"))
        if number:
            at.send(Cancelled(waits - 1, "another one is there"))
        at.sleep(20)
    assert (at.state(first), at.state(waits), size(at, grows)) == ("running", "pending", 7)


# ---- shrinking ----


def test_a_job_that_has_waited_for_half_a_minute_gets_what_it_needs_and_no_more() -> None:
    at = shell(8)
    job = at.submit(workers(1, 8))
    at.sleep(60)
    assert size(at, job) == 8
    waiting = at.submit(gpus(3))
    at.sleep(29.9)
    assert at.state(waiting) == "pending" and size(at, job) == 8
    at.sleep(0.1)
    assert at.state(waiting) == "running" and size(at, job) == 5
    assert notes(at, "job.resized")[-1] == (
        "from 8 workers to 5 workers: shrinks for job 2, which has waited for 30 s (elastic jobs shrink after 30 s);"
        " it never has less than 1 worker"
    )


def test_no_job_shrinks_where_that_does_not_help() -> None:
    at = shell(8, queue("a", limit_milli=7000), queue("b", limit_milli=1000))
    job = at.submit(workers(2, 6, queue="a"))
    at.submit(gpus(1, queue="a"))
    at.submit(gpus(1, queue="b"))
    at.sleep(60)
    assert size(at, job) == 6
    wide, barred = at.submit(gpus(7, queue="a")), at.submit(gpus(1, queue="b"))
    at.sleep(600)
    assert size(at, job) == 6, "7 do not fit beside the others, and its limit keeps the other one"
    assert at.state(wide) == at.state(barred) == "pending"
    assert at.wake_ns is None or at.wake_ns > at.now_ns


def test_who_is_most_above_its_least_shrinks_first_then_who_was_resized_last() -> None:
    at = shell(10)
    narrow, wide = at.submit(workers(1, 4)), at.submit(workers(1, 6))
    at.send(Wished(narrow, 3, "it has not tried more"))
    at.sleep(60)
    at.send(Wished(narrow, 4, "4 are worth it"))
    at.sleep(60)
    assert (size(at, narrow), size(at, wide)) == (4, 6)
    at.submit(gpus(3))
    at.sleep(30)
    assert (size(at, narrow), size(at, wide)) == (3, 4), "6, 5, then as far above its least as the other, resized last"


def test_capacity_is_freed_below_its_own_queues_limit_as_well() -> None:
    at = shell(8, queue(limit_milli=4000))
    job = at.submit(workers(1, 8))
    at.sleep(60)
    assert size(at, job) == 4
    waiting = at.submit(gpus(2))
    at.sleep(30)
    assert at.state(waiting) == "running" and size(at, job) == 2


def test_a_queue_below_its_guarantee_gets_it_back_at_once_and_no_job_stops() -> None:
    at = shell(8, queue("plain"), queue("team", guarantee_milli=4000))
    job, rigid = at.submit(workers(1, 8, queue="plain")), at.submit(gpus(2, queue="plain"))
    at.sleep(60)
    assert size(at, job) == 6
    claimant = at.submit(gpus(4, queue="team"))
    assert at.state(claimant) == at.state(rigid) == "running" and size(at, job) == 2
    assert "queue team is below its guarantee" in notes(at, "job.resized")[-1]
    assert not [c for c in at.log if isinstance(c, StopJob)]


def test_what_is_guaranteed_to_a_queue_is_not_taken_from_its_elastic_jobs() -> None:
    at = shell(8, queue("plain"), queue("team", guarantee_milli=4000))
    job = at.submit(workers(1, 8, queue="team"))
    at.sleep(60)
    waiting, narrower = at.submit(gpus(5, queue="plain")), at.submit(gpus(4, queue="plain"))
    at.sleep(60)
    assert size(at, job) == 4 and at.state(waiting) == "pending" and at.state(narrower) == "running"


def test_a_job_before_it_takes_what_is_lent_at_once_and_only_then_its_place() -> None:
    at = shell(4, queue(policy="priority"))
    job = at.submit(workers(1, 4))
    rigid = at.submit(gpus(1, priority=1))
    at.sleep(60)
    assert size(at, job) == 3
    first = at.submit(gpus(2, priority=2))
    assert size(at, job) == 1 and at.state(first) == at.state(rigid) == "running"
    assert "comes before it in queue default (priority)" in notes(at, "job.resized")[-1]
    at.submit(gpus(1, priority=2))
    assert at.state(job) == "suspended" and at.state(rigid) == "running"


def test_elastic_jobs_that_cannot_be_preempted_still_give_what_is_above_their_least() -> None:
    at = shell(8, queue("plain"), queue("team", guarantee_milli=7000))
    job = at.submit(workers(1, 8, queue="plain", preemptible=False))
    at.sleep(60)
    assert size(at, job) == 8
    claimant = at.submit(gpus(7, queue="team"))
    assert at.state(claimant) == "running" and size(at, job) == 1


def test_no_ping_pong() -> None:
    at = shell(8)
    at.submit(workers(1, 8))
    at.sleep(60)
    at.submit(gpus(3))
    at.submit(gpus(8))
    at.sleep(31)
    seen = len(at.log)
    at.sleep(24 * 3600)
    assert not [c for c in at.log[seen:] if isinstance(c, ResizeJob)]


def test_a_job_that_is_about_to_be_helped_keeps_others_from_growing() -> None:
    at = shell(8, queue(strict=True))
    job = at.submit(workers(1, 8))
    rigid = at.submit(gpus(4))
    at.sleep(60)
    assert size(at, job) == 4
    waiting = at.submit(gpus(6))
    at.sleep(10)
    at.end(rigid)
    assert size(at, job) == 4, "6 of 8 fit as soon as he has waited long enough"
    at.sleep(20)
    assert at.state(waiting) == "running" and size(at, job) == 2


# ---- the narrower of two jobs ----


def test_none_becomes_narrower_than_a_job_that_merely_waits() -> None:
    at = shell(8)
    job = at.submit(workers(1, 8))
    at.sleep(60)
    wide = at.submit(gpus(6))
    at.sleep(24 * 3600)
    assert at.state(wide) == "pending" and size(at, job) == 8
    narrow = at.submit(gpus(4))
    at.sleep(30)
    assert at.state(narrow) == "running" and size(at, job) == 4


def test_it_becomes_narrower_for_one_that_has_waited_four_times_as_long_as_it_ran() -> None:
    at = shell(8)
    first = at.submit(gpus(8))
    at.sleep(1)
    wide = at.submit(gpus(7))
    job = at.submit(workers(1, 4))
    at.sleep(300)
    at.send(Requeued(wide))
    at.end(first)
    assert at.state(wide) == "running" and size(at, job) == 1
    at.end(wide)
    at.sleep(60)
    assert size(at, job) == 4
    late = at.submit(gpus(6))
    at.sleep(4 * 61)
    assert at.state(late) == "pending", "the elastic one runs on, and has run for longer than a quarter of that"


def test_it_grows_before_a_wider_job_starts_until_it_is_as_wide() -> None:
    at = shell(9)
    job, rigid = at.submit(workers(1, 8)), at.submit(gpus(8))
    at.submit(gpus(5))
    at.sleep(60)
    at.end(rigid)
    assert size(at, job) == 5
    assert notes(at, "job.resized")[-1] == (
        "from 1 worker to 5 workers: 4 GPUs were free, and it is no wider with them than the first job that waits in"
        " queue default: a GPU does more for the narrower of two jobs; it wants no more than 8 workers"
    )


def test_it_does_not_grow_before_a_job_that_its_policy_has_before_it() -> None:
    at = shell(9, queue(policy="priority", min_run_ns=0))
    job, rigid = at.submit(workers(1, 8, priority=1)), at.submit(gpus(8, priority=2))
    waiting = at.submit(gpus(6, priority=2))
    at.sleep(60)
    at.end(rigid)
    assert at.state(waiting) == "running" and size(at, job) == 1


# ---- what the shell answers ----


def start_grown_job(least_members: int = 1, most_members: int = 8, total: float = 8) -> tuple[Shell, int]:
    at = shell(total)
    job = at.submit(workers(least_members, most_members))
    at.sleep(60)
    at.slow = True
    return at, job


def test_who_it_shrinks_for_starts_when_it_has_shrunk() -> None:
    at, job = start_grown_job()
    waiting = at.submit(gpus(3))
    at.sleep(30)
    assert at.state(waiting) == "pending" and size(at, job) == 5 and len(at.job(job).placement) == 8
    assert at.reason(waiting) == f"its GPUs are being freed: job {job} must shrink first"
    at.sleep(600)
    assert len(at.resizes) == 1, "nobody is told twice"
    at.answer_resizes()
    assert at.state(waiting) == "running" and len(at.job(job).placement) == 5


def test_a_smaller_one_that_arrives_meanwhile_does_not_take_the_capacity() -> None:
    at, job = start_grown_job()
    waiting = at.submit(gpus(3))
    at.sleep(30)
    small = at.submit(gpus(1))
    at.sleep(30)
    at.answer_resizes()
    assert at.state(waiting) == "running" and at.state(small) == "pending"
    at.sleep(0.1)
    at.answer_resizes()
    assert at.state(small) == "running" and size(at, job) == 4


@pytest.mark.parametrize("end", ["cancelled", "ended", "requeued"])
def test_a_stop_wins(end: str) -> None:
    at, job = start_grown_job()
    waiting = at.submit(gpus(3))
    at.sleep(30)
    (resize,) = at.resizes
    if end == "ended":
        at.end(job)
    else:
        at.send(Cancelled(job, "by its user") if end == "cancelled" else Requeued(job))
        assert at.state(waiting) == "pending" and not at.job(job).resizing
        at.send(Resized(job, 1, resize.placement))
        assert at.state(waiting) == "pending", "it has not gone"
        at.answer_stops()
    assert at.state(waiting) == "running"
    assert at.state(job) == {"ended": "completed", "cancelled": "cancelled", "requeued": "running"}[end]
    if end == "requeued":
        assert size(at, job) == 1, "from the beginning, with its least"
    at.send(Resized(job, 1, resize.placement))
    world = at.machine._world
    assert not world.shrinking and not world.stopping
    assert world.lines["default"].account.stopping.milli == 0


def test_a_stop_while_it_grows_counts_all_that_it_may_have() -> None:
    at = shell(4, slow=True)
    job = at.submit(workers(1, 4))
    at.sleep(60)
    at.send(Cancelled(job, "by its user"))
    other = at.submit(gpus(1))
    assert at.state(other) == "pending"
    at.answer_stops()
    assert at.state(other) == "running"


def test_a_shrink_that_fails_leaves_the_capacity_where_it_is() -> None:
    at, job = start_grown_job()
    waiting = at.submit(gpus(3))
    at.sleep(30)
    at.resizes.clear()
    at.send(Resized(job, 1, at.job(job).placement, "the worker does not go"))
    assert at.state(waiting) == "pending" and size(at, job) == 8
    assert notes(at, "job.resize_failed") == ["it has 8 workers: the worker does not go"]
    at.sleep(59)
    assert not at.resizes, "it is left alone for a while"
    at.sleep(1)
    at.answer_resizes()
    assert at.state(waiting) == "running"


def test_a_growth_that_succeeds_in_part() -> None:
    at = shell(8, slow=True)
    job = at.submit(workers(1, 8))
    at.sleep(60)
    (resize,) = at.resizes
    at.resizes.clear()
    other = at.submit(gpus(2))
    assert at.state(other) == "pending", "the room is its own from the decision on"
    at.send(Resized(job, 1, resize.placement[:3], "no more slices"))
    assert size(at, job) == 3 and at.state(other) == "running"


def test_a_worker_that_is_lost_gives_its_capacity_back_unasked() -> None:
    at, job = start_grown_job(total=9)
    other = at.submit(gpus(2))
    at.send(Resized(job, 1, at.job(job).placement[1:], "worker 0 is lost"))
    assert size(at, job) == 7 and at.state(other) == "running"
    at.send(Resized(job, 7, at.job(job).placement[1:]), Resized(job, 1, ()), Resized(other, 1, ()))
    assert size(at, job) == 7, "of another attempt; of nothing; of one that is not elastic"


def test_what_it_has_attained_counts_at_the_width_that_it_was_used_with() -> None:
    at = shell(8)
    job = at.submit(workers(2, 6))
    at.sleep(60)
    assert at.job(job).attained_at(at.now_ns) == 2000 * 60 * SECOND_NS
    at.sleep(10)
    assert at.job(job).attained_at(at.now_ns) == (2000 * 60 + 6000 * 10) * SECOND_NS
    at.submit(gpus(4))
    at.sleep(30)
    at.sleep(5)
    assert at.job(job).attained_at(at.now_ns) == (2000 * 60 + 6000 * 40 + 4000 * 5) * SECOND_NS
    at.end(job)
    assert at.job(job).attained == (2000 * 60 + 6000 * 40 + 4000 * 5) * SECOND_NS
    assert at.job(job).executed_ns == 105 * SECOND_NS


def test_its_policy_looks_at_it_again() -> None:
    at = shell(8, queue(policy="least", elastic_idle_ns=SECOND_NS))
    job = at.submit(workers(1, 8))
    at.sleep(1)
    assert size(at, job) == 8
    at.sleep(1.124)
    assert at.job(job).level == 0
    at.sleep(0.002)
    assert at.job(job).level == 1, "10 GPU-seconds: 1 at one worker, the rest at eight"


# ---- slices ----


def make_device_cluster() -> Cluster:
    return Cluster([Node("n", (make_small_device(0), make_small_device(1)))])


def test_an_elastic_slice_grows_on_its_device_and_gives_it_back() -> None:
    at = Shell(Machine((queue(),), make_device_cluster(), make_policy, hows=(How.EVICT,)))
    job = at.submit(make_elastic_spec(0.25, 1))
    at.sleep(60)
    (share,) = at.job(job).placement[0].shares
    assert (share.min_milli, share.max_milli, share.mem_max_bytes) == (1000, 1000, 4 * GIB), "memory as of its least"
    assert at.job(job).width_milli == 1000
    full = at.submit(gpus(1))
    assert at.state(full) == "running", "the other device"
    waiting = at.submit(gpus(0.32))
    at.sleep(30)
    (share,) = at.job(job).placement[0].shares
    assert at.state(waiting) == "running" and share.min_milli == share.max_milli == 650, "in steps of 0.05"
    assert notes(at, "job.resized")[-1].startswith("from 1 GPU to 0.65 GPU: shrinks for job 3")
    at.end(waiting)
    at.sleep(60)
    assert at.job(job).width_milli == 1000


def test_two_elastic_slices_divide_a_device() -> None:
    at = Shell(Machine((queue(),), make_device_cluster(), make_policy, hows=(How.EVICT,)))
    at.submit(gpus(1))
    one, other = at.submit(make_elastic_spec(0.1, 1)), at.submit(make_elastic_spec(0.2, 0.4))
    at.sleep(60)
    assert (at.job(one).width_milli, at.job(other).width_milli) == (700, 300), "7/10 and 3/4 of what they want"


# ---- a restart ----


@pytest.mark.parametrize("change", ["grows", "shrinks"])
def test_after_a_restart_it_is_ordered_again(change: str) -> None:
    at = shell(8, slow=True)
    job = at.submit(workers(1, 8))
    at.sleep(60)
    waiting = 0
    if change == "shrinks":
        at.answer_resizes()
        waiting = at.submit(gpus(3))
        at.sleep(30)
    (resize,) = at.resizes
    saved = [decode(type(j), encode(j)) for j in at.machine.jobs.values()]
    after = shell(8, slow=True)
    after.now_ns, after.next_id, after.running = at.now_ns, at.next_id, at.running
    after.restore(saved)
    (again,) = after.resizes
    assert (again.job_id, again.attempt, again.placement) == (resize.job_id, resize.attempt, resize.placement)
    after.sleep(1)
    assert not waiting or after.state(waiting) == "pending"
    after.answer_resizes()
    assert size(after, job) == len(after.job(job).placement) == len(resize.placement)
    assert not waiting or after.state(waiting) == "running"


def test_events_and_commands_are_plain_data() -> None:
    at, job = start_grown_job()
    for said in [c for c in at.log if isinstance(c, ResizeJob)]:
        assert from_plain(to_plain(said)) == said
    event = Resized(job, 1, at.job(job).placement, "why")
    assert from_plain(to_plain(event)) == event
    assert from_plain(to_plain(Submitted((9,), workers(1, 8)))) == Submitted((9,), workers(1, 8))


def test_bounds_of_a_queue_can_change_while_jobs_run() -> None:
    at = shell(8)
    job = at.submit(workers(1, 8))
    at.send(QueuesChanged((queue(elastic_idle_ns=5 * SECOND_NS, elastic_wait_ns=2 * SECOND_NS),)))
    at.sleep(5)
    assert size(at, job) == 8
    waiting = at.submit(gpus(1))
    at.sleep(2)
    assert at.state(waiting) == "running"


def test_an_elastic_job_that_is_started_again_has_its_least() -> None:
    at, job = start_grown_job()
    at.slow = False
    at.send(Requeued(job))
    assert size(at, job) == 1 and at.job(job).attempt == 2
    starts = [c for c in at.log if isinstance(c, StartJob)]
    assert len(starts[-1].placement) == 1


# ---- what is refused ----


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (workers(4, 2), "a minimum of 4 workers is above the maximum of 2: write the smaller one first, 2-4"),
        (
            replace(workers(1, 2), elastic=Elastic(0, 0, 0, 2)),
            "a minimum of 0 workers is out of range: write 1 to 1024",
        ),
        (replace(workers(1, 8), members=0), "1 to 1024"),
        (workers(1, 4096), "a maximum of 4096 workers is out of range"),
        (workers(1, 64), "up to 64 workers: 64 GPUs are more than there are"),
        (replace(workers(1, 8), members=2), "it has 2 members and begins with 1 workers"),
        (replace(workers(1, 8), elastic=Elastic(1, 2, 1, 8)), "choose one"),
        (replace(workers(1, 8), elastic=Elastic()), "between nothing and nothing"),
        (replace(workers(1, 8), elastic=Elastic(0, 0, 1, 8, "guess")), "guess"),
        (make_elastic_spec(0.5, 0.25), "0.5 GPUs at least are more than 0.25 at most"),
        (replace(make_elastic_spec(0.5, 1), elastic=Elastic(-1, 1000)), "is too little"),
        (make_elastic_spec(0.5, 1.5), "an elastic slice stays on its device"),
        (replace(make_elastic_spec(0.5, 1), members=2), "a gang of 2 members cannot have elastic slices"),
        (
            replace(make_elastic_spec(0.5, 1), ask=Ask(gpus(0.75).ask.spec)),
            "0.75 GPUs are asked for and 0.5 are its least",
        ),
        (
            replace(make_elastic_spec(0.5, 1), ask=Ask(replace(gpus(0.5).ask.spec, min_milli=100))),
            "leave out --min and --max",
        ),
        (replace(make_elastic_spec(0.5, 1), elastic=Elastic(500, 1000, heuristic="fixed(4)")), "a slice has none"),
    ],
)
def test_bounds_that_are_invalid(spec: JobSpec, words: str) -> None:
    at = shell(8)
    denied = at.machine.check(spec)
    assert denied is not None and denied.reason is Reason.INVALID
    assert words in denied.message and "\n" not in denied.message


def test_a_job_that_frees_capacity_twice_in_a_decision_has_what_it_is_counted_with() -> None:
    """It shrinks for one, is put aside as a whole for another one, and continues in the end."""
    at = shell(8, queue("a", policy="priority", guarantee_milli=2000), queue("b", policy="priority"), queue("c"))
    for spec in (gpus(2, queue="c"), workers(2, 6, queue="c"), gpus(1, queue="b")):
        at.submit(spec)
    at.send(*(Submitted((4 + i,), workers(1, 4, queue=q, priority=2 - i)) for i, q in enumerate("ac")))
    at.next_id = 6
    at.sleep(120)
    specs = [workers(1, 8, queue="a", priority=3), workers(1, 4, queue="b"), workers(2, 6, queue="a", priority=3)]
    at.send(*(Submitted((6 + i,), spec) for i, spec in enumerate(specs)))
    for job in (job for job in at.machine.jobs.values() if at.state(job.job_id) == "running"):
        assert sum(share.min_milli for place in job.placement for share in place.shares) == job.width_milli


def test_a_start_that_fails_after_it_has_grown_leaves_no_service_below_nothing() -> None:
    at = shell(8, queue(elastic_idle_ns=SECOND_NS))
    at.slow = True
    job = at.submit(workers(1, 8))
    at.sleep(1)
    assert size(at, job) == 8
    at.running.clear()
    at.resizes.clear()
    at.send(StartFailed(job, 1, "a worker's supervisor does not answer", again=True))
    assert (at.state(job), size(at, job)) == ("pending", 1)
    assert at.job(job).attained == 1000 * SECOND_NS, "a second with one, none with eight"
