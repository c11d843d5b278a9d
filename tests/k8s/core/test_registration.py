"""When the driver publishes: after kubelet has registered it, and while no other one does."""

from __future__ import annotations

from collections import deque

from tests.k8s.core.world import NODE, World
from vgpud.k8s.core import events as ev
from vgpud.k8s.core.machine import REGISTER_NS, SECOND_NS, State


def make_unregistered_world() -> World:
    """A driver that knows the node and the cluster, and that kubelet does not know."""
    world = World()
    world.state, world.commands = State(NODE), deque()
    world.post(world.node_seen())
    world.post(world.pool_seen(is_from_list=True))
    return world


def test_nothing_is_published_before_kubelet_knows_the_driver() -> None:
    """A pod that is placed in that gap would be tried again a minute later."""
    world = make_unregistered_world()
    world.post(ev.Leads())
    for _ in range(100):
        world.tick(1)
    assert world.run() and world.writes == 0 and not world.state.is_ready
    world.post(ev.Registered())
    assert world.run() and world.writes > 0 and world.state.is_ready


def test_while_one_is_replaced_the_former_one_publishes() -> None:
    world = make_unregistered_world()
    world.post(ev.Registered())
    world.tick(100)
    assert world.run() and world.writes == 0
    assert world.state.is_ready, "else the former one would be kept for ever"
    world.post(ev.Leads())
    assert world.run() and world.writes > 0 and world.state.is_ready


def test_it_is_ready_without_vgpud_and_not_without_the_api_server() -> None:
    """A node without vgpud keeps no other one from its upgrade; a role that is too small does."""
    world = World()
    world.state, world.commands = State(NODE), deque()
    world.post(ev.Registered())
    assert not world.state.is_ready
    world.post(world.pool_seen(is_from_list=True))
    assert world.state.is_ready


def kubelet_starts(world: World) -> int:
    """It deletes the ResourceSlices. Returns how often had been written before."""
    world.run()
    world.tick(REGISTER_NS / SECOND_NS + 1)
    world.run()
    world.pool.clear()
    world.post(world.pool_seen())
    world.run()
    return world.writes


def test_a_kubelet_that_starts_registers_the_driver_before_pods_are_placed() -> None:
    world = World()
    before = kubelet_starts(world)
    world.tick(REGISTER_NS / SECOND_NS - 0.1)
    assert world.run() and world.writes == before
    world.post(ev.Registered())
    assert world.run() and world.writes > before


def test_what_another_than_kubelet_has_deleted_is_written_again_after_a_while() -> None:
    world = World()
    before = kubelet_starts(world)
    world.tick(REGISTER_NS / SECOND_NS)
    assert world.run() and world.writes > before


def test_a_kubelet_that_has_registered_it_and_deletes_then_is_not_waited_for() -> None:
    world = World()
    world.run()
    world.tick(100)
    world.post(ev.Registered())
    world.tick(1)
    world.run()
    before = world.writes
    world.pool.clear()
    world.post(world.pool_seen())
    world.tick(1)
    assert world.run() and world.writes > before
