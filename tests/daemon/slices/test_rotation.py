"""Slices whose memory the daemon moves by itself: what it asks of the driver, what it saves, and what it does when the
driver refuses, the host is full, a program ends, or the daemon was killed in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest

import vgpud._shim as _shim
from tests.core.test_machine import GIB, S, make_state
from tests.core.test_residency import make, swap
from vgpud.core import events as ev
from vgpud.core.model import (
    AWAY,
    BY_CHECKPOINT,
    BY_HOOK,
    COMING,
    EVICTED,
    EVICTING,
    LEAVING,
    Denied,
    Process,
    Reason,
    Slice,
    Taken,
)
from vgpud.core.observed import Reclaim, SliceStats
from vgpud.core.slices import invariants
from vgpud.core.slices.machine import step
from vgpud.daemon.slices import rotation, rotation_view
from vgpud.daemon.slices.rotation import RotationController
from vgpud.devices import checkpoint_runner
from vgpud.devices.checkpoint_runner import Moved
from vgpud.devices.memory_mover import MemoryMover
from vgpud.devices.nvml import MemoryMoves


class Node:
    """The machine with slices that rotate, a program in each; also the arbiters, the events and the driver."""

    driver = sim_dir = ""
    memory_moves: MemoryMoves = MemoryMoves()

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *requests: ev.CreateSlice) -> None:
        self.state = make_state()
        make(self.state, *requests)
        for number, made in enumerate(self.state.slices.values(), 1):
            self.attach(number, made.name)
        self.clock_ns = 1000 * S
        self.stats = {
            made.serial: {
                "mem_held_bytes": made.shares[0].mem_min_bytes,
                "mem_used_bytes": made.shares[0].mem_min_bytes,
            }
            for made in self.state.slices.values()
        }
        self.full = 0  # how many times the store refuses
        self.host_text = ""  # why the host is full
        self.entries: list[ev.Log] = []
        self.saved_steps: list[tuple[str, str]] = []
        self.calls: list[tuple[str, int]] = []
        self.move_requests: list[tuple[int, int]] = []  # of programs: serial of the slice, VG_MOVE_*
        self.keepers: list[str] = []  # of a helper that waits
        self.spaces: list[int] = []  # bytes for which others are asked, one after the other
        self.requests: dict[tuple[int, str], Reclaim] = {}
        self.answers: list[Moved] = []
        self.where: dict[int, str] = {}  # pid -> what the driver says
        self.during: Callable[[str, int], None] = lambda *_: None
        monkeypatch.setattr(checkpoint_runner, "move", self._move)
        for module in (rotation, rotation_view):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: self.clock_ns, time_ns=lambda: 7))
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, span_s: float) -> None:
        self.clock_ns += int(span_s * S)
        await REAL_SLEEP(0)

    def attach(self, number: int, name: str) -> None:
        self.state.processes[number] = Process(number, name, 100 + number, 1000, "prog", 1, False)

    async def submit(self, event: ev.Event) -> Slice | Denied | None:
        if self.full:
            self.full -= 1
            return Denied(Reason.UNAVAILABLE, "the disk is full")
        return next(c.result for c in self.run(event) if isinstance(c, ev.Answer))

    def run(self, event: ev.Event) -> list[ev.Command]:
        commands = step(self.state, event, 0)
        invariants.check(self.state)
        self.saved_steps += [(c.slice.name, c.slice.residency) for c in commands if isinstance(c, ev.SaveSlice)]
        return commands

    def note(self, entry: ev.Log) -> None:
        self.entries.append(entry)

    def slice_stats(self, serial: int, _: str) -> SliceStats:
        return SliceStats(**({"moved_state": 1} | self.stats.get(serial, {})))

    def ask_move(self, serial: int, _: str, where: int) -> int:
        self.move_requests.append((serial, where))
        return len(self.move_requests)

    def count_move(self, serial: int, _: str, size: int) -> None:
        now = self.stats[serial]
        now["moves"] = now.get("moves", 0) + 1
        now["moved_bytes"] = now.get("moved_bytes", 0) + size

    def keep(self, keeper: str) -> None:
        self.keepers.append(keeper)

    def release(self, keeper: str) -> None:
        self.keepers = [other for other in self.keepers if other != keeper]

    def make_room(self, _: str, size: int) -> None:
        if [size] != self.spaces[-1:]:
            self.spaces.append(size)

    def reclaims(self) -> dict[tuple[int, str], Reclaim]:
        return self.requests

    async def _move(self, action: str, pid: int, *_: Any) -> Moved:
        self.calls.append((action, pid))
        self.during(action, pid)
        self.clock_ns += S
        if self.answers:
            return self.answers.pop(0)
        if action != "settle":
            self.where[pid] = checkpoint_runner.AWAY if action == "evict" else checkpoint_runner.RUNS
        return Moved(self.where.get(pid, checkpoint_runner.RUNS))

    def set(self, name: str, **stats: Any) -> None:
        self.stats[self.state.slices[name].serial] |= stats

    def now(self, name: str) -> str:
        return self.state.slices[name].residency

    def controller(self) -> RotationController:
        node: Any = self
        refuse = lambda made: Denied(Reason.NO_CAPACITY, self.host_text) if self.host_text else None  # noqa: E731
        mover = MemoryMover(node, node, lambda process: process.process_id in self.state.processes, node)
        return RotationController(node, node, node, mover, refuse)


REAL_SLEEP = asyncio.sleep
Test = Callable[..., Awaitable[None]]


def on_a_loop(test: Test) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        async def run_test() -> None:
            await test(*arguments, **options)

        asyncio.run(asyncio.wait_for(run_test(), 30))

    return run


async def run_until(
    node: Node, controller: RotationController, ready: Callable[[], bool], span_s: float = 3000
) -> bool:
    """Lets it work until it is so, or for this time of the node's clock."""
    end_ns = node.clock_ns + int(span_s * S)
    controller.start()
    try:
        while not ready():
            if node.clock_ns > end_ns or not controller._watches:
                return False
            await REAL_SLEEP(0)
        return True
    finally:
        await controller.stop()


def two(monkeypatch: pytest.MonkeyPatch) -> Node:
    """b is away and waits, a works."""
    node = Node(monkeypatch, swap("a"), swap("b"))
    node.set("b", waiting_calls=1)
    node.where[102] = checkpoint_runner.AWAY
    return node


@on_a_loop
async def test_a_turn_is_saved_before_each_thing_that_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    seen: list[tuple[str, str, str]] = []
    node.during = lambda action, pid: seen.append((action, node.now("a"), node.now("b")))
    assert await run_until(node, node.controller(), lambda: not node.now("b"))
    assert seen == [("evict", LEAVING, AWAY), ("restore", AWAY, COMING)]
    assert node.saved_steps == [("a", LEAVING), ("a", AWAY), ("b", COMING), ("b", "")]
    assert node.calls == [("evict", 101), ("restore", 102)] and not node.entries
    assert node.stats[1]["moves"] == 1 and node.stats[1]["moved_bytes"] == 80 * GIB


@on_a_loop
async def test_one_that_is_evicted_as_its_turn_comes_is_not_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user is faster than the step: what it has counts as no slice's from then on."""
    node = two(monkeypatch)
    submit = node.submit

    async def evict_first(event: ev.Event) -> Slice | Denied | None:
        if isinstance(event, ev.MoveMemory) and len(event.steps) == 2:
            node.run(ev.SuspendSlice("b", EVICTING))
        return await submit(event)

    monkeypatch.setattr(node, "submit", evict_first)
    assert await run_until(node, node.controller(), lambda: node.now("a") == AWAY)
    assert not await run_until(node, node.controller(), lambda: not node.now("a"), 5)
    assert node.state.slices["b"].suspended == EVICTED and ("restore", 102) not in node.calls


@on_a_loop
async def test_no_device_is_watched_where_nothing_rotates(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, swap("a", 10, mem_swap=False))
    controller = node.controller()
    controller.start()
    assert not controller._watches
    make(node.state, swap("b", 10))
    controller.slice_changed(node.state.slices["b"])
    assert list(controller._watches) == ["GPU-0"] == node.keepers
    await controller.stop()
    assert not node.keepers, "no helper waits for moves"


@on_a_loop
async def test_who_uses_the_driver_as_it_leaves_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    node.set("a", processes_in_driver=1)
    drained: list[int] = []
    node.during = lambda action, _: drained.append(node.slice_stats(1, "").processes_in_driver)
    sleep = node._sleep

    async def leave_driver(span_s: float) -> None:
        if node.now("a") == LEAVING:
            node.set("a", processes_in_driver=0)
        await sleep(span_s)

    monkeypatch.setattr(asyncio, "sleep", leave_driver)
    assert await run_until(node, node.controller(), lambda: not node.now("b"))
    assert drained[0] == 0


@on_a_loop
async def test_a_program_that_the_driver_cannot_move_stays_and_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    refused = Moved(checkpoint_runner.RUNS, "the driver refused to checkpoint: not supported (code 801)")
    node.answers = [refused] * 3
    assert await run_until(node, node.controller(), lambda: not node.answers)
    await REAL_SLEEP(0)
    assert [(entry.kind, entry.message) for entry in node.entries] == [
        ("slice.stays", "slice a stays on the device: the driver refused to checkpoint: not supported (code 801)")
    ]
    assert node.calls == [("evict", 101)] * 3
    assert node.clock_ns >= 1000 * S + 2 * rotation.REFUSED_NS, "it is not asked again at once"


@on_a_loop
async def test_a_host_without_free_ram_keeps_it_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    node.host_text = "slice a has 80GiB of device memory, and the host has 1GiB for it"
    controller = node.controller()
    assert not await run_until(node, controller, lambda: not node.now("b"), 100)
    node.host_text = "slice a has 80GiB of device memory, and the host has 2GiB for it"
    assert not await run_until(node, controller, lambda: not node.now("b"), 50)
    assert not node.calls and [entry.kind for entry in node.entries] == ["slice.stays"], "said once, whatever it says"
    node.host_text = ""
    assert await run_until(node, controller, lambda: not node.now("b"))


@on_a_loop
async def test_a_copy_that_fails_on_its_way_back_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    node.answers = [
        Moved(checkpoint_runner.AWAY),
        Moved(checkpoint_runner.AWAY, "the driver refused to restore: out of memory (code 2)"),
    ]
    assert await run_until(node, node.controller(), lambda: not node.now("b"))
    assert node.calls == [("evict", 101), ("restore", 102), ("restore", 102)]
    assert [entry.message for entry in node.entries] == [
        "slice b stays on the host: the driver refused to restore: out of memory (code 2)"
    ]


@on_a_loop
async def test_a_driver_that_leaves_it_half_way_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    node.answers = [Moved("failed", "the driver refused to checkpoint: error (code 999)")]
    assert await run_until(node, node.controller(), lambda: bool(node.entries))
    assert node.entries[0].kind == "slice.broken" and "pid 101 cannot be moved: end it" in node.entries[0].message
    assert node.calls == [("evict", 101)] and not node.now("a")


@pytest.mark.parametrize("action", ["evict", "restore"])
@on_a_loop
async def test_a_program_that_is_killed_meanwhile_takes_its_memory_with_it(
    monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    node = two(monkeypatch)

    def kill(now: str, pid: int) -> None:
        if now == action:
            del node.state.processes[pid - 100]
            node.stats[pid - 100] = {}
            node.answers = [Moved("unknown", "the driver refused to ask: error (code 3)")]

    node.during = kill
    assert await run_until(node, node.controller(), lambda: not node.now("b"))
    assert not [entry for entry in node.entries if entry.kind == "slice.broken"]


@on_a_loop
async def test_a_program_that_is_killed_while_away_leaves_a_slice_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    del node.state.processes[2]
    node.set("b", waiting_calls=0, mem_held_bytes=0, mem_used_bytes=0)
    assert not await run_until(node, node.controller(), lambda: not node.now("b"), 200)
    del node.state.processes[1], node.state.slices["a"]
    assert await run_until(node, node.controller(), lambda: not node.now("b"))
    assert not node.calls, "nothing was there to move"


@on_a_loop
async def test_what_was_away_before_a_restart_is_not_taken_for_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program attaches again a moment later: as resident it would run into the driver's lock, for ever."""
    node = two(monkeypatch)
    program = node.state.processes.pop(2)
    del node.state.processes[1], node.state.slices["a"]
    assert not await run_until(node, node.controller(), lambda: not node.now("b"), 30)
    node.state.processes[2] = program
    assert await run_until(node, node.controller(), lambda: not node.now("b"), 30)
    assert node.calls == [("restore", 102)]


@pytest.mark.parametrize(
    ("former", "driver", "after"),
    [
        (LEAVING, checkpoint_runner.AWAY, AWAY),
        (LEAVING, checkpoint_runner.RUNS, ""),
        (COMING, checkpoint_runner.AWAY, AWAY),
        (COMING, checkpoint_runner.RUNS, ""),
    ],
)
@on_a_loop
async def test_what_a_killed_daemon_was_at_is_found_out(
    monkeypatch: pytest.MonkeyPatch, former: str, driver: str, after: str
) -> None:
    node = Node(monkeypatch, swap("a"))
    for one in (LEAVING,) if former == LEAVING else (LEAVING, AWAY, COMING):
        node.run(ev.MoveMemory((("a", one),)))
    node.where[101] = driver
    node.saved_steps.clear()
    assert await run_until(node, node.controller(), lambda: bool(node.saved_steps))
    assert node.calls[0] == ("settle", 101) and node.saved_steps[0] == ("a", after)


def leave(node: Node, name: str, *steps: str) -> None:
    """As a former daemon has left it."""
    for step_to in steps:
        node.run(ev.MoveMemory(((name, step_to),)))


@on_a_loop
async def test_each_program_of_a_slice_that_was_away_is_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one may have attached while it was away, and be the first after the daemon's restart."""
    node = Node(monkeypatch, swap("a"))
    leave(node, "a", LEAVING, AWAY)
    node.attach(5, "a")
    node.state.processes = dict(reversed(node.state.processes.items()))
    node.where[101] = checkpoint_runner.AWAY
    node.set("a", waiting_calls=1)
    assert await run_until(node, node.controller(), lambda: not node.now("a"))
    assert node.where[101] == checkpoint_runner.RUNS


@on_a_loop
async def test_a_program_that_attaches_late_is_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, swap("a"))
    leave(node, "a", LEAVING, AWAY)
    late = node.state.processes.pop(1)
    node.attach(5, "a")
    node.where[101] = checkpoint_runner.AWAY
    node.set("a", waiting_calls=1)
    controller = node.controller()
    assert await run_until(node, controller, lambda: not node.now("a"))
    node.state.processes[1] = replace(late, is_resumed=True)
    assert await run_until(node, controller, lambda: node.where[101] == checkpoint_runner.RUNS, 50)


@pytest.mark.parametrize("way", [BY_CHECKPOINT, BY_HOOK])
@on_a_loop
async def test_one_that_is_out_though_it_counts_as_there_is_asked_back(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It was still on its way for a daemon with another memory_moves when this one started and asked for it."""
    node = Node(monkeypatch, swap("a"))
    node.memory_moves = MemoryMoves(way=way)
    node.set("a", moved_state=_shim.lib.VG_MOVED_AWAY)
    assert await run_until(node, node.controller(), lambda: bool(node.move_requests), 5)
    assert node.move_requests == [(node.state.slices["a"].serial, _shim.lib.VG_MOVE_IN)] and not node.calls


@pytest.mark.parametrize("former", [(LEAVING,), (LEAVING, AWAY, COMING)])
@on_a_loop
async def test_a_slice_whose_program_is_not_back_yet_stays_away(
    monkeypatch: pytest.MonkeyPatch, former: tuple[str, ...]
) -> None:
    node = Node(monkeypatch, swap("a"))
    leave(node, "a", *former)
    late = node.state.processes.pop(1)
    node.where[101] = checkpoint_runner.AWAY
    controller = node.controller()
    assert await run_until(node, controller, lambda: node.now("a") == AWAY)
    node.state.processes[1] = replace(late, is_resumed=True)
    node.set("a", waiting_calls=1)
    assert await run_until(node, controller, lambda: not node.now("a"))
    assert node.where[101] == checkpoint_runner.RUNS


@on_a_loop
async def test_a_failure_of_its_own_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    faults = [KeyError("b")]

    def fail(*_: object) -> None:
        if faults:
            raise faults.pop()

    node.during = fail
    assert await run_until(node, node.controller(), lambda: not node.now("b"))
    assert not faults


@on_a_loop
async def test_what_the_driver_has_done_is_said_until_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)

    def fill_disk(action: str, _: int) -> None:
        node.full = 3

    node.during = fill_disk
    assert await run_until(node, node.controller(), lambda: not node.now("b"))
    assert node.saved_steps == [("a", LEAVING), ("a", AWAY), ("b", COMING), ("b", "")]


@on_a_loop
async def test_a_device_that_has_gone_leaves_memory_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    node.state.taken_devices["GPU-0"] = Taken("GPU-0", "lost: it fell off the bus", is_lost=True)
    assert not await run_until(node, node.controller(), lambda: bool(node.calls), 90)
    node.state.taken_devices.clear()
    assert await run_until(node, node.controller(), lambda: not node.now("b"))


@on_a_loop
async def test_a_slice_with_several_programs_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    node.attach(3, "a")
    assert not await run_until(node, node.controller(), lambda: bool(node.calls), 90)
    assert [(entry.kind, entry.message) for entry in node.entries] == [
        (
            "slice.stays",
            "slice a stays on the device: it has 2 programs, and the driver moves a slice with one: keep it to one"
            " program",
        )
    ]
    del node.state.processes[3]
    assert await run_until(node, node.controller(), lambda: not node.now("b"))


@on_a_loop
async def test_several_programs_are_no_matter_while_all_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, swap("a", 10), swap("b", 10, mem_swap=False, idle_after_ns=60 * S))
    node.attach(3, "a")
    node.attach(4, "b")
    begun_ns = node.clock_ns
    assert await run_until(node, node.controller(), lambda: bool(node.entries))
    (said,) = node.entries
    assert said.slice_name == "b" and node.clock_ns - begun_ns >= 60 * S, "it would sleep now"


@on_a_loop
async def test_a_paused_slice_does_not_come_back_by_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    node = two(monkeypatch)
    node.run(ev.SuspendSlice("b", "paused"))
    assert not await run_until(node, node.controller(), lambda: bool(node.calls), 90)


@on_a_loop
async def test_who_is_idle_sleeps_and_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, swap("a", 10, mem_swap=False, idle_after_ns=60 * S))
    begun_ns = node.clock_ns
    assert await run_until(node, node.controller(), lambda: node.now("a") == AWAY)
    assert node.clock_ns - begun_ns >= 60 * S and node.state.slices["a"].asleep_wall_ns == 7
    node.set("a", waiting_calls=1)
    assert await run_until(node, node.controller(), lambda: not node.now("a"))
    assert node.calls == [("evict", 101), ("restore", 101)]


@on_a_loop
async def test_a_sleeper_with_a_thread_in_the_driver_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """That thread would wait in the driver, where its wait is not seen."""
    node = Node(monkeypatch, swap("a", 10, mem_swap=False, idle_after_ns=60 * S))
    node.set("a", processes_in_driver=1)
    assert await run_until(node, node.controller(), lambda: bool(node.entries))
    assert "does not leave the driver" in node.entries[0].message and not node.calls and not node.now("a")


@on_a_loop
async def test_one_that_comes_waits_until_others_have_given_back_what_they_borrowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, swap("a", 50, mem_swap=False, idle_after_ns=60 * S), swap("c", 10, mem_swap=False))
    assert await run_until(node, node.controller(), lambda: node.now("a") == AWAY)
    node.set("c", mem_held_bytes=60 * GIB)
    node.set("a", waiting_calls=1)
    assert not await run_until(node, node.controller(), lambda: not node.now("a"), 60)
    node.set("c", mem_held_bytes=10 * GIB)
    assert await run_until(node, node.controller(), lambda: not node.now("a"))


@on_a_loop
async def test_the_cost_is_that_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, swap("a", 60), swap("b", 60), swap("c", 10, mem_swap=False))
    controller = node.controller()
    found = controller.view.stats(node.state.slices["a"])
    assert found and (found.cost.claims_bytes, found.cost.capacity_bytes) == (120 * GIB, 70 * GIB)
    assert found.cost.quantum_ns and found.cost.host_bytes == 60 * GIB
    assert controller.view.stats(node.state.slices["c"]) is None
