"""Why jobs wait and where they are: sentences with a GPU's memory where it is known, and without it where it is not."""

from __future__ import annotations

from tests.cluster.fake_slurm import FakeSlurm
from tests.cluster.world import World


def test_reasons_say_nothing_of_memory_that_is_not_known() -> None:
    """Neither why a job waits nor why another one is where it is."""
    world = World(FakeSlurm(n1=1))
    world.slurm.submit("shard:600")
    (placed,) = [note for note in world.look().notes if "device 0" in note.text]
    assert placed.text.endswith("0.4 GPU is left there")
    waits = world.slurm.submit("gpu:1")
    world.looks(2)
    said = world.controller.machine.reason(world.job(waits).job_id, world.now_ns)
    assert said == "no device has 1 GPU free: device 0 of n1 has the most free: 0.4 GPU"


def test_reasons_have_the_memory_that_a_node_publishes() -> None:
    """Also when it does so while jobs run there, whose part of it is not counted again."""
    world = World(FakeSlurm(n1=1))
    runs, waits = world.slurm.submit("shard:600"), world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.nodes["n1"].memory_bytes = 40 << 30
    more = world.slurm.submit("shard:400")
    (placed,) = [note for note in world.look().notes if "device 0" in note.text]
    assert placed.text.endswith("0 GPU and 0B are left there")
    said = world.controller.machine.reason(world.job(waits).job_id, world.now_ns)
    assert said == "no device has 1 GPU and 40GiB free: device 0 of n1 has the most free: 0 GPU and 0B"
    world.slurm.end(runs)
    world.looks(2)
    assert world.running() == [more]
    said = world.controller.machine.reason(world.job(waits).job_id, world.now_ns)
    assert said == "no device has 1 GPU and 40GiB free: device 0 of n1 has the most free: 0.6 GPU and 24GiB"
