"""Slices to which no program has attached hold a device until they end: a refusal says so."""

from __future__ import annotations

from tests.core.test_machine import S, create, denial, make_state, process
from vgpud.core import events as ev
from vgpud.core.model import Reason, Spec
from vgpud.core.slices.machine import step


def test_a_refusal_names_slices_without_a_program_and_when_they_end() -> None:
    """A killed daemon's slices of programs that are gone: the next one keeps them for their grace."""
    state = make_state(grace_ns=60 * S)
    for number in range(2):
        step(state, create(f"a{number}", 250, ephemeral=True), number * 10 * S)
    full = denial(step(state, create("b", 700), 20 * S), Reason.NO_CAPACITY)
    assert full.endswith("; slices a0, a1 hold 0.5 GPU without a program: free in 50 s unless one attaches")
    step(state, ev.ProcessAttached(process(slice_name="a0")), 0)
    full = denial(step(state, create("b", 700), 20 * S + 1), Reason.NO_CAPACITY)
    assert full.endswith("; slice a1 holds 0.25 GPU without a program: free in 50 s unless one attaches")
    step(state, create("b", 100), 0)
    full = denial(step(state, ev.UpdateSlice("", "b", Spec(700), ("gpus_milli",)), 69 * S), Reason.NO_CAPACITY)
    assert "slice a1 holds 0.25 GPU without a program: free in 1 s" in full
    step(state, ev.ProcessAttached(process(2, slice_name="a1")), 0)
    assert "without a program" not in denial(step(state, create("c", 700), 0), Reason.NO_CAPACITY)
    for name in ("a1", "a0"):
        step(state, ev.DeleteSlice("", name, True), 0)
    for number in range(5):
        step(state, create(f"c{number}", 100, ephemeral=True), 0)
    assert "slices c0, c1, c2 and 2 more hold 0.5 GPU" in denial(step(state, create("d", 700), 0), Reason.NO_CAPACITY)
