"""Claims with adminAccess: devices that others have, without capacity and without a slice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.k8s.core.world import World
from tests.k8s.parts import allocated
from vgpud.k8s.core import published
from vgpud.k8s.core.admin_access import cdi_devices
from vgpud.k8s.core.machine import Policy
from vgpud.k8s.core.model import Gpu, Ref

POD, MONITOR = "pod-1", "pod-2"


def ready(**fields: Any) -> World:
    world = World(2)
    world.gpus = tuple(replace(gpu, **fields) for gpu in world.gpus)
    world.policy = Policy(published.Policy(monitors=True))
    world.start()
    assert world.run()
    return world


def monitor(world: World, *devices: str) -> Ref:
    return world.add(allocated("monitor", *((name, {}) for name in devices), pods=(MONITOR,), adminAccess=True))


def test_a_monitor_sees_gpus_that_are_full_and_takes_nothing_of_them() -> None:
    world = ready()
    full = world.add(allocated("full", ("gpu-0", {"sm": "1k", "memory": "140400Mi"}), pods=(POD,)))
    assert not world.prepare(full).error
    ref = monitor(world, "gpu-0-monitor", "gpu-1")
    answer = world.prepare(ref)
    assert (answer.error, answer.cdi_devices) == ("", ("nvidia.com/gpu=0", "nvidia.com/gpu=1"))
    assert [result.device for result in answer.results] == ["gpu-0-monitor", "gpu-1"]
    assert list(world.slices) == [full.uid]
    assert not world.unprepare(ref).error and list(world.slices) == [full.uid]


def test_the_same_call_gets_the_same_answer_also_of_a_driver_that_was_started_again() -> None:
    world = ready()
    ref = monitor(world, "gpu-0")
    first = world.prepare(ref)
    world.start()
    assert world.run() and replace(world.prepare(ref), call=first.call) == first


@pytest.mark.parametrize("state", [{"drained": "a fan"}, {"fault": "Xid 79"}, {"taken_by": "MPS"}])
def test_a_gpu_that_gets_no_claims_can_be_looked_at(state: dict[str, str]) -> None:
    world = ready(**state)
    assert world.prepare(monitor(world, "gpu-1")).cdi_devices == ("nvidia.com/gpu=1",)


@pytest.mark.parametrize("device", ["gpu-0", "gpu-0-monitor"])
def test_a_site_without_monitors_prepares_none(device: str) -> None:
    world = ready()
    world.policy = Policy()
    world.start()
    assert world.run()
    answer = world.prepare(monitor(world, device))
    assert "has adminAccess, which this site does not allow" in answer.error and not answer.cdi_devices


def test_parts_of_one_gpu_are_one_device() -> None:
    world = ready()
    assert world.prepare(monitor(world, "gpu-0", "gpu-0-half-0")).cdi_devices == ("nvidia.com/gpu=0",)


def test_names_are_those_of_nvidias_specification() -> None:
    instance = Gpu("MIG-1", 203, "H200 MIG 1g.18gb", 1 << 34, 2 << 20, parent_uuid="GPU-1", profile="1g.18gb")
    assert cdi_devices([instance]) == ("nvidia.com/gpu=1:3",)
    assert cdi_devices([replace(instance, is_simulated=True)]) == ()


def test_a_claim_with_and_without_it_is_refused() -> None:
    world = ready()
    claim = allocated("both", ("gpu-0", {"sm": "5", "memory": "1Gi"}), ("gpu-1", {}), pods=(POD,))
    claim["status"]["allocation"]["devices"]["results"][1]["adminAccess"] = True
    assert world.prepare(world.add(claim)).error == (
        "claim team/both has requests with adminAccess and without: those with it have no slice, so make a claim for"
        " each"
    )
    assert not world.slices


def test_the_device_for_monitors_is_for_nothing_else() -> None:
    world = ready()
    ref = world.add(allocated("use", ("gpu-0-monitor", {}), pods=(POD,)))
    assert "gpu-0-monitor: it is for monitoring, by claims with adminAccess" in world.prepare(ref).error
    assert not world.slices


def test_a_device_that_is_not_there_is_named() -> None:
    world = ready()
    assert "has device gpu-9, which this node does not have" in world.prepare(monitor(world, "gpu-9")).error
