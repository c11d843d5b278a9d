"""What the order of new queues has learnt outlives a restart: the next machine decides as the former would have."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from tests.core.queue.world import CountedCluster, Shell, gpus, queue
from vgpud.core.jobs.events import Command, SaveJob, Wake
from vgpud.core.jobs.model import How, Job, JobState
from vgpud.core.policy import registry
from vgpud.core.queue.machine import Machine
from vgpud.core.queue.record import decode, encode, to_plain

QUEUE = queue(policy=registry.NEW_QUEUE)


def start_machine() -> Shell:
    made = Machine((QUEUE,), CountedCluster(4000), registry.make, hows=(How.EVICT,), moves=True)
    return Shell(made)


def act(worlds: list[Shell], draw: random.Random) -> None:
    """The same happens in all of them, whose jobs run alike."""
    assert len({tuple(sorted(world.running)) for world in worlds}) == 1
    what, width = draw.random(), draw.choice([1, 1, 2, 4])
    user, seconds = f"user-{draw.randrange(3)}", draw.choice([30, 700, 5000, 40_000])
    running = sorted(worlds[0].running)
    ends, exit_code = draw.choice(running) if running else 0, draw.choice([0, 0, 0, 1])
    for world in worlds:
        if what < 0.4:
            world.submit(gpus(width, kinds=(f"{user} {width}", user, f"size-{width}")))
        elif what < 0.7 and ends:
            world.end(ends, exit_code)
        else:
            world.sleep(seconds)


def restart(world: Shell, *, keeps_order: bool = True) -> Shell:
    """The next machine: what the store keeps of jobs, and what the former has learnt, as JSON."""
    made = start_machine()
    made.now_ns, made.next_id = world.now_ns, world.next_id
    jobs: list[Job] = [
        decode(Job, json.loads(json.dumps(encode(job))))
        for job in world.machine.jobs.values()
        if not job.state.is_final
    ]
    knowledge: dict[str, Any] = json.loads(json.dumps(world.machine.knowledge("default")))
    if keeps_order:
        assert made.machine.remember_order("default", knowledge)
    made.restore(jobs)
    made.running = set(world.running)
    made.log.clear()
    return made


def say(commands: list[Command]) -> list[dict[str, Any]]:
    """When it is woken may differ: a machine that starts asks for it once more."""
    return [to_plain(command) for command in commands if not isinstance(command, Wake | SaveJob)]


def run(seed: int, *, keeps_order: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the two decide after the restart, until they differ in which jobs run."""
    draw, former = random.Random(seed), start_machine()
    for _ in range(120):
        act([former], draw)
    later = restart(former, keeps_order=keeps_order)
    former.log.clear()
    for _ in range(120):
        if former.running != later.running:
            break
        act([former, later], draw)
    return say(former.log), say(later.log)


@pytest.mark.parametrize("seed", range(6))
def test_the_next_machine_decides_as_the_former_would_have(seed: int) -> None:
    former, later = run(seed, keeps_order=True)
    assert len(former) > 20
    assert former == later


def test_without_what_was_learnt_it_decides_otherwise() -> None:
    """Else the test above shows nothing."""
    assert any(former != later for former, later in (run(seed, keeps_order=False) for seed in range(6)))


def test_jobs_that_ended_since_it_was_written_are_counted() -> None:
    """The former daemon was killed: its last jobs are in the store, and not in what it had written of its order."""
    draw, former = random.Random(7), start_machine()
    for _ in range(60):
        act([former], draw)
    written = json.loads(json.dumps(former.machine.knowledge("default")))
    (first, *_), later = sorted(former.running), start_machine()
    former.end(first)
    ended = replace(former.job(first))
    assert ended.state is JobState.COMPLETED
    assert later.machine.remember_order("default", written, [ended])
    now, then = (world.machine.knowledge("default") for world in (former, later))
    assert now is not None and then is not None
    assert now["all"] == then["all"] and dict(now["classes"]) == dict(then["classes"])


def test_another_order_learns_again() -> None:
    knowledge = {"policy": "gittins", "version": 1}
    assert not start_machine().machine.remember_order("default", knowledge)
    assert not start_machine().machine.remember_order("gone", knowledge)


def test_an_order_that_learns_nothing_has_nothing_to_keep() -> None:
    machine = Machine((queue(policy="fifo"),), CountedCluster(1000), registry.make, hows=(How.EVICT,), moves=True)
    assert machine.knowledge("default") is None
    assert machine.knowledge_versions() == {"default": ("fifo", 0)}
