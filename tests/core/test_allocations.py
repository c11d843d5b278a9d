"""Devices of kubelet's device plugin in the core: whose a set is, when it ends, and containers that share one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_claims import kubernetes
from tests.core.test_containers import ID, OTHER, asks, messages, send, starts
from tests.core.test_machine import GIB, answer, denial
from vgpud.core import events as ev
from vgpud.core.model import LATENCY, Denied, Reason, Share, Slice, Spec, State
from vgpud.core.origins import Allocation
from vgpud.store.database import Store

POD, POD_2 = "aaaaaaaa-0000-1111-2222-333333333333", "bbbbbbbb-0000-1111-2222-333333333333"


def name(number: int) -> str:
    return f"k-{number:08d}-2222-3333-4444-555555555555"


def allocates(number: int, tenths: Iterable[int], **fields: Any) -> ev.PrepareClaim:
    """As the driver asks after kubelet's Allocate."""
    ids = tuple(f"GPU-0-tenth-{n}" for n in tenths)
    share = Share("GPU-0", 100 * len(ids), 100 * len(ids), GIB * len(ids), GIB * len(ids))
    claim = Allocation(name(number)[2:], "vgpu.dev", "tenth", (), (share,), "boot-1", ids)
    return ev.PrepareClaim(replace(claim, **fields), "batch", 0, 0, uid=f"u-{number}", wall_ns=1)


def joins(number: int, pod: str = POD, container: str = ID) -> ev.ContainerCreated:
    return asks(container, join=name(number), pod=pod)


def guarantees(state: State) -> list[int]:
    """The minimum of each slice in milli-GPU, by name."""
    return [state.slices[key].shares[0].min_milli for key in sorted(state.slices)]


# ---- whose it is ----


def test_the_first_pod_that_uses_it_has_it_through_all_restarts_of_its_containers() -> None:
    state = kubernetes()
    send(state, allocates(1, range(5)))
    commands = send(state, joins(1))
    assert "is that of pod aaaaaaaa" in messages(commands, "claim.bound")[0]
    send(state, starts(), ev.ContainerEnded(ID, "crashed"), ev.Tick())
    made = answer(send(state, joins(1)))
    assert isinstance(made, Slice) and isinstance(made.origin, Allocation) and made.origin.pods == (POD,)
    assert f"not pod {POD_2}" in denial(send(state, joins(1, POD_2, OTHER)), Reason.DENIED)


def test_no_container_outside_kubernetes_has_it() -> None:
    state = kubernetes()
    send(state, allocates(1, range(5)))
    assert "this container is in none" in denial(send(state, joins(1, pod="")), Reason.DENIED)


def test_preparing_it_again_leaves_it_with_its_pod() -> None:
    state = kubernetes()
    send(state, allocates(1, range(5)), joins(1))
    made = answer(send(state, allocates(1, range(5), boot_id="boot-2")))
    assert isinstance(made, Slice) and isinstance(made.origin, Allocation)
    assert (made.origin.pods, made.origin.boot_id) == ((POD,), "boot-2")


# ---- allocated again ----


def test_ids_that_kubelet_allocates_again_are_no_longer_those_of_the_pod_that_used_them() -> None:
    state = kubernetes()
    send(state, allocates(1, range(6)), joins(1), starts())
    commands = send(state, allocates(2, range(4, 10)))
    assert isinstance(answer(commands), Slice)
    assert "allocated its devices again" in messages(commands, "slice.deleted")[0]
    assert list(state.slices) == [name(2)] and not state.containers


def test_other_sets_stay_when_one_is_allocated() -> None:
    state = kubernetes()
    send(state, allocates(1, range(5)), joins(1), allocates(2, range(5, 10)))
    assert guarantees(state) == [500, 500]


def test_an_allocation_that_no_container_used_makes_way_for_the_next() -> None:
    """A pod that kubelet did not admit in the end, or a driver that was killed before it answered."""
    state = kubernetes()
    send(state, allocates(1, range(8)), allocates(2, range(8)))
    assert guarantees(state) == [0, 800]


# ---- init containers: kubelet gives their ids to the pod's other containers, too ----


@pytest.mark.parametrize(("init_tenths", "main_tenths"), [(2, 5), (5, 2), (4, 4)])
def test_each_container_of_a_pod_gets_what_it_asks_for_in_its_turn(init_tenths: int, main_tenths: int) -> None:
    state = kubernetes()
    send(state, allocates(1, range(init_tenths)), allocates(2, range(main_tenths)), allocates(3, range(5, 10)))
    assert guarantees(state) == [0, main_tenths * 100, 500]
    made = answer(send(state, joins(1)))
    assert isinstance(made, Slice) and made.shares[0].mem_min_bytes == init_tenths * GIB
    assert guarantees(state) == [init_tenths * 100, 0, 500]
    send(state, starts(), ev.ContainerEnded(ID, "done"), joins(2, container=OTHER))
    assert guarantees(state) == [0, main_tenths * 100, 500]
    send(state, starts(OTHER), ev.ContainerEnded(OTHER, "its sandbox was made again"), joins(1))
    assert guarantees(state) == [init_tenths * 100, 0, 500]


def test_two_containers_after_one_init_container() -> None:
    state = kubernetes()
    send(state, allocates(1, range(3)), allocates(2, [0]), allocates(3, [1, 2]), allocates(4, range(3, 10)))
    assert guarantees(state) == [0, 100, 200, 700]
    send(state, joins(1), starts(), ev.ContainerEnded(ID, "done"), joins(2), joins(3, container=OTHER))
    assert guarantees(state) == [0, 100, 200, 700]


def test_a_container_that_is_late_does_not_take_the_ids_of_another_pod() -> None:
    state = kubernetes()
    send(state, allocates(1, range(5)), allocates(2, range(5)), joins(2, POD_2))
    assert f"pod {POD_2} has devices of this allocation" in denial(send(state, joins(1, POD, OTHER)), Reason.DENIED)
    assert guarantees(state) == [0, 500]


def test_a_guarantee_that_does_not_fit_any_more_changes_nothing() -> None:
    state = kubernetes()
    send(state, allocates(1, range(5)), allocates(2, range(3)), allocates(3, range(5, 10)))
    other = state.slices[name(3)]
    assert isinstance(other.origin, Allocation)
    bigger = (replace(other.shares[0], min_milli=700, max_milli=700),)
    state.slices[name(3)] = replace(other, shares=bigger, origin=replace(other.origin, granted=bigger))
    assert "left, and this needs 0.5 GPU" in denial(send(state, joins(1)), Reason.NO_CAPACITY)
    assert guarantees(state) == [0, 300, 700]


# ---- resize, bad input, store ----


def test_a_slice_whose_guarantee_is_lent_is_resized_without_one() -> None:
    state = kubernetes()
    send(state, allocates(1, range(2)), allocates(2, range(5)))
    patch = replace(Spec(0), max_milli=900)
    made = answer(send(state, ev.UpdateSlice("", name(1), patch, ("max_milli",))))
    assert isinstance(made, Slice) and (made.shares[0].min_milli, made.shares[0].max_milli) == (0, 900)
    made = answer(send(state, joins(1)))
    assert isinstance(made, Slice) and (made.shares[0].min_milli, made.shares[0].max_milli) == (200, 900)


def test_class_latency_ends_where_the_guarantee_is_lent() -> None:
    state = kubernetes()
    send(state, allocates(1, range(2)))
    patch = replace(Spec(0), service_class=LATENCY)
    send(state, ev.UpdateSlice("", name(1), patch, ("service_class",)), allocates(2, range(5)))
    assert state.slices[name(1)].spec.service_class == "batch"


def test_an_operator_removes_what_a_pod_left_and_with_force_what_it_uses() -> None:
    state = kubernetes()
    send(state, allocates(1, range(2)), allocates(2, range(2, 4)), joins(2), starts())
    assert answer(send(state, ev.DeleteSlice("", name(1), False))) is None
    assert "is that of container" in denial(send(state, ev.DeleteSlice("", name(2), False)), Reason.PRECONDITION)
    assert answer(send(state, ev.DeleteSlice("", name(2), True))) is None


@pytest.mark.parametrize("ids", [("a b",), ("",), ("x" * 81,), tuple(f"g-{n}" for n in range(1281))])
def test_ids_that_are_none(ids: tuple[str, ...]) -> None:
    found = answer(send(kubernetes(), allocates(1, [0], device_ids=ids)))
    assert isinstance(found, Denied) and found.field == "claim.device_ids"


def test_a_stored_allocation_is_read_again(tmp_path: Path) -> None:
    state = kubernetes()
    send(state, allocates(1, range(2)), allocates(2, range(5)))
    store = Store(tmp_path)
    store.apply([ev.SaveSlice(made) for made in state.slices.values()])
    store.close()
    read = Store(tmp_path).load(0).slices
    assert {made.name: made for made in read} == state.slices
