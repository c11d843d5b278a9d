"""How fast memory of slices is taken to move: by what was measured of each, which a program's page may say falsely."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.test_machine import GIB, S
from tests.core.test_residency import swap
from tests.daemon.slices.test_rotation import Node, leave, on_a_loop, run_until, two
from vgpud.core.model import AWAY, BY_CHECKPOINT, BY_HOOK, COMING, LEAVING
from vgpud.core.observed import SliceStats
from vgpud.core.slices.rotation import RATE_BYTES_PER_S, Move, Turns
from vgpud.daemon.slices.rotation import BROKEN_NS, DEADLINE_S, RotationController
from vgpud.daemon.slices.rotation_view import LEAST_BYTES_PER_S
from vgpud.devices import checkpoint_runner
from vgpud.devices.checkpoint_runner import Moved
from vgpud.devices.nvml import MemoryMoves

WAYS = pytest.mark.parametrize("way", [BY_CHECKPOINT, BY_HOOK])


def rates(node: Node, controller: RotationController, names: str = "ab") -> list[float]:
    """GiB per second, of each."""
    members = {member.name: member for member in controller.view.look("GPU-0", node.clock_ns).members}
    stats = {name: controller.view.stats(node.state.slices[name]) for name in names}
    assert all(found and found.bytes_per_s == members[name].bytes_per_s for name, found in stats.items())
    return [members[name].bytes_per_s / GIB for name in names]


def measure(node: Node, controller: RotationController, name: str, gib: float, seconds: float) -> None:
    """A move off the device."""
    slice_, size = node.state.slices[name], int(gib * GIB)
    before = SliceStats(mem_held_bytes=size, mem_used_bytes=size, movable_bytes=size)
    controller.view.keep_rate(slice_, "GPU-0", before, int(seconds * S))


@WAYS
def test_each_slice_has_its_own_rate(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """One that is slow does not make the turns of others longer, nor one that answers at once make them shorter."""
    node = Node(monkeypatch, *(swap(name) for name in "abc"))
    node.memory_moves = MemoryMoves(way=way)
    controller = node.controller()
    assert rates(node, controller) == [8, 8] and RATE_BYTES_PER_S == 8 * GIB
    measure(node, controller, "a", 80, 4)
    assert rates(node, controller) == [20, 20], "what others had is assumed"
    measure(node, controller, "b", 80, 40)
    assert rates(node, controller, "abc") == [20, 2, 2]
    measure(node, controller, "c", 80, 8)
    assert rates(node, controller, "abc") == [20, 2, 10]


@WAYS
def test_a_small_move_says_nothing_of_a_large_one(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    node = Node(monkeypatch, swap("a"), swap("b", 1))
    node.memory_moves = MemoryMoves(way=way)
    controller = node.controller()
    measure(node, controller, "a", 19, 1000)
    measure(node, controller, "b", 1 / 32, 10)
    assert rates(node, controller) == [8, 8]
    measure(node, controller, "b", 1, 1)
    assert rates(node, controller) == [8, 1], "nor is it assumed of that"
    measure(node, controller, "a", 20, 2)
    assert rates(node, controller) == [10, 1]
    node.set("b", mem_held_bytes=40 * GIB)
    assert rates(node, controller) == [10, 10], "it has grown since"


def test_no_rate_is_believed_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    controller = node.controller()
    device = replace(node.state.devices["GPU-0"], link_bytes_per_s=25 * GIB)
    node.state.devices["GPU-0"] = device
    measure(node, controller, "a", 80, 0.1)
    measure(node, controller, "b", 80, 10000)
    assert rates(node, controller) == [25, LEAST_BYTES_PER_S / GIB]
    node.state.devices["GPU-0"] = replace(device, link_bytes_per_s=GIB // 4)
    for name in "ab":
        measure(node, controller, name, 80, 10000)
    assert rates(node, controller) == [0.25, 0.25], "of a slow link it is the link's"


@on_a_loop
async def test_a_small_sleeper_changes_nothing_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has takes as long as the helper's start. Others would be moved minutes later."""
    node = Node(monkeypatch, swap("a", 78), swap("b", 1, mem_swap=False, idle_after_ns=10 * S))
    controller = node.controller()
    assert await run_until(node, controller, lambda: node.now("b") == AWAY)
    assert rates(node, controller, "a") == [8]


@WAYS
@on_a_loop
async def test_no_time_limit_is_shorter_than_a_slow_host_needs(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A helper that is killed at its limit leaves the program half way; and however slow the last move was, a driver
    that hangs does not hold the device for half an hour."""
    node = two(monkeypatch)
    node.memory_moves = MemoryMoves(way=way)
    controller = node.controller()
    node.set("a", movable_bytes=80 * GIB)
    limits: list[float] = []

    async def move(*arguments: Any) -> Moved:
        limits.append(arguments[-1])
        return Moved(checkpoint_runner.RUNS, "it stays")

    monkeypatch.setattr(controller._mover, "move", move)
    for seconds in (0.1, 10000):
        measure(node, controller, "a", 80, seconds)
        await controller._move("evict", node.state.slices["a"], "GPU-0")
    assert limits == [DEADLINE_S + 4 * 80 / 2, DEADLINE_S + 4 * 80 / 1]


def spent_s(turns: Turns, name: str) -> float:
    return turns.spent(name) * 250 / S / (1 << 20)


@WAYS
@on_a_loop
async def test_the_time_of_its_moves_is_that_of_its_turn(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A program that takes long to answer has the device meanwhile."""
    node = two(monkeypatch)
    node.memory_moves = MemoryMoves(way=way)
    for name in "ab":
        node.set(name, movable_bytes=80 * GIB)
    controller, turns = node.controller(), Turns()

    async def move(action: str, *_: Any) -> Moved:
        node.clock_ns += (100 if action == "evict" else 60) * S
        return Moved(checkpoint_runner.AWAY if action == "evict" else checkpoint_runner.RUNS)

    monkeypatch.setattr(controller._mover, "move", move)
    leave(node, "b", LEAVING, AWAY)
    await controller._take_turn("GPU-0", turns)
    node.clock_ns += S
    await controller._make_leave(Move("a", LEAVING, "b"), "GPU-0", turns)
    assert not node.now("b") and node.now("a") == AWAY
    assert 100 <= spent_s(turns, "a") < 110 and 60 <= spent_s(turns, "b") < 62


@WAYS
@on_a_loop
async def test_slow_moves_are_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Each keeps all others from moving."""
    node = Node(monkeypatch, swap("a"))
    node.memory_moves = MemoryMoves(way=way)
    node.set("a", movable_bytes=80 * GIB)
    controller = node.controller()
    record = controller.view.record(node.state.slices["a"])
    seconds = {"evict": 10, "restore": 170}

    async def move(action: str, *_: Any) -> Moved:
        node.clock_ns += seconds[action] * S
        return Moved(checkpoint_runner.AWAY if action == "evict" else checkpoint_runner.RUNS)

    async def move_there_and_back() -> float:
        """For how long it stays away."""
        await controller._make_leave(Move("a", LEAVING), "GPU-0", Turns())
        pause_ns = record.stays_until_ns - node.clock_ns
        leave(node, "a", COMING)
        await controller._bring(Move("a", COMING), "GPU-0", Turns())
        return pause_ns / S

    monkeypatch.setattr(controller._mover, "move", move)
    pauses = [await move_there_and_back() for _ in range(12)]
    assert pauses[1:4] == [2, 4, 8] and pauses[0] <= 0 and pauses[-1] == BROKEN_NS / S
    assert [entry.kind for entry in node.entries] == ["slice.stays"] * len(node.entries)
    seconds = {"evict": 10, "restore": 10}
    await move_there_and_back()
    node.clock_ns += BROKEN_NS
    assert await move_there_and_back() <= 0, "since it came back in time"
    record.failures = 9
    node.attach(1, "a")
    node.state.processes[1] = replace(node.state.processes[1], pid=999)
    assert await move_there_and_back() == 2, "not as long for what the program before it did"
    seconds = {"evict": 170, "restore": 10}
    assert [await move_there_and_back() for _ in range(3)] == [2, 2, 2]
