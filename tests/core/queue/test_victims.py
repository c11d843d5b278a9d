"""What decisions save: which jobs stop for another is found by counting, and keys that always change are computed of
the first jobs only. The same jobs start and stop as when each is put aside, and all are sorted again."""

from __future__ import annotations

import pytest

from tests.core.queue.test_vain import HOWS, PLACEMENTS, World
from tests.examples import combine_axes, examples
from vgpud.core.jobs.events import Note
from vgpud.core.jobs.model import NEVER_NS, How
from vgpud.core.order import Order
from vgpud.core.policy.base import Policy
from vgpud.core.policy.registry import make
from vgpud.core.queue import decide
from vgpud.core.queue.record import to_plain

POLICIES = ["priority(preempt)", "srsf", "2d-las(20,60)", "fair", "ftf(lease=10)", "fair(half-life=0.01,1=2)", "srtf"]


def make_pair(seed: int, policy: str, placement: str, hows: tuple[How, ...]) -> tuple[World, World]:
    """The same world twice. In the second one only placing a job tells whether it fits, and no policy has lanes."""
    worlds = World(seed, policy, placement, hows), World(seed, policy, placement, hows)
    for world in worlds:
        state = world.at.machine._world
        state.moves = seed % 2 > 0
        state.tries_max = (NEVER_NS, 12)[seed % 3 == 0]
    state.cluster.ask_vacancy = lambda *_: None  # type: ignore[method-assign]
    state.make_policy = make_without_lanes
    for line in state.lines.values():
        line.policy = make_without_lanes(line.policy.name)
        line.waiting = Order()
    return worlds


def make_without_lanes(name: str) -> Policy:
    policy = make(name)
    policy.has_lanes = False
    return policy


def find_commands(world: World) -> list[dict[str, object]]:
    """What the machine says to the next event, whatever that is."""
    known = len(world.at.log)
    world.happens()
    return [to_plain(command) for command in world.at.log[known:]]


@pytest.mark.parametrize(("policy", "placement", "hows"), combine_axes(POLICIES, PLACEMENTS, HOWS))
def test_the_same_jobs_start_and_stop(
    policy: str, placement: str, hows: tuple[How, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    preemptions = 0
    for seed in range(examples(12)):
        monkeypatch.setattr(decide, "MANY", 3 if seed % 4 else 64)
        monkeypatch.setattr(decide, "FEW", 2)
        counted, placed = make_pair(seed, policy, placement, hows)
        for _ in range(60):
            assert find_commands(counted) == find_commands(placed), seed
        preemptions += sum(isinstance(c, Note) and c.kind == "job.preempted" for c in counted.at.log)
    assert preemptions > 10
