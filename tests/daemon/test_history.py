"""The recorder on a fake clock: when it samples and saves, what it reads, and that a bad disk stops nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import GIB, make_device, make_slice
from vgpud.api.backend import TimeSpan
from vgpud.core.history.levels import SAVE_S
from vgpud.core.history.sampling import QueueBounds
from vgpud.core.model import State
from vgpud.core.observed import Reading, SliceStats
from vgpud.daemon.history import HistoryRecorder
from vgpud.errors import StoreError
from vgpud.store.history import FILE_NAME, HistoryFile

NOW_S = 1_800_000_000


class World:
    """A device, a slice of user 1000 that uses half of it, and clocks that only this class moves."""

    def __init__(self, directory: Path) -> None:
        self.wall_s, self.monotonic_s = float(NOW_S), 1000.0
        self.notes: list[str] = []
        made = make_slice("a", owner_uid=1000)
        self.state = State(devices={"GPU-0": make_device()}, slices={"a": made})
        self.utilization = 0.75
        counters: Any = SimpleNamespace(
            reading=lambda uuid: Reading(2 * GIB, self.utilization),
            of_slice=lambda slice_: [SliceStats(share_10s_ratio=0.5, mem_used_bytes=GIB)],
        )
        self.file = HistoryFile(directory)
        machine: Any = SimpleNamespace(state=self.state)
        self.recorder = HistoryRecorder(
            self.file,
            machine,
            counters,
            lambda: [QueueBounds("default", "", 0, 0)],
            lambda entry: self.notes.append(entry.message),
            lambda: self.wall_s,
            lambda: int(self.monotonic_s * 1e9),
        )

    async def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.wall_s += 1
            self.monotonic_s += 1
            self.recorder.tick()
            await asyncio.sleep(0)

    async def used(self, kind: str = "slice", name: str = "a", uid: int | None = None) -> list[float] | None:
        """In the last hour."""
        span = TimeSpan(self.wall_s - 3600, self.wall_s, 0)
        course = await self.recorder.read(kind, name, uid, span)
        return None if course is None else [point.used_milli for _, point in course.points]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], World]:
    def run(story: Callable[[World], Coroutine[Any, Any, None]]) -> World:
        async def main() -> World:
            world = World(tmp_path)
            await story(world)
            return world

        return asyncio.run(main())

    return run


def test_it_samples_once_in_each_step_of_the_clock(play: Any) -> None:
    async def story(world: World) -> None:
        await world.run(35)
        assert await world.used() == [500, 500, 500]
        assert await world.used("device", "0") == [750, 750, 750]
        assert await world.used("queue", "default") == [500, 500, 500]
        assert await world.used("user", "1000") == [500, 500, 500]

    play(story)


def test_a_device_has_the_mean_of_every_second(play: Any) -> None:
    async def story(world: World) -> None:
        await world.run(10)
        world.utilization = 0.25
        await world.run(5)
        world.utilization = 0.75
        await world.run(5)
        assert (await world.used("device", "GPU-0") or [])[-1] == pytest.approx(450, abs=60)

    play(story)


def test_a_user_reads_what_is_their_own(play: Any) -> None:
    async def story(world: World) -> None:
        await world.run(15)
        assert await world.used(uid=1000)
        assert await world.used("device", "0", uid=2000)
        assert await world.used(uid=2000) is None
        assert await world.used("user", "1000", uid=2000) is None

    play(story)


def test_a_restarted_daemon_continues(play: Any, tmp_path: Path) -> None:
    async def first(world: World) -> None:
        await world.run(25)
        await world.recorder.stop()

    async def second(world: World) -> None:
        world.wall_s += 30
        del world.state.slices["a"]
        await world.run(15)
        assert await world.used() == [500, 500], "it has ended, and is read from the file"
        assert len(await world.used("device", "0") or []) == 3

    play(first)
    play(second)


def test_it_saves_at_times_and_both_parts_are_read_as_one(play: Any) -> None:
    async def story(world: World) -> None:
        await world.run(SAVE_S + 1)
        await world.recorder._saving
        before = len(await world.used() or [])
        await world.run(20)
        assert len(await world.used() or []) == before + 2

    play(story)


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0, -4e9, 1e18])
def test_a_clock_that_is_set_loses_nothing(play: Any, jump_s: float) -> None:
    async def story(world: World) -> None:
        await world.run(35)
        world.wall_s += jump_s
        await world.run(25)
        world.wall_s = NOW_S + 60.0
        await world.run(15)
        await world.recorder._save()
        found = await world.used() or []
        assert found[:3] == [500, 500, 500]
        assert not world.notes

    play(story)


def test_a_damaged_file_is_one_event_and_the_history_begins_again(play: Any, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 1000)

    async def story(world: World) -> None:
        await world.run(15)
        await world.recorder._save()
        await world.run(10)
        await world.recorder._save()
        assert await world.used() == [500]

    world = play(story)
    assert len(world.notes) == 1
    assert "set aside" in world.notes[0]


def test_what_is_in_memory_is_shown_where_the_file_cannot_be_read(play: Any, tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.run(25)
        (tmp_path / FILE_NAME).mkdir()
        assert await world.used() == [500, 500]
        with pytest.raises(StoreError, match="cannot read the history"):
            await world.used("slice", "ended")

    assert len(play(story).notes) == 1


def test_a_disk_that_hangs_stops_neither_the_clock_nor_grows(play: Any) -> None:
    released = threading.Event()

    async def story(world: World) -> None:
        world.file.save = lambda unsaved: released.wait(30)  # type: ignore[assignment]
        try:
            await world.run(3 * SAVE_S + 25)
            points = world.recorder._unsaved.series["slice", "uid-a"].points
            assert sum(point.samples for (level, _), point in points.items() if level == 0) == 2
        finally:
            released.set()
        await world.recorder._saving

    play(story)


def test_it_can_be_off() -> None:
    recorder = HistoryRecorder(None, *[None] * 4)  # type: ignore[arg-type]
    recorder.tick()
    assert not recorder.is_on
