"""Many jobs that come at once: the work for one of them must not grow with their number."""

from __future__ import annotations

import pytest

from tests.cluster.fake_slurm import FakeSlurm
from tests.cluster.world import World
from vgpud.cluster.core.model import PHASES, Phase, SlurmJob
from vgpud.core.placement import shortage

FEW, MANY = 20, 80


@pytest.mark.parametrize("gres", ["gpu:1", "gpu:9"])
def test_nodes_are_looked_at_once_for_a_shape(monkeypatch: pytest.MonkeyPatch, gres: str) -> None:
    """Also for jobs that never fit."""
    looks, reason = 0, shortage.never_fits_reason

    def count_look(*args: object) -> str:
        nonlocal looks
        looks += 1
        return reason(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(shortage, "never_fits_reason", count_look)
    world = World(FakeSlurm(n1=2))
    for _ in range(MANY):
        world.slurm.submit(gres)
    world.look()
    known = [*world.controller.bindings, *world.controller.refusal_reasons]
    assert (looks, len(known)) == (1, MANY)
    world.slurm.nodes["n1"].gpus = 9
    world.slurm.submit(gres)
    world.look()
    assert looks == 2, "the nodes are others"


@pytest.mark.parametrize("array_ends", [False, True])
def test_elements_that_wait_for_another_array(monkeypatch: pytest.MonkeyPatch, array_ends: bool) -> None:
    """As many as that one has: each of its jobs is looked at once, not once for each that waits."""
    looks = 0

    def count_look(job: SlurmJob) -> Phase:
        nonlocal looks
        looks += 1
        return PHASES.get(job.state, Phase.RUNS)

    monkeypatch.setattr(SlurmJob, "phase", property(count_look))

    def of(count: int) -> int:
        nonlocal looks
        world = World(FakeSlurm(n1=2))
        for index in range(count):
            world.slurm.submit("gpu:1", key=f"7_{index}", state="COMPLETED")
        if not array_ends:
            world.slurm.submit("gpu:1", key=f"7_{count}")
        for index in range(count):
            world.slurm.submit("gpu:1", key=f"9_{index}", dependency="afterany:7_*(unfulfilled)")
        seen, looks = world.slurm.snapshot(), 0
        world.controller.step(seen, world.now_ns)
        assert len(world.controller.bindings) == (count if array_ends else 1)
        return looks

    assert of(MANY) <= MANY // FEW * of(FEW) + MANY
