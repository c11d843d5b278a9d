"""Slices that rotate or sleep: what is admitted, what they reserve, and that no step of their residency is skipped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.test_machine import GIB, S, answer, denial, device, make_state, process
from vgpud.core import events as ev
from vgpud.core.model import (
    AWAY,
    COMING,
    EVICTED,
    EVICTING,
    LATENCY,
    LEAVING,
    PAUSED,
    RESTORING,
    Denied,
    Reason,
    Share,
    SiteLimits,
    Slice,
    Spec,
    State,
)
from vgpud.core.origins import Job, User
from vgpud.core.slices import invariants
from vgpud.core.slices.machine import step
from vgpud.core.slices.residency import STEPS


def swap(name: str, gib: int = 80, milli: int = 250, **options: Any) -> ev.CreateSlice:
    spec = Spec(milli, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB, **({"mem_swap": True} | options))
    return ev.CreateSlice("", User(name, "x"), spec, 1000, f"uid-{name}", 1)


def make(state: State, *requests: ev.CreateSlice) -> None:
    for request in requests:
        assert isinstance(answer(step(state, request, 0)), Slice)
        invariants.check(state)


def move(state: State, *steps: tuple[str, str], **options: Any) -> list[ev.Command]:
    commands = step(state, ev.MoveMemory(steps, **options), 0)
    assert isinstance(answer(commands), Slice)
    invariants.check(state)
    return commands


def suspend(state: State, name: str, *to: str) -> Slice:
    for one in to:
        assert isinstance(answer(step(state, ev.SuspendSlice(name, one), 0)), Slice)
        invariants.check(state)
    return state.slices[name]


# ---- admission ----


def on_devices(count: int, *requests: ev.CreateSlice) -> list[str]:
    """Where these are placed, one after the other."""
    state = make_state(count)
    make(state, *requests)
    return [made.shares[0].device_uuid for made in state.slices.values()]


def test_a_device_where_no_turns_are_needed_is_preferred() -> None:
    assert on_devices(2, swap("a", 60), swap("b", 60)) == ["GPU-0", "GPU-1"]
    assert on_devices(2, swap("a", 30), swap("b", 60, mem_swap=False), swap("c", 30)) == ["GPU-0", "GPU-1", "GPU-0"]
    assert on_devices(2, swap("a", 30), swap("b", 30)) == ["GPU-0", "GPU-0"], "the fullest where all fit"


def test_where_turns_are_needed_the_device_is_chosen_where_they_cost_least() -> None:
    made = on_devices(3, swap("a", 80), swap("b", 40), swap("o", 80, mem_swap=False), swap("c", 50))
    assert made == ["GPU-0", "GPU-1", "GPU-2", "GPU-1"]
    assert on_devices(2, swap("a", 80), swap("b", 80), swap("c", 80), swap("d", 80))[2:] == ["GPU-0", "GPU-1"]


def test_a_change_stays_where_it_is_though_another_device_is_empty() -> None:
    state = make_state(2)
    make(state, swap("a", 60), swap("b", 60))
    event = ev.UpdateSlice(
        "", "b", Spec(250, mem_min_bytes=70 * GIB, mem_max_bytes=70 * GIB), ("mem_min_bytes", "mem_max_bytes")
    )
    found = answer(step(state, event, 0))
    assert isinstance(found, Slice) and [share.device_uuid for share in found.shares] == ["GPU-1"]


def test_their_memory_together_may_be_more_than_the_device() -> None:
    state = make_state()
    make(state, *(swap(name) for name in "abcd"))
    assert state.reserved("GPU-0") == (1000, 80 * GIB)
    assert [state.slices[name].residency for name in "abcd"] == ["", AWAY, AWAY, AWAY]


def test_their_time_may_not() -> None:
    state = make_state()
    make(state, *(swap(name) for name in "abcd"))
    assert "GPU" in denial(step(state, swap("e"), 0), Reason.NO_CAPACITY)


def test_a_refusal_says_that_turns_would_do() -> None:
    state = make_state()
    make(state, swap("a", milli=1000))
    whole = denial(step(state, swap("b", milli=1000), 0), Reason.NO_CAPACITY)
    assert whole.endswith("; slices in turns keep their minimum of SM time: give min 0 to share that as well")
    make(state, swap("b", milli=1000, min_milli=0))


@pytest.mark.parametrize(
    ("options", "is_advised"),
    [
        ({}, True),
        ({"gib": 90}, False),  # more than the device has
        ({"milli": 900}, False),  # its time is reserved
        ({"service_class": LATENCY}, False),
    ],
)
def test_a_refusal_says_that_mem_swap_would_do(options: dict[str, Any], is_advised: bool) -> None:
    state = make_state()
    make(state, swap("a"))
    refusal = answer(step(state, swap("b", **({"mem_swap": False} | options)), 0))
    assert isinstance(refusal, Denied)
    text = refusal.message
    assert text.endswith("; or ask with mem-swap: it has device 0 in turn with others that do") == is_advised
    if is_advised:
        make(state, swap("b"))


def test_a_refusal_says_nothing_of_turns_where_none_takes_turns() -> None:
    state = make_state()
    make(state, swap("a", mem_swap=False))
    assert "mem-swap" not in denial(step(state, swap("b", mem_swap=False), 0), Reason.NO_CAPACITY)
    faulty = make_state()
    make(faulty, swap("a"))
    faulty.policy = replace(faulty.policy, swap_fault="no driver")
    assert "mem-swap" not in denial(step(faulty, swap("b", mem_swap=False), 0), Reason.NO_CAPACITY)


def test_the_largest_of_them_fits_beside_what_others_have_reserved() -> None:
    state = make_state()
    make(state, swap("other", 30, mem_swap=False), swap("a", 50), swap("b", 40))
    assert state.reserved("GPU-0") == (750, 80 * GIB)
    assert "50GiB" in denial(step(state, swap("c", 51), 0), Reason.NO_CAPACITY)
    assert "40GiB" not in denial(step(state, swap("d", 1, mem_swap=False), 0), Reason.NO_CAPACITY)
    step(state, ev.DeleteSlice("", "a", False), 0)
    make(state, swap("d", 10, mem_swap=False))
    invariants.check(state)


def test_a_device_where_none_has_to_leave_comes_first() -> None:
    state = make_state(2)
    make(state, *(swap(name) for name in "abc"))
    assert [state.slices[name].shares[0].device_uuid for name in "abc"] == ["GPU-0", "GPU-1", "GPU-0"]


def test_host_ram_is_admitted_as_device_memory_is() -> None:
    """When the smallest has its turn, all others may have left for it."""
    state = make_state(swap_bytes=140 * GIB)
    make(state, swap("a"), swap("b", 60), swap("c", 40))
    said = denial(step(state, swap("d", 1), 0), Reason.NO_CAPACITY)
    assert "180GiB" in said and "140GiB" in said and "suspended_bytes_max" in said
    grown = ev.UpdateSlice(
        "", "b", Spec(250, mem_min_bytes=61 * GIB, mem_max_bytes=61 * GIB), ("mem_max_bytes", "mem_min_bytes")
    )
    assert "141GiB" in denial(step(state, grown, 0), Reason.NO_CAPACITY)


def test_who_gives_rotation_up_needs_its_memory_as_any_other() -> None:
    state = make_state()
    make(state, swap("a", 50), swap("b", 50))
    alone = ev.UpdateSlice("", "b", Spec(250), ("mem_swap",))
    assert "50GiB" in denial(step(state, alone, 0), Reason.NO_CAPACITY)
    step(state, ev.DeleteSlice("", "a", False), 0)
    assert isinstance(answer(step(state, alone, 0)), Slice)
    assert state.reserved("GPU-0") == (250, 50 * GIB)


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        (Spec(500, service_class=LATENCY, mem_swap=True), "mem_swap", "class latency with mem-swap"),
        (Spec(500, service_class=LATENCY, idle_after_ns=9 * S), "idle_after_ns", "class latency with idle-after"),
        (Spec(2000, mem_swap=True), "mem_swap", "mem-swap on 2 devices"),
        (Spec(2000, idle_after_ns=9 * S), "idle_after_ns", "idle-after on 2 devices"),
        (Spec(500, idle_after_ns=1), "idle_after_ns", "idle-after 1e-09 s is out of range"),
        (Spec(500, idle_after_ns=-1), "idle_after_ns", "out of range"),
    ],
)
def test_who_never_leaves_cannot_ask_for_it(spec: Spec, field: str, text: str) -> None:
    state = make_state(2)
    refused = answer(step(state, ev.CreateSlice("", User("a", "x"), spec, 1000, "uid", 1), 0))
    assert not isinstance(refused, Slice) and refused is not None
    assert refused.field == field and text in refused.message and not state.slices


def test_a_driver_that_moves_nothing_is_named() -> None:
    fault = "driver 535.1 cannot move memory to the host (570 and later can)"
    state = make_state(swap_fault=fault, idle_after_ns=60 * S)
    for options in ({}, {"mem_swap": False, "idle_after_ns": 9 * S}):
        said = denial(step(state, swap("a", 10, **options), 0), Reason.PRECONDITION)
        assert said.startswith(fault)
    make(state, swap("a", 10, mem_swap=False))
    assert not state.slices["a"].rotates


def test_the_sites_idle_after_is_for_those_that_do_not_say_and_can_sleep() -> None:
    state = make_state(3, idle_after_ns=60 * S)
    make(
        state,
        swap("a", 10, mem_swap=False),
        swap("b", 10, mem_swap=False, idle_after_ns=0),
        swap("c", 10, mem_swap=False, service_class=LATENCY),
        swap("d", 10, mem_swap=False, milli=2000),
    )
    assert [state.slices[name].spec.idle_after_ns for name in "abcd"] == [60 * S, 0, 0, 0]
    assert [state.slices[name].rotates for name in "abcd"] == [True, False, False, False]
    step(state, ev.UpdateSlice("", "b", Spec(250), ("idle_after_ns",)), 0)
    assert state.slices["b"].spec.idle_after_ns == 60 * S


def test_another_default_of_the_site_is_for_slices_made_from_then_on() -> None:
    state = make_state()
    make(state, swap("a", 10, mem_swap=False))
    step(state, ev.PolicyChanged(SiteLimits(idle_after_ns=60 * S)), 0)
    latency = {"mem_swap": False, "service_class": LATENCY}
    make(state, swap("b", 10, mem_swap=False), swap("c", 10, **latency))
    refused = answer(step(state, swap("d", 10, idle_after_ns=60 * S, **latency), 0))
    assert not isinstance(refused, Slice) and refused is not None and "class latency with idle-after" in refused.message
    for name in "abc":
        step(state, ev.UpdateSlice("", name, Spec(250, weight=3), ("weight",)), 0)
    assert [state.slices[name].spec.idle_after_ns for name in "abc"] == [None, 60 * S, 0]
    assert [state.slices[name].rotates for name in "abc"] == [False, True, False]
    step(state, ev.PolicyChanged(SiteLimits()), 0)
    assert state.slices["b"].rotates, "it keeps what was the site's when it was made"


def test_who_becomes_class_latency_loses_the_sites_default_silently_and_not_its_own() -> None:
    state = make_state(idle_after_ns=60 * S)
    make(state, swap("a", 10, mem_swap=False), swap("b", 10, mem_swap=False, idle_after_ns=9 * S))
    found = [
        answer(step(state, ev.UpdateSlice("", name, Spec(250, service_class=LATENCY), ("service_class",)), 0))
        for name in "ab"
    ]
    assert isinstance(found[0], Slice) and (found[0].spec.idle_after_ns, found[0].rotates) == (0, False)
    assert not isinstance(found[1], Slice) and found[1] is not None
    assert "class latency with idle-after" in found[1].message and state.slices["b"].spec.service_class != LATENCY


# ---- steps ----


def test_each_step_is_saved_before_it_is_carried_out() -> None:
    state = make_state()
    make(state, swap("a"), swap("b"))
    commands = move(state, ("a", LEAVING))
    assert [type(c) for c in commands] == [ev.SaveSlice, ev.ApplySlice, ev.Answer]
    commands = move(state, ("a", AWAY), ("b", COMING))
    applied = [(c.slice.name, c.slice.residency) for c in commands if isinstance(c, ev.ApplySlice)]
    assert applied == [("a", AWAY), ("b", COMING)], "what the one gives back is never free for a third one"
    move(state, ("b", ""))
    assert state.reserved("GPU-0") == (500, 80 * GIB), "guaranteed time stays reserved while a slice is away"


@pytest.mark.parametrize("now", STEPS)
@pytest.mark.parametrize("target", STEPS)
def test_only_the_steps_of_the_table(now: str, target: str) -> None:
    path = {"": (), LEAVING: (LEAVING,), AWAY: (LEAVING, AWAY), COMING: (LEAVING, AWAY, COMING)}
    state = make_state()
    make(state, swap("a"), swap("b"))
    for one in path[now]:
        move(state, ("a", one))
    before = state.copy()
    result = answer(step(state, ev.MoveMemory((("a", target),)), 0))
    assert isinstance(result, Slice) == (target in STEPS[now])
    if target not in STEPS[now]:
        assert state == before


def test_all_steps_of_an_event_or_none() -> None:
    state = make_state()
    make(state, swap("a"), swap("b"))
    before = state.copy()
    assert "cannot become" in denial(step(state, ev.MoveMemory((("a", LEAVING), ("b", AWAY))), 0), Reason.PRECONDITION)
    assert "no slice 'c'" in denial(step(state, ev.MoveMemory((("a", LEAVING), ("c", AWAY))), 0), Reason.NOT_FOUND)
    assert state == before


@pytest.mark.parametrize("ends", [False, True])
def test_a_sleeper_says_since_when_and_its_return_is_an_event(ends: bool) -> None:
    state = make_state()
    make(state, swap("a", mem_swap=False, idle_after_ns=60 * S))
    state.processes[1] = process()
    move(state, ("a", LEAVING), wall_ns=7, falls_asleep=True)
    commands = move(state, ("a", AWAY))
    assert state.slices["a"].asleep_wall_ns == 7
    assert [c.kind for c in commands if isinstance(c, ev.Log)] == ["slice.asleep"]
    assert state.reserved("GPU-0") == (250, 80 * GIB), "others' minima are not placed on it"
    move(state, ("a", COMING))
    if ends:  # its program, while it comes: nothing is awake then
        del state.processes[1]
    commands = move(state, ("a", ""))
    assert [c.kind for c in commands if isinstance(c, ev.Log)] == ([] if ends else ["slice.awake"])
    assert not state.slices["a"].asleep_wall_ns
    move(state, ("a", LEAVING), wall_ns=8, falls_asleep=True)
    commands = move(state, ("a", ""))  # the driver refused
    assert state.slices["a"].asleep_wall_ns == 0
    assert not [c for c in commands if isinstance(c, ev.Log)]


def test_it_says_since_when_its_memory_is_on_the_host() -> None:
    state = make_state()
    make(state, swap("a"), swap("b"))
    assert state.slices["b"].away_wall_ns == 0, "it is away with nothing"
    move(state, ("a", LEAVING), wall_ns=7)
    assert state.slices["a"].away_wall_ns == 0
    move(state, ("a", AWAY), wall_ns=8)
    move(state, ("a", COMING), wall_ns=9)
    move(state, ("a", AWAY), wall_ns=10)
    assert (state.slices["a"].away_wall_ns, state.slices["a"].asleep_wall_ns) == (8, 0)
    suspend(state, "a", EVICTING)
    assert state.slices["a"].away_wall_ns == 8, "evicting moved nothing"
    step(state, ev.SuspendSlice("a", RESTORING), 0)
    assert (state.slices["a"].residency, state.slices["a"].away_wall_ns) == (AWAY, 8)
    move(state, ("a", COMING))
    move(state, ("a", ""))
    assert state.slices["a"].away_wall_ns == 0


def test_it_is_away_again_after_a_restart_and_asleep_as_before() -> None:
    state = make_state()
    make(state, swap("a"), swap("b"))
    move(state, ("a", LEAVING), wall_ns=7, falls_asleep=True)
    kept = tuple(state.slices.values())
    again = State()
    step(again, ev.Started(SiteLimits(), (device(0),), kept, ()), 0)
    assert [s.residency for s in again.slices.values()] == [LEAVING, AWAY] and not again.waiting
    invariants.check(again)


# ---- beside what users do ----


def test_a_program_may_attach_while_its_slice_is_away() -> None:
    state = make_state()
    make(state, swap("a"), swap("b"))
    commands = step(state, ev.ProcessAttached(process(1, "b")), 0)
    assert [type(c) for c in commands] == [ev.AdmitProcess, ev.Log]


def test_a_slice_is_not_taken_from_a_program_whose_memory_is_on_the_host() -> None:
    state = make_state()
    make(state, swap("a"), swap("b"))
    step(state, ev.ProcessAttached(process(1, "a")), 0)
    move(state, ("a", LEAVING))
    said = denial(step(state, ev.DeleteSlice("", "a", True), 0), Reason.PRECONDITION)
    assert "pid 101 has its memory on the host: end it first" in said
    step(state, ev.ProcessGone(1), 0)
    assert answer(step(state, ev.DeleteSlice("", "a", True), 0)) is None


def test_a_jobs_slice_ends_with_the_job_wherever_its_memory_is() -> None:
    state = make_state()
    make(state, swap("a"))
    spec = Spec(250, mem_min_bytes=80 * GIB, mem_swap=True)
    make(state, ev.CreateSlice("", Job(7), spec, 1000, "uid-7", 1))
    step(state, ev.ProcessAttached(process(1, "j-7")), 0)
    assert state.slices["j-7"].residency == AWAY
    assert answer(step(state, ev.DeleteSlice("", "j-7", True, job_id=7), 0)) is None


def test_evicting_one_that_is_away_moves_nothing_and_it_comes_back_in_its_turn() -> None:
    state = make_state()
    make(state, swap("a"), swap("b"))
    evicted = suspend(state, "b", EVICTING)
    assert (evicted.suspended, evicted.residency) == (EVICTED, "")
    assert state.reserved("GPU-0") == (250, 80 * GIB)
    resumed = suspend(state, "b", RESTORING)
    assert (resumed.suspended, resumed.residency) == ("", AWAY)


def test_one_whose_memory_is_moved_is_not_evicted_at_the_same_time() -> None:
    state = make_state()
    make(state, swap("a"), swap("b"))
    move(state, ("a", LEAVING))
    assert "is leaving: wait" in denial(step(state, ev.SuspendSlice("a", EVICTING), 0), Reason.PRECONDITION)
    move(state, ("a", AWAY))
    suspend(state, "a", PAUSED)
    assert state.slices["a"].residency == AWAY
    suspend(state, "b", PAUSED, EVICTING)
    assert "is evicted" in denial(step(state, ev.MoveMemory((("b", COMING),)), 0), Reason.PRECONDITION)


def test_minima_of_a_link_hold_where_the_queue_chose_the_device() -> None:
    state = make_state()
    shares = (Share("GPU-0", 100, 100, 8 * GIB, 8 * GIB),)

    def ask(name: str, copy_min_milli: int) -> ev.CreateSlice:
        spec = Spec(100, mem_min_bytes=8 * GIB, copy_min_milli=copy_min_milli)
        return ev.CreateSlice("", User(name, "x"), spec, 1000, f"uid-{name}", 1, shares=shares)

    make(state, ask("a", 800))
    text = denial(step(state, ask("b", 300), 0), Reason.NO_CAPACITY)
    assert text.startswith("copy-min 0.3 is more than other slices leave of a link: device 0 has 0.2 left")
    make(state, ask("b", 200))
