"""Elastic jobs of an eager queue: the first one has all that it can use before the next one starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import make_small_device
from tests.core.queue.test_elastic import GIB, make_elastic_spec, notes, size, workers
from tests.core.queue.world import CountedCluster, Shell, gpus, make_policy, queue, shell
from vgpud.core.jobs.events import Held, JobEnded, Released, ResizeJob, StopJob, Submitted
from vgpud.core.jobs.model import SECOND_NS, Node, QueueSpec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue import elasticity
from vgpud.core.queue.machine import Machine


def eager(name: str = "default", **fields: object) -> QueueSpec:
    return queue(name, elastic_eager=True, **fields)


def resizes(at: Shell, job_id: int) -> list[ResizeJob]:
    return [command for command in at.log if isinstance(command, ResizeJob) and command.job_id == job_id]


def test_it_starts_as_large_as_there_is_capacity() -> None:
    at = shell(8, eager())
    first, second, third = at.submit(workers(1, 6)), at.submit(workers(1, 6)), at.submit(workers(1, 6))
    assert (size(at, first), size(at, second)) == (6, 2) and at.state(third) == "pending"
    assert not resizes(at, first), "it was started so, and not resized"
    assert "6 GPU (6 workers: elastic-eager takes all that it can use)" in notes(at, "job.started")[0]


def test_an_elastic_slice_as_well() -> None:
    at = shell(1, eager())
    job = at.submit(make_elastic_spec(0.25, 0.8))
    assert at.job(job).spec.ask.spec.gpus_milli == 800


def test_who_has_waited_gets_nothing_of_it() -> None:
    at = shell(8, eager())
    job, waiting = at.submit(workers(1, 8)), at.submit(gpus(4))
    at.sleep(24 * 3600)
    assert size(at, job) == 8 and at.state(waiting) == "pending"
    assert at.machine.reason(waiting, at.now_ns) == "4 GPUs are asked for, 0 are free"
    assert not any("elastic" in line for line in at.machine.advice(waiting, at.now_ns))


def test_who_has_waited_in_another_queue_gets_it_as_everywhere() -> None:
    at = shell(8, eager(), queue("other"))
    job, waiting = at.submit(workers(1, 8)), at.submit(gpus(3, queue="other"))
    at.sleep(31)
    assert size(at, job) == 5 and at.state(waiting) == "running"
    assert "which has waited for 30 s" in notes(at, "job.resized")[0]


def test_who_runs_grows_before_others_start_but_not_sooner_than_a_minute_after() -> None:
    at = shell(8, eager())
    first = at.submit(gpus(6))
    job, waiting = at.submit(workers(1, 6)), at.submit(workers(1, 4))
    assert size(at, job) == 2 and at.state(waiting) == "pending"
    at.sleep(70)
    at.end(first)
    assert size(at, job) == 6 and size(at, waiting) == 2
    assert notes(at, "job.resized") == [
        "from 2 workers to 6 workers: 4 GPUs were free, and elastic jobs of queue default that come first take them"
        " before others start (elastic-eager); it wants no more than 6 workers"
    ]


def test_who_has_just_started_is_left_alone_and_others_start() -> None:
    at = shell(8, eager())
    first, job, waiting = at.submit(gpus(7)), at.submit(workers(1, 6)), at.submit(gpus(3))
    at.sleep(30)
    at.end(first)
    assert size(at, job) == 1 and at.state(waiting) == "running"
    at.sleep(31)
    assert size(at, job) == 1, "nobody waits: it is put off by the start, as everywhere"
    at.sleep(30)
    assert size(at, job) == 5


def test_a_waiting_job_keeps_it_from_growing_no_longer_than_that() -> None:
    at = shell(8, eager())
    first, job = at.submit(gpus(7)), at.submit(workers(1, 6))
    at.sleep(30)
    at.submit(gpus(8))  # it waits for ever
    at.end(first)
    assert size(at, job) == 1
    at.sleep(30)
    assert size(at, job) == 6


def test_a_guarantee_takes_it_back_at_once() -> None:
    at = shell(8, eager(), queue("team", guarantee_milli=4000))
    job = at.submit(workers(1, 8))
    claimant = at.submit(gpus(4, queue="team"))
    assert size(at, job) == 4 and at.state(claimant) == "running"
    assert "queue team is below its guarantee" in notes(at, "job.resized")[-1]


def test_the_job_whose_turn_it_is_precedes_one_that_grows() -> None:
    """Of two queues the one that is served less is first, whether its jobs are to start or to grow."""
    at = shell(8, eager(), queue("other"))
    first, job = at.submit(gpus(6)), at.submit(workers(1, 8))
    behind, theirs = at.submit(gpus(2)), at.submit(gpus(5, queue="other"))
    at.sleep(70)
    at.end(first)
    assert at.state(theirs) == "running" and size(at, job) == 3 and at.state(behind) == "pending"


def test_the_first_job_takes_it_from_those_behind() -> None:
    at = shell(8, eager(policy="priority"))
    low = at.submit(workers(2, 8))
    high = at.submit(workers(1, 5, priority=1))
    assert (size(at, low), size(at, high)) == (3, 5)
    urgent = at.submit(workers(2, 8, priority=2))
    assert size(at, urgent) == 8 and at.state(low) == at.state(high) == "suspended"


def test_who_is_behind_those_that_wait_grows_only_as_everywhere_else() -> None:
    """When nothing was done for a minute, and what waits has no use for what is free."""
    at = shell(9, eager(policy="priority"), queue("other", elastic_wait_ns=3600 * SECOND_NS))
    first, fixed = at.submit(gpus(4, priority=3)), at.submit(gpus(1, priority=3, preemptible=False))
    theirs = at.submit(gpus(1, queue="other"))
    low = at.submit(workers(1, 8))
    at.submit(gpus(9, priority=2, preemptible=False))
    at.submit(gpus(1, queue="other"))
    at.sleep(65)
    at.end(theirs)  # the other one starts
    at.end(first)
    assert at.state(fixed) == at.state(low) == "running" and size(at, low) == 3
    at.sleep(60)
    assert size(at, low) == 7


def test_its_limit_holds() -> None:
    at = shell(8, eager(limit_milli=3000))
    assert size(at, at.submit(workers(1, 8))) == 3


def test_started_again_it_is_as_large_as_there_is_capacity_then() -> None:
    at = shell(8, eager(policy="priority"))
    job = at.submit(workers(1, 8))
    urgent = at.submit(gpus(8, priority=1))
    assert at.state(job) == "suspended" and [c for c in at.log if isinstance(c, StopJob)]
    at.end(urgent)
    assert at.state(job) == "running" and size(at, job) == 8


def test_a_job_that_gives_its_claim_up_waits_with_its_least() -> None:
    at = shell(8, eager(policy="priority"), slow=True)
    fixed = at.submit(gpus(8))
    job = at.submit(workers(1, 5, priority=1))
    assert at.state(job) == "pending" and size(at, job) == 5, "the room of the other one is freed for it"
    at.send(Held(job))
    assert size(at, job) == 1
    at.answer_stops()
    assert at.state(fixed) == "running"
    at.submit(gpus(6, priority=2))
    at.answer_stops()
    at.send(Released(job))
    assert at.state(job) == "running" and size(at, job) == 2, "it starts with what is free"


def test_a_job_saved_with_a_claim_waits_with_its_least_after_a_restart() -> None:
    at = shell(8, eager(policy="priority"), slow=True)
    fixed, job = at.submit(gpus(8)), at.submit(workers(1, 5, priority=1))
    saved = [replace(at.job(one)) for one in (fixed, job)]
    assert size(at, job) == 5
    again = Shell(Machine((eager(policy="priority"),), CountedCluster(8000), make_policy), slow=True)
    again.restore(saved)
    assert size(again, job) == 1


def test_a_job_that_is_to_stop_in_the_decision_in_which_it_grows_continues_with_what_it_had() -> None:
    """Workers of three GPUs each: a guarantee takes two, and a step back by one worker is more than is above it."""
    at = shell(12, eager(guarantee_milli=8000), queue("team", guarantee_milli=4000), queue("other"))
    first, fixed, theirs = at.submit(gpus(6, queue="other")), at.submit(gpus(1, queue="other")), gpus(2, queue="team")
    at.submit(theirs)
    job = at.submit(workers(1, 4, 3))
    at.submit(gpus(12))  # it waits for ever
    at.sleep(70)
    at.running.discard(first)
    at.send(JobEnded(first, 1, 0), Submitted((at.next_id,), theirs))
    assert at.state(fixed) == at.state(at.next_id) == at.state(job) == "running"
    assert size(at, job) == len(at.job(job).placement) == 1
    world = at.machine._world
    assert world.line(at.job(job)).account.used.milli == 3000 and world.members == 4
    assert at.job(job).attained_at(at.now_ns) == 3000 * 70 * SECOND_NS
    at.sleep(1)
    assert size(at, job) == 1
    assert world.cluster.free_milli() == 4000


def test_the_memory_of_a_slice_that_starts_larger_is_that_of_its_least() -> None:
    """It cannot be given back: no job for which it shrinks would fit beside it."""
    device = make_small_device()
    queues = eager(), queue("team", guarantee_milli=500)
    at = Shell(Machine(queues, Cluster([Node("n", (device,))]), make_policy))
    job = at.submit(make_elastic_spec(0.25, 1))
    (share,) = at.job(job).placement[0].shares
    assert (share.min_milli, share.max_milli, share.mem_min_bytes) == (1000, 1000, 4 * GIB)
    asked = at.job(job).spec.ask.spec
    assert (asked.gpus_milli, asked.min_milli) == (1000, None)
    claimant = at.submit(gpus(0.5, queue="team"))
    assert at.state(claimant) == at.state(job) == "running" and not [c for c in at.log if isinstance(c, StopJob)]
    assert at.job(job).spec.ask.spec.gpus_milli == 500


def test_no_job_is_asked_for_capacity_by_one_behind_all_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that run would be, for each that waits: what they have above their least is much in an eager queue."""
    at = shell(8, eager(policy="priority"))
    at.submit(workers(1, 8, priority=1))
    asked = []
    cuts = elasticity.cuts
    monkeypatch.setattr(elasticity, "cuts", lambda *args: asked.append(args) or cuts(*args))
    waiting = at.submit(gpus(2))
    assert at.state(waiting) == "pending" and not asked
    first = at.submit(gpus(2, priority=2))
    assert at.state(first) == "running" and asked


def test_switched_off_it_is_as_everywhere_else() -> None:
    at = shell(8, queue())
    assert size(at, at.submit(workers(2, 6))) == 2
