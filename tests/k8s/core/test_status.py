"""status.devices of a claim: brought up to date after a resize, and written only when the server has something else."""

from __future__ import annotations

from dataclasses import replace

from tests.k8s.core.world import MIB, World
from tests.k8s.parts import allocated
from vgpud.k8s.core import events as ev
from vgpud.k8s.core.model import Granted, Ref

POD = "pod-1"


def prepare_claim(world: World, *devices: str) -> Ref:
    assert world.run()
    taken = [(name, {"sm": "500", "memory": "1Gi"}) for name in devices or ("gpu-0",)]
    ref = world.add(allocated("half", *taken, pods=(POD,)))
    assert not world.prepare(ref).error
    report_node(world)
    return ref


def report_node(world: World) -> None:
    world.post(world.node_seen())
    assert world.run()


def resize(world: World, ref: Ref, max_milli: int) -> None:
    world.resized_shares[ref.uid] = tuple(
        replace(one, max_milli=max_milli) for one in world.slices[ref.uid].requested_claim.granted
    )
    report_node(world)


def maxima(world: World, ref: Ref) -> list[int]:
    return [one["data"]["smMilli"]["max"] for one in world.claims[ref.namespace, ref.name]["status"]["devices"]]


def test_it_says_the_numbers_in_force_for_each_result() -> None:
    world = World(2)
    ref = prepare_claim(world, "gpu-1", "gpu-0")
    first, second = world.claims[ref.namespace, ref.name]["status"]["devices"]
    assert (first["device"], second["device"]) == ("gpu-1", "gpu-0")
    assert first["data"] == {
        "slice": f"k-{ref.uid}",
        "uuid": "GPU-1",
        "smMilli": {"min": 500, "max": 500},
        "memoryBytes": {"min": 1024 * MIB, "max": 1024 * MIB},
    }
    assert first["shareID"] and first["shareID"] != second["shareID"]
    assert first["conditions"] == [
        {"type": "Ready", "status": "True", "reason": "Prepared", "message": f"slice k-{ref.uid}"}
    ]


def test_a_resize_is_written_once_and_nothing_without_one() -> None:
    world = World()
    ref = prepare_claim(world)
    for _ in range(100):
        world.tick(60)
        report_node(world)
        assert not world.prepare(ref).error
    assert len(world.status) == 1
    resize(world, ref, 900)
    assert maxima(world, ref) == [900] and len(world.status) == 2
    world.tick(3600)
    assert not world.prepare(ref).error
    assert maxima(world, ref) == [900] and len(world.status) == 2


def test_a_condition_keeps_the_time_from_which_on_it_was_so() -> None:
    world = World()
    ref = prepare_claim(world)
    world.claims[ref.namespace, ref.name]["status"]["devices"][0]["conditions"][0]["lastTransitionTime"] = "then"
    resize(world, ref, 900)
    assert world.status[-1].devices[0]["conditions"][0]["lastTransitionTime"] == "then"


def test_a_driver_that_was_away_during_the_resize_writes_it() -> None:
    world = World()
    ref = prepare_claim(world)
    world.resized_shares[ref.uid] = tuple(
        replace(one, max_milli=700) for one in world.slices[ref.uid].requested_claim.granted
    )
    world.start()
    world.tick(1)
    assert world.run() and maxima(world, ref) == [700]
    world.start()
    world.tick(1)
    assert world.run() and len(world.status) == 2


def test_resizes_while_it_is_being_written_end_with_the_last_numbers() -> None:
    world = World()
    ref = prepare_claim(world)
    for most in (600, 700, 500, 800, 500):
        world.resized_shares[ref.uid] = tuple(
            replace(one, max_milli=most) for one in world.slices[ref.uid].requested_claim.granted
        )
        world.post(world.node_seen())
        world.run(1)
    assert world.run() and maxima(world, ref) == [500]
    assert not world.state.telling and not world.state.checks


def test_a_write_that_failed_is_made_when_the_claims_are_compared_again() -> None:
    world = World()
    ref = prepare_claim(world)
    world.tick(1)
    assert world.run()
    world.resized_shares[ref.uid] = tuple(
        replace(one, max_milli=700) for one in world.slices[ref.uid].requested_claim.granted
    )
    world.post(world.node_seen())
    world.run(1)  # the claim is read, and then the server goes
    world.api_is_there = False
    assert world.run() and maxima(world, ref) == [500]
    assert any("status of claim team/half could not be written" in text for text in world.logs)
    world.api_is_there = True
    world.tick(601)
    assert world.run() and maxima(world, ref) == [700]


def test_other_drivers_entries_are_not_ours() -> None:
    world = World()
    ref = prepare_claim(world)
    status = world.claims[ref.namespace, ref.name]["status"]
    status["devices"].append({"driver": "nic.example.com", "pool": "n1", "device": "eth0"})
    world.start()
    world.tick(1)
    assert world.run() and len(world.status) == 1


def test_what_others_added_to_ours_is_left_alone() -> None:
    world = World()
    ref = prepare_claim(world)
    (entry,) = world.claims[ref.namespace, ref.name]["status"]["devices"]
    entry["networkData"] = {"interfaceName": "x"}
    entry["conditions"] += [{"type": "Checked", "status": "True", "lastTransitionTime": "then"}]
    entry["conditions"][0] |= {"lastTransitionTime": "then", "observedGeneration": 3}
    world.start()
    world.tick(1)
    assert world.run() and len(world.status) == 1


def test_what_others_wrote_into_ours_is_put_right() -> None:
    world = World()
    ref = prepare_claim(world)
    for wrong in (None, [], [{"driver": "gpu.vgpu.dev"}], "text"):
        world.claims[ref.namespace, ref.name]["status"]["devices"] = wrong
        world.start()
        world.tick(1)
        assert world.run() and maxima(world, ref) == [500]


def test_a_resize_seen_with_numbers_of_no_result_harms_nothing() -> None:
    world = World()
    ref = prepare_claim(world)
    world.resized_shares[ref.uid] = (Granted("GPU-9", 1, 2, 3, 4),)
    report_node(world)
    assert maxima(world, ref) == [500]
    assert isinstance(world.status[-1], ev.WriteStatus)
