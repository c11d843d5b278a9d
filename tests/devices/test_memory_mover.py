"""A program that moves its memory itself: what it is asked, and what its answers mean."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_machine import make_state
from tests.core.test_residency import make, swap
from vgpud._shim import lib
from vgpud.core.model import BY_CHECKPOINT, BY_EITHER, BY_HOOK, Process
from vgpud.core.observed import SliceStats
from vgpud.devices import checkpoint_runner
from vgpud.devices.checkpoint_runner import AWAY, RUNS, UNKNOWN, Moved
from vgpud.devices.memory_mover import STAYS, MemoryMover, read_left_bytes
from vgpud.devices.nvml import DriverFacts, MemoryMoves
from vgpud.host import cgroup_tree

PROGRAM = Process(1, "a", 101, 1000, "prog", 1, False)


class Node:
    """The arbiters and the driver. The program answers after so many looks at its page; None: never."""

    driver = sim_dir = ""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, way: str = BY_HOOK, *, has_checkpoint: bool = False) -> None:
        self.memory_moves = MemoryMoves(way, "", has_checkpoint)
        self.requests: list[int] = []
        self.driver_calls: list[str] = []
        self.looks: int | None = 3
        self.state, self.reason = lib.VG_MOVED_HERE, lib.VG_STAYS_NOT
        self.is_attached = True
        self.movable_bytes = self.left_bytes = 0
        monkeypatch.setattr(checkpoint_runner, "move", self._move)

    async def _move(self, action: str, *_: Any) -> Moved:
        self.driver_calls.append(action)
        return Moved(AWAY if action == "evict" else RUNS)

    def ask_move(self, _serial: int, _uuid: str, where: int) -> int:
        self.requests.append(where)
        return len(self.requests)

    def slice_stats(self, *_: Any) -> SliceStats:
        if self.looks is None or self.looks > 0:
            self.looks = None if self.looks is None else self.looks - 1
            return SliceStats(moved_state=self.state, movable_bytes=self.movable_bytes)
        if self.requests and not self.reason:
            self.state = {lib.VG_MOVE_OUT: lib.VG_MOVED_AWAY, lib.VG_MOVE_IN: lib.VG_MOVED_HERE}.get(
                self.requests[-1], self.state
            )
        return SliceStats(moved_word=len(self.requests), moved_state=self.state, stays_reason=self.reason)

    def move(
        self, action: str, program: Process = PROGRAM, *, is_suspended: bool = False, rotates: bool = True
    ) -> Moved:
        node: Any = self
        mover = MemoryMover(node, node, lambda _: self.is_attached, node, lambda _: self.left_bytes)
        state = make_state()
        make(state, swap("a", mem_swap=rotates))
        one = mover.move_suspended if is_suspended else mover.move
        return asyncio.run(one(action, state.slices["a"], program, 0.05))


def test_it_goes_and_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch)
    assert node.move("evict") == Moved(AWAY)
    assert node.move("settle") == Moved(AWAY)
    assert node.move("restore") == Moved(RUNS)
    assert node.requests == [lib.VG_MOVE_OUT, lib.VG_MOVE_STAY, lib.VG_MOVE_IN] and not node.driver_calls


@pytest.mark.parametrize("reason", STAYS)
def test_why_it_was_not_moved_is_said(monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    node = Node(monkeypatch)
    node.reason = reason
    moved = node.move("evict")
    assert moved.state == RUNS and STAYS[reason] in moved.refusal


def test_every_reason_has_words() -> None:
    reasons = {getattr(lib, name) for name in dir(lib) if name.startswith("VG_STAYS_")} - {lib.VG_STAYS_NOT}
    assert set(STAYS) == reasons


@pytest.mark.parametrize(("action", "undone_by"), [("evict", "IN"), ("restore", "OUT")])
def test_a_program_that_does_not_answer_is_to_undo_it(
    monkeypatch: pytest.MonkeyPatch, action: str, undone_by: str
) -> None:
    node = Node(monkeypatch)
    node.looks = None
    moved = node.move(action)
    assert moved.state == UNKNOWN and "has not answered" in moved.refusal
    assert node.requests[-1] == getattr(lib, f"VG_MOVE_{undone_by}")


def test_a_program_with_an_older_library_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch)
    node.looks, node.state = None, lib.VG_MOVED_UNKNOWN
    moved = node.move("evict")
    assert moved.state == RUNS and "older than vgpud" in moved.refusal
    assert node.requests == [lib.VG_MOVE_OUT, lib.VG_MOVE_IN]


def test_memory_that_its_cgroup_has_no_ram_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch)
    node.movable_bytes, node.left_bytes = 8 << 30, (8 << 30) - 1
    moved = node.move("evict")
    assert moved.state == RUNS and "its cgroup may have 8GiB of RAM more" in moved.refusal and not node.requests
    node.left_bytes += 1
    assert node.move("evict") == Moved(AWAY)


def test_the_ram_that_a_cgroup_leaves_is_that_of_the_tightest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder, most, current in (("a", "1000", 100), ("a/b", "max", 50), ("a/b/c", "600", 20)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "memory.max").write_text(f"{most}\n")
        (tmp_path / folder / "memory.current").write_text(f"{current + 45}\n")
        cache = "active_file 40\ninactive_file 5\n"  # is taken back before a process is ended
        (tmp_path / folder / "memory.stat").write_text(f"anon 7\nfile 99\n{cache}shmem 3\n")
    monkeypatch.setattr(cgroup_tree, "mount_point", lambda: tmp_path)
    for path, left_bytes in (("/a/b/c", 580), ("/a/b", 900), ("/a/b/none", 900)):
        monkeypatch.setattr(cgroup_tree, "unified_path", lambda _, path=path: path)
        assert read_left_bytes(1) == left_bytes
    monkeypatch.setattr(cgroup_tree, "unified_path", lambda _: "")
    assert read_left_bytes(1) >= 1 << 60


def test_a_program_that_has_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch)
    node.looks, node.is_attached = None, False
    assert node.move("evict") == Moved(RUNS)


def test_the_driver_moves_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, BY_CHECKPOINT)
    assert node.move("evict") == Moved(AWAY)
    assert not node.requests and node.driver_calls == ["evict"]


def test_what_another_daemon_had_moved_by_the_other_way_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """memory_moves was changed while the daemon was down."""
    resumed = replace(PROGRAM, is_resumed=True)
    node = Node(monkeypatch, BY_CHECKPOINT)
    node.state, node.looks = lib.VG_MOVED_AWAY, 0
    assert node.move("restore", resumed) == Moved(RUNS)
    assert node.requests == [lib.VG_MOVE_IN] and not node.driver_calls
    node = Node(monkeypatch, BY_HOOK, has_checkpoint=True)
    node.looks = 0
    assert node.move("restore", resumed) == Moved(RUNS)
    assert node.driver_calls == ["restore"]


@pytest.mark.parametrize("action", ["restore", "settle"])
def test_one_that_never_moves_its_memory_is_not_asked(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """It answers nothing: the driver has evicted it, for its user and a daemon with another memory_moves."""
    resumed = replace(PROGRAM, is_resumed=True)
    node = Node(monkeypatch, has_checkpoint=True)
    assert node.move(action, resumed, is_suspended=True, rotates=False) == Moved(RUNS)
    assert node.driver_calls == [action] and not node.requests
    node = Node(monkeypatch)
    assert node.move(action, resumed, is_suspended=True, rotates=False) == Moved(RUNS)
    assert not node.driver_calls and not node.requests
    node = Node(monkeypatch, has_checkpoint=True)
    node.state, node.looks = lib.VG_MOVED_AWAY, 0
    assert node.move("restore", resumed, is_suspended=True, rotates=False) == Moved(RUNS)
    assert node.requests == [lib.VG_MOVE_IN], "it had, before its slice was changed"


def test_users_evict_by_the_driver_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch)
    assert "checkpoint" in node.move("evict", is_suspended=True).refusal
    node.state, node.looks = lib.VG_MOVED_AWAY, 0
    assert node.move("restore", is_suspended=True) == Moved(RUNS)
    assert node.requests == [lib.VG_MOVE_IN]


@pytest.mark.parametrize(
    ("version", "has_checkpoint", "setting", "way", "problem"),
    [
        (13000, True, BY_EITHER, BY_CHECKPOINT, ""),
        (13000, True, BY_HOOK, BY_HOOK, ""),
        (12050, False, BY_EITHER, BY_HOOK, ""),
        (12040, False, BY_EITHER, BY_HOOK, "555 and later can"),
        (12050, False, BY_CHECKPOINT, BY_CHECKPOINT, "570 and later can"),
    ],
)
def test_the_way_follows_from_driver_and_setting(
    version: int, has_checkpoint: bool, setting: str, way: str, problem: str
) -> None:
    moves = DriverFacts(version, has_checkpoint).choose_memory_moves(setting)
    assert moves.way == way and problem in moves.problem and bool(problem) == bool(moves.problem)


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_what_the_driver_may_have_locked_is_asked_for_where_it_can(
    monkeypatch: pytest.MonkeyPatch, has_checkpoint: bool
) -> None:
    node: Any = Node(monkeypatch, has_checkpoint=has_checkpoint)
    asyncio.run(MemoryMover(node, node, lambda _: True, node).unlock(PROGRAM, 1))
    assert node.driver_calls == ["restore"] * has_checkpoint and not node.requests
