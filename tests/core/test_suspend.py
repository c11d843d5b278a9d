"""Suspending a slice: what it gives up, what it needs to continue, and that no step is skipped."""

from __future__ import annotations

import pytest

from tests.core.test_machine import GIB, answer, create, denial, device, make_state, process
from vgpud.core import events as ev
from vgpud.core.model import EVICTED, EVICTING, PAUSED, RESTORING, Quota, Reason, SiteLimits, Slice, Spec, State
from vgpud.core.origins import Job, User
from vgpud.core.slices import invariants
from vgpud.core.slices.machine import step
from vgpud.core.slices.suspend import STEPS


def to(state: State, *steps: str, name: str = "a", job_id: int = 0) -> Slice:
    for one in steps:
        result = answer(step(state, ev.SuspendSlice(name, one, job_id=job_id), 0))
        assert isinstance(result, Slice) and result.suspended == one
        invariants.check(state)
    return state.slices[name]


def half() -> State:
    """Slice a: 0.6 of the device and half of its memory."""
    state = make_state()
    spec = Spec(600, mem_min_bytes=40 * GIB, mem_max_bytes=40 * GIB)
    step(state, ev.CreateSlice("", User("a", "x"), spec, 1000, "uid-a", 1), 0)
    return state


def test_a_paused_slice_gives_up_its_time_and_keeps_its_memory() -> None:
    state = half()
    to(state, PAUSED)
    assert state.reserved("GPU-0") == (0, 40 * GIB)
    commands = step(state, ev.SuspendSlice("a", ""), 0)
    assert [type(c) for c in commands] == [ev.SaveSlice, ev.ApplySlice, ev.Log, ev.Answer]
    assert state.reserved("GPU-0") == (600, 40 * GIB)


def test_an_evicted_slice_gives_up_both_when_it_is_away_and_has_them_before_it_comes_back() -> None:
    state = half()
    to(state, EVICTING)
    assert state.reserved("GPU-0") == (0, 40 * GIB)
    to(state, EVICTED)
    assert state.reserved("GPU-0") == (0, 0)
    to(state, RESTORING)
    assert state.reserved("GPU-0") == (600, 40 * GIB)
    to(state, "")


def test_an_evicted_slice_says_since_when_its_memory_is_on_the_host() -> None:
    state = half()
    for wall_ns, (one, since) in enumerate([(EVICTING, 0), (EVICTED, 2), (RESTORING, 2), (EVICTED, 2)], 1):
        step(state, ev.SuspendSlice("a", one, wall_ns=wall_ns), 0)
        assert state.slices["a"].away_wall_ns == since, one
    assert to(state, RESTORING, "").away_wall_ns == 0
    assert to(state, PAUSED).away_wall_ns == 0


@pytest.mark.parametrize("steps", [(PAUSED,), (EVICTING, EVICTED)], ids="-".join)
def test_it_continues_when_there_is_capacity_again(steps: tuple[str, ...]) -> None:
    state = half()
    to(state, *steps)
    step(state, create("b", 500), 0)
    onwards = RESTORING if EVICTED in steps else ""
    said = denial(step(state, ev.SuspendSlice("a", onwards), 0), Reason.NO_CAPACITY)
    assert "needs 0.6" in said and "device 0" in said and "has 0.5" in said
    assert state.slices["a"].suspended == steps[-1]
    step(state, ev.DeleteSlice("", "b", False), 0)
    to(state, onwards)


def test_an_evicted_slice_needs_its_memory_again() -> None:
    state = half()
    to(state, EVICTING, EVICTED)
    step(state, ev.CreateSlice("", User("b", "x"), Spec(100, mem_min_bytes=60 * GIB), 0, "uid-b", 1), 0)
    said = denial(step(state, ev.SuspendSlice("a", RESTORING), 0), Reason.NO_CAPACITY)
    assert "40GiB" in said and "20GiB left" in said


def test_an_eviction_that_fails_takes_no_slices_time_back() -> None:
    state = half()
    to(state, EVICTING)
    step(state, create("b", 500), 0)
    assert "has 0.5 left" in denial(step(state, ev.SuspendSlice("a", ""), 0), Reason.NO_CAPACITY)
    to(state, PAUSED)


@pytest.mark.parametrize("now", STEPS)
@pytest.mark.parametrize("target", STEPS)
def test_only_the_steps_of_the_table(now: str, target: str) -> None:
    path = {"": (), PAUSED: (PAUSED,), EVICTING: (EVICTING,), EVICTED: (EVICTING, EVICTED)}
    path[RESTORING] = (*path[EVICTED], RESTORING)
    state = half()
    to(state, *path[now])
    before = state.copy()
    result = answer(step(state, ev.SuspendSlice("a", target), 0))
    assert isinstance(result, Slice) == (target in STEPS[now] or target == now)
    if target not in STEPS[now]:
        assert state == before


def test_only_one_program_can_be_moved_and_none_may_join_meanwhile() -> None:
    state = half()
    for number in (1, 2):
        step(state, ev.ProcessAttached(process(number)), 0)
    assert "2 programs" in denial(step(state, ev.SuspendSlice("a", EVICTING), 0), Reason.PRECONDITION)
    step(state, ev.ProcessGone(2), 0)
    to(state, EVICTING)
    assert "evicted" in denial(step(state, ev.ProcessAttached(process(3)), 0), Reason.PRECONDITION)
    to(state, "", PAUSED)
    step(state, ev.ProcessAttached(process(3)), 0)
    assert 3 in state.processes


def test_a_jobs_slice_is_the_queues_business() -> None:
    state = make_state()
    step(state, create(origin=Job(7)), 0)
    assert "job 7" in denial(step(state, ev.SuspendSlice("j-7", PAUSED), 0), Reason.PRECONDITION)
    to(state, PAUSED, "", name="j-7", job_id=7)


def test_resuming_counts_against_the_queues_limit_again() -> None:
    state = make_state(2, direct="quota")
    step(state, ev.QuotasChanged((Quota("default", limit_milli=1000),)), 0)
    step(state, create(), 0)
    to(state, PAUSED)
    step(state, create("b", 800), 0)
    assert "limit" in denial(step(state, ev.SuspendSlice("a", ""), 0), Reason.NO_CAPACITY)


def test_after_a_restart_it_is_as_it_was_and_takes_no_capacity() -> None:
    state = half()
    to(state, EVICTING, EVICTED)
    step(state, create("b", 900), 0)
    again = State()
    stored = tuple(state.slices[name] for name in "ab")
    step(again, ev.Started(SiteLimits(), (device(0),), stored, ()), 0)
    assert not again.waiting and again.slices["a"].suspended == EVICTED
    invariants.check(again)
