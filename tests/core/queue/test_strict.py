"""A strict queue waits for its first job, but not for one that could not start if nothing else ran."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.queue.test_vain import cluster, offering, spec_on_device
from tests.core.queue.world import Shell, gpus, make_policy, queue
from vgpud.core.jobs.events import Event, NodesChanged, QueuesChanged, RoomChanged
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, How, JobSpec, QueueSpec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine


def shell(*queues: QueueSpec) -> Shell:
    return Shell(Machine(queues, Cluster(cluster(nodes=2)), make_policy, hows=(How.PAUSE, How.REQUEUE)), slow=True)


#: what takes a device away -> a job that cannot start then
LOSSES: dict[str, tuple[Event, JobSpec]] = {
    "drained": (offering("n0", "0-0"), spec_on_device("0-1")),
    "both of a node": (RoomChanged("n0", (), ()), spec_on_device("0-0")),
    "one of each node": (offering("n0", "0-0"), gpus(2, one_per_node=True, members=2)),
    "the node is gone": (NodesChanged(tuple(cluster(nodes=1))), spec_on_device("1-0")),
    "the device is lost": (
        NodesChanged(tuple(replace(node, devices=node.devices[:1]) for node in cluster(nodes=2))),
        gpus(2),
    ),
    "less memory": (NodesChanged(tuple(cluster(nodes=2, memory_bytes=1 << 30))), spec_on_device("0-0")),
    "a lowered limit": (QueuesChanged((queue(strict=True, limit_milli=1000),)), gpus(2)),
}


@pytest.mark.parametrize("backfill", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_strict_queue_does_not_wait_for_what_cannot_start(loss: str, backfill: bool) -> None:
    change, spec = LOSSES[loss]
    if loss == "less memory":
        spec = replace(spec, ask=replace(spec.ask, spec=replace(spec.ask.spec, mem_min_bytes=8 << 30)))
    at = shell(queue(strict=True, backfill=backfill))
    blocker = at.submit(gpus(2, members=2))
    first = at.submit(spec)
    if isinstance(change, QueuesChanged):
        change = QueuesChanged((replace(change.queues[0], backfill=backfill),))
    at.send(change)
    if loss == "one of each node":
        at.send(offering("n1", "1-0", "1-1"))
    at.end(blocker)
    next_ = at.submit(gpus(0.5, duration_ns=SECOND_NS))
    assert next_ in at.running
    assert at.state(first) == "pending"
    assert "strict" not in at.reason(first)
    assert at.machine.estimated_start(first, at.now_ns) == NEVER_NS


def test_the_queue_waits_for_it_again_when_its_device_is_back() -> None:
    at = shell(queue(strict=True))
    blocker = at.submit(gpus(2, members=2))
    first = at.submit(spec_on_device("0-1"))
    at.send(offering("n0", "0-0"))
    at.end(blocker)
    passing = at.submit(gpus(1))
    assert at.running == {passing}
    at.send(offering("n0", "0-0", "0-1"))
    assert at.running == {passing, first}


def test_a_suspended_job_whose_device_is_drained_delays_no_other() -> None:
    at = shell(queue(strict=True, policy="priority"))
    small = {"mem_min_bytes": 4 << 30, "mem_max_bytes": 4 << 30}
    spec = spec_on_device("0-0")
    spec = replace(spec, ask=replace(spec.ask, spec=replace(spec.ask.spec, **small)))
    low, high = at.submit(spec), at.submit(replace(spec, priority=5))
    at.answer_stops()
    assert at.state(low) == "suspended" and high in at.running
    at.send(offering("n0", "0-1"))
    at.end(high)
    next_ = at.submit(gpus(1, priority=-1))
    assert next_ in at.running and at.state(low) == "suspended"
    assert "not offered" in at.reason(low)


def test_explain_advises_time_limits_only_where_a_running_job_has_none() -> None:
    at = shell(queue(strict=True))
    endless = at.submit(gpus(2))
    first, waits = at.submit(gpus(2, members=2)), at.submit(gpus(2, members=2))
    assert any("time limits of the running jobs would tell" in one for one in at.machine.advice(waits, 0))
    at.end(endless)
    at.end(first)
    assert waits in at.running
    at.end(waits)
    at.send(RoomChanged("n0", (("0-0", 500, 0),), ("0-0", "0-1")))  # a slice that is no job's
    first, waits = at.submit(gpus(2, members=2)), at.submit(gpus(1))
    (advice,) = at.machine.advice(waits, 0)
    assert advice.startswith(f"it is not known when job {first} can start: there is free capacity for 1 of 2 members")
    at.send(offering("n0", "0-1"))
    assert waits in at.running
    waits = at.submit(gpus(2, members=2))
    assert not any("time limits" in one for one in at.machine.advice(waits, 0))
