"""The queue over several nodes: nodes come and go under running jobs, and jobs run elsewhere than was decided."""

from __future__ import annotations

from dataclasses import replace

from tests.core.placement.world import node
from tests.core.queue.world import gpus, make_policy, queue
from vgpud.core.jobs.events import (
    JobEnded,
    Located,
    NodesChanged,
    QueuesChanged,
    RoomChanged,
    SaveJob,
    StartJob,
    StopJob,
    Submitted,
)
from vgpud.core.jobs.model import NEVER_NS, Job, JobSpec, JobState, Node, Placement
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine
from vgpud.core.queue.record import from_plain, to_plain


class World:
    """A machine that begins without nodes, as one over an engine does."""

    def __init__(self, *nodes: Node, limit_milli: int = NEVER_NS) -> None:
        self.cluster = Cluster(())
        self.machine = Machine((queue(limit_milli=limit_milli),), self.cluster, make_policy)
        self.machine.step(NodesChanged(nodes), 0)

    def submit(self, job_id: int, spec: JobSpec) -> list[str]:
        """Where it starts, if it does."""
        commands = self.machine.step(Submitted((job_id,), spec), 0)
        return [place.node for c in commands if isinstance(c, StartJob) for place in c.placement]

    def job(self, job_id: int) -> Job:
        return self.machine.jobs[job_id]


def test_new_nodes_are_used_at_once() -> None:
    world = World()
    assert world.submit(1, gpus(1)) == []
    assert "no node" in world.machine.reason(1, 0)
    (start,) = [c for c in world.machine.step(NodesChanged((node("a", 1),)), 0) if isinstance(c, StartJob)]
    assert start.placement[0].node == "a"


def test_running_jobs_keep_what_they_have() -> None:
    world = World(node("a", 2), node("b", 2))
    assert world.submit(1, gpus(1)) == ["a"]
    world.machine.step(NodesChanged((node("b", 2), node("a", 2))), 0)
    assert world.cluster.free_milli() == 3000
    world.machine.step(JobEnded(1, 1, 0), 0)
    assert world.cluster.free_milli() == 4000


def test_a_node_goes_with_a_job_on_it_and_comes_back_smaller() -> None:
    world = World(node("a", 2), node("b", 1))
    assert world.submit(1, gpus(2)) == ["a"]
    world.machine.step(NodesChanged((node("b", 1),)), 0)
    assert world.cluster.free_milli() == 1000
    world.machine.step(NodesChanged((node("a", 1), node("b", 1))), 0)
    assert world.cluster.free_milli() == 1000  # of its two devices there one is left, which it has
    world.machine.step(JobEnded(1, 1, 0), 0)
    assert world.cluster.free_milli() == 2000


def test_a_node_goes_for_which_a_job_waits() -> None:
    """The job that was preempted for it has not ended yet: it starts on another node, or waits again."""
    world = World(node("a", 1))
    world.machine.step(QueuesChanged((queue(), queue("owner", guarantee_milli=1000))), 0)
    assert world.submit(1, gpus(1)) == ["a"]
    (stop,) = [c for c in world.machine.step(Submitted((2,), gpus(1, queue="owner")), 0) if isinstance(c, StopJob)]
    assert stop.job_id == 1 and world.machine.step(NodesChanged(()), 0) == []
    world.machine.step(JobEnded(1, 1, 0), 0)
    assert world.job(2).state is JobState.PENDING and "no node" in world.machine.reason(2, 0)
    (start,) = [c for c in world.machine.step(NodesChanged((node("b", 1),)), 0) if isinstance(c, StartJob)]
    assert (start.job_id, start.placement[0].node) == (2, "b")


def test_what_others_hold_goes_with_the_node() -> None:
    """Their part of a quota and their devices: a node that comes back is free until it is said otherwise."""
    world = World(node("a", 1), node("b", 1), limit_milli=1000)
    world.machine.step(RoomChanged("a", (("a/0", 1000, 0),), ("a/0",), (("default", 1000, 0, 0),)), 0)
    assert world.submit(1, gpus(1)) == [] and "limit" in world.machine.reason(1, 0)
    (start,) = [c for c in world.machine.step(NodesChanged((node("b", 1),)), 0) if isinstance(c, StartJob)]
    assert start.placement[0].node == "b"
    world.machine.step(NodesChanged((node("a", 1), node("b", 1))), 0)
    assert world.cluster.free_milli() == 1000


def test_a_job_runs_elsewhere_than_decided() -> None:
    world = World(node("a", 2))
    world.submit(1, gpus(0.5))
    assert world.cluster.node("a").free_milli == [500, 1000]
    elsewhere = _on_device(world.job(1), "a/1")
    commands = world.machine.step(Located(1, 1, elsewhere), 0)
    assert any(isinstance(c, SaveJob) for c in commands)
    assert world.job(1).placement == elsewhere
    assert world.cluster.node("a").free_milli == [1000, 500]
    world.machine.step(JobEnded(1, 1, 0), 0)
    assert world.cluster.node("a").free_milli == [1000, 1000]


def test_only_what_runs_is_located() -> None:
    world = World(node("a", 1))
    world.submit(1, gpus(1))
    elsewhere = _on_device(world.job(1), "a/7")
    world.machine.step(Located(1, 9, elsewhere), 0)  # of another attempt
    world.machine.step(Located(5, 1, elsewhere), 0)  # of no job
    assert world.job(1).placement[0].shares[0].device_uuid == "a/0"
    world.machine.step(JobEnded(1, 1, 0), 0)
    world.machine.step(Located(1, 1, elsewhere), 0)
    assert world.job(1).placement == ()


def test_both_events_can_be_recorded() -> None:
    world = World(node("a", 1))
    world.submit(1, gpus(1))
    located = Located(1, 1, world.job(1).placement)
    assert from_plain(to_plain(located)) == located
    changed = NodesChanged((node("a", 3), node("b", 1)))
    again = from_plain(to_plain(changed))
    assert to_plain(again) == to_plain(changed) and [one.name for one in again.nodes] == ["a", "b"]


def _on_device(job: Job, uuid: str) -> Placement:
    (place,) = job.placement
    return (replace(place, shares=(replace(place.shares[0], device_uuid=uuid),)),)
