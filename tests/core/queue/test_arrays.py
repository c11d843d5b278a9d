"""Arrays: their indices, and those of which only so many jobs run at once."""

from __future__ import annotations

from dataclasses import replace

from tests.core.queue.world import Shell, gpus, queue, shell
from vgpud.core.jobs.events import ArrayThere, Cancelled, Held, Released, Submitted
from vgpud.core.jobs.model import JobSpec
from vgpud.core.queue.check import ARRAY_JOBS_MAX


def array(at: Shell, count: int, limit: int, **fields: object) -> list[int]:
    first = at.submit(gpus(0.1, index=1, array_limit=limit, **fields), count)
    return list(range(first, first + count))


def test_an_array_has_the_indices_that_were_named() -> None:
    at = shell(1)
    at.send(Submitted((1, 2, 3), gpus(0.1, array_limit=2), indices=(0, 4, 9)))
    assert [(at.job(i).spec.array, at.job(i).spec.index) for i in (1, 2, 3)] == [(1, 0), (1, 4), (1, 9)]
    at.send(Submitted((4,), gpus(0.1), indices=(0,)))
    assert at.job(4).spec.array == 4, "an array of one job, whose index is 0"


def test_so_many_jobs_of_an_array_run_at_once() -> None:
    at = shell(4)
    ids = array(at, 5, 2)
    other = at.submit(gpus(0.1))
    assert at.running == {*ids[:2], other}
    assert at.reason(ids[4]) == "the array of job 1 is at its limit: 2 jobs are running or starting"
    at.end(ids[0])
    assert at.running == {ids[1], ids[2], other}
    at.end(ids[1], exit_code=1)
    at.end(ids[2])
    assert at.running == {ids[3], ids[4], other}


def test_jobs_that_wait_for_others_or_are_held_have_no_slot() -> None:
    at = shell(0.2)
    blocker = at.submit(gpus(0.15))
    ids = array(at, 3, 1)
    assert at.machine.position(ids[0]) == 1 and at.machine.position(ids[1]) == 0
    at.send(Held(ids[0]))
    assert at.machine.position(ids[1]) == 1
    at.send(Released(ids[0]))
    assert "is at its limit" in at.reason(ids[0])
    at.send(Cancelled(ids[1], "by its user"))
    at.end(blocker)
    assert at.running == {ids[2]}, "it waited for longer than the one that was held"
    at.end(ids[2])
    assert at.running == {ids[0]}


def test_a_job_gives_its_slot_while_it_waits_for_its_next_try() -> None:
    at = shell(1)
    first, second = array(at, 2, 1, retries=1)
    at.end(first, exit_code=1)
    assert at.running == {second}
    at.sleep(11)
    assert at.running == {second} and "is at its limit" in at.reason(first)
    at.end(second)
    assert at.running == {first}


def test_a_preempted_job_keeps_its_slot() -> None:
    at = shell(0.1, queue(policy="priority"))
    ids = array(at, 2, 1)
    ahead = at.submit(gpus(0.1, priority=5))
    assert at.running == {ahead} and at.state(ids[0]) == "suspended"
    at.end(ahead)
    assert at.running == {ids[0]}


def test_slots_outlive_a_restart() -> None:
    at = shell(1)
    ids = array(at, 4, 2)
    after = shell(1)
    after.running = set(at.running)
    after.restore([replace(at.job(i)) for i in reversed(ids)])
    after.send()
    assert after.running == {ids[0], ids[1]}
    after.end(ids[0])
    assert after.running == {ids[1], ids[2]}


def test_two_arrays_do_not_count_for_each_other() -> None:
    at = shell(4)
    one, two = array(at, 3, 1), array(at, 3, 2)
    assert at.running == {one[0], two[0], two[1]}


def test_a_limit_out_of_range_is_refused() -> None:
    spec: JobSpec = gpus(0.1, array_limit=-1)
    denied = shell(1).machine.check(spec, 2)
    assert denied is not None and denied.message == "-1 jobs of an array at once: write 1 to 10000, or none"


def test_a_job_comes_after_all_of_the_largest_array() -> None:
    at = shell(1)
    first = at.submit(gpus(1, index=1), count=ARRAY_JOBS_MAX)
    after = at.submit(gpus(1, after=tuple(range(first, first + ARRAY_JOBS_MAX))))
    assert at.machine.check(gpus(1, after=tuple(range(1, ARRAY_JOBS_MAX + 2)))) is not None
    assert "it waits for jobs 1, 2, 3 and 9997 more to complete" in at.reason(after)


def test_an_array_that_arrives_in_parts_starts_when_it_is_whole() -> None:
    at = shell(0.2)
    before = at.submit(gpus(0.15))
    spec = gpus(0.1, after=(before,))
    parts = [Submitted(ids, spec, indices=ids, array=11, submitted_ns=at.now_ns) for ids in ((13, 14), (11, 12))]
    at.send(parts[0])
    at.end(before)
    at.sleep(1)
    assert at.running == set(), "the daemon may be killed now, and then there is no array"
    at.send(Held(14), parts[1])
    at.send(Released(14))
    assert at.running == set()
    assert {(at.job(i).spec.array, at.job(i).submitted_ns) for i in range(11, 15)} == {(11, parts[0].submitted_ns)}
    at.send(ArrayThere((11, 12)), ArrayThere((13, 14)))
    assert at.running == {11, 12}, "in the order of their numbers"
