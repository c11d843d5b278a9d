"""Programs past us are reported once, when they are sure, and again after they have been away."""

from __future__ import annotations

from vgpud.core.model import Process, Share, Slice, Spec, State
from vgpud.core.watch import PATIENCE, SLACK_BYTES, Running, Watch

GIB = 1 << 30


def node() -> State:
    made = Slice("a", "u", 1, Spec(500), (Share("GPU-0", 500, 500, GIB, GIB),), False, -1, 0)
    return State(slices={"a": made}, processes={1: Process(1, "a", 100, 0, "p", 0, False)})


def kinds(watch: Watch, running: Running, times: int) -> list[str]:
    return [entry.kind for _ in range(times) for entry in watch.look(node(), running)]


def test_our_programs_are_no_strangers() -> None:
    assert kinds(Watch(), {"GPU-0": {100: GIB}}, 10) == []


def test_a_stranger_is_reported_once() -> None:
    watch = Watch()
    assert kinds(watch, {"GPU-0": {100: 0, 200: GIB}}, PATIENCE - 1) == []
    assert kinds(watch, {"GPU-0": {100: 0, 200: GIB}}, 10) == ["device.stranger"]
    assert kinds(watch, {"GPU-0": {100: 0}}, 1) == []
    assert kinds(watch, {"GPU-0": {200: 0}}, 10) == ["device.stranger"]


def test_one_that_only_passes_by_is_not_reported() -> None:
    watch = Watch()
    for _ in range(10):
        assert kinds(watch, {"GPU-0": {200: 0}}, PATIENCE - 1) == []
        assert kinds(watch, {"GPU-0": {}}, 1) == []


def test_memory_past_the_ledger() -> None:
    assert kinds(Watch(), {"GPU-0": {100: GIB + SLACK_BYTES}}, 10) == []
    assert kinds(Watch(), {"GPU-0": {100: GIB + SLACK_BYTES + 1}}, 10) == ["memory.past_ledger"]
    assert kinds(Watch(), {"GPU-1": {100: 2 * SLACK_BYTES}}, 10) == ["memory.past_ledger"], "a device it does not have"
