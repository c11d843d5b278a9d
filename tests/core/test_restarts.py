"""Containers that their engine starts again: their slice is kept for a while, and not for ever."""

from __future__ import annotations

from tests.core.test_containers import ID, OTHER, asks, device, messages, starts
from tests.core.test_machine import S, answer, create, denial, make_state
from vgpud.core import events as ev
from vgpud.core.model import Reason, Slice, Spec, State
from vgpud.core.origins import User
from vgpud.core.slices import invariants
from vgpud.core.slices.machine import step

NAME = "c-" + "a" * 12
AGAIN = ev.ContainerEnded(ID, "ended", restarts=True)


def at(state: State, now_s: float, *events: ev.Event) -> list[ev.Command]:
    """Sends all of them at this time and returns the last one's commands."""
    commands: list[ev.Command] = []
    for event in events:
        commands = step(state, event, int(now_s * S))
        invariants.check(state)
    return commands


def full(grace_s: int = 60) -> State:
    """A container that has the only device."""
    state = make_state(restart_grace_ns=grace_s * S)
    at(state, 0, asks(milli=1000), starts())
    return state


def test_its_place_is_not_given_away_while_it_is_away() -> None:
    state = full()
    made = state.slices[NAME]
    away = messages(at(state, 10, AGAIN), "container.away")
    assert away == [f"container {ID[:12]}: ended; its slice is kept for 60 s, since its engine starts it again"]
    denial(at(state, 11, create("job", 500)), Reason.NO_CAPACITY)
    assert answer(at(state, 12, asks(milli=1000))) == made
    at(state, 12, starts(cgroup="/docker/again"))
    assert state.slices == {NAME: made} and state.containers[ID].cgroup == "/docker/again"


def test_what_was_changed_while_it_ran_stays_so() -> None:
    state = full()
    at(state, 1, ev.UpdateSlice("", NAME, Spec(500), frozenset({"gpus_milli"}), asker_uid=0))
    at(state, 2, AGAIN, create("job", 500))
    again = answer(at(state, 3, asks(milli=1000)))
    assert isinstance(again, Slice) and again.spec.gpus_milli == 500


def test_it_is_given_up_after_the_grace() -> None:
    state = full()
    at(state, 10, AGAIN, AGAIN)
    at(state, 69, ev.Tick())
    assert NAME in state.slices
    commands = at(state, 70, ev.Tick())
    assert not state.slices and not state.containers
    assert "did not start it again in time" in messages(commands, "container.ended")[0]


def test_what_its_user_stops_or_removes_meanwhile_is_given_up_at_once() -> None:
    state = full()
    at(state, 10, AGAIN)
    at(state, 11, ev.ContainerEnded(ID, "its engine does not start it again"))
    assert not state.slices and not state.restarts


def test_one_that_ends_again_and_again_holds_nothing_for_ever() -> None:
    """Each run is shorter than the grace, so all of them share one."""
    state = full()
    now_s, away_s = 0.0, 0.0
    while state.slices and now_s < 10_000:
        now_s += 5
        at(state, now_s, AGAIN)
        if state.slices:
            away_s += 7
            now_s += 7
            at(state, now_s, ev.Tick())
        if state.slices:
            at(state, now_s, asks(milli=1000), starts())
    assert not state.slices and 60 <= away_s < 67


def test_one_that_stayed_up_has_the_whole_grace_again() -> None:
    state = full()
    for now_s in range(0, 10_000, 120):
        at(state, now_s + 60, AGAIN)
        at(state, now_s + 119, ev.Tick())
        assert answer(at(state, now_s + 119.5, asks(milli=1000))), now_s
        at(state, now_s + 119.5, starts())


def test_no_grace_no_waiting() -> None:
    state = full(grace_s=0)
    at(state, 10, AGAIN)
    assert not state.slices


def test_one_that_never_started_keeps_nothing() -> None:
    state = make_state()
    at(state, 0, asks(), AGAIN)
    assert not state.slices


def test_its_one_time_device_is_its_own_again() -> None:
    state = make_state()
    at(state, 0, device(), asks(join="alloc-1"), starts())
    at(state, 10, AGAIN)
    denial(at(state, 11, asks(OTHER, join="alloc-1")), Reason.PRECONDITION)
    again = answer(at(state, 12, asks(join="alloc-1")))
    assert isinstance(again, Slice) and again.name == "alloc-1"
    assert isinstance(again.origin, User) and again.origin.cdi_used


def test_a_removed_slice_is_not_waited_for() -> None:
    state = full()
    at(state, 10, AGAIN)
    at(state, 11, ev.DeleteSlice("", NAME, force=True, asker_uid=0))
    assert not state.restarts and not state.containers
