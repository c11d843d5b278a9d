"""Whose a slice of a Kubernetes claim is, for metrics and accounting: by names, as far as they are the only ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.test_claims import kubernetes, prepare_event, share
from tests.core.test_containers import send
from tests.core.test_machine import answer, create, make_state
from vgpud.core.model import Container, Denied, Slice, State
from vgpud.core.observed import SliceStats, Standing
from vgpud.core.queue.accounting import Counts, Ledger
from vgpud.core.slices.snapshot import take_snapshot


def prepare_slice(state: State, pods: tuple[str, ...], names: tuple[str, ...]) -> Slice:
    event = prepare_event(share())
    claim = replace(event.claim, pods=pods, pod_names=names)
    made = answer(send(state, replace(event, claim=claim)))
    assert isinstance(made, Slice), made
    return made


def labels(state: State) -> dict[str, tuple[str, ...]]:
    found = take_snapshot(state, "n", "1", {}, lambda *_: SliceStats(), lambda _: Standing())
    return {one.slice_name: one.pod_labels for one in found.slices}


def run(state: State, claim_slice: Slice, *names: str) -> None:
    for number, name in enumerate(names):
        container = Container(f"c{number}", claim_slice.name, False, 1, 1, "", 0, True, name)
        state.containers[container.container_id] = container


@pytest.mark.parametrize(
    ("names", "containers", "expected_labels"),
    [
        (("train-0",), ("train-0/main",), ("team", "train-0", "main")),
        (("train-0",), ("train-0/main", "train-0/main"), ("team", "train-0", "main")),
        (("train-0",), ("train-0/main", "train-0/side"), ("team", "train-0")),
        (("train-0",), (), ("team", "train-0")),
        (("train-0",), ("",), ("team", "train-0")),
        ((), ("train-0/main",), ("team",)),
    ],
)
def test_one_pod_is_named_and_its_only_container(
    names: tuple[str, ...], containers: tuple[str, ...], expected_labels: tuple[str, ...]
) -> None:
    state = kubernetes()
    made = prepare_slice(state, ("p",), names)
    run(state, made, *containers)
    assert labels(state) == {made.name: expected_labels}


def test_several_pods_are_those_of_their_namespace() -> None:
    state = kubernetes()
    made = prepare_slice(state, ("p", "q"), ("train-0", "train-1"))
    run(state, made, "train-0/main")
    assert labels(state) == {made.name: ("team",)} and made.origin.name_pod() == ("team", "")


def test_a_second_pod_whose_name_is_not_known_counts() -> None:
    assert prepare_slice(kubernetes(), ("p", "q"), ("train-0",)).origin.name_pod() == ("team", "")


def test_other_slices_have_no_pod() -> None:
    state = make_state()
    made = answer(send(state, create("a", 100)))
    assert isinstance(made, Slice) and made.origin.name_pod() == ("", "") and labels(state) == {"a": ()}


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a" * 254, 'a"} 1\n'])
def test_a_name_that_no_pod_has_is_refused(name: str) -> None:
    event = prepare_event(share())
    result = answer(send(kubernetes(), replace(event, claim=replace(event.claim, pod_names=(name,)))))
    assert isinstance(result, Denied) and result.field == "claim.pod_names"


def test_names_come_with_a_claim_that_is_prepared_again() -> None:
    state = kubernetes()
    prepare_slice(state, ("p",), ())
    made = prepare_slice(state, ("p",), ("train-0",))
    assert made.origin.name_pod() == ("team", "train-0") and made.revision == 2


def test_time_is_counted_for_the_pods_that_had_the_slice_then() -> None:
    state, ledger = kubernetes(), Ledger()
    alone = prepare_slice(state, ("p",), ("train-0",))
    ledger.open(alone, 0)
    both = prepare_slice(state, ("p", "q"), ("train-0", "train-1"))
    first, second = ledger.see(both, Counts(10, 4, 1), 1000), ledger.see(both, Counts(30, 9, 3), 3000)
    assert (first.namespace, first.pod, first.begin_ns, first.end_ns) == ("team", "train-0", 0, 1000)
    assert (second.namespace, second.pod, second.begin_ns, second.end_ns) == ("team", "", 1000, 3000)
    assert (first.used, second.used) == (10_000, 20_000)
    assert (first.copy_to_device_bytes, first.copy_from_device_bytes) == (4, 1)
    assert (second.copy_to_device_bytes, second.copy_from_device_bytes) == (5, 2)
    assert ledger.close(both, Counts(30, 9, 3), 4000).granted == 500 * 3000
