"""Admission: four numbers per device from what was asked, best fit, and refusals that say what would work."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.model import Denied, Device, Reason, Share, SiteLimits, Slice, Spec, State
from vgpud.core.origins import User
from vgpud.core.slices import admission

MIB = 1 << 20
GIB = 1 << 30
CONTEXT = 512 * MIB


def device(index: int, memory_bytes: int = 80 * GIB) -> Device:
    return Device(f"GPU-{index}", index, "fake", f"0:{index}", memory_bytes, 132, True, CONTEXT, 2 * MIB)


def node(count: int = 1, policy: SiteLimits | None = None) -> State:
    return State(policy=policy or SiteLimits(), devices={f"GPU-{i}": device(i) for i in range(count)})


def fill(state: State, name: str, *shares: Share) -> None:
    state.slices[name] = Slice(User(name), name, len(state.slices) + 1, Spec(1), shares, -1, 0)


def half(index: int, milli: int = 500, size: int = 8 * GIB) -> Share:
    return Share(f"GPU-{index}", milli, milli, size, size)


def place(state: State, **spec: Any) -> tuple[Share, ...]:
    placed = admission.place(Spec(**spec), state)
    assert not isinstance(placed, Denied), placed
    return placed


def refusal(state: State, **spec: Any) -> Denied:
    placed = admission.place(Spec(**spec), state)
    assert isinstance(placed, Denied)
    assert "\n" not in placed.message
    return placed


def test_bare_fraction_is_min_and_max_of_time_and_memory() -> None:
    assert place(node(), gpus_milli=500) == (Share("GPU-0", 500, 500, 40 * GIB, 40 * GIB),)


def test_two_and_a_half() -> None:
    shares = place(node(3), gpus_milli=2500)
    assert [(s.min_milli, s.max_milli) for s in shares] == [(1000, 1000), (1000, 1000), (500, 500)]
    assert [s.mem_max_bytes for s in shares] == [80 * GIB, 80 * GIB, 40 * GIB]


def test_memory_total_is_split_by_share() -> None:
    shares = place(node(3), gpus_milli=2500, mem_min_bytes=50 * GIB, mem_max_bytes=100 * GIB)
    assert [s.mem_min_bytes for s in shares] == [20 * GIB, 20 * GIB, 10 * GIB]
    assert [s.mem_max_bytes for s in shares] == [40 * GIB, 40 * GIB, 20 * GIB]


def test_maximum_spills_over_whole_devices() -> None:
    assert [s.max_milli for s in place(node(3), gpus_milli=2500, max_milli=2800)] == [1000, 1000, 800]


def test_site_default_lets_slices_borrow() -> None:
    assert place(node(1, SiteLimits(default_max="device")), gpus_milli=250)[0].max_milli == 1000
    assert place(node(1), gpus_milli=250)[0].max_milli == 250


def test_memory_is_rounded_down_to_the_granule() -> None:
    share = place(node(), gpus_milli=333)[0]
    assert share.mem_max_bytes % (2 * MIB) == 0
    assert 0 <= 80 * GIB * 333 // 1000 - share.mem_max_bytes < 2 * MIB


def test_best_fit_takes_the_fullest_that_still_fits() -> None:
    state = node(3)
    fill(state, "a", half(1, 400))
    fill(state, "b", half(2, 700))
    assert place(state, gpus_milli=300, mem_min_bytes=0, mem_max_bytes=4 * GIB)[0].device_uuid == "GPU-2"
    assert place(state, gpus_milli=500, mem_min_bytes=0, mem_max_bytes=4 * GIB)[0].device_uuid == "GPU-1"
    assert place(state, gpus_milli=1000)[0].device_uuid == "GPU-0"


def test_named_devices_are_used_in_device_order() -> None:
    placed = admission.place(Spec(2500, device_uuids=("GPU-4", "GPU-1", "GPU-3")), node(5))
    assert not isinstance(placed, Denied)
    assert [s.device_uuid for s in placed] == ["GPU-1", "GPU-3", "GPU-4"]
    assert sum(s.min_milli for s in placed) == 2500


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"gpus_milli": 0}, ("0 GPUs", "ask for")),
        ({"gpus_milli": -1000}, ("-1 GPUs", "ask for")),
        ({"gpus_milli": 2500}, ("2.5 GPUs need 3 devices", "has 1", "ask for 1 or less")),
        ({"gpus_milli": 2**63 - 1}, ("GPUs is more than any node has", "16 or less")),
        ({"gpus_milli": 500, "min_milli": 800, "max_milli": 600}, ("min 0.8", "max 0.6", "lower")),
        ({"gpus_milli": 500, "max_milli": 1500}, ("max 1.5", "at most 1")),
        ({"gpus_milli": 500, "mem_max_bytes": 81 * GIB, "mem_min_bytes": 81 * GIB}, ("81GiB", "80GiB or less")),
        ({"gpus_milli": 500, "mem_min_bytes": 9 * GIB, "mem_max_bytes": 8 * GIB}, ("mem-min 9GiB", "mem-max 8GiB")),
        ({"gpus_milli": 500, "mem_max_bytes": 100 * MIB}, ("100MiB", "512MiB", str(514 * MIB))),
        ({"gpus_milli": 1}, ("80MiB", "512MiB", str(514 * MIB))),
        ({"gpus_milli": 500, "device_uuids": ("GPU-0", "GPU-0")}, ("name 1 or none",)),
        ({"gpus_milli": 500, "weight": 1_000_000}, ("weight 1000000",)),
        ({"gpus_milli": 500, "weight": -1}, ("weight -1", "0 (by the minimum) to 10000")),
        ({"gpus_milli": 500, "priority": 1_000_000}, ("priority 1000000",)),
        ({"gpus_milli": 500, "priority": -1}, ("priority -1", "0 to 1000")),
        ({"gpus_milli": 500, "service_class": "fast"}, ("'fast'", "batch or latency")),
        ({"gpus_milli": 500, "service_class": "latency", "min_milli": 0}, ("min 0:", "above 0 or class batch")),
        (
            {"gpus_milli": 2000, "service_class": "latency", "min_milli": 1},
            ("min 0.001", "above 0 on each of the 2 devices"),
        ),
        ({"gpus_milli": 500, "spread": 2}, ("2 devices to spread over", "has 1")),
        ({"gpus_milli": 2500, "spread": 2}, ("2.5 GPUs cannot be spread over 2", "write 3 to 16")),
        ({"gpus_milli": 1, "spread": 2}, ("0.001 GPUs cannot be spread over 2", "write 1")),
        ({"gpus_milli": 500, "spread": -1}, ("over -1",)),
        ({"gpus_milli": 500, "device_uuids": ("GPU-0", "GPU-0")}, ("or spread it over 2",)),
        ({"gpus_milli": 500, "min_milli": -1}, ("min -0.001", "write 0")),
        ({"gpus_milli": 500, "max_milli": 0}, ("max 0", "0.001 or more")),
        ({"gpus_milli": 500, "mem_max_bytes": 0}, ("mem_max_bytes 0",)),
        ({"gpus_milli": 500, "mem_min_bytes": -1}, ("mem_min_bytes -1",)),
        ({"gpus_milli": 2500, "min_milli": 0, "max_milli": 2}, ("max 0.002", "raise the maximum")),
    ],
)
def test_what_can_never_be_is_invalid(spec: dict[str, Any], words: tuple[str, ...]) -> None:
    denied = refusal(node(), **spec)
    assert denied.reason is Reason.INVALID
    assert denied.field
    for word in words:
        assert word in denied.message


def test_a_device_that_is_not_there_is_not_found() -> None:
    denied = refusal(node(2), gpus_milli=500, device_uuids=("GPU-9",))
    assert (denied.reason, denied.field) == (Reason.NOT_FOUND, "device_uuids")
    assert denied.message == "no device 'GPU-9' on this node: it has 0 (GPU-0), 1 (GPU-1)"


def test_the_smallest_limit_that_is_named_works() -> None:
    least = admission.smallest_limit_bytes(device(0).context_bytes, device(0).granule_bytes)
    assert refusal(node(), gpus_milli=500, mem_min_bytes=0, mem_max_bytes=least - 1).reason is Reason.INVALID
    assert place(node(), gpus_milli=500, mem_min_bytes=0, mem_max_bytes=least)[0].mem_max_bytes == least


def test_full_says_what_is_left() -> None:
    state = node(2)
    fill(state, "a", half(0, 700))
    fill(state, "b", half(1, 800))
    denied = refusal(state, gpus_milli=500, mem_min_bytes=GIB, mem_max_bytes=GIB)
    assert denied.reason is Reason.NO_CAPACITY
    assert "device 0 has the most free: 0.3 GPU" in denied.message
    assert denied.subject == "GPU-0"


def test_minima_of_memory_count_too() -> None:
    state = node()
    fill(state, "a", half(0, 100, 79 * GIB))
    assert refusal(state, gpus_milli=100, mem_min_bytes=2 * GIB, mem_max_bytes=2 * GIB).reason is Reason.NO_CAPACITY
    assert place(state, gpus_milli=100, mem_min_bytes=0, mem_max_bytes=2 * GIB)


def test_no_guarantee_is_allowed() -> None:
    state = node()
    fill(state, "a", half(0, 1000, 80 * GIB))
    share = place(state, gpus_milli=500, min_milli=0, mem_min_bytes=0)[0]
    assert (share.min_milli, share.max_milli, share.mem_min_bytes) == (0, 500, 0)


@given(
    total=st.integers(0, 20_000),
    rows=st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1000)), min_size=1, max_size=8),
)
def test_split_adds_up_and_keeps_to_caps(total: int, rows: list[tuple[int, int]]) -> None:
    weights, caps = [w for w, _ in rows], [c for _, c in rows]
    parts = admission.split(total, weights, caps)
    assert sum(parts) == min(total, sum(caps))
    assert all(0 <= part <= cap for part, cap in zip(parts, caps, strict=True))


def test_merge_keeps_what_the_patch_leaves_out() -> None:
    spec = Spec(500, min_milli=300, mem_max_bytes=GIB, weight=3, device_uuids=("GPU-0",))
    assert admission.merge(spec, Spec(0), ()) == spec
    assert admission.merge(spec, Spec(0, min_milli=0), ("min_milli",)) == replace(spec, min_milli=0)
    assert admission.merge(spec, Spec(700, weight=5), ("gpus_milli", "weight")) == replace(
        spec, gpus_milli=700, weight=5
    )


def test_merge_sets_back_to_defaults() -> None:
    spec = Spec(500, 300, 900, GIB, GIB, 3, 4, ("GPU-0",), "latency", 2)
    names = tuple(field.name for field in fields(Spec) if field.name != "gpus_milli")
    assert admission.merge(spec, Spec(0), names) == Spec(500)


def test_merge_refuses_fields_that_are_none() -> None:
    denied = admission.merge(Spec(500), Spec(0), ("max_mili",))
    assert isinstance(denied, Denied)
    assert "'max_mili'" in denied.message and "max_milli" in denied.message


def test_a_slice_may_be_spread_over_more_devices_than_it_fills() -> None:
    shares = place(node(3), gpus_milli=1000, max_milli=1600, spread=2)
    assert [(s.min_milli, s.max_milli, s.mem_max_bytes) for s in shares] == [(500, 800, 40 * GIB)] * 2
    assert [s.min_milli for s in place(node(3), gpus_milli=1001, spread=3)] == [334, 334, 333]
    assert place(node(2), gpus_milli=1000, spread=1) == place(node(2), gpus_milli=1000)
    named = place(node(3), gpus_milli=1000, spread=2, device_uuids=("GPU-2", "GPU-1"))
    assert [s.device_uuid for s in named] == ["GPU-1", "GPU-2"]


def test_a_refusal_of_several_devices_says_which_are_missing() -> None:
    state = node(2)
    fill(state, "a", half(0, 650), half(1, 300))
    wanted = {"gpus_milli": 1000, "spread": 2, "mem_min_bytes": 2 * GIB, "mem_max_bytes": 2 * GIB}
    words = "2 devices are needed, 1 have free capacity (device 1), and of the others no device has min 0.5"
    assert words in refusal(state, **wanted).message
    assert "device 0 has the most free: 0.35 GPU" in refusal(state, **wanted).message
    fill(state, "b", half(1, 600))
    assert refusal(state, **wanted).message.startswith("2 devices are needed, and no device has min 0.5")


def test_a_class_needs_a_guarantee_to_be_served() -> None:
    assert place(node(), gpus_milli=500, min_milli=1, service_class="latency")[0].min_milli == 1
    assert place(node(), gpus_milli=500, min_milli=0, service_class="batch")[0].min_milli == 0
