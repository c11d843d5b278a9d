"""Slices that are suspended while another caller asks for the same, goes away, or has just started the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest

from tests.core.test_machine import create
from tests.core.test_suspend import half, to
from vgpud.core import events as ev
from vgpud.core.model import EVICTED, EVICTING, PAUSED, RESTORING, Denied, Process, Reason, Slice
from vgpud.core.observed import SliceStats
from vgpud.core.origins import Job
from vgpud.core.slices import invariants
from vgpud.core.slices.machine import step
from vgpud.daemon.slices import suspend
from vgpud.daemon.slices.suspend import SuspendController
from vgpud.devices import checkpoint_runner
from vgpud.devices.checkpoint_runner import AWAY, RUNS, Moved
from vgpud.devices.memory_mover import MemoryMover
from vgpud.devices.nvml import MemoryMoves


class Node:
    """The machine, with a slice `a` in which one program is, and no store; also the events and the driver."""

    driver = sim_dir = ""

    def __init__(self) -> None:
        self.state = half()
        self.full = 0  # how many times the store refuses
        self.state.processes[1] = Process(1, "a", 101, 1000, "prog", 1, False, False)

    async def submit(self, event: ev.Event) -> Slice | Denied | None:
        if self.full:
            self.full -= 1
            return Denied(Reason.UNAVAILABLE, "the disk is full")
        return next(c.result for c in step(self.state, event, 0) if isinstance(c, ev.Answer))

    def run(self, event: ev.Event) -> list[ev.Command]:
        return step(self.state, event, 0)

    def note(self, entry: ev.Log) -> None:
        pass

    def slice_stats(self, *_: Any) -> SliceStats:
        return SliceStats()

    @property
    def now(self) -> str:
        return self.state.slices["a"].suspended


def suspension_of(node: Any) -> SuspendController:
    devices: Any = SimpleNamespace(driver="", sim_dir="", memory_moves=MemoryMoves())
    mover = MemoryMover(devices, node, lambda _: True, node)
    return SuspendController(node, node, mover, lambda _: None)


class Driver:
    """What the helper says, once it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, state: str = AWAY) -> None:
        self.actions: list[str] = []
        self.state = state
        self.go = asyncio.Event()
        monkeypatch.setattr(checkpoint_runner, "move", self._move)

    async def _move(self, action: str, *_: Any) -> Moved:
        self.actions.append(action)
        await self.go.wait()
        return Moved(self.state, "" if self.state == AWAY else "the driver refused")


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **options), 30))

    return run


async def wait_for_action(driver: Driver) -> None:
    while not driver.actions:
        await asyncio.sleep(0)


@on_a_loop
async def test_who_goes_away_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    node, driver = Node(), Driver(monkeypatch)
    controller = suspension_of(node)
    asked = asyncio.create_task(controller.suspend("a", True))
    await wait_for_action(driver)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    driver.go.set()
    while node.now == EVICTING:
        await asyncio.sleep(0)
    assert node.now == EVICTED


@on_a_loop
async def test_no_other_slice_comes_between(monkeypatch: pytest.MonkeyPatch) -> None:
    node, driver = Node(), Driver(monkeypatch)
    controller = suspension_of(node)
    asked = asyncio.create_task(controller.suspend("a", True))
    await wait_for_action(driver)
    for other in (controller.resume("a"), controller.suspend("a", False)):
        refused = await other
        assert isinstance(refused, Denied) and "wait for its end" in refused.message
    assert node.now == EVICTING
    driver.go.set()
    evicted = await asked
    assert isinstance(evicted, Slice) and evicted.suspended == node.now == EVICTED
    driver.state = RUNS
    resumed = await controller.resume("a")
    assert isinstance(resumed, Slice) and not resumed.suspended and driver.actions == ["evict", "restore"]


@on_a_loop
async def test_no_user_keeps_the_queue_from_its_jobs_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    node.state.slices["j-7"] = replace(node.state.slices.pop("a"), origin=Job(7))
    controller = suspension_of(node)
    asked = controller.suspend("j-7", False), controller.suspend("j-7", False, job_id=7)
    refused, paused = await asyncio.gather(*asked)
    assert isinstance(refused, Denied) and "the queue decides when it runs" in refused.message
    assert isinstance(paused, Slice) and paused.suspended == PAUSED


@pytest.mark.parametrize("old_state", ["", PAUSED])
@on_a_loop
async def test_what_was_paused_is_so_again_when_it_cannot_be_evicted(
    monkeypatch: pytest.MonkeyPatch, old_state: str
) -> None:
    node, driver = Node(), Driver(monkeypatch, RUNS)
    to(node.state, old_state)
    driver.go.set()
    refused = await suspension_of(node).suspend("a", True)
    assert isinstance(refused, Denied) and refused.message == "slice a is as before: the driver refused"
    assert node.now == old_state


@on_a_loop
async def test_whose_time_was_given_away_meanwhile_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that refuses late must not cost others what they are guaranteed."""
    node, driver = Node(), Driver(monkeypatch, RUNS)
    asked = asyncio.create_task(suspension_of(node).suspend("a", True))
    await wait_for_action(driver)
    assert isinstance(await node.submit(create("b", 500)), Slice)
    driver.go.set()
    refused = await asked
    assert isinstance(refused, Denied)
    assert refused.message == "slice a is paused, as others have its time now: the driver refused"
    assert node.now == PAUSED
    invariants.check(node.state)


@on_a_loop
async def test_what_the_driver_has_done_is_said_until_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspend, "AGAIN_S", 0.0)
    node, driver = Node(), Driver(monkeypatch)
    asked = asyncio.create_task(suspension_of(node).suspend("a", True))
    await wait_for_action(driver)
    node.full = 3
    driver.go.set()
    evicted = await asked
    assert isinstance(evicted, Slice) and evicted.suspended == node.now == EVICTED


@on_a_loop
async def test_one_that_was_coming_back_and_does_not_answer_is_still_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As resumed it would hang in the driver, and nothing would bring it back."""
    node, driver = Node(), Driver(monkeypatch, checkpoint_runner.UNKNOWN)
    to(node.state, EVICTING, EVICTED, RESTORING)
    controller = suspension_of(node)
    controller.settle()
    driver.go.set()
    while node.now == RESTORING:
        await asyncio.sleep(0)
    assert node.now == EVICTED and driver.actions == ["settle"]
    driver.state = RUNS
    resumed = await controller.resume("a")
    assert isinstance(resumed, Slice) and not node.now


@on_a_loop
async def test_what_a_former_daemon_was_at_is_found_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its helper may have moved the memory away: a slice that continues without asking the driver hangs for good."""
    node, driver = Node(), Driver(monkeypatch)
    to(node.state, EVICTING)
    controller = suspension_of(node)
    controller.settle()
    continues = asyncio.create_task(controller.resume("a"))
    await wait_for_action(driver)
    assert (driver.actions, node.now) == (["settle"], EVICTING)
    driver.go.set()
    while len(driver.actions) < 2:
        await asyncio.sleep(0)
        driver.state = RUNS if node.now != EVICTING else AWAY
    resumed = await continues
    assert isinstance(resumed, Slice) and not node.now and driver.actions == ["settle", "restore"]
