"""Gangs whose devices form a ring: no device is common to all, so none leads, and the hardware slices between them.

A world of three devices with an arbiter each, model and core at once. A gang's step is a kernel of its own on each of
its two devices, then one on both that makes progress only while both have it running.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from models.arbiter.model import MS, Slice, SliceParams
from tests.arbiter.pair import Pair
from vgpud.core.model import Share, Spec
from vgpud.core.model import Slice as Whole
from vgpud.core.origins import User
from vgpud.core.slices.gangs import Role, roles

DEVICES = ("a", "b", "c")
RING = (("a", "b"), ("b", "c"), ("c", "a"))
TICK_NS = MS // 2
OWN_NS = 2 * MS
MEET_NS = MS // 2
DEPTH = 3
#: the hardware's slices; timers of two devices are never alike
SLICES_NS = {"a": 2 * TICK_NS, "b": 3 * TICK_NS, "c": 5 * TICK_NS}


@dataclass(eq=False)
class Part:
    """What a gang has on one of its devices."""

    row: Slice
    gang: Gang
    launch_count: int = 0  # steps
    done: int = 0
    own_left_ns: int = OWN_NS
    ran_ns: int = 0

    @property
    def has_work(self) -> bool:
        return self.launch_count > self.done

    @property
    def spins(self) -> bool:
        return self.own_left_ns <= 0


@dataclass(eq=False)
class Gang:
    parts: list[Part] = field(default_factory=list)
    meet_left_ns: int = MEET_NS

    @property
    def meetings(self) -> int:
        return self.parts[0].done

    def meet(self, running: list[Part]) -> None:
        """Every part that has reached it continues once all of them run."""
        if not all(part.spins and part in running for part in self.parts):
            return
        self.meet_left_ns -= TICK_NS
        if self.meet_left_ns <= 0:
            self.meet_left_ns = MEET_NS
            for part in self.parts:
                part.done += 1
                part.own_left_ns = OWN_NS


class Device:
    """Runs one part at a time, round robin, in slices."""

    def __init__(self, slice_ns: int) -> None:
        self.pair = Pair()
        self.parts: list[Part] = []
        self._slice_ns = slice_ns
        self._slice_end_ns = 0
        self._last: Part | None = None

    def running(self, now_ns: int) -> Part | None:
        if self._last and self._last.has_work and now_ns < self._slice_end_ns:
            return self._last
        index = self.parts.index(self._last) + 1 if self._last else 0
        order = self.parts[index:] + self.parts[:index]
        self._last = next((part for part in order if part.has_work), None)
        self._slice_end_ns = now_ns + self._slice_ns
        return self._last

    def report(self, now_ns: int) -> None:
        for part in self.parts:
            row = part.row
            row.outstanding = part.has_work
            row.wants = not row.is_open and part.launch_count < part.done + DEPTH
            row.running = int(part.has_work)
            row.busy_total_ns += TICK_NS * part.has_work
            row.active_total_ns += TICK_NS * (part.has_work or row.wants)
            row.done_total_ns = part.ran_ns
            row.noticed = not row.is_open
            row.quiet = not row.is_open and not part.has_work
            row.drained_ns = now_ns if row.quiet else row.close_ns
        self.pair.step(now_ns)


def ring_roles() -> list[list[Role]]:
    slices = [
        Whole(User(f"s{i}"), f"u{i}", i, Spec(1000), tuple(Share(uuid, 500, 1000, 0, 0) for uuid in uuids), -1, 0)
        for i, uuids in enumerate(RING)
    ]
    found = roles(slices, {uuid: index for index, uuid in enumerate(DEVICES)})
    return [[found[i, uuid] for uuid in uuids] for i, uuids in enumerate(RING)]


def meetings(roles: list[list[Role]] | None, milliseconds: int = 1500) -> list[int]:
    """Of each gang of the ring. roles None: no arbiter."""
    devices = {uuid: Device(SLICES_NS[uuid]) for uuid in DEVICES}
    gangs = [Gang() for _ in RING]
    for i, uuids in enumerate(RING):
        for j, uuid in enumerate(uuids):
            params = SliceParams(500, 1000, gang=roles[i][j].value if roles else 0)
            part = Part(devices[uuid].pair.set(i, params), gangs[i])
            gangs[i].parts.append(part)
            devices[uuid].parts.append(part)
    for gang in gangs:
        for part in gang.parts:
            part.row.attached = True
    for now_ns in range(MS, milliseconds * MS, TICK_NS):
        running = [part for part in (device.running(now_ns) for device in devices.values()) if part]
        for part in running:
            part.own_left_ns -= TICK_NS
            part.ran_ns += TICK_NS
        for gang in gangs:
            gang.meet(running)
            for part in gang.parts:
                if part.launch_count < part.done + DEPTH and (not roles or part.row.is_open):
                    part.launch_count += 1
        for device in devices.values():
            if roles:
                device.report(now_ns)
    return [gang.meetings for gang in gangs]


def test_no_device_leads_a_ring() -> None:
    assert ring_roles() == [[Role.OPEN] * 2] * 3


def test_gangs_of_a_ring_progress_as_without_an_arbiter() -> None:
    free, ours = meetings(None), meetings(ring_roles())
    assert min(free) > 100
    assert all(mine > 0.8 * theirs for mine, theirs in zip(ours, free, strict=True)), (ours, free)


@pytest.mark.parametrize("led", [Role.NONE, Role.LEADER])
def test_turns_on_each_device_by_itself_would_hold_them_up(led: Role) -> None:
    """Why they run open."""
    assert min(meetings([[led] * 2] * 3)) < 0.6 * min(meetings(None))
