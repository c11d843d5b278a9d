"""A job is stopped only for one that starts, whatever has become of devices, limits and nodes meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.builders import make_small_device
from tests.core.queue.world import Shell, gpus, queue
from tests.examples import combine_axes, is_nightly
from vgpud.core.jobs.events import Command, Event, NodesChanged, Note, QueuesChanged, RoomChanged, StartJob, StopJob
from vgpud.core.jobs.model import SECOND_NS, Ask, How, Job, JobSpec, Node, Placement, QueueSpec
from vgpud.core.model import Device
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue.machine import Machine

GIB = 1 << 30
NODES, DEVICES, MEMORY_BYTES = 3, 2, 16 * GIB


def devices(node: int, memory_bytes: int = MEMORY_BYTES) -> tuple[Device, ...]:
    return tuple(make_small_device(i, uuid=f"{node}-{i}", memory_bytes=memory_bytes) for i in range(DEVICES))


def cluster(*, nodes: int = NODES, memory_bytes: int = MEMORY_BYTES) -> list[Node]:
    return [Node(f"n{n}", devices(n, memory_bytes)) for n in range(nodes)]


def offering(node: str, *uuids: str) -> RoomChanged:
    return RoomChanged(node, (), uuids)


def machine(*queues: QueueSpec, nodes: list[Node] | None = None, hows: tuple[How, ...] = (How.REQUEUE,)) -> Shell:
    return Shell(Machine(queues, Cluster(nodes or cluster()), registry.make, hows=hows), slow=True)


def stopped_jobs(at: Shell) -> list[int]:
    return [stop.job_id for stop in at.stops]


def spec_on_device(device: str, amount: float = 1, **fields: object) -> JobSpec:
    spec = gpus(amount, **fields)
    return replace(spec, ask=Ask(replace(spec.ask.spec, device_uuids=(device,))))


# ---- one situation each ----


def test_no_job_on_a_drained_device_stops_for_one_that_cannot_start() -> None:
    at = machine(queue(policy="priority(preempt)"), nodes=cluster(nodes=1))
    at.submit(spec_on_device("0-0")), at.submit(spec_on_device("0-1"))
    at.send(offering("n0", "0-0"))
    high = at.submit(gpus(2, priority=10))
    assert stopped_jobs(at) == []
    assert at.state(high) == "pending"


def test_no_job_on_a_drained_device_stops_for_one_that_starts_elsewhere() -> None:
    at = machine(queue(policy="priority(preempt)"), nodes=cluster(nodes=1))
    there, drained = at.submit(spec_on_device("0-0")), at.submit(spec_on_device("0-1"))
    at.send(offering("n0", "0-0"))
    at.submit(gpus(1, priority=10))
    assert stopped_jobs(at) == [there]
    assert drained in at.running


def test_no_job_on_a_drained_device_stops_for_another_queues_guarantee() -> None:
    at = machine(queue(), queue("team", guarantee_milli=2000), nodes=cluster(nodes=1))
    at.submit(gpus(1), count=2)
    at.send(offering("n0", "0-0"))
    at.submit(gpus(2, queue="team"))
    assert stopped_jobs(at) == []


def test_no_suspended_job_gives_up_what_it_has_on_a_drained_device() -> None:
    hows = (How.PAUSE, How.EVICT, How.REQUEUE)
    at = machine(queue(policy="priority(preempt)"), nodes=cluster(nodes=1), hows=hows)
    size = {"mem_min_bytes": 8 * GIB, "mem_max_bytes": 8 * GIB}
    low, middle = spec_on_device("0-0", priority=0), spec_on_device("0-0", priority=5)
    first = at.submit(replace(low, ask=Ask(replace(low.ask.spec, **size))))
    at.submit(replace(middle, ask=Ask(replace(middle.ask.spec, **size))))
    at.answer_stops()
    assert at.state(first) == "suspended"
    at.send(offering("n0", "0-1"))
    at.submit(gpus(2, priority=10))
    assert stopped_jobs(at) == []


def preempting(jobs: int = 3, **fields: object) -> QueueSpec:
    return queue(policy="priority(preempt)", placement=f"colocate(1000,{jobs})", **fields)


CHANGES: dict[str, Event] = {
    "nothing": RoomChanged("n1", (), ("1-0", "1-1")),
    "a lowered limit": QueuesChanged((preempting(limit_milli=1000),)),
    "fewer jobs may share a device": QueuesChanged((preempting(2),)),
    "less may be used of a device": QueuesChanged((queue(policy="priority(preempt)", placement="colocate(50,3)"),)),
    "less memory": NodesChanged(tuple(cluster(memory_bytes=2 * GIB))),
    "fewer nodes": NodesChanged(tuple(cluster(nodes=1))),
    "fewer devices": NodesChanged(tuple(replace(node, devices=node.devices[:1]) for node in cluster())),
    "less of a device, as slices have the rest": RoomChanged("n1", (("1-1", 900, 0),), ("1-0", "1-1")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_runs_fits_where_it_runs(change: str) -> None:
    """Whatever would keep it from being placed there now."""
    at = machine(preempting())
    spec = gpus(1)
    spec = replace(spec, ask=Ask(replace(spec.ask.spec, min_milli=300, mem_min_bytes=4 * GIB, mem_max_bytes=4 * GIB)))
    at.submit(spec, count=3 * NODES * DEVICES)
    assert len(at.running) == 3 * NODES * DEVICES
    at.send(CHANGES[change])
    at.send(offering("n0", "0-1"))
    small = {"min_milli": 100, "mem_min_bytes": GIB, "mem_max_bytes": GIB}
    high = spec_on_device("0-0", priority=10)
    at.submit(replace(high, ask=Ask(replace(high.ask.spec, **small))))
    assert stopped_jobs(at) == []


# ---- whatever happens ----

POLICIES = ["priority(preempt)", "srtf", "srsf", "2d-las(20,60)", "fifo", "fair", "ftf(lease=10)"]
PLACEMENTS = ["best-fit", "colocate(120,2)", "worst-fit", "fgd"]
HOWS = [(How.REQUEUE,), (How.PAUSE, How.EVICT, How.REQUEUE)]


class World:
    """Jobs come and end while devices are drained, break and shrink, nodes go, limits and rules of sharing change."""

    def __init__(self, seed: int, policy: str, placement: str, hows: tuple[How, ...]) -> None:
        self.random = random.Random(seed)
        self.policy, self.placement = policy, placement
        self.at = machine(*self.queues(), hows=hows)

    def queues(self) -> tuple[QueueSpec, ...]:
        chance = self.random.choice
        placement = chance([self.placement, self.placement, "colocate(60,1)", "colocate(1000,3)"])
        placement = placement if self.placement.startswith("colocate") else self.placement
        rules = {"policy": self.policy, "placement": placement}
        return (
            queue("plain", limit_milli=chance([1000, 2000, 1 << 62, 1 << 62]), **rules),
            queue("team", guarantee_milli=2000, limit_milli=chance([2000, 3000, 6000]), **rules),
            queue("ann", parent="team", guarantee_milli=chance([0, 1000]), **rules),
            queue("strict", guarantee_milli=1000, strict=True, **rules),
        )

    def happens(self) -> None:
        at, chance = self.at, self.random.choice
        what = chance(["submit"] * 6 + ["end", "end", "sleep", "answer", "answer", "offer", "limits", "nodes"])
        if what == "submit":
            self.submit()
        elif what == "end" and at.running - {stop.job_id for stop in at.stops}:
            at.running.discard(job_id := chance(sorted(at.running - {stop.job_id for stop in at.stops})))
            at.end(job_id)
        elif what == "sleep":
            at.sleep(chance([1, 10, 60]))
        elif what == "answer":
            at.answer_stops()
        elif what == "offer":
            self.offer()
        elif what == "limits":
            new = self.queues()
            if at.machine.check_queues(new) is None:
                self.send(QueuesChanged(new))
        elif what == "nodes" and self.random.random() < 0.3:
            nodes = cluster(nodes=chance([NODES, NODES, NODES - 1]), memory_bytes=chance([8, 16, 16]) * GIB)
            self.send(NodesChanged(tuple(nodes)))

    def offer(self) -> None:
        node = self.random.choice(self.at.machine._world.cluster.nodes)  # type: ignore[attr-defined]
        uuids = [device.uuid for device in node.devices]
        offered = tuple(uuid for uuid in uuids if self.random.random() < 0.6)
        chance = self.random.choice
        milli = chance([0, 0, 300])
        in_turn = ((uuids[-1], 8 * GIB, bool(milli)),)[: chance([0, 1])]
        self.send(RoomChanged(node.name, ((uuids[0], milli, 0),), offered, (), in_turn, chance([0, 10, 1000]) * GIB))

    def submit(self) -> None:
        chance = self.random.choice
        spec = gpus(
            chance([0.25, 0.5, 1, 1, 1.5, 2]),
            queue=chance(["plain", "ann", "team", "strict"]),
            priority=chance([0, 1, 2, 3]),
            members=chance([1, 1, 1, 2]),
            duration_ns=chance([5, 30, 100]) * SECOND_NS,
            uid=chance([1, 2, 3]),
        )
        asked = spec.ask.spec
        if size := chance([0, 0, 1, 6, 12]) * GIB:
            asked = replace(asked, mem_min_bytes=size, mem_max_bytes=size)
        asked = replace(asked, mem_swap=asked.gpus_milli <= 500 and chance([False, True]))
        spec = replace(spec, ask=replace(spec.ask, spec=asked, utilisation_milli=chance([-1, 300, 500])))
        if self.at.machine.check(spec) is None:
            self.at.submit(spec)

    def send(self, event: Event) -> None:
        self.at.send(event)


def collect_useless_preemptions(at: Shell) -> list[str]:
    """Looks at every decision of this shell from now on: what is vain in it."""
    found: list[str] = []
    carry = at.carry

    def looked_at(commands: list[Command]) -> list[Command]:
        found.extend(find_useless_preemptions(at, commands))
        return carry(commands)

    at.carry = looked_at  # type: ignore[method-assign]
    return found


def find_useless_preemptions(at: Shell, commands: list[Command]) -> list[str]:
    """Preemptions of this decision that help no job start."""
    world = at.machine._world
    stops = [command for command in commands if isinstance(command, StopJob) and "preempted" in command.why]
    started = {command.job_id for command in commands if isinstance(command, StartJob)}
    new = [world.jobs[job_id] for job_id in {*world.claims, *started}]
    text = []
    for stop in stops:
        victim, for_ = world.jobs[stop.job_id], int(stop.why.split("for job ")[1].split()[0].rstrip(",:"))
        other = world.jobs[for_]
        if for_ not in world.claims and for_ not in started and for_ not in world.line(other).running:
            text.append(f"{victim.job_id} stops for {for_}, which does not start")
        elif not any(is_in_the_way(at, victim, one) for one in new):
            text.append(f"{victim.job_id} on {victim.placement} stops although it is in nobody's way")
    return text


def is_in_the_way(at: Shell, victim: Job, new: Job) -> bool:
    """Whether the new job could not have what it is given if the victim had kept its own."""
    world = at.machine._world
    both = [account for account in world.line(victim).account.chain if account in world.line(new).account.chain]
    if any(account.used.milli + victim.width_milli > account.spec.limit_milli for account in both):
        return True
    return bool(uuids(victim.placement) & uuids(new.placement))


def uuids(placement: Placement) -> set[str]:
    return {share.device_uuid for place in placement for share in place.shares}


@pytest.mark.parametrize(("policy", "placement", "hows"), combine_axes(POLICIES, PLACEMENTS, HOWS))
def test_a_job_that_is_stopped_frees_capacity_for_one_that_starts(
    policy: str, placement: str, hows: tuple[How, ...]
) -> None:
    """Enough worlds for so many preemptions, none of which is vain."""
    preemptions, seed = 0, 0
    while preemptions < (1000 if is_nightly() else 30):
        world = World(seed, policy, placement, hows)
        found = collect_useless_preemptions(world.at)
        for _ in range(60):
            world.happens()
            assert not found, (seed, found)
        preemptions += sum(isinstance(c, Note) and c.kind == "job.preempted" for c in world.at.log)
        seed += 1
