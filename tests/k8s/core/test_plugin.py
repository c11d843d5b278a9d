"""The device plugin's core between kubelet and vgpud: allocations, crashes between any two steps, registration."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.k8s.core.plugin_world import SECOND_NS, Pod, World, init_and_main, pod
from vgpud.k8s.core import plugin_events as ev
from vgpud.k8s.core.events import NodeLost, NodeSeen
from vgpud.k8s.core.model import Granted, Known
from vgpud.k8s.core.plugin import State, step

HOUR_S = 3600


def runs(world: World, one: Pod, name: str = "main") -> Pod:
    assert not one.error
    assert world.run_container(one, name) == ""
    world.check()
    return one


# ---- allocations ----


def test_pods_share_a_gpu_by_tenths_and_the_next_gets_what_they_leave() -> None:
    world = World()
    pods = [runs(world, pod(world, f"pod-{n}", tenths)) for n, tenths in enumerate((5, 3, 2))]
    assert "unavailable" in pod(world, "more", 1).error
    world.end_pod(pods[0])
    runs(world, pod(world, "next", 5))
    assert len(world.node.slices) == 3


def test_a_container_that_is_restarted_has_the_same_slice_without_a_call_of_kubelet() -> None:
    world = World()
    one = runs(world, pod(world, "one", 5))
    for _ in range(3):
        world.end_container(one, "main")
        world.restart_kubelet()
        world.seconds(10)
        runs(world, one)
    assert len(world.node.slices) == 1


def test_the_maximum_is_the_sites() -> None:
    world = World(max_milli=1000)
    one = runs(world, pod(world, "one", 5))
    (share,) = world.node.slices[one.containers[0].slice_name].shares
    assert (share.min_milli, share.max_milli) == (500, 1000)


def test_fifteen_tenths_are_a_gpu_and_a_half() -> None:
    world = World(gpus=3)
    runs(world, pod(world, "part", 4))
    one = runs(world, pod(world, "big", 15))
    shares = world.node.slices[one.containers[0].slice_name].shares
    assert sorted(share.min_milli for share in shares) == [500, 1000]


def test_tenths_of_one_gpu_that_are_free_on_two_only_are_refused() -> None:
    world = World(gpus=2)
    for n, tenths in enumerate((6, 6)):
        runs(world, pod(world, f"pod-{n}", tenths))
    assert "0.7 GPUs are free on this node only as 0.4 + 0.3 of 2 GPUs" in pod(world, "wide", 7).error
    runs(world, pod(world, "narrow", 4))


@pytest.mark.parametrize(("init", "main"), [([2], [5]), ([5], [2]), ([3], [1, 2]), ([1, 4], [3]), ([10], [4, 4])])
def test_init_containers_and_those_after_them_have_what_they_ask_for(init: list[int], main: list[int]) -> None:
    world = World()
    one = init_and_main(world, "one", init, main)
    other = None if sum(main) + max(init) > 10 else runs(world, pod(world, "other", 10 - max(sum(main), *init)))
    for _ in range(2):  # and once more when the sandbox was lost
        for n in range(len(init)):
            runs(world, one, f"init-{n}")
            world.end_container(one, f"init-{n}")
        for n in range(len(main)):
            runs(world, one, f"main-{n}")
        for n in range(len(main)):
            world.end_container(one, f"main-{n}")
    assert other is None or other.running
    world.end_pod(one)
    runs(world, pod(world, "next", max(sum(main), *init)))
    assert len(world.node.slices) == 1 + (other is not None)


def test_a_late_container_of_a_pod_that_is_gone_gets_nothing() -> None:
    world = World()
    late = pod(world, "late", 6)
    world.end_pod(late)
    runs(world, pod(world, "next", 6))
    assert "next has devices of this allocation" in world.run_container(late, "main")
    world.check()


# ---- crashes ----


@pytest.mark.parametrize("steps", range(4))
def test_killed_between_any_two_steps_of_an_allocation_the_next_pod_gets_the_devices(steps: int) -> None:
    world = World()
    first = pod(world, "first", 8, crash_after=steps)
    world.seconds(10)
    if not first.error:
        runs(world, first)
        world.end_pod(first)
    runs(world, pod(world, "second", 8))
    world.check()
    assert sum(one.shares[0].min_milli for one in world.node.slices.values()) == 800


def test_vgpud_that_restarts_is_waited_for() -> None:
    world = World()
    world.vgpud_is_there = False
    world.post(NodeLost())
    world.post(ev.AllocateCalled(99, "99999999-2222-3333-4444-555555555555", ("GPU-0-tenth-0",)))
    world.run()
    world.seconds(4)
    assert 99 not in world.answers
    world.vgpud_is_there = True
    world.seconds(1)
    assert world.answers[99].slice_name


def test_vgpud_that_stays_away_fails_the_pod_with_a_sentence_and_devices_stay_healthy() -> None:
    world = World()
    world.vgpud_is_there = False
    world.post(NodeLost())
    assert "vgpud" in pod(world, "one", 1).error and "does not answer" in world.pods["one"].error
    assert all(world.device_health.values()) and not world.state.work


def test_a_plugin_that_has_not_seen_vgpud_does_not_register() -> None:
    state = State()
    assert step(state, ev.KubeletSeen((1, 1), True, False), 0) == []
    calls = step(state, ev.AllocateCalled(1, "u", ("GPU-0-tenth-0",)), 0)
    assert calls == [] and state.work["u"].waits
    (refused,) = step(state, ev.Tick(), 10 * SECOND_NS)
    assert isinstance(refused, ev.Allocated) and "does not answer" in refused.error


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_whatever_happens_each_running_container_has_its_tenths_to_itself(data: st.DataObject) -> None:
    world = World(gpus=2)
    for number in range(data.draw(st.integers(5, 25))):
        alive = [one for one in world.pods.values() if not one.has_ended]
        act = data.draw(st.sampled_from(["admit", "start", "start", "stop", "end", "plugin", "kubelet", "vgpud"]))
        chosen = data.draw(st.sampled_from(alive)) if alive else None
        if act == "admit":
            world.vgpud_is_there = True
            init = data.draw(st.lists(st.integers(1, 6), max_size=2))
            one = init_and_main(
                world, f"pod-{number}", init, data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=2))
            )
            assert not one.error or "unavailable" in one.error or "are free on this node only as" in one.error
        elif act == "start" and chosen:
            later = [c.name for c in chosen.containers if not c.init and c.name not in chosen.running]
            first = [c.name for c in chosen.containers if c.init] if not chosen.running else []
            for name in first:
                assert world.run_container(chosen, name) == ""
                world.check()
                world.end_container(chosen, name)
            for name in later:
                assert world.run_container(chosen, name) == ""
        elif act == "stop" and chosen and chosen.running:
            world.end_container(chosen, min(chosen.running))
        elif act == "end" and chosen:
            world.end_pod(chosen)
        elif act == "plugin":
            world.start()
        elif act == "kubelet":
            world.restart_kubelet()
        elif act == "vgpud":
            world.vgpud_is_there = not world.vgpud_is_there
        world.seconds(7)
        world.check()


# ---- kubelet ----


def test_it_registers_once_and_again_with_each_kubelet_that_starts() -> None:
    world = World()
    world.seconds(60)
    assert world.registrations == 1
    for restarts in (2, 3):
        world.restart_kubelet()
        world.seconds(7)
        assert world.registrations == restarts and world.is_registered


def test_a_new_kubelet_is_registered_with_although_the_stream_of_the_former_one_has_not_ended() -> None:
    state = State()
    step(state, NodeSeen((), ()), 0)
    step(state, ev.Registered((1, 1)), 0)
    assert step(state, ev.KubeletSeen((1, 1), True, True), 9 * SECOND_NS) == []
    assert step(state, ev.KubeletSeen((2, 1), True, True), 9 * SECOND_NS) == [ev.Register((2, 1))]


def test_a_registration_that_kubelet_forgot_is_repeated_but_not_all_the_time() -> None:
    world = World()
    world.seconds(10)
    world.is_watched = False
    world.seconds(60)
    assert 5 <= world.registrations <= 13
    world.is_watched = True
    before = world.registrations
    world.seconds(60)
    assert world.registrations == before


def test_one_registration_at_a_time_and_a_failed_one_is_repeated_later() -> None:
    state = State()
    step(state, NodeSeen((), ()), 0)
    seen = ev.KubeletSeen((1, 1), True, False)
    assert step(state, seen, 0) == [ev.Register((1, 1))]
    assert step(state, seen, 0) == []
    (command,) = step(state, ev.Registered((1, 1), "invalid version"), 0)
    assert "invalid version" in str(command)
    times = [now for now in range(12) if step(state, seen, now * SECOND_NS) and not _fail(state, now)]
    assert times and all(later - earlier >= 5 for earlier, later in pairwise(times))


def _fail(state: State, now: int) -> bool:
    return not step(state, ev.Registered((1, 1), "again"), now * SECOND_NS)


def test_a_device_that_is_drained_is_unhealthy_and_pods_on_it_run_on() -> None:
    world = World(gpus=2)
    one = runs(world, pod(world, "one", 5))
    uuid = next(iter(one.containers[0].ids)).rpartition("-tenth-")[0]
    world.gpus = tuple(replace(gpu, drained="a fan" if gpu.uuid == uuid else "") for gpu in world.gpus)
    world.post(world.node_seen())
    world.run()
    assert sum(world.device_health.values()) == 10 and not any(
        ok for name, ok in world.device_health.items() if uuid in name
    )
    world.end_container(one, "main")
    runs(world, one)


def test_a_gpu_with_slices_of_resource_claims_is_not_given_away() -> None:
    world = World(gpus=2)
    claim = Known("c", "team", "half", "k-c", ("p",), (Granted("GPU-1", 500, 500, 0, 0),))
    world.post(NodeSeen(world.gpus, (claim,)))
    world.run()
    assert {name for name, ok in world.device_health.items() if ok} == {f"GPU-0-tenth-{n}" for n in range(10)}
    assert not world.state.allocations
    world.post(world.node_seen())
    world.run()
    assert all(world.device_health.values())


# ---- leftovers ----


def test_a_slice_that_no_pod_has_ends_an_hour_after_its_last_container() -> None:
    world = World()
    one = runs(world, pod(world, "one", 5))
    stays = runs(world, pod(world, "stays", 3))
    world.end_container(stays, "main")
    world.end_pod(one)
    world.seconds(HOUR_S - 60)
    assert len(world.node.slices) == 2
    world.seconds(1300)
    assert list(world.node.slices) == [stays.containers[0].slice_name]
    assert "no pod has the devices" in world.logs[-1]
    runs(world, stays)


def test_a_slice_in_use_stays_whatever_kubelet_says() -> None:
    world = World()
    one = runs(world, pod(world, "one", 5))
    one.containers[0].init = True  # kubelet does not list it
    world.seconds(3 * HOUR_S)
    assert len(world.node.slices) == 1


def test_kubelet_that_cannot_be_asked_ends_nothing() -> None:
    world = World()
    world.end_pod(runs(world, pod(world, "one", 5)))
    for n in range(20):
        assert step(world.state, ev.PodsListed(None), world.now_ns + n * HOUR_S * SECOND_NS) == []


def test_kubelet_that_has_just_started_names_no_pods_and_that_ends_nothing() -> None:
    world = World()
    stays = runs(world, pod(world, "stays", 3))
    world.end_container(stays, "main")
    world.seconds(2 * HOUR_S)
    assert step(world.state, ev.PodsListed(frozenset()), world.now_ns) == []
    world.seconds(HOUR_S)
    runs(world, stays)
