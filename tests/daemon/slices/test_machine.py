"""Requests and events on the machine alone: a store, arbiters and effects that fail on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.core.test_machine import create, device
from vgpud.core import events as ev
from vgpud.core.model import Denied, Reason, SiteLimits, Slice, Spec
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.errors import StoreError
from vgpud.store.database import Store


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **options), 30))

    return run


class World:
    """The machine and what it works on. `story`: what was done, in its order; `disk_fault`, `fault`: why it fails."""

    def __init__(self, directory: Path) -> None:
        self.story: list[str] = []
        self.disk_fault = self.fault = ""
        self.database = Store(directory)
        arbiters: Any = SimpleNamespace(apply=self.give_back)
        store: Any = self
        self.needs_flush = False
        self.machine = SliceMachine(store, arbiters)
        rules: Any = SimpleNamespace(settle_attachments=nullcontext, renew_rules=lambda: None)
        self.machine.begin(self, rules, ev.Started(SiteLimits(), (device(0),), (), ()))
        self.story.clear()

    def apply(self, commands: Iterable[ev.Command]) -> None:
        if self.disk_fault:
            raise StoreError(self.disk_fault)
        commands = list(commands)
        self.story += ["saved" for command in commands if isinstance(command, ev.SaveSlice | ev.ForgetSlice)]
        self.database.apply(commands)

    def forget_request(self, key: str) -> None:
        self.story.append("request forgotten")
        self.database.forget_request(key)

    def flush(self) -> None:
        """As the store's; nothing here waits for the disk."""

    def carry_out(self, commands: Iterable[ev.Command]) -> None:
        for command in commands:
            if isinstance(command, ev.ApplySlice):
                if self.fault:
                    raise OSError(0, self.fault)
                self.story.append(f"{command.slice.name} has {command.slice.spec.gpus_milli}")
            if isinstance(command, ev.RemoveSlice):
                self.story.append(f"{command.slice.name} is gone")

    def give_back(self, slice_: Slice, dropped_uuids: Iterable[str]) -> None:
        self.story.append(f"{slice_.name} has {slice_.spec.gpus_milli} again")

    async def make(self) -> Slice:
        made = await self.machine.submit(create("a", 500))
        assert isinstance(made, Slice)
        self.story.clear()
        return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@on_a_loop
async def test_a_slice_is_saved_before_it_is_there(world: World) -> None:
    assert isinstance(await world.machine.submit(create("a", 500)), Slice)
    assert world.story == ["saved", "a has 500"] and list(world.machine.state.slices) == ["a"]
    assert world.machine.owner("a") == world.machine.state.slices["a"].owner_uid
    assert world.machine.owner("b") is None


@on_a_loop
async def test_what_cannot_be_saved_changes_nothing(world: World) -> None:
    before = world.machine.state
    world.disk_fault = "the disk is full"
    refused = await world.machine.submit(create("a", 500))
    assert isinstance(refused, Denied) and refused.reason is Reason.UNAVAILABLE
    assert refused.message == "nothing was changed: the disk is full"
    assert world.machine.state is before and not world.story


@on_a_loop
async def test_new_numbers_are_with_the_arbiters_first_and_taken_back_when_they_cannot_be_saved(world: World) -> None:
    made = await world.make()
    change = ev.UpdateSlice("", "a", Spec(250), ("gpus_milli",))
    assert isinstance(await world.machine.submit(change), Slice)
    assert world.story == ["a has 250", "saved", "a has 250"]
    world.story.clear()
    world.disk_fault = "the disk is full"
    assert isinstance(await world.machine.submit(replace(change, patch=Spec(750))), Denied)
    assert world.story == ["a has 750", "a has 250 again"]
    assert world.machine.state.slices["a"].serial == made.serial


@on_a_loop
async def test_a_slice_whose_effects_fail_is_taken_back(world: World) -> None:
    world.fault = "no place"
    refused = await world.machine.submit(replace(create("a", 500), request_id="once"))
    assert isinstance(refused, Denied)
    assert refused.message == "nothing was created: no place; see the daemon's log"
    assert not world.machine.state.slices and not world.machine.state.requests
    assert world.story == ["saved", "saved", "a is gone", "request forgotten"]


@on_a_loop
async def test_events_without_a_caller_are_carried_out_although_they_cannot_be_saved(world: World) -> None:
    await world.make()
    world.disk_fault = "the disk is full"
    world.machine.run(ev.DeleteSlice("", "a", True))
    assert world.story == ["a is gone"] and not world.machine.state.slices
