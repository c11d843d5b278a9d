"""Rotation of programs that move their memory themselves: what their pages say is not believed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import vgpud._shim as _shim
from tests.core.test_machine import GIB, S
from tests.core.test_residency import swap
from tests.daemon.slices.test_rotation import Node, leave, on_a_loop, run_until, two
from vgpud.core import events as ev
from vgpud.core.model import AWAY, BY_HOOK, COMING, LEAVING, Slice
from vgpud.core.observed import SliceStats
from vgpud.core.slices.rotation import Move, Turns
from vgpud.daemon.slices import rotation
from vgpud.daemon.slices.rotation import RotationController
from vgpud.devices import checkpoint_runner
from vgpud.devices.checkpoint_runner import Moved
from vgpud.devices.nvml import MemoryMoves


def by_hook(node: Node) -> RotationController:
    node.memory_moves = MemoryMoves(way=BY_HOOK)
    return node.controller()


def test_a_program_moves_no_more_than_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    controller = by_hook(node)
    node.set("a", movable_bytes=1 << 61)
    (a,) = (member for member in controller.view.look("GPU-0", node.clock_ns).members if member.name == "a")
    assert a.used_bytes == node.stats[node.state.slices["a"].serial]["mem_used_bytes"] and not a.stays_bytes


def test_that_others_keep_a_part_for_good_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    controller = by_hook(node)
    node.set("a", movable_bytes=0)
    for _ in range(3):
        controller._ask_back("GPU-0", controller.view.look("GPU-0", node.clock_ns), node.clock_ns)
    assert len(node.entries) == 1 and "does not leave the device with others" in node.entries[0].message


@on_a_loop
async def test_one_that_does_not_answer_is_asked_less_and_less_often() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        node = two(monkeypatch)
        node.run(ev.MoveMemory((("a", LEAVING),), 0, False))
        node.run(ev.MoveMemory((("a", AWAY),), 0, False))
        controller = node.controller()
        record = controller.view.record(node.state.slices["b"])
        stays_ns = []
        for _ in range(8):
            node.answers = [Moved(checkpoint_runner.UNKNOWN, "it has not answered")]
            node.run(ev.MoveMemory((("b", COMING),), 0, False))
            await controller._bring(Move("b", COMING), "GPU-0", Turns())
            stays_ns.append(record.stays_until_ns - node.clock_ns)
        assert stays_ns == sorted(stays_ns) and stays_ns[0] < stays_ns[1] and stays_ns[-1] == rotation.BROKEN_NS


@on_a_loop
async def test_one_that_moved_after_all_is_asked_less_and_less_often_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says that it is away, where it counts as resident; and it does not answer. Others wait for their turns."""
    node = two(monkeypatch)
    controller = by_hook(node)
    node.set("a", moved_state=_shim.lib.VG_MOVED_AWAY)
    end_ns = node.clock_ns + 4000 * S
    while node.clock_ns < end_ns:
        before_ns = node.clock_ns
        await controller._restore_late_programs("GPU-0")
        assert node.clock_ns == before_ns
        node.clock_ns += S
    assert set(node.move_requests) == {(node.state.slices["a"].serial, _shim.lib.VG_MOVE_IN)}
    assert 5 < len(node.move_requests) < 20, "pauses are twice as long each time"
    (a,) = (member for member in controller.view.look("GPU-0", node.clock_ns).members if member.name == "a")
    assert a.is_movable, "to say so saves none from its turn's end"


@on_a_loop
async def test_sleepers_that_do_not_answer_do_not_hold_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is waited for until its time limit, and no other memory moves meanwhile."""
    names = [f"s{number}" for number in range(12)]
    node = Node(monkeypatch, *(swap(name, 1, 10, mem_swap=False, idle_after_ns=S) for name in names))
    controller = by_hook(node)
    asked: list[tuple[int, str]] = []

    async def move(action: str, slice_: Slice, *_: Any) -> Moved:
        asked.append((node.clock_ns, slice_.name))
        node.clock_ns += 15 * S
        return Moved(checkpoint_runner.UNKNOWN, "it has not answered")

    monkeypatch.setattr(controller._mover, "move", move)
    span_s = 1500
    assert not await run_until(node, controller, lambda: False, span_s)
    assert len(asked) > 15 and {name for _, name in asked} == set(names), "each is asked"
    assert len(asked) * 15 <= span_s / 4
    assert min(b - a for (a, _), (b, _) in pairwise(asked)) >= (15 + 60) * S


@on_a_loop
async def test_one_that_has_not_answered_is_not_asked_as_another_one_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it moved for one that waits: those that wait for others come first."""
    node = Node(monkeypatch, *(swap(name, 40) for name in "abc"), swap("d", 30))
    leave(node, "d", LEAVING, AWAY)
    controller = by_hook(node)
    now_ns = node.clock_ns
    controller.view.record(node.state.slices["a"]).failures = 1
    controller.view.hold_back("GPU-0", now_ns + 60 * S)
    movable = {m.name: m.is_movable for m in controller.view.look("GPU-0", now_ns).members}
    assert movable == {"a": False, "b": True, "c": True, "d": True}
    assert all(member.is_movable for member in controller.view.look("GPU-0", now_ns + 60 * S).members)


@on_a_loop
async def test_a_look_at_many_that_wait_reads_each_of_them_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken 20 times a second, on the daemon's loop."""
    names = [f"s{number}" for number in range(40)]
    others = (swap(f"other{number}", 1, 10, mem_swap=False) for number in range(20))
    node = Node(monkeypatch, *(swap(name, 40, 10) for name in names), *others)
    for name in names:
        node.set(name, waiting_calls=1, movable_bytes=40 * GIB - GIB // 4, last_work_ns=node.clock_ns)
    for name in names[1:]:
        leave(node, name, LEAVING, AWAY)
    controller = by_hook(node)
    reads, read = 0, node.slice_stats

    def count(serial: int, uuid: str) -> SliceStats:
        nonlocal reads
        reads += 1
        return read(serial, uuid)

    monkeypatch.setattr(node, "slice_stats", count)
    await controller._take_turn("GPU-0", Turns())
    assert not node.move_requests and reads <= 3 * len(node.stats)
