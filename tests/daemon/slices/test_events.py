"""Events as they are recorded: whose they are, how many, and what the store misses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from vgpud.core.events import Log
from vgpud.core.observed import ADMINS, Entry
from vgpud.daemon.slices.changes import ChangeSignal
from vgpud.daemon.slices.event_log import NOISY_PER_S, EventLog
from vgpud.daemon.slices.events import EventRecorder
from vgpud.errors import StoreError

ALICE, BOB = 1000, 1001


class Disk:
    def __init__(self) -> None:
        self.fault = ""
        self.kinds: list[str] = []

    def append_events(self, entries: Iterable[Entry], events_max: int) -> None:
        if self.fault:
            raise StoreError(self.fault)
        self.kinds += [entry.kind for entry in entries]


def recorder(disk: Any, changes: Any = None) -> EventRecorder:
    changes = changes or SimpleNamespace(wake=lambda: None)
    return EventRecorder(EventLog((), 100), disk, changes, {"a": ALICE}.get)


def test_an_event_is_its_slices_owners() -> None:
    events = recorder(Disk())
    events.log.remember_owner("gone", BOB)
    for entry in (Log("k", "", "a"), Log("k", "", "gone"), Log("k", "", "b"), Log("k", "", "a", owner_uid=7)):
        events.note(entry)
    assert [entry.owner_uid for entry in events.log.entries_after(0)] == [ALICE, BOB, ADMINS, 7]


def test_what_others_can_cause_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 1)
    events = recorder(Disk())
    for _ in range(NOISY_PER_S + 5):
        events.note_bounded("a", Log("k", "", "a"))
    assert len(events.log.entries_after(0)) == NOISY_PER_S


def test_what_could_not_be_written_is_written_later_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    events = recorder(disk)
    disk.fault = "the disk is full"
    for kind in ("one", "two"):
        events.note(Log(kind, ""))
        events.write(10)
    disk.fault = ""
    events.note(Log("three", ""))
    events.write(10)
    assert disk.kinds == ["one", "two", "three"]
    assert caplog.messages.count("the disk is full") == 1


def test_each_event_wakes_those_who_wait() -> None:
    async def wait() -> int:
        changes = ChangeSignal()
        events, before = recorder(Disk(), changes), changes.count
        waits = asyncio.create_task(changes.wait(30))
        await asyncio.sleep(0)
        events.note(Log("k", ""))
        await asyncio.wait_for(waits, 10)
        await changes.wait(0.01)  # nothing comes: the timeout
        return changes.count - before

    assert asyncio.run(wait()) == 1
