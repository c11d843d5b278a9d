"""A policy that has learnt changes all keys: they are computed again part by part, so that no decision waits for it."""

from __future__ import annotations

import pytest

from tests.core.queue.world import CountedCluster, Learning, Shell, gpus, queue, shell
from vgpud.core.jobs.model import GPU_SECOND, SECOND_NS, How, Job
from vgpud.core.policy import registry
from vgpud.core.queue import waiting
from vgpud.core.queue.decide import REKEY_PAUSE_NS
from vgpud.core.queue.machine import Machine

WAITING = 1000


class Counting(Learning):
    """Counts how many keys are asked for."""

    keys = 0

    def key(self, job: Job, now_ns: int) -> tuple[int, ...]:
        self.keys += 1
        return super().key(job, now_ns)


def crowd(policy: Learning) -> Shell:
    """A thousand jobs wait behind one that runs."""
    machine = Machine((queue(),), CountedCluster(1000), lambda name: policy, hows=(How.EVICT,), moves=True)
    world = Shell(machine)
    world.submit(gpus(1))
    for _ in range(WAITING):
        world.submit(gpus(1))
    return world


def order(world: Shell) -> list[int]:
    return list(world.machine._world.lines["default"].waiting)  # no public way: positions are of single jobs


def test_a_decision_computes_so_many_keys_again_and_no_more() -> None:
    policy = Counting()
    world = crowd(policy)
    (running,) = world.running
    before, policy.keys = order(world), 0
    world.end(running)
    assert policy.keys <= waiting.KEYS_AT_ONCE + 8
    assert order(world)[:-1] != before, "some have their new keys"
    assert order(world) != sorted(order(world)), "others do not yet"


def test_the_rest_follows_though_nothing_happens() -> None:
    policy = Counting()
    world = crowd(policy)
    (running,) = world.running
    world.end(running)
    assert order(world) != sorted(order(world))
    for _ in range(WAITING // waiting.KEYS_AT_ONCE):
        if world.wake_ns is not None:
            assert world.wake_ns == world.now_ns + REKEY_PAUSE_NS
            world.sleep(REKEY_PAUSE_NS / SECOND_NS)
    assert order(world) == sorted(order(world))
    assert world.wake_ns is None


def test_a_small_queue_has_its_new_order_at_once() -> None:
    world = shell(1, queue(policy="learning"))
    jobs = [world.submit(gpus(1)) for _ in range(5)]
    (running,) = world.running
    world.end(running)
    assert order(world) == sorted({*jobs} - {running} - world.running)
    assert world.wake_ns is None


@pytest.mark.parametrize(("hows", "has_preempted"), [((How.REQUEUE,), False), ((How.EVICT, How.REQUEUE), True)])
def test_where_jobs_would_have_to_start_again_the_order_of_new_queues_preempts_none(
    hows: tuple[How, ...], has_preempted: bool
) -> None:
    machine = Machine((queue(policy=registry.NEW_QUEUE),), CountedCluster(1000), registry.make, hows=hows, moves=True)
    world = Shell(machine)
    old = world.submit(gpus(1))
    world.sleep(5 * 3600)
    new = world.submit(gpus(1))
    assert world.running == ({new} if has_preempted else {old})
    assert world.machine.jobs[old].attained == (5 * 3600 * GPU_SECOND if has_preempted else 0)


def test_it_says_why_one_job_is_before_another() -> None:
    world = shell(1)
    world.machine = Machine((queue(policy=registry.NEW_QUEUE),), CountedCluster(1000), registry.make)
    world.submit(gpus(1, uid=1))
    second, third = (world.submit(gpus(1, uid=uid)) for uid in (1, 2))
    said = world.machine.explain_order(third, world.now_ns, None)
    used = "is in its trial (0 of 4200 GPU-seconds used)"
    assert said == (
        f"job {second} is before job {third} in queue default (2d-gittins): job {second} {used}; job {third} {used}"
    )
    assert world.machine.explain_order(second, world.now_ns, None) == said
    own = world.machine.explain_order(third, world.now_ns, 2)
    assert own == f"job {second} is before job {third} in queue default (2d-gittins): job {third} {used}"
    (running,) = world.running
    assert world.machine.explain_order(running, world.now_ns, None) == ""
