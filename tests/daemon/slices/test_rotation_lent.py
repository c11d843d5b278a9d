"""Memory that others borrowed while a slice was away, and that it waits for: who is asked, for how long, and what is
said."""

from __future__ import annotations

import pytest

from tests.core.test_machine import GIB, S
from tests.core.test_residency import swap
from tests.daemon.slices.test_rotation import Node, leave, on_a_loop, run_until
from vgpud.core.model import AWAY, LEAVING, Taken
from vgpud.core.observed import Reclaim


@on_a_loop
async def test_a_sleeper_whose_memory_is_lent_is_said_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, swap("a", 40, mem_swap=False, idle_after_ns=60 * S), swap("b", 8, mem_swap=False))
    leave(node, "a", LEAVING, AWAY)
    node.set("b", mem_held_bytes=60 * GIB)
    node.set("a", waiting_calls=1)
    assert await run_until(node, node.controller(), lambda: bool(node.entries), 60)
    (said,) = (entry.message for entry in node.entries)
    assert said.startswith("slice a stays on the host: others use") and "beyond their minima" in said
    node.set("b", mem_held_bytes=8 * GIB)
    assert await run_until(node, node.controller(), lambda: not node.now("a"))


def lend(monkeypatch: pytest.MonkeyPatch, *, mem_swap: bool) -> Node:
    """a is away with 40 GiB and waits; b holds 60 GiB of 80, of which 8 are its minimum."""
    sleeps = {} if mem_swap else {"idle_after_ns": 60 * S}
    node = Node(monkeypatch, swap("a", 40, mem_swap=mem_swap, **sleeps), swap("b", 8, mem_swap=False))
    leave(node, "a", LEAVING, AWAY)
    node.set("b", mem_held_bytes=60 * GIB)
    node.set("a", waiting_calls=1)
    return node


@pytest.mark.parametrize("mem_swap", [False, True])
@on_a_loop
async def test_borrowers_are_asked_for_the_room_of_one_that_waits(
    monkeypatch: pytest.MonkeyPatch, mem_swap: bool
) -> None:
    node = lend(monkeypatch, mem_swap=mem_swap)
    b = node.state.slices["b"].serial, "GPU-0"
    node.requests[b] = Reclaim(remaining_bytes=20 * GIB)
    controller = node.controller()
    assert not await run_until(node, controller, lambda: not node.now("a"), 100)
    assert node.spaces == [40 * GIB] and not node.entries, "nothing is said while b has time to give it back"
    node.set("b", mem_held_bytes=40 * GIB)
    node.requests[b] = Reclaim(end_count=1)
    assert await run_until(node, controller, lambda: not node.now("a"))
    assert node.spaces == [40 * GIB, 0] and not node.entries


@on_a_loop
async def test_what_does_not_come_back_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = lend(monkeypatch, mem_swap=True)
    node.requests[node.state.slices["b"].serial, "GPU-0"] = Reclaim(end_count=1, was_late=True)
    assert not await run_until(node, node.controller(), lambda: not node.now("a"), 100)
    (said,) = (entry.message for entry in node.entries)
    assert said.startswith("slice a stays on the host: others use 20GiB") and "do not give it back" in said


@pytest.mark.parametrize(("held_gib", "spaces_gib"), [(50, [50, 0, 50, 0]), (40, [40])])
@on_a_loop
async def test_what_is_not_given_back_is_lent_again_between(
    monkeypatch: pytest.MonkeyPatch, held_gib: int, spaces_gib: list[int]
) -> None:
    """All others are held to their minima while it is asked for. What a slice is guaranteed stays asked for."""
    node = lend(monkeypatch, mem_swap=False)
    node.set("a", mem_held_bytes=held_gib * GIB)
    node.requests[node.state.slices["b"].serial, "GPU-0"] = Reclaim(end_count=1, was_late=True)
    begun_ns = node.clock_ns
    controller = node.controller()
    await run_until(node, controller, lambda: node.clock_ns > begun_ns + 90 * S or len(node.spaces) == 3)
    assert len(node.spaces) == 1 or node.clock_ns - begun_ns >= 60 * S
    await run_until(node, controller, lambda: len(node.spaces) == 4, 30)
    assert [space // GIB for space in node.spaces] == spaces_gib and len(node.entries) == 1
    node.set("b", mem_held_bytes=(80 - held_gib) * GIB)
    assert await run_until(node, controller, lambda: not node.now("a"))


@on_a_loop
async def test_memory_that_others_are_guaranteed_by_now_is_said_to_be_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    node = lend(monkeypatch, mem_swap=False)
    node.set("a", mem_held_bytes=75 * GIB)
    assert not await run_until(node, node.controller(), lambda: not node.now("a"), 100)
    (said,) = (entry.message for entry in node.entries)
    assert said.startswith("slice a stays on the host: of its 75GiB other slices are guaranteed 3GiB by now, it waits")
    assert node.spaces == [0]


@on_a_loop
async def test_a_device_that_has_gone_asks_none(monkeypatch: pytest.MonkeyPatch) -> None:
    node = lend(monkeypatch, mem_swap=True)
    node.state.taken_devices["GPU-0"] = Taken("GPU-0", "lost: it fell off the bus", is_lost=True)
    assert not await run_until(node, node.controller(), lambda: not node.now("a"), 100)
    assert node.spaces == [0] and not node.entries
