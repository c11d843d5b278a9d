"""Whatever happens in whatever order: nothing over-committed, no limit exceeded, no job lost or started twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.builders import make_small_device
from tests.core.queue.world import CountedCluster, Shell, gpus, make_policy, queue
from tests.examples import examples
from vgpud.core.jobs.events import (
    Cancelled,
    Event,
    Held,
    Idled,
    JobSuspended,
    Released,
    Requeued,
    RoomChanged,
    StartFailed,
    Submitted,
    Used,
)
from vgpud.core.jobs.model import SECOND_NS, Ask, How, Job, JobState, Node, Placement, UserWait
from vgpud.core.placement.base import ClusterCapacity
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue import sizes
from vgpud.core.queue.machine import Machine
from vgpud.core.queue.state import WAITING

QUEUES = (
    queue("plain"),
    queue("team", guarantee_milli=3000, limit_milli=6000),
    queue("ann", parent="team", guarantee_milli=1000, policy="priority"),
    queue("bob", parent="team", limit_milli=2000, policy="least", weight=3),
    queue("strict", guarantee_milli=2000, strict=True, policy="priority"),
)
TOTAL = 8
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)  # explaining takes minutes
GIB = 1 << 30
#: places that a job can be in at once
COMPATIBLE = (["is held", "backs off"], ["goes", "backs off"], ["backs off", "is idle"])


def cluster() -> Cluster:
    return Cluster([Node(f"n{n}", tuple(make_small_device(i, uuid=f"{n}-{i}") for i in range(4))) for n in range(2)])


CLUSTERS: dict[str, Any] = {"counted": lambda: CountedCluster(TOTAL * 1000), "cluster": cluster}


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    number = st.integers(0, 50)
    submit = st.tuples(
        st.just("submit"),
        st.sampled_from(["plain", "ann", "bob", "strict", "team"]),
        st.sampled_from([0.25, 0.5, 1, 1, 1.5, 2, 3]),
        st.fixed_dictionaries(
            {"members": st.sampled_from([1, 1, 1, 2, 3]), "priority": st.integers(0, 3)},
            optional={
                "preemptible": st.just(False),
                "retries": st.integers(0, 2),
                "time_limit_ns": st.integers(1, 60).map(lambda s: s * SECOND_NS),
                "after_any": st.booleans(),
                "waits_for": st.sampled_from(["after_fail", "after_end"]),
            },
        ),
        st.sampled_from([1, 1, 1, 3]),
        st.sampled_from([None, None, 1, 9]),
        st.booleans(),
        st.integers(0, 6),
    )
    other = st.tuples(
        st.sampled_from(
            ["end", "end", "end", "fail", "sleep", "sleep", "answer", "answer", "answer one"]
            + ["cancel", "hold", "release", "requeue", "idle", "use", "no start", "slices", "restart"]
        ),
        number,
    )
    return draw(st.lists(st.one_of(submit, other, other), max_size=40))


class Driver:
    """Makes events of what happens, if they can happen, and keeps them for a second run."""

    def __init__(self, cluster_kind: str, hows: tuple[How, ...], moves: bool) -> None:
        self.cluster_kind, self.hows, self.moves = cluster_kind, hows, moves
        self.events: list[tuple[int, Event]] = []
        self.capacity: ClusterCapacity = CLUSTERS[cluster_kind]()
        self.shell = Shell(self.machine(self.capacity), slow=True)
        self.direct = 0

    def machine(self, capacity: ClusterCapacity) -> Machine:
        return Machine(QUEUES, capacity, make_policy, hows=self.hows, moves=self.moves)

    def send(self, event: Event) -> None:
        if self.shell.machine.refusal(event) is None:
            self.events.append((self.shell.now_ns, event))
            self.shell.send(event)

    def does(self, what: tuple[Any, ...]) -> None:
        at, machine = self.shell, self.shell.machine
        running = sorted(at.running)
        if what[0] == "submit":
            _, name, width, fields, count, gib, later, back = what
            after = (at.next_id - back,) if later and 0 < at.next_id - back < at.next_id else ()
            given = {key: value for key, value in fields.items() if key != "waits_for"}
            if "waits_for" in fields:
                given[fields["waits_for"]] = after
            spec = gpus(width, queue=name, after=after, **given)
            if gib:
                size = gib * GIB
                spec = replace(spec, ask=Ask(replace(spec.ask.spec, mem_min_bytes=size, mem_max_bytes=size)))
            if machine.check(spec, count) is None:
                self.send(Submitted(tuple(range(at.next_id, at.next_id + count)), spec))
                at.next_id += count
        elif what[0] == "sleep":
            at.sleep(what[1])
        elif what[0] in ("answer", "answer one") and at.stops:
            stops = at.stops if what[0] == "answer" else [at.stops[what[1] % len(at.stops)]]
            for stop in list(stops):
                self.answer(stop.job_id)
        elif what[0] in ("end", "fail", "no start") and running:
            job_id = running[what[1] % len(running)]
            if what[0] == "no start":
                at.running.discard(job_id)
                at.stops = [s for s in at.stops if s.job_id != job_id]
                self.send(StartFailed(job_id, machine.jobs[job_id].attempt, "full", again=True))
            else:
                at.end(job_id, int(what[0] == "fail"))
        elif what[0] == "slices":
            if self.capacity.free_milli() > 750:
                self.slices(what[1] % 3 * 250)
        elif what[0] == "restart":
            self.restart()
        elif what[0] in ("idle", "use") and machine.jobs:
            job_id = sorted(machine.jobs)[what[1] % len(machine.jobs)]
            self.send(Idled(job_id, "it was not used") if what[0] == "idle" else Used(job_id))
        elif what[0] in ("cancel", "hold", "release", "requeue") and machine.jobs:
            job_id = sorted(machine.jobs)[what[1] % len(machine.jobs)]
            event_types = {"hold": Held, "release": Released, "requeue": Requeued}
            self.send(Cancelled(job_id, "by its user") if what[0] == "cancel" else event_types[what[0]](job_id))

    def slices(self, milli: int) -> None:
        """So much is held by slices that are no jobs."""
        if isinstance(self.capacity, CountedCluster):
            self.direct = milli
            self.send(RoomChanged("n", (("all", milli, 0),), ("all",), (("plain", milli, 0, 0),)))

    def answer(self, job_id: int) -> None:
        """The last command has been executed."""
        at = self.shell
        how = [stop.how for stop in at.stops if stop.job_id == job_id][-1:]
        at.stops = [stop for stop in at.stops if stop.job_id != job_id]
        if how and how[0] is not None:
            at.running.discard(job_id)
            at.send(JobSuspended(job_id, how[0]))
        elif how:
            at.end(job_id, 143)

    def restart(self) -> None:
        at = self.shell
        self.capacity = CLUSTERS[self.cluster_kind]()
        jobs = at.machine.jobs
        at.machine = self.machine(self.capacity)
        at.stops, at.wake_ns = [], None
        at.restore(jobs.values())
        self.slices(self.direct)


def largest_placement(job: Job) -> Placement:
    """What a running job may have in fact: all of what it has and what it becomes."""
    if job.resizing and sizes.subtract_placement(job.spec, job.resizing, job.placement):
        return job.resizing
    return job.placement


def width_milli(job: Job) -> int:
    return sum(share.min_milli for place in largest_placement(job) for share in place.shares)


def sound(driver: Driver) -> None:
    at, machine = driver.shell, driver.shell.machine
    world = machine._world
    # as the shell sees it
    used: dict[str, int] = {}
    memory: dict[str, int] = {}
    by_queue: dict[str, int] = {}
    for job_id in at.running:
        job = machine.jobs[job_id]
        assert job.state is JobState.RUNNING or (job.state is JobState.SUSPENDED and job.stop_to), job
        if job.state is JobState.RUNNING:
            for place in largest_placement(job):
                for share in place.shares:
                    used[share.device_uuid] = used.get(share.device_uuid, 0) + share.min_milli
            for account in world.lines[job.spec.queue].account.chain:
                name = account.spec.name
                by_queue[name] = by_queue.get(name, 0) + width_milli(job)
        assert job.state is not JobState.RUNNING or job.resizing or len(job.placement) in (1, job.spec.members)
    for job in machine.jobs.values():
        if job.job_id in at.running or (job.state is JobState.SUSPENDED and job.suspended_how is How.PAUSE):
            for share in (share for place in largest_placement(job) for share in place.shares):
                memory[share.device_uuid] = memory.get(share.device_uuid, 0) + share.mem_min_bytes
    assert all(size <= 16 * GIB for size in memory.values()), memory
    for uuid, milli in used.items():
        assert milli <= (TOTAL * 1000 if uuid == "all" else 1000), (uuid, milli)
    for name, milli in by_queue.items():
        assert milli <= world.lines[name].spec.limit_milli, (name, milli)
    # every job is in exactly one place
    for job in machine.jobs.values():
        line = world.line(job)
        places = {
            "waits": job.job_id in line.waiting,
            "runs": job.job_id in line.running,
            "claims": job.job_id in world.claims,
            "goes": job.job_id in world.stopping,
            "comes after": job.job_id in world.unmet and job.state is JobState.PENDING,
            "is held": job.state is JobState.HELD,
            "backs off": not job.state.is_final and job.not_before_ns > at.now_ns and job.job_id not in world.unmet,
            "has ended": job.state.is_final,
            "is idle": job.user_wait is UserWait.USE and job.state in WAITING and job.job_id not in world.stopping,
        }
        where = [name for name, here in places.items() if here]
        assert len(where) == 1 or where in COMPATIBLE, (job, where)
        assert (job.state is JobState.RUNNING) == (job.job_id in at.running or job.job_id in line.running), job
        if not job.state.is_final and job.state is not JobState.RUNNING:
            assert machine.reason(job.job_id, at.now_ns), job
    # the books
    for name, line in world.lines.items():
        jobs = [j for j in machine.jobs.values() if world.lines[name].account in world.line(j).account.chain]
        widths = sum(j.width_milli for j in jobs if j.job_id in world.claims or j.job_id in world.line(j).running)
        direct = sum(amount.milli for amount in line.account.direct.values())
        assert line.account.used.milli == widths + direct
        assert line.account.stopping.milli == sum(
            j.width_milli for j in jobs if j.job_id in world.stopping and j.state is JobState.RUNNING
        ) + sum(width_milli(j) - j.width_milli for j in jobs if j.job_id in world.shrinking)
        assert line.account.claimed_amount.milli == sum(j.width_milli for j in jobs if j.job_id in world.claims)
    if not world.stopping and not any(job.resizing for job in machine.jobs.values()):
        check_work_conservation(driver)


def check_work_conservation(driver: Driver) -> None:
    """Nothing that fits waits, and guarantees are met."""
    world = driver.shell.machine._world
    assert not world.claims
    for line in world.lines.values():
        for job_id in line.waiting:
            job = world.jobs[job_id]
            free = world.find(job) is not None and not line.account.limit_for(job.spec)
            if free and (job.spec.preemptible or world.keeps_guarantees(job.spec)):
                assert line.spec.strict, job
            if driver.cluster_kind == "counted" and driver.moves and not line.spec.strict and job.spec.preemptible:
                covers = line.account.below_guarantee(job.width_milli)
                over = line.account.limit_for(job.spec)
                assert covers is not line.account or over or driver.direct, job


@pytest.mark.parametrize("room", CLUSTERS)
@pytest.mark.parametrize("hows", [(How.EVICT,), (How.PAUSE, How.EVICT, How.REQUEUE)], ids=["moves", "stays"])
@settings(max_examples=examples(200), deadline=None, phases=PHASES)
@given(what=happenings())
def test_whatever_happens(room: str, hows: tuple[How, ...], what: list[tuple[Any, ...]]) -> None:
    driver = Driver(room, hows, moves=len(hows) == 1)
    for happening in what:
        driver.does(happening)
        sound(driver)
    finish(driver)


def finish(driver: Driver) -> None:
    """Everything that runs ends well from now on, slices as well: so does everything that waits."""
    at = driver.shell
    driver.slices(0)
    for _ in range(2_000):
        for job_id in [job.job_id for job in at.machine.jobs.values() if job.state is JobState.HELD]:
            at.send(Released(job_id))
        for job_id in [job.job_id for job in at.machine.jobs.values() if job.user_wait is UserWait.USE]:
            at.send(Used(job_id))
        if at.stops:
            driver.answer(at.stops[0].job_id)
        elif at.running:
            at.end(min(at.running))
        elif all(job.state.is_final for job in at.machine.jobs.values()):
            return
        else:
            at.sleep(600)
        sound(driver)
    raise AssertionError([j for j in at.machine.jobs.values() if not j.state.is_final])


@settings(max_examples=examples(50), deadline=None, phases=PHASES)
@given(what=happenings())
def test_the_same_events_make_the_same_commands(what: list[tuple[Any, ...]]) -> None:
    def run() -> list[str]:
        driver = Driver("cluster", (How.EVICT, How.REQUEUE), moves=False)
        said = []
        for happening in what:
            driver.does(happening)
            said.append(repr(driver.shell.log[-20:]))
        return said

    assert run() == run()
