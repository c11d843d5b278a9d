"""Claims that are wrong, a kubelet that repeats and reorders, an API server that is away: each with the sentence that
the pod's event shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.k8s.core.world import World
from tests.k8s.parts import allocated
from vgpud.k8s.core import events as ev
from vgpud.k8s.core.model import Ref

POD = "pod-1"
HALF = {"sm": "500", "memory": "1Gi"}


def ready(gpus: int = 1) -> World:
    world = World(gpus)
    assert world.run()
    return world


def half(world: World, name: str = "half", **fields: Any) -> Ref:
    return world.add(allocated(name, ("gpu-0", HALF), pods=(POD,), **fields))


# ---- claims ----


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (
            [("gpu-0", {"cores": "500"})],
            "claim team/half, device gpu-0: no capacity cores: sm, memory, slices, smMax, memoryMax",
        ),
        (
            [("gpu-0", {"sm": "500m"})],
            "claim team/half, device gpu-0, sm: 500m is not a whole number: sm is in thousandths of a GPU"
            " (500 is half of one)",
        ),
        (
            [("gpu-0", {"sm": "500", "smMax": "400"})],
            "claim team/half, device gpu-0: smMax 0.4 is below sm 0.5: smMax is the maximum, 0 = as sm",
        ),
        (
            [("gpu-0", {"sm": "500", "memory": "2Gi", "memoryMax": "1Gi"})],
            "claim team/half, device gpu-0: memoryMax 1GiB is below memory 2GiB: memoryMax is the maximum,"
            " 0 = as memory",
        ),
        (
            [("gpu-0", HALF), ("gpu-0", HALF)],
            "claim team/half has GPU gpu-0 twice: add a constraint with distinctAttribute gpu.vgpu.dev/uuid, or ask for"
            " the sum in one request",
        ),
        (
            [("gpu-7", HALF)],
            "claim team/half has device gpu-7, which this node does not have: it has gpu-0, gpu-1",
        ),
        (
            [("gpu-0", {"sm": "500", "memory": "9" * 20})],
            f"claim team/half, device gpu-0, memory: {'9' * 20} is more than any device has",
        ),
    ],
)
def test_what_is_wrong_with_a_claim_is_said_and_makes_no_slice(
    devices: list[tuple[str, dict[str, str]]], message: str
) -> None:
    world = ready(2)
    ref = world.add(allocated("half", *devices, pods=(POD,)))
    assert world.prepare(ref).error == message
    assert not world.slices and not world.state.work


def test_of_a_claim_for_two_drivers_only_ours_is_prepared() -> None:
    world = ready()
    claim = allocated("half", ("gpu-0", HALF), pods=(POD,))
    other = {"request": "nic", "driver": "nic.example.com", "pool": "n9", "device": "eth0", "shareID": "x"}
    claim["status"]["allocation"]["devices"]["results"].insert(0, other)
    foreign = {"source": "FromClaim", "opaque": {"driver": "nic.example.com", "parameters": {"mtu": 9000}}}
    claim["status"]["allocation"]["devices"]["config"] = [foreign]
    answer = world.prepare(world.add(claim))
    assert not answer.error and [one.request for one in answer.results] == ["r0"]
    assert [one["driver"] for one in world.status[0].devices] == ["gpu.vgpu.dev"]


def test_a_claim_that_was_deleted_or_made_again_since_it_was_allocated() -> None:
    world = ready()
    ref = half(world)
    world.remove(ref)
    assert world.prepare(ref).error == "claim team/half does not exist: it was deleted before its pod started"
    new_claim = half(world)
    assert world.prepare(ref).error == (
        f"claim team/half has another uid than kubelet asks for ({ref.uid}): it was deleted and created again"
    )
    assert not world.prepare(new_claim).error and list(world.slices) == [new_claim.uid]


def test_a_claim_that_is_deleted_while_its_slice_is_made_leaves_none() -> None:
    world = ready()
    ref = half(world)
    number = world.call(ref)
    world.run(1)  # it has been read
    world.remove(ref)
    assert world.run() and not world.answers[number].error
    world.post(world.node_seen())
    world.tick(601)
    assert world.run() and not world.slices


# ---- kubelet ----


def test_unprepare_before_prepare() -> None:
    world = ready()
    ref = half(world)
    assert world.unprepare(ref).error == ""
    assert world.prepare(ref).error == "" and list(world.slices) == [ref.uid]


def test_two_prepares_at_once_make_one_slice_and_get_one_answer() -> None:
    world = ready()
    ref = half(world)
    first, second = world.call(ref), world.call(ref)
    assert world.run() and world.made_slices == 1
    one, two = world.answers[first], world.answers[second]
    assert (one.cdi_devices, one.results, one.error) == (two.cdi_devices, two.results, two.error)


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("order", [(False, True), (True, False), (False, True, False), (True, False, True)])
def test_calls_that_cross_are_carried_out_in_kubelets_order(order: tuple[bool, ...], steps: int) -> None:
    """ending: True. Each call comes some steps after the one before."""
    world = ready()
    ref = half(world)
    calls = []
    for ending in order:
        calls.append(world.call(ref, ending=ending))
        world.run(steps)
    assert world.run() and not any(world.answers[number].error for number in calls)
    assert list(world.slices) == ([] if order[-1] else [ref.uid])


def test_claims_in_one_call_do_not_wait_for_each_other() -> None:
    world = ready()
    good, bad = half(world, "good"), Ref("u", "team", "gone")
    numbers = [world.call(good), world.call(bad)]
    assert world.run()
    assert [bool(world.answers[number].error) for number in numbers] == [False, True]


# ---- an API server that is away for an hour ----


class Hour:
    """A node on which a claim is prepared when the API server goes."""

    def __init__(self, change_world: Callable[[World], None] = lambda world: None) -> None:
        self.world = world = ready()
        self.old_claim = half(world, "kept")
        assert not world.prepare(self.old_claim).error
        self.old_counts = (world.writes, len(world.status), len(world.logs))
        world.api_is_there = False
        self.request_count = 0  # requests that the server would have had
        for second in range(3600):
            if second % 60 == 0:
                change_world(world)
                world.post(world.node_seen())
            world.tick(1)
            while world.commands:
                self.request_count += isinstance(world.commands[0], ev.ReadClaim | ev.Publish | ev.WriteStatus)
                world.run(1)

    def ends(self) -> tuple[int, int]:
        """The writes (of ResourceSlices, of claims) when it is back."""
        self.world.api_is_there = True
        for _ in range(1300):
            self.world.tick(1)
            assert self.world.run()
        return self.world.writes - self.old_counts[0], len(self.world.status) - self.old_counts[1]


def test_without_changes_it_is_asked_six_times_and_then_nothing_is_written() -> None:
    hour = Hour()
    assert list(hour.world.slices) == [hour.old_claim.uid] and hour.request_count <= 7
    assert hour.ends() == (0, 0)


def test_prepare_says_so_at_once_and_unprepare_works() -> None:
    hour = Hour()
    late = half(hour.world, "late")
    assert hour.world.prepare(late).error == (
        "the API server cannot be asked for claim team/late: the server is not there"
    )
    assert not hour.world.unprepare(hour.old_claim).error and not hour.world.slices
    hour.ends()
    assert not hour.world.prepare(late).error


def test_changes_of_that_hour_are_written_once() -> None:
    def flap(world: World) -> None:
        world.gpus = tuple(replace(gpu, drained="" if gpu.drained else "hot") for gpu in world.gpus)

    hour = Hour(flap)
    assert hour.request_count < 3600
    flap(hour.world)
    hour.world.post(hour.world.node_seen())
    assert hour.ends() == (2, 0), "a ResourceSlice of counters and one of devices"
