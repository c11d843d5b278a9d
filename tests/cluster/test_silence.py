"""Nodes that do not respond, are off, or appear late: what is released to them, and what waits for them."""

from __future__ import annotations

import pytest

from tests.cluster.fake_slurm import FakeJob, FakeSlurm
from tests.cluster.test_mistaken import PREEMPTING, requeues
from tests.cluster.world import World
from vgpud.cluster.core.model import Register, Release
from vgpud.cluster.core.pauses import DEFERRED_NS
from vgpud.cluster.core.registrations import MISSED_NS
from vgpud.core.jobs.model import SECOND_NS

OFF = ("idle~", "idle+powered_down")


class SavesPower(FakeSlurm):
    """Boots a node for the job that is bound to it."""

    def _start(self, job: FakeJob) -> bool:
        for name in job.bound_to:
            if self.nodes[name].state in OFF:
                self.nodes[name].state, self.nodes[name].is_registered = "idle", True
        return super()._start(job)


@pytest.mark.parametrize("state", OFF)
def test_a_node_whose_power_is_off_gets_a_job(state: str) -> None:
    """It has never registered, and does so when it was booted for a job."""
    world = World(SavesPower(n1=1))
    node = world.slurm.nodes["n1"]
    node.shards, node.state, node.is_registered = 0, state, False
    job = world.slurm.submit("gpu:1")
    world.looks(3)
    assert world.running() == [job]


def test_it_does_after_a_start_of_slurmctld() -> None:
    world = World(SavesPower(n1=1, n2=1))
    world.looks(3)
    world.slurm.nodes["n1"].state = OFF[0]
    world.slurm.save()
    world.slurm.kill()
    world.looks(10)
    for _ in range(2):
        world.slurm.submit("gpu:1")
    world.looks(5)
    assert len(world.running()) == 2


def test_a_job_that_has_waited_for_something_else_waits_for_its_node_as_well() -> None:
    """Its second run is the one that a deferred start would end."""
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.look()
    world.slurm.nodes["n1"].state = "allocated*"
    world.look()
    world.slurm.nodes["n1"].state = "idle"
    world.slurm.requeue(job)
    requeued_ns = world.now_ns
    while world.now_ns < requeued_ns + DEFERRED_NS:
        world.look(1)
    assert world.controller.delay_reasons == {job: "its former run is being ended"}
    world.slurm.nodes["n1"].state = "idle*"
    released = []
    for _ in range(5):
        world.look(1)
        released += [order for order in world.last.orders if isinstance(order, Release)]
    assert not released and world.controller.delay_reasons == {job: "n1 must respond first"}
    world.slurm.nodes["n1"].state = "idle"
    world.looks(2)
    assert world.running() == [job]


def with_a_node_that_is_off_for_long() -> World:
    world = World(FakeSlurm(n1=1, n2=1))
    world.slurm.nodes["n2"].state, world.slurm.nodes["n2"].is_registered = "down*", False
    return world


def test_a_node_that_appears_does_not_hide_a_start_on_its_way() -> None:
    world = with_a_node_that_is_off_for_long()
    world.looks(2)
    job = world.slurm.submit("gpu:1")
    world.look()
    world.slurm.unsent[job] = 0, world.now_ns + 11 * SECOND_NS
    world.slurm.nodes["n1"].state = "allocated*"
    world.look()
    assert world.running() == [job]
    world.slurm.nodes["n1"].state = "allocated"
    world.slurm.nodes["n2"].state = "idle*"  # its administrator has resumed it
    world.look()
    world.slurm.requeue(job)
    for _ in range(16):
        world.look(1)
    assert world.running() == [job] and not world.ended_jobs


def test_a_node_that_appears_delays_no_jobs_of_others() -> None:
    world = with_a_node_that_is_off_for_long()
    job = world.slurm.submit("gpu:1")
    world.looks(3)
    world.slurm.requeue(job)
    world.slurm.nodes["n2"].state = "idle*"
    for _ in range(4):
        world.look()
        world.slurm.nodes["n2"].must_register = world.slurm.nodes["n2"].is_registered = False  # it is still off
    assert world.running() == [job]


class TakesItsTime(FakeSlurm):
    """What is released starts after the next look."""

    ready_keys: frozenset[str] = frozenset()

    def schedule(self) -> list[str]:
        ready = {key: job for key, job in self.jobs.items() if job.state == "PENDING" and job.priority}
        early = [job for key, job in ready.items() if key not in self.ready_keys]
        for job in early:
            job.priority = 0
        started = super().schedule()
        for job in early:
            job.priority = 100
        self.ready_keys = frozenset(ready)
        return started


def test_a_node_that_is_always_busy_is_asked_all_the_same() -> None:
    """In each look a job is on its way to it."""
    world = World(TakesItsTime(n1=8))
    lasts = world.slurm.submit("gpu:1")
    world.looks(3)
    asked, awaited = 0, 0
    for _ in range(round(2 * MISSED_NS / SECOND_NS)):
        for key in world.running():
            if key != lasts:
                world.slurm.end(key)
        world.slurm.submit("gpu:1")
        world.look(1)
        awaited += any(job.state == "PENDING" and job.priority for job in world.slurm.jobs.values())
        asked += any(isinstance(order, Register) for order in world.last.orders)
    assert asked and awaited > MISSED_NS / SECOND_NS


def test_a_node_that_is_asked_keeps_its_free_gpus() -> None:
    """A job with a guarantee that comes in this moment stops none elsewhere."""
    world = World(FakeSlurm(n1=2, n2=4), PREEMPTING)
    first, second = world.slurm.submit("gpu:1"), world.slurm.submit("gpu:4")
    while {first, second} - set(world.running()):
        world.look()
    world.now_ns += MISSED_NS
    world.slurm.submit("gpu:1", account="team")
    world.look()
    assert any(isinstance(order, Register) for order in world.last.orders) and not requeues(world)
    world.looks(3)
    assert len(world.running()) == 3 and not requeues(world)


def test_marks_of_a_job_are_not_those_of_the_next_one_of_its_number() -> None:
    """slurmctld forgets a job that was preempted, and gives its number to another user's."""
    world = World(FakeSlurm(n1=1), PREEMPTING)
    world.slurm.save()
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.submit("gpu:1", account="team")
    world.look()
    assert requeues(world) == [job]
    world.slurm.kill()
    assert world.slurm.submit("gpu:1", uid=2000) == job
    while job not in world.running():
        world.look()
    world.looks(2)
    world.slurm.end(job, "COMPLETED")
    world.look()
    assert not requeues(world) and world.ended_jobs[-1][0] == job


def test_a_node_that_registered_before_the_controller_looked_is_asked_again() -> None:
    """Its slurmd was started while slurmctld was away: it has registered with the jobs of that moment."""
    world = World(FakeSlurm(n1=1, n2=1))
    world.looks(2)
    world.slurm.save()
    world.slurm.kill()
    world.slurm.register("n1")
    world.slurm.submit("gpu:1")
    world.look()
    assert [order.nodes for order in world.last.orders if isinstance(order, Register)] == [("n1", "n2")]
    assert not any(isinstance(order, Release) for order in world.last.orders)
    world.looks(3)
    assert len(world.running()) == 1
