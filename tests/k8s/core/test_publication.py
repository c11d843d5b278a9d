"""What vgpud gets to know of what is published: by which driver, when, and what is wrong with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.k8s.core.plugin_world import World as PluginWorld
from tests.k8s.core.test_published import NODE, gpus, store_slices
from tests.k8s.core.world import World
from vgpud.core.model import PUBLISHED_MAX
from vgpud.k8s.core import events as ev
from vgpud.k8s.core.machine import State, step
from vgpud.k8s.core.names import RESOURCE
from vgpud.k8s.core.publication import REPORT_NS, Capacity, count_tenths, read_pool
from vgpud.k8s.core.published import Policy, changes, specs

SECOND_NS = 1_000_000_000


def world_that_publishes() -> World:
    world = World()
    world.run()
    world.tick(1)
    world.run()
    return world


def test_vgpud_is_told_the_pool_as_the_api_server_has_it() -> None:
    world = world_that_publishes()
    told = world.publications[-1]
    stored = [one["spec"] for one in world.pool.values()]
    assert (told.pool, told.generation, told.problem) == (NODE, stored[0]["pool"]["generation"], "")
    assert {one.name for one in told.devices} == {d["name"] for spec in stored for d in spec.get("devices", [])}
    (free,) = [one for one in told.devices if one.name == "gpu-0"]
    assert free.uuid == "GPU-0" and free.is_shareable
    memory = {one.name: one for one in free.capacities}["memory"]
    assert memory == Capacity("memory", "140400Mi", "140400Mi", "2Mi", "140400Mi", "2Mi")
    (half,) = [one for one in told.devices if one.name == "gpu-0-half-1"]
    assert not half.is_shareable
    assert half.capacities == (Capacity("memory", "70200Mi"), Capacity("sm", "500"))


def test_it_is_told_after_a_change_and_now_and_then() -> None:
    world = world_that_publishes()
    count = len(world.publications)
    for _ in range(REPORT_NS // SECOND_NS - 2):
        world.tick(1)
        world.run()
    assert len(world.publications) == count, "nothing has changed"
    world.tick(2)
    world.run()
    assert len(world.publications) == count + 1, "so that vgpud knows that the driver is there"
    world.gpus = tuple(replace(gpu, drained="fan") for gpu in world.gpus)
    world.post(world.node_seen())
    world.run()
    world.tick(1)
    world.run()
    assert world.publications[-1].generation == world.publications[0].generation + 1


def test_a_vgpud_that_was_started_again_is_told_at_once() -> None:
    world = world_that_publishes()
    count = len(world.publications)
    world.vgpud_is_there = False
    world.post(ev.NodeLost())
    for _ in range(60):
        world.tick(1)
        world.run()
    assert len(world.publications) == count, "it is not asked"
    assert not [text for text in world.logs if "reported" in text]
    world.vgpud_is_there = True
    world.post(world.node_seen())
    world.tick(1)
    world.run()
    assert len(world.publications) == count + 1


def test_an_older_vgpud_that_does_not_take_it_is_one_line_of_the_log() -> None:
    world = world_that_publishes()
    world.vgpud_is_there = False
    for _ in range(4):
        world.tick(REPORT_NS / SECOND_NS)
        world.run()
    assert len([text for text in world.logs if "what is published cannot be reported to vgpud" in text]) == 1


def test_one_report_is_under_way_at_a_time() -> None:
    state = State(NODE)
    for event in (ev.Leads(), ev.NodeSeen((), ())):
        step(state, event, 0)
    made = [type(command) for command in step(state, ev.Tick(), 1)]
    assert made.count(ev.ReportPublication) == 1
    assert ev.ReportPublication not in map(type, step(state, ev.Tick(), 10 * REPORT_NS))
    step(state, ev.PublicationReported(), 10 * REPORT_NS)
    assert ev.ReportPublication in map(type, step(state, ev.Tick(), 10 * REPORT_NS))


def test_a_driver_that_waits_for_its_predecessor_says_nothing() -> None:
    state = State(NODE)
    step(state, ev.NodeSeen((), ()), 0)
    assert ev.ReportPublication not in map(type, step(state, ev.Tick(), REPORT_NS))


def problem_after(world: World, *events: ev.Event) -> str:
    for event in events:
        world.post(event)
    world.run()
    world.tick(REPORT_NS / SECOND_NS)
    world.run()
    return world.publications[-1].problem


def test_what_is_wrong_is_told() -> None:
    world = World()
    world.state = State(NODE, world.policy)
    world.commands.clear()
    assert problem_after(world, ev.Leads(), world.node_seen()) == "kubelet has not registered the driver"
    assert "API server has not answered" in problem_after(world, ev.Registered())
    world.api_is_there = False
    assert problem_after(world, world.pool_seen()) == "the ResourceSlices cannot be written: the server is not there"
    world.api_is_there = True
    world.tick(60)
    assert problem_after(world) == ""
    dropped = ev.Published(dropped_fields=("devices.capacity",))
    assert "does not store devices.capacity" in problem_after(world, dropped)
    world.gpus = tuple(replace(gpu, is_for_kubernetes=False) for gpu in world.gpus)
    assert "no GPU of this node is given to Kubernetes" in problem_after(world, world.node_seen())


def test_the_newest_generation_counts_and_has_to_be_complete() -> None:
    wanted = specs(gpus(), NODE, Policy())
    stored = store_slices(changes(wanted, [], NODE, ()).writes)
    assert read_pool(stored, "").problem == ""
    stored[1]["spec"]["pool"] = {**stored[1]["spec"]["pool"], "generation": 7}
    half = read_pool(stored, "")
    assert half.generation == 7 and "generation 7 is not complete" in half.problem
    assert read_pool(stored[:1], "").devices == (), "the counters alone"
    assert "no ResourceSlice" in read_pool([], "").problem


@pytest.mark.parametrize("spec", [{}, {"devices": None}, {"devices": [{}]}, {"devices": [{"capacity": {"sm": {}}}]}])
def test_what_another_client_wrote_there_is_no_fault(spec: dict[str, object]) -> None:
    told = read_pool([{"metadata": {"name": "x"}, "spec": spec}], "")
    assert told.pool == "" and len(told.devices) <= 1


def test_there_is_a_bound() -> None:
    devices = [{"name": f"gpu-{number}"} for number in range(PUBLISHED_MAX + 1)]
    assert len(read_pool([{"metadata": {"name": "x"}, "spec": {"devices": devices}}], "").devices) == PUBLISHED_MAX


def test_the_device_plugin_tells_what_it_counts() -> None:
    world = PluginWorld(gpus=2)
    world.seconds(2)
    told = world.publications[-1]
    assert told.resource == RESOURCE and not told.pool and not told.problem
    assert [(one.uuid, one.capacities[0].value) for one in told.devices] == [("GPU-0", "10"), ("GPU-1", "10")]
    nothing = count_tenths(gpus(), ())
    assert nothing.devices == () and "no GPU of this node is given" in nothing.problem
