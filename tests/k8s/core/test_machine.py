"""The driver's core under kubelet's repeated and reordered calls, and under crashes between any two steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.k8s.core.world import World
from tests.k8s.parts import allocated
from vgpud.k8s.core import events as ev
from vgpud.k8s.core import published
from vgpud.k8s.core.machine import FIRST_SEEN_NS, SECOND_NS, Policy
from vgpud.k8s.core.model import Granted, Known, Ref

POD, POD_2 = "pod-1", "pod-2"


def claim(world: World, name: str = "half", milli: int = 500, pods: tuple[str, ...] = (POD,)) -> Ref:
    return world.add(allocated(name, ("gpu-0", {"sm": str(milli), "memory": "1Gi"}), pods=pods))


def ready(gpus: int = 1) -> World:
    world = World(gpus)
    assert world.run()
    return world


# ---- prepare and unprepare ----


def test_prepare_makes_one_slice_and_answers_with_one_cdi_id() -> None:
    world = ready()
    ref = claim(world)
    answer = world.prepare(ref)
    assert (answer.error, answer.cdi_devices) == ("", (f"vgpu.dev/gpu=k-{ref.uid}",))
    assert [result.device for result in answer.results] == ["gpu-0"]
    assert list(world.slices) == [ref.uid] and len(world.status) == 1


def test_the_same_call_gets_the_same_answer() -> None:
    world = ready()
    ref = claim(world)
    first = world.prepare(ref)
    second = world.prepare(ref)
    assert replace(second, call=first.call) == first and world.made_slices == 1


def test_calls_about_one_claim_are_served_one_after_another() -> None:
    world = ready()
    ref = claim(world)
    first, second = world.call(ref), world.call(ref)
    ending = world.call(ref, ending=True)
    third = world.call(ref)
    assert world.run()
    assert not any(world.answers[n].error for n in (first, second, ending, third))
    assert world.made_slices == 2 and list(world.slices) == [ref.uid]


def test_an_unknown_claim_is_unprepared_with_success() -> None:
    world = ready()
    assert world.unprepare(Ref("u", "team", "gone")).error == ""


def test_a_claim_that_is_gone_or_another_one_is_refused() -> None:
    world = ready()
    ref = claim(world)
    assert "has another uid" in world.prepare(replace(ref, uid="other")).error
    world.remove(ref)
    assert "does not exist" in world.prepare(ref).error
    assert not world.slices


def test_the_scheduler_gave_a_device_away_twice() -> None:
    world = ready()
    assert not world.prepare(claim(world, "one", 600)).error
    assert "is full" in world.prepare(claim(world, "two", 600)).error
    assert world.made_slices == 1


def test_a_claim_that_was_deleted_by_force_frees_capacity_at_once() -> None:
    world = ready()
    old = claim(world, "one", 600)
    world.prepare(old)
    world.post(world.node_seen())
    world.remove(old)
    new = claim(world, "two", 600)
    assert not world.prepare(new).error
    assert list(world.slices) == [new.uid]


def test_without_vgpud_or_the_api_server_kubelet_is_asked_to_try_again() -> None:
    world = ready()
    ref = claim(world)
    world.vgpud_is_there = False
    assert "vgpud does not answer" in world.prepare(ref).error
    world.vgpud_is_there, world.api_is_there = True, False
    assert "cannot be asked" in world.prepare(ref).error
    world.api_is_there = True
    assert not world.prepare(ref).error
    world.vgpud_is_there = False
    assert "vgpud does not answer" in world.unprepare(ref).error
    world.vgpud_is_there = True
    assert not world.unprepare(ref).error and not world.slices


def test_a_fixed_part_outlives_the_setting_that_published_it() -> None:
    """kubelet that starts asks again for pods that run."""
    world = ready()
    ref = world.add(allocated("half", ("gpu-0-half-0", {}), pods=(POD,)))
    first = world.prepare(ref)
    world.state.policy = Policy(published.Policy(fixed_sizes=False))
    assert replace(world.prepare(ref), call=first.call) == first
    world.tick(600)
    assert world.run() and list(world.slices) == [ref.uid]


@pytest.mark.parametrize("device", ["gpu-0-half-0", "gpu-0"])
def test_memory_that_is_reckoned_stays_as_it_was_prepared(device: str) -> None:
    """What NVIDIA's driver keeps for itself changes with its version, and kubelet asks again for pods that run."""
    world = ready()
    ref = world.add(allocated("part", (device, {}), pods=(POD,)))
    first = world.prepare(ref)
    world.gpus = tuple(replace(gpu, memory_bytes=gpu.memory_bytes - (64 << 20)) for gpu in world.gpus)
    world.start()
    assert replace(world.prepare(ref), call=first.call) == first
    world.claims[ref.namespace, ref.name]["status"]["reservedFor"] = [{"resource": "pods", "uid": POD_2}]
    world.tick(600)
    assert world.run() and world.made_slices == 1, "the same allocation, for another pod"
    assert world.slices[ref.uid].requested_claim.pods == (POD_2,)


def test_a_fixed_part_of_another_size_is_not_the_same() -> None:
    world = ready()
    ref = world.add(allocated("part", ("gpu-0-half-0", {}), pods=(POD,)))
    world.prepare(ref)
    world.post(world.node_seen())
    result = world.claims[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"][0]
    result["device"] = "gpu-0-quarter-0"
    assert "was prepared here with other devices or amounts" in world.prepare(ref).error


def test_a_second_answer_about_a_claim_ends_no_slice_that_was_just_made() -> None:
    """A check has asked, then kubelet calls for a claim that was allocated again to another pod: two answers come."""
    world = ready()
    ref = claim(world)
    world.prepare(ref)
    world.post(world.node_seen())
    again = claim(world, milli=600, pods=(POD_2,))
    world.claims[ref.namespace, ref.name]["metadata"]["uid"] = ref.uid
    world.state.reconciled_ns = None
    world.tick(0)
    number = world.call(ref)
    assert [type(one) for one in world.commands].count(ev.ReadClaim) == 2 and again.name == ref.name
    first, second = (one for one in world.commands if isinstance(one, ev.ReadClaim))
    world.commands.clear()
    world.carry_out(first)
    world.carry_out(second)
    assert [type(one) for one in world.commands] == [ev.EndSlice]
    assert world.run() and not world.answers[number].error
    assert [one.requested_claim.granted[0].min_milli for one in world.slices.values()] == [600]


def test_a_claim_waits_for_a_vgpud_that_starts_together_with_the_driver() -> None:
    world = ready()
    world.state.gpus = None
    number = world.call(claim(world))
    world.tick(FIRST_SEEN_NS / SECOND_NS - 0.1)
    assert world.run() and number not in world.answers
    world.post(world.node_seen())
    assert world.run() and not world.answers[number].error


def test_a_claim_is_refused_when_vgpud_is_not_seen_for_long() -> None:
    world = ready()
    world.state.gpus = None
    number = world.call(claim(world))
    world.run()
    world.tick(FIRST_SEEN_NS / SECOND_NS)
    assert world.run() and "vgpud on this node does not answer" in world.answers[number].error
    world.post(world.node_seen())
    assert world.run() and not world.slices


# ---- crashes ----


def _prepare(world: World, ref: Ref) -> None:
    world.call(ref)


def _unprepare(world: World, ref: Ref) -> None:
    world.call(ref, ending=True)


def _prepare_twice(world: World, ref: Ref) -> None:
    world.prepare(ref)
    world.call(ref)


@pytest.mark.parametrize("begin", [_prepare, _unprepare, _prepare_twice])
@pytest.mark.parametrize("steps", range(8))
def test_a_driver_that_dies_after_any_step_is_made_good_by_kubelets_next_call(
    begin: Callable[[World, Ref], None], steps: int
) -> None:
    world = ready()
    ref = claim(world)
    if begin is _unprepare:
        world.prepare(ref)
    begin(world, ref)
    world.run(steps)
    world.start()
    world.run()
    if begin is _unprepare:
        assert not world.unprepare(ref).error and not world.slices
        return
    answer = world.prepare(ref)
    assert answer.cdi_devices == (f"vgpu.dev/gpu=k-{ref.uid}",) and list(world.slices) == [ref.uid]
    assert world.made_slices == 1


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["prepare", "unprepare", "crash", "vgpud", "api", "run", "delete", "tick"]),
            st.integers(0, 2),
        ),
        max_size=30,
    )
)
def test_whatever_happens_in_whatever_order_nothing_is_lost_or_doubled(story: list[tuple[str, int]]) -> None:
    """In the end, when all parts are there and kubelet has repeated its last request for each claim."""
    world = ready()
    refs = [claim(world, f"c{n}", 300) for n in range(3)]
    requests: dict[int, str] = {}
    deleted: set[int] = set()
    for what, n in story:
        if what in ("prepare", "unprepare"):
            requests[n] = what
            world.call(refs[n], ending=what == "unprepare")
        elif what == "crash":
            world.run(n)
            world.start()
        elif what == "vgpud":
            world.vgpud_is_there = not world.vgpud_is_there
        elif what == "api":
            world.api_is_there = not world.api_is_there
        elif what == "delete" and n not in deleted:
            deleted.add(n)
            world.remove(refs[n])
        elif what == "tick":
            world.tick(400 * n)
        else:
            world.run(n)
    world.api_is_there = world.vgpud_is_there = True
    world.run()
    world.post(world.node_seen())
    for n, request in requests.items():
        number = world.call(refs[n], ending=request == "unprepare")
        world.run()
        assert bool(world.answers[number].error) == (request == "prepare" and n in deleted)
    world.post(world.node_seen())
    world.tick(601)
    world.run()
    wanted = {refs[n].uid for n, request in requests.items() if request == "prepare" and n not in deleted}
    assert set(world.slices) == wanted
    assert not world.state.work and not world.state.checks and not world.state.telling


# ---- claims that are gone, pods that came ----


def test_every_ten_minutes_the_claims_are_compared_with_the_api_server() -> None:
    world = ready()
    kept, gone, remade = claim(world, "kept", 100), claim(world, "gone", 100), claim(world, "remade", 100)
    for ref in (kept, gone, remade):
        world.prepare(ref)
    world.post(world.node_seen())
    world.tick(0)
    world.run()
    world.remove(gone)
    claim(world, "remade", 100)
    world.tick(599)
    assert world.run() and len(world.slices) == 3
    world.tick(1)
    assert world.run() and list(world.slices) == [kept.uid]
    assert any("team/gone is gone" in text for text in world.logs)


def test_a_driver_that_starts_compares_the_claims_that_vgpud_has() -> None:
    world = ready()
    kept, gone = claim(world, "kept", 100), claim(world, "gone", 100)
    for ref in (kept, gone):
        world.prepare(ref)
    world.remove(gone)
    world.start()
    world.tick(1)
    assert world.run() and list(world.slices) == [kept.uid]


def test_a_vgpud_that_goes_takes_nothing_with_it() -> None:
    world = ready()
    ref = claim(world)
    world.prepare(ref)
    world.post(world.node_seen())
    world.post(ev.NodeLost())
    world.tick(30)
    assert world.run() and world.writes == 2 and len(world.pool) == 2
    assert not world.prepare(ref).error and world.made_slices == 1
    world.remove(ref)
    world.tick(601)
    assert world.run() and not world.slices


def test_an_api_server_that_is_away_ends_no_slice() -> None:
    world = ready()
    world.prepare(claim(world))
    world.post(world.node_seen())
    world.api_is_there = False
    world.tick(3600)
    assert world.run() and len(world.slices) == 1


def test_a_pod_that_came_later_is_brought_to_vgpud() -> None:
    world = ready()
    ref = claim(world)
    world.prepare(ref)
    world.post(world.node_seen())
    world.claims[ref.namespace, ref.name]["status"]["reservedFor"].append({"resource": "pods", "uid": POD_2})
    world.post(ev.PodUnknown(f"k-{ref.uid}"))
    world.run()
    assert world.slices[ref.uid].requested_claim.pods == (POD, POD_2) and world.made_slices == 1


def reallocate_claim(world: World, ref: Ref, milli: int, pods: tuple[str, ...]) -> None:
    """The claim's pods were deleted by force, and it was allocated again, for others."""
    status = world.claims[ref.namespace, ref.name]["status"]
    status |= allocated("x", ("gpu-0", {"sm": str(milli), "memory": "1Gi"}), pods=pods)["status"]


def test_a_claim_that_another_node_has_by_now_gives_its_slice_back() -> None:
    for change in ("elsewhere", "nowhere"):
        world = ready()
        ref = claim(world, milli=600)
        world.prepare(ref)
        world.post(world.node_seen())
        status = world.claims[ref.namespace, ref.name]["status"]
        status["reservedFor"] = []
        if change == "nowhere":
            del status["allocation"]
        else:
            status["allocation"]["devices"]["results"][0]["pool"] = "n2"
        other = claim(world, "other", 600, (POD_2,))
        assert not world.prepare(other).error, "it makes room at once"
        assert list(world.slices) == [other.uid]
        assert any("team/half is not allocated to this node any more" in text for text in world.logs)


def test_a_claim_that_is_reserved_for_its_pod_keeps_its_slice_whatever_its_allocation_says() -> None:
    world = ready()
    ref = claim(world)
    world.prepare(ref)
    world.post(world.node_seen())
    del world.claims[ref.namespace, ref.name]["status"]["allocation"]
    world.tick(601)
    assert world.run() and list(world.slices) == [ref.uid]
    reallocate_claim(world, ref, 700, (POD,))
    assert "other devices or amounts" in world.prepare(ref).error and list(world.slices) == [ref.uid]


@pytest.mark.parametrize("steps", range(4))
def test_a_call_that_comes_while_an_unused_slice_is_ended_waits_for_that(steps: int) -> None:
    world = ready()
    ref = claim(world, milli=600)
    world.prepare(ref)
    world.post(world.node_seen())
    world.claims[ref.namespace, ref.name]["status"] = {}
    world.tick(601)
    world.run(steps)
    reallocate_claim(world, ref, 700, (POD_2,))
    number = world.call(ref)
    assert world.run()
    if world.answers[number].error:  # the claim had been read before
        assert "is not allocated" in world.answers[number].error
        assert not world.prepare(ref).error
    assert [one.min_milli for one in world.slices[ref.uid].requested_claim.granted] == [700]


@pytest.mark.parametrize("has_node_news", [True, False])
def test_a_claim_that_was_allocated_again_here_gets_a_new_slice(has_node_news: bool) -> None:
    world = ready()
    ref = claim(world, milli=600)
    world.prepare(ref)
    reallocate_claim(world, ref, 700, (POD_2,))
    if has_node_news:
        world.post(world.node_seen())
    assert not world.prepare(ref).error and world.made_slices == 2
    assert [one.min_milli for one in world.slices[ref.uid].requested_claim.granted] == [700]
    reallocate_claim(world, ref, 800, ("pod-3",))
    world.post(world.node_seen())
    world.tick(601)
    assert world.run() and not world.slices, "and without a call it is ended"


# ---- what is published ----


def test_it_is_published_once_and_again_after_each_change_of_the_node() -> None:
    world = ready()
    assert world.writes == 2
    for _ in range(100):
        world.tick(10)
        world.post(world.node_seen())
        world.run()
    assert world.writes == 2
    world.gpus = tuple(replace(gpu, drained="x") for gpu in world.gpus)
    world.post(world.node_seen())
    world.run()
    assert world.writes == 4


def test_a_kubelet_that_starts_deletes_them_and_they_come_back_within_two_seconds() -> None:
    world = ready()
    world.tick(60)
    for name in list(world.pool):
        del world.pool[name]
        world.post(world.pool_seen())
    world.post(ev.Registered())
    world.run()
    for _ in range(2):
        world.tick(1)
        world.run()
    assert len(world.pool) == 2


def test_others_edits_are_put_right_after_half_a_minute_and_not_at_once() -> None:
    world = ready()
    world.tick(60)
    one = next(iter(world.pool.values()))
    one["spec"] = one["spec"] | {"nodeName": "elsewhere"}
    world.post(world.pool_seen())
    world.tick(29)
    assert world.run() and world.writes == 2
    world.tick(1)
    assert world.run() and world.writes == 4


def test_a_write_that_fails_is_tried_again_less_and_less_often_and_reported_once() -> None:
    world = World()
    world.api_is_there = False
    world.run()
    for _ in range(7200):
        world.tick(0.5)
        world.run()
    assert 120 <= world.attempts <= 130 and world.writes == 0
    assert len(world.logs) == 1 and "cannot be written, which is tried again: the server is not there" in world.logs[0]
    world.api_is_there = True
    world.post(world.pool_seen(is_from_list=True))  # the watch is there again, and need not wait
    assert world.run() and world.writes == 2


def drained(world: World) -> None:
    world.gpus = tuple(replace(gpu, drained=f"{gpu.drained}x") for gpu in world.gpus)
    world.post(world.node_seen())
    world.run()


def test_a_watch_that_shows_nothing_does_not_make_the_driver_write_again_and_again() -> None:
    world = ready()
    world.watch_is_alive = False
    drained(world)
    for _ in range(30):
        world.tick(1)
        world.run()
    assert world.writes == 4
    world.tick(1)  # the watch may be dead: once more, as a new generation
    world.run()
    generations = {one["spec"]["pool"]["generation"] for one in world.pool.values()}
    assert world.writes == 6 and generations == {3}


def test_a_watch_that_lags_shows_an_old_pool_and_nothing_is_written_for_that() -> None:
    world = ready()
    old = world.pool_seen()
    world.watch_is_alive = False
    drained(world)
    world.tick(5)
    world.post(old)
    assert world.run() and world.writes == 4
    world.post(world.pool_seen())
    world.tick(600)
    assert world.run() and world.writes == 4


def test_what_kubelet_deletes_while_it_is_written_comes_back() -> None:
    world = ready()
    world.tick(60)
    world.run()
    world.gpus = tuple(replace(gpu, drained="x") for gpu in world.gpus)
    world.post(world.node_seen())
    (publish,) = world.commands
    assert isinstance(publish, ev.Publish)
    world.commands.clear()
    written = []
    for write in publish.changes.writes:  # each is shown, and deleted, before the driver has the answer
        written.append((write.name, write.spec["pool"]["generation"]))
        world.pool[write.name] = {"metadata": {"name": write.name}, "spec": write.spec}
        world.post(world.pool_seen())
    world.pool.clear()
    world.post(world.pool_seen())
    world.post(ev.Published(written_generations=tuple(written)))
    world.tick(1)
    assert world.run() and len(world.pool) == 2


def test_fields_that_the_server_does_not_store_are_reported_once() -> None:
    world = ready()
    for _ in range(3):
        world.post(ev.Published(dropped_fields=("devices.consumesCounters",)))
    log_texts = [text for command in world.commands if isinstance(command, ev.Log) for text in [command.text]]
    assert [text for text in log_texts if "does not store" in text] == [
        "this API server does not store devices.consumesCounters: enable its feature gates (docs/kubernetes.md)"
    ]


def test_a_tick_looks_at_nothing_while_nothing_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ready()
    world.tick(2)
    monkeypatch.setattr(published, "specs", None)
    for _ in range(100):
        world.tick(1)
    assert world.run() and world.writes == 2


# ---- kubelet's device plugin, which ran here before ----


def test_slices_of_the_device_plugin_are_no_claims_and_their_gpu_is_tainted() -> None:
    world = ready(gpus=2)
    share = Granted("GPU-1", 100, 100, 0, 0)
    left = Known("u", "vgpu.dev", "tenth", "k-u", (), (share,), (share,), device_ids=("GPU-1-tenth-0",))
    world.post(ev.NodeSeen(world.gpus, (left,)))
    world.tick(700)
    assert not [command for command in world.commands if isinstance(command, ev.ReadClaim)]
    assert world.run()
    devices = [device for one in world.pool.values() for device in one["spec"].get("devices", ())]
    tainted = {device["name"][:5] for device in devices if device.get("taints")}
    assert tainted == {"gpu-1"}


# ---- the server's version ----


def names_of(world: World) -> list[str]:
    return [device["name"] for one in world.pool.values() for device in one["spec"].get("devices", [])]


def test_before_1_35_a_gpu_is_published_by_amounts_alone() -> None:
    """Counters may not be in a ResourceSlice of their own there, so nothing at all would be stored."""
    world = World(2, server=(1, 34))
    assert world.run()
    assert names_of(world) == ["gpu-0", "gpu-1"] == [name for name, _, _ in world.health]
    assert not [one for one in world.pool.values() if "sharedCounters" in one["spec"]]
    said = "Kubernetes 1.34 cannot store halves, quarters and tenths, which begin with 1.35"
    assert [said in text for text in world.logs].count(True) == 1
    world.post(world.pool_seen(is_from_list=True))
    assert world.run() and [said in text for text in world.logs].count(True) == 1


def test_a_server_that_was_upgraded_gets_the_fixed_sizes() -> None:
    world = World(1, server=(1, 34))
    assert world.run()
    world.server = (1, 35)
    world.tick(2)
    world.post(world.pool_seen(is_from_list=True))
    world.tick(31)
    assert world.run() and len(names_of(world)) == 17 == len(world.health)
    assert any("Kubernetes 1.35 can store halves" in text for text in world.logs)


def test_a_server_that_does_not_say_its_version_is_taken_for_a_new_one() -> None:
    world = World(1)
    assert world.run()
    before = dict(world.pool)
    world.post(ev.PoolSeen(tuple(world.pool.values()), is_from_list=True))
    assert world.run() and world.pool == before and len(names_of(world)) == 17
