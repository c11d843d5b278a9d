"""What is decided about a service's replicas, with a clock of the test's own."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from vgpud.services.core import health
from vgpud.services.core.model import NEVER, ON_FAILURE, Health, JobPhase, Replica, Service
from vgpud.services.core.reconcile import (
    BACKOFF_MAX_S,
    STEADY_S,
    Action,
    End,
    Reconciler,
    Resume,
    Start,
    Suspend,
    Traffic,
)


class World:
    """A queue with so many places, in which replicas start at once and are healthy after `load_s`."""

    def __init__(self, service: Service, places: int = 100, load_s: float = 3.0) -> None:
        self.service, self.places, self.load_s = service, places, load_s
        self.now_s = 1000.0
        self.traffic = Traffic(last_s=self.now_s)
        self.replicas: list[Replica] = []
        self.reconciler = Reconciler(self.now_s)
        self.log: list[Action] = []
        self.least_ready = 1 << 30
        self.broken_generations: set[int] = set()
        self.sick: set[int] = set()  # jobs
        self._next_id = 1

    @property
    def ready(self) -> int:
        return sum(one.is_ready for one in self.replicas)

    def run(self, seconds: float, step_s: float = 0.5) -> list[Action]:
        """Time passes. Returns what was done."""
        before = len(self.log)
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.step()
            self.now_s += step_s
        return self.log[before:]

    def step(self) -> None:
        for one in self.replicas:
            taken = sum(other.phase is JobPhase.RUNNING for other in self.replicas)
            if one.phase is JobPhase.WAITING and taken < self.places:
                health.see_job(one, JobPhase.RUNNING, 1, self.now_s)
                one.port = 20_000 + one.job_id
            if one.phase is JobPhase.RUNNING and self.now_s - one.running_since_s >= self.load_s:
                broken = one.generation in self.broken_generations or one.job_id in self.sick
                health.see_check(one, "it is broken" if broken else "", self.now_s)
        for action in self.reconciler.step(self.service, self.replicas, self.traffic, self.now_s):
            self.log.append(action)
            self._carry_out(action)
        self.least_ready = min(self.least_ready, self.ready)

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Start):
            self.replicas.append(Replica(self._next_id, self.service.generation))
            self._next_id += 1
            return
        one = next(one for one in self.replicas if one.job_id == action.job_id)
        if isinstance(action, End):
            self.replicas.remove(one)
        else:
            phase = JobPhase.SUSPENDED if isinstance(action, Suspend) else JobPhase.RUNNING
            health.see_job(one, phase, 1, self.now_s)

    def kill(self, replica: Replica, exit_code: int = 137) -> None:
        self.replicas.remove(replica)
        replica.exit_code = exit_code
        self.reconciler.note_end(self.service, replica, self.now_s)


def service(**fields: object) -> Service:
    return replace(Service("chat", {}, "token", replicas=3), **fields)  # type: ignore[arg-type]


def test_all_replicas_start_at_once() -> None:
    world = World(service())
    assert world.run(1) == [Start()] * 3
    world.run(10)
    assert world.ready == 3 and world.log == [Start()] * 3


def test_a_rolling_replacement_never_has_fewer_ready_than_before_and_one_more_job_at_most() -> None:
    world = World(service())
    world.run(10)
    world.least_ready, most = 3, 0
    world.service = replace(world.service, generation=2)
    for _ in range(100):
        world.run(0.5)
        most = max(most, len(world.replicas))
    assert world.least_ready == 3 and most == 4
    assert [one.generation for one in world.replicas] == [2, 2, 2]


def test_a_draining_replica_answers_what_it_has_before_it_ends() -> None:
    world = World(service(drain_s=20.0))
    world.run(10)
    busy = world.replicas[-1]
    busy.outstanding = 1
    world.service = replace(world.service, replicas=2)
    assert world.run(5) == [] and busy.draining_since_s is not None and not busy.is_ready
    busy.outstanding = 0
    assert world.run(1) == [End(busy.job_id, "drained")]
    hung = world.replicas[-1]
    hung.outstanding = 1
    world.service = replace(world.service, replicas=1)
    assert world.run(15) == []
    assert world.run(10) == [End(hung.job_id, "drained")], "it has had its time"


def test_a_new_generation_that_does_not_work_leaves_the_old_one_in_place() -> None:
    world = World(service(health=Health(start_s=10.0)))
    world.run(10)
    world.broken_generations.add(2)
    world.service = replace(world.service, generation=2)
    actions = world.run(600)
    assert world.ready == 3 and {one.generation for one in world.replicas if one.is_ready} == {1}
    assert 2 < actions.count(Start()) < 12, "tried again and again, less and less often"
    ends = [action for action in actions if isinstance(action, End)]
    assert "not healthy 10 s after its start: it is broken" in ends[0].why
    world.service = replace(world.service, generation=3)
    world.run(60)
    assert [one.generation for one in world.replicas if one.is_ready] == [3, 3, 3]


def test_an_update_without_capacity_for_one_more_waits_and_fails_nothing() -> None:
    world = World(service(), places=3)
    world.run(10)
    world.least_ready = 3
    world.service = replace(world.service, generation=2)
    world.run(60)
    assert world.least_ready == 3 and len(world.replicas) == 4
    world.places = 4
    world.run(60)
    assert [one.generation for one in world.replicas] == [2, 2, 2] and world.least_ready == 3


def test_one_that_dies_at_once_again_and_again_is_started_less_and_less_often() -> None:
    world = World(service(replicas=1))
    starts: list[float] = []
    while world.now_s < 1000.0 + 3600:
        if world.run(1).count(Start()):
            starts.append(world.now_s)
            world.step()
            world.kill(world.replicas[0], exit_code=1)
    gaps = [after - before for before, after in pairwise(starts)]
    assert gaps == sorted(gaps) and gaps[0] <= 3
    assert BACKOFF_MAX_S <= gaps[-1] <= BACKOFF_MAX_S + 3
    assert "exit code 1" in world.reconciler.last_end


def test_one_that_has_worked_for_long_is_replaced_at_once_again() -> None:
    world = World(service(replicas=1))
    for _ in range(6):
        world.run(2)
        if world.replicas:
            world.kill(world.replicas[0])
    assert world.reconciler.failures > 2
    world.run(BACKOFF_MAX_S + STEADY_S + 10)
    world.kill(world.replicas[0])
    assert world.reconciler.failures == 1
    world.run(6)
    assert world.ready == 1


@pytest.mark.parametrize(
    ("restart", "exit_code", "stays"), [(ON_FAILURE, 0, True), (ON_FAILURE, 1, False)] + [(NEVER, 1, True)]
)
def test_restart_policies(restart: str, exit_code: int, stays: bool) -> None:
    world = World(service(replicas=2, restart=restart))
    world.run(10)
    world.kill(world.replicas[0], exit_code)
    world.run(20)
    assert world.ready == (1 if stays else 2)
    if stays:
        assert "stays so" in world.reconciler.last_end
        world.service = replace(world.service, generation=2)
        world.run(60)
        assert world.ready == 2, "a restart begins again"


def test_an_unhealthy_replica_is_replaced_and_a_short_disturbance_is_not() -> None:
    world = World(service())
    world.run(10)
    one = world.replicas[0]
    for _ in range(health.FAILURES_OUT - 1):
        health.see_check(one, "busy", world.now_s)
    assert one.is_ready
    health.see_check(one, "busy", world.now_s)
    assert not one.is_ready
    health.see_check(one, "", world.now_s)
    assert one.is_ready and world.run(5) == []
    world.sick.add(one.job_id)
    (end, *_) = world.run(health.FAILURES_END)
    assert isinstance(end, End) and "10 checks have failed: it is broken" in end.why
    world.run(20)
    assert world.ready == 3 and one not in world.replicas


def test_without_requests_it_sleeps_and_the_first_request_wakes_it() -> None:
    world = World(service(idle_s=60.0))
    world.run(70)
    assert world.reconciler.is_asleep and [one.words for one in world.replicas] == ["asleep"] * 3
    assert sum(isinstance(action, Suspend) for action in world.log) == 3
    assert world.run(10_000) == []
    world.traffic.waiting = 1
    assert [type(action) for action in world.run(0.5)] == [Resume] * 3
    assert world.ready == 3, "it goes on where it was: no check is waited for"
    world.traffic.waiting, world.traffic.under_way = 0, 1
    world.run(1000)
    assert world.ready == 3, "a request is under way"
    world.traffic.under_way, world.traffic.last_s = 0, world.now_s
    world.run(59)
    assert world.ready == 3
    world.run(5)
    assert world.reconciler.is_asleep


def test_a_change_wakes_it_and_scaling_is_done_when_it_wakes() -> None:
    world = World(service(idle_s=60.0))
    world.run(70)
    world.service = replace(world.service, replicas=4)
    world.run(10)
    assert world.reconciler.is_asleep
    world.traffic.waiting = 1
    world.run(0.5)
    world.traffic.waiting, world.traffic.last_s = 0, world.now_s
    world.run(20)
    assert world.ready == 4
    world.run(70)
    world.service = replace(world.service, generation=2)
    world.run(60)
    assert [one.generation for one in world.replicas] == [2] * 4


def test_a_service_that_sleeps_is_stopped_without_being_woken() -> None:
    world = World(service(idle_s=60.0))
    world.run(70)
    world.service = replace(world.service, replicas=0, idle_s=0.0)
    assert [type(action) for action in world.run(5)] == [End] * 3


def test_a_balancer_that_begins_again_knows_that_the_service_sleeps() -> None:
    world = World(service(idle_s=60.0))
    world.run(70)
    world.reconciler = Reconciler(world.now_s)
    world.reconciler.begin(world.replicas)
    assert world.run(30) == []


@pytest.mark.parametrize("jump_s", [-500.0, -1e6, 1e6, 1e9])
def test_a_clock_that_jumps_loses_nothing(jump_s: float) -> None:
    """The clock is one that never goes back; whatever it does, a wait is bounded, and what works is left alone."""
    world = World(service(idle_s=0.0))
    world.run(10)
    ids = [one.job_id for one in world.replicas]
    world.now_s += jump_s
    assert world.run(30) == [] and [one.job_id for one in world.replicas] == ids
    world.kill(world.replicas[0])
    world.now_s -= jump_s
    world.run(BACKOFF_MAX_S + 20)
    assert world.ready == 3


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_it_becomes_as_it_is_wanted(seed: int) -> None:
    """Kills, changes, sleep and shortages in any order: afterwards the wanted replicas are ready, and no other runs."""
    draw = random.Random(seed)
    world = World(service(idle_s=draw.choice([0.0, 20.0])), places=8)
    for _ in range(60):
        world.run(draw.choice([0.5, 2, 10, 40]))
        what = draw.randrange(6)
        if what == 0 and world.replicas:
            world.kill(draw.choice(world.replicas), draw.choice([0, 1, 137]))
        elif what == 1:
            world.service = replace(world.service, generation=world.service.generation + 1)
        elif what == 2:
            world.service = replace(world.service, replicas=draw.randrange(5))
        elif what == 3:
            world.traffic.waiting = draw.randrange(2)
        elif what == 4:
            world.places = draw.choice([1, 3, 8])
        else:
            world.service = replace(world.service, idle_s=draw.choice([0.0, 20.0]))
    world.places, world.traffic = 8, Traffic(waiting=1)
    world.run(3 * BACKOFF_MAX_S)
    assert world.ready == len(world.replicas) == world.service.replicas
    assert all(one.generation == world.service.generation for one in world.replicas)
