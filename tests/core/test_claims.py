"""Kubernetes claims in the core: one slice each, prepared any number of times, joined by the claim's pods alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_containers import ID, OTHER, asks, messages, send, starts
from tests.core.test_machine import GIB, answer, command_types, create, denial, make_state
from vgpud.core import events as ev
from vgpud.core.model import ALL_DEVICES, LATENCY, Denied, Reason, Share, Slice, Spec, State
from vgpud.core.origins import Claim, User
from vgpud.core.slices import invariants
from vgpud.core.slices.claims import pod_of
from vgpud.core.slices.machine import step
from vgpud.host import cgroups
from vgpud.store.database import Store

UID = "11111111-2222-3333-4444-555555555555"
ANOTHER = "99999999-2222-3333-4444-555555555555"
POD = "aaaaaaaa-0000-1111-2222-333333333333"
POD_2 = "bbbbbbbb-0000-1111-2222-333333333333"
NAME = f"k-{UID}"


def kubernetes(devices: int = 1) -> State:
    state = make_state(devices)
    state.policy = replace(state.policy, kubernetes_devices=(ALL_DEVICES,))
    return state


def share(low: int = 500, high: int = 0, device: int = 0, memory: int = 8 * GIB) -> Share:
    return Share(f"GPU-{device}", low, high or low, memory, memory)


def prepare_event(*granted: Share, uid: str = UID, pods: tuple[str, ...] = (POD,), **options: Any) -> ev.PrepareClaim:
    boot = options.pop("boot_id", "boot-1")
    claim = Claim(uid, "team", "half", pods, granted or (share(),), boot)
    fields: dict[str, Any] = {"service_class": "batch", "weight": 0, "priority": 0} | options
    return ev.PrepareClaim(claim, uid=f"u-{uid}", wall_ns=1, **fields)


def prepare_slice(state: State, *granted: Share, **options: Any) -> Slice:
    made = answer(send(state, prepare_event(*granted, **options)))
    assert isinstance(made, Slice), made
    return made


# ---- prepare ----


def test_a_claim_gets_one_slice_with_what_the_scheduler_chose() -> None:
    state = kubernetes(3)
    granted = (share(1000), share(1000, device=1), share(500, 800, device=2))
    made = prepare_slice(state, *granted)
    assert (made.name, made.shares, made.origin.ephemeral, made.origin.cdi_device) == (NAME, granted, False, True)
    assert (made.spec.gpus_milli, made.spec.min_milli, made.spec.max_milli) == (2500, 2500, 2800)
    assert made.spec.mem_max_bytes == 24 * GIB


def test_it_is_saved_before_it_has_a_device_and_answered_after_both() -> None:
    done = [
        kind
        for kind in command_types(send(kubernetes(), prepare_event()))
        if kind in (ev.SaveSlice, ev.OpenDevice, ev.Answer)
    ]
    assert done == [ev.SaveSlice, ev.OpenDevice, ev.Answer]


def test_preparing_again_gives_the_same_slice_and_writes_the_cdi_file_again() -> None:
    state = kubernetes()
    first = prepare_slice(state)
    commands = send(state, prepare_event())
    assert answer(commands) == first
    assert command_types(commands) == [ev.OpenDevice, ev.Answer]


def test_after_a_boot_it_is_the_same_slice_and_an_event_says_so() -> None:
    state = kubernetes()
    prepare_slice(state)
    commands = send(state, prepare_event(boot_id="boot-2"))
    assert ev.OpenDevice in command_types(commands) and ev.SaveSlice in command_types(commands)
    assert "team/half was prepared before the machine was booted" in messages(commands, "claim.rebooted")[0]
    assert ev.SaveSlice not in command_types(send(state, prepare_event(boot_id="boot-2")))


def test_other_amounts_under_the_same_uid_are_refused() -> None:
    state = kubernetes()
    prepare_slice(state)
    assert "other devices or amounts" in denial(send(state, prepare_event(share(400))), Reason.PRECONDITION)


def test_a_device_that_the_scheduler_gave_away_twice_is_refused_here() -> None:
    state = kubernetes()
    prepare_slice(state, share(600))
    assert "has 0.4 GPU and" in denial(send(state, prepare_event(share(600), uid=ANOTHER)), Reason.NO_CAPACITY)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (prepare_event(share(300), share(300)), "distinctAttribute"),
        (prepare_event(share(800, 500)), "max 0.5 is below min 0.8"),
        (prepare_event(share(0, 0)), "on a device: raise it"),
        (prepare_event(replace(share(), mem_min_bytes=9 * GIB)), "mem-max 8GiB is below mem-min 9GiB"),
        (prepare_event(share(0, 1000), service_class=LATENCY), "class latency needs a guarantee"),
        (prepare_event(service_class="gold"), "no class 'gold'"),
        (prepare_event(uid="../../etc"), "not the uid of a ResourceClaim"),
        (prepare_event(pods=tuple(f"p{n}" for n in range(257))), "is for 257 pods"),
    ],
)
def test_contradictions_are_refused_whatever_the_node_has(event: ev.PrepareClaim, message: str) -> None:
    state = kubernetes()
    assert message in denial(send(state, event), Reason.INVALID)
    assert not state.slices


def test_a_borrower_without_a_guarantee_has_a_slice() -> None:
    made = prepare_slice(kubernetes(), replace(share(0, 1000), mem_min_bytes=0))
    assert (made.shares[0].min_milli, made.shares[0].max_milli, made.spec.gpus_milli) == (0, 1000, 1000)


def test_a_stored_claim_is_read_again(tmp_path: Path) -> None:
    state = kubernetes()
    made = prepare_slice(state, pods=(POD, POD_2))
    store = Store(tmp_path)
    store.apply([ev.SaveSlice(made)])
    store.close()
    (read,) = Store(tmp_path).load(0).slices
    assert read == made


# ---- unprepare ----


def test_the_slice_ends_with_the_claim_and_not_before() -> None:
    state = kubernetes()
    prepare_slice(state)
    send(state, asks(join=NAME, pod=POD), starts(), ev.ContainerEnded(ID, "stopped"), ev.Tick())
    assert NAME in state.slices
    assert "of the ResourceClaim team/half" in denial(send(state, ev.DeleteSlice("", NAME, True)), Reason.PRECONDITION)
    commands = send(state, ev.UnprepareClaim(UID))
    assert ev.CloseDevice in command_types(commands) and NAME not in state.slices
    assert answer(send(state, ev.UnprepareClaim(UID))) is None


# ---- pods ----


def test_containers_of_the_claims_pods_join_one_after_another_and_together() -> None:
    state = kubernetes()
    prepare_slice(state, pods=(POD, POD_2))
    for container, pod in ((ID, POD), (OTHER, POD_2)):
        assert isinstance(answer(send(state, asks(container, join=NAME, pod=pod))), Slice)
    send(state, ev.ContainerEnded(ID, "crashed"))
    assert isinstance(answer(send(state, asks(ID, join=NAME, pod=POD))), Slice)
    assert len(state.containers_of(NAME)) == 2


def test_another_pod_is_refused_until_the_claim_is_reserved_for_it() -> None:
    state = kubernetes()
    prepare_slice(state)
    commands = send(state, asks(join=NAME, pod=POD_2))
    assert "not reserved for pod" in denial(commands, Reason.DENIED)
    (log_entry,) = [c for c in commands if isinstance(c, ev.Log)]
    assert (log_entry.kind, log_entry.slice_name) == ("claim.pod_unknown", NAME)
    prepare_slice(state, pods=(POD, POD_2))
    assert isinstance(answer(send(state, asks(join=NAME, pod=POD_2))), Slice)


def test_a_container_outside_kubernetes_cannot_join() -> None:
    state = kubernetes()
    prepare_slice(state)
    assert "is in none" in denial(send(state, asks(join=NAME)), Reason.DENIED)


U_ = POD.replace("-", "_")


@pytest.mark.parametrize(
    ("path", "pod"),
    [
        (f"/kubepods/burstable/pod{POD}/{ID}", POD),
        (f"/kubepods/pod{POD}/{ID}", POD),
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{U_}.slice/cri-containerd-{ID}.scope", POD),
        (f"/kubepods.slice/kubepods-pod{U_}.slice/crio-{ID}.scope", POD),
        (f"kubepods-besteffort-pod{U_}.slice:cri-containerd:{ID}", POD),
        (f"/system.slice/docker-{OTHER}.scope/kubelet/kubepods/besteffort/pod{POD}/{ID}", POD),
        (f"/kubelet/kubepods/guaranteed/pod{POD}/{ID}", POD),
        (
            f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{U_}"
            f".slice/cri-containerd-{ID}.scope",
            POD,
        ),
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{U_}.slice/crio-{ID}.scope/container", POD),
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{U_}.slice/crio-conmon-{ID}.scope", POD),
        (f"kubelet-kubepods-pod{U_}.slice:cri-containerd:{ID}", POD),
        (f"/kubepods/pod{POD}/{ID}/system.slice/kubepods.slice/kubepods-pod{POD_2.replace('-', '_')}.slice/x", POD),
        (f"/kubepods/pod{POD}/{ID}/pod{POD_2}", POD),
        (f"/kubepods/burstable/x-pod{POD[:8]}/pod{POD}", POD),
        (f"/kubepodsy.slice/../pod{POD}x/{ID}", ""),
        (f"/notkubepods/pod{POD}/{ID}", ""),
        (f"/kubepods/besteffort/pod{'0123456789abcdef' * 2}/{ID}", "0123456789abcdef" * 2),
        (f"/kubepods/besteffort/pod{POD}/{ID}/kubepods/pod{POD_2}/x", POD),
        (f"/user.slice/pod{POD}/{ID}", ""),
        (f"/docker/{ID}", ""),
        (f"/kubepods/besteffort/pod{POD[:-1]}/{ID}", ""),
    ],
)
def test_the_pod_of_a_cgroup_is_the_one_that_kubelet_named(path: str, pod: str) -> None:
    assert pod_of((path,)) == pod


V1 = f"""\
12:devices:/kubepods/burstable/pod{POD}/{ID}
11:cpu,cpuacct:/kubepods/burstable/pod{POD}/{ID}
4:cpuset:/
1:name=systemd:{{systemd}}
0::{{two}}
"""


@pytest.mark.parametrize(
    ("text", "pod"),
    [
        (V1.format(systemd=f"/kubepods/burstable/pod{POD}/{ID}", two="/"), POD),
        (V1.format(systemd=f"/kubepods/burstable/pod{POD_2}/{ID}", two="/system.slice/containerd.service"), POD),
        (V1.format(systemd="/", two=f"/kubepods/pod{POD_2}/{ID}"), POD_2),
        (f"0::/kubepods.slice/kubepods-pod{U_}.slice/cri-containerd-{ID}.scope (deleted)\n", POD),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_the_pod_by_proc_of_cgroups_version_1_and_2(text: str, pod: str) -> None:
    """A named hierarchy, which a container with a systemd may write, counts last."""
    assert pod_of(cgroups.parse(text)) == pod


def test_a_pod_that_names_another_claims_cdi_device_is_refused_each_time() -> None:
    """By an annotation for the engine, or VGPU_SLICE in its environment: both come here as `join`."""
    state = kubernetes()
    prepare_slice(state)
    prepare_slice(state, share(300), uid=ANOTHER, pods=(POD_2,))
    for _ in range(3):
        text = denial(send(state, asks(OTHER, join=NAME, pod=POD_2)), Reason.DENIED)
        assert text == f"the ResourceClaim team/half is not reserved for pod {POD_2}: name the claim in the pod's spec"
    assert not state.containers
    assert isinstance(answer(send(state, asks(OTHER, join=f"k-{ANOTHER}", pod=POD_2))), Slice)
    assert NAME in state.slices


def test_a_pod_that_has_left_cannot_start_another_container_and_those_that_run_go_on() -> None:
    state = kubernetes()
    prepare_slice(state, pods=(POD, POD_2))
    send(state, asks(ID, join=NAME, pod=POD), starts())
    prepare_slice(state, pods=(POD_2,))
    assert ID in state.containers
    assert "is not reserved for pod" in denial(send(state, asks(OTHER, join=NAME, pod=POD)), Reason.DENIED)
    assert isinstance(answer(send(state, asks(OTHER, join=NAME, pod=POD_2))), Slice)


def test_an_ordinary_container_cannot_take_a_claims_name_or_slice() -> None:
    state = kubernetes()
    prepare_slice(state)
    state.policy = replace(state.policy, kubernetes_devices=())
    assert "is for the pods of the ResourceClaim" in denial(send(state, asks(OTHER, join=NAME)), Reason.DENIED)
    own = answer(send(state, asks(OTHER, milli=100, name=f"k-{ANOTHER}")))
    assert isinstance(own, Denied) and "Kubernetes claim's slice" in own.message


# ---- live resize ----


def update(state: State, **fields: Any) -> list[ev.Command]:
    patch = replace(Spec(0), **fields)
    commands = step(state, ev.UpdateSlice("", NAME, patch, tuple(sorted(fields))), 0)
    invariants.check(state)
    return commands


def test_maximum_weight_and_class_move_freely_and_the_minimum_only_down() -> None:
    state = kubernetes(2)
    prepare_slice(state, share(600), share(300, device=1))
    made = answer(update(state, max_milli=1800, weight=7, service_class=LATENCY))
    assert isinstance(made, Slice)
    assert ([s.max_milli for s in made.shares], made.spec.weight) == ([1000, 800], 7)
    made = answer(update(state, min_milli=300))
    assert isinstance(made, Slice) and [s.min_milli for s in made.shares] == [200, 100]
    made = answer(update(state, min_milli=900, mem_min_bytes=4 * GIB, mem_max_bytes=32 * GIB))
    assert isinstance(made, Slice) and [s.min_milli for s in made.shares] == [600, 300]
    assert [(s.mem_min_bytes, s.mem_max_bytes) for s in made.shares] == [(2 * GIB, 16 * GIB)] * 2
    assert "above the 0.9 of the ResourceClaim team/half" in denial(update(state, min_milli=901), Reason.PRECONDITION)
    assert "above the 16GiB" in denial(update(state, mem_min_bytes=17 * GIB), Reason.PRECONDITION)


def test_reset_fields_go_back_to_what_was_granted() -> None:
    state = kubernetes()
    first = prepare_slice(state)
    update(state, max_milli=900, min_milli=100)
    made = answer(update(state, max_milli=None, min_milli=None))
    assert isinstance(made, Slice) and made.shares == first.shares


@pytest.mark.parametrize("fields", [{"gpus_milli": 900}, {"spread": 2}, {"device_uuids": ("GPU-1",)}])
def test_devices_and_size_are_the_claims(fields: dict[str, Any]) -> None:
    state = kubernetes(2)
    prepare_slice(state)
    assert "is fixed by the ResourceClaim team/half" in denial(update(state, **fields), Reason.PRECONDITION)


def test_what_a_claim_does_not_use_stays_its_own() -> None:
    state = kubernetes()
    prepare_slice(state, share(600))
    update(state, min_milli=100, mem_min_bytes=0)
    assert state.reserved("GPU-0") == (600, 8 * GIB)
    assert "has 0.4 GPU and" in denial(send(state, prepare_event(share(600), uid=ANOTHER)), Reason.NO_CAPACITY)
    prepare_slice(state, share(400), uid=ANOTHER)
    assert isinstance(answer(update(state, min_milli=600, mem_min_bytes=8 * GIB)), Slice)


def test_memory_is_divided_into_whole_granules_of_each_device() -> None:
    state = kubernetes(3)
    prepare_slice(state, share(300), share(200, device=1), share(100, device=2))
    made = answer(update(state, mem_min_bytes=4 * GIB, mem_max_bytes=7 * GIB))
    assert isinstance(made, Slice)
    granule = 2 << 20
    assert {s.mem_min_bytes % granule for s in made.shares} == {s.mem_max_bytes % granule for s in made.shares} == {0}
    assert 7 * GIB - 3 * granule < sum(s.mem_max_bytes for s in made.shares) <= 7 * GIB


def test_a_resize_that_no_restart_would_find_capacity_for_is_refused() -> None:
    state = kubernetes()
    before = prepare_slice(state)
    small = update(state, mem_min_bytes=1 << 20, mem_max_bytes=4 << 20)
    assert "memory 4MiB is less than one context needs on device 0 (512MiB)" in denial(small, Reason.INVALID)
    large = update(state, mem_max_bytes=90 * GIB)
    assert "memory 90GiB is more than device 0 has (80GiB)" in denial(large, Reason.INVALID)
    assert state.slices[NAME] == before
    tiny = prepare_event(share(100, memory=1 << 20), uid=ANOTHER)
    assert "is less than one context needs on device 0" in denial(send(state, tiny), Reason.INVALID)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weight": 10_001}, "weight 10001 is out of range"),
        ({"priority": -1}, "priority -1 is out of range"),
        ({"service_class": "gold"}, "no class 'gold': write batch or latency"),
        ({"min_milli": -1}, "min -0.001 is negative"),
        ({"max_milli": 0}, "max 0 allows nothing"),
        ({"mem_max_bytes": 0}, "mem_max_bytes 0 is not an amount of memory"),
    ],
)
def test_words_out_of_range_are_refused(fields: dict[str, Any], message: str) -> None:
    state = kubernetes()
    before = prepare_slice(state)
    assert message in denial(update(state, **fields), Reason.INVALID)
    assert state.slices[NAME] == before


def test_numbers_that_contradict_each_other_are_refused_and_change_nothing() -> None:
    state = kubernetes()
    before = prepare_slice(state)
    assert "below min 0.5" in denial(update(state, max_milli=400), Reason.INVALID)
    assert "more than the 1 device(s)" in denial(update(state, max_milli=1001), Reason.INVALID)
    assert state.slices[NAME] == before


# ---- one bookkeeper ----


def test_devices_of_kubernetes_are_for_claims_alone_and_other_devices_never() -> None:
    state = make_state(2)
    state.policy = replace(state.policy, kubernetes_devices=("1",))
    made = answer(step(state, create("mine", 1000), 0))
    assert isinstance(made, Slice) and made.shares[0].device_uuid == "GPU-0"
    refused = denial(step(state, create("second", 500), 0), Reason.NO_CAPACITY)
    assert "0.5" in refused or "Kubernetes" in refused
    by_name = ev.CreateSlice("", User("third", "x"), Spec(500, device_uuids=("1",)), 0, "u3", 1)
    assert "device 1 belongs to Kubernetes here" in denial(step(state, by_name, 0), Reason.PRECONDITION)
    assert "not given to Kubernetes" in denial(send(state, prepare_event(share(100))), Reason.PRECONDITION)
    assert isinstance(answer(send(state, prepare_event(share(100, device=1)))), Slice)


def test_only_the_driver_makes_slices_with_names_of_claims() -> None:
    state = make_state()
    found = answer(step(state, create(NAME, 500), 0))
    assert isinstance(found, Denied) and "Kubernetes claim's slice" in found.message
