"""Whose quota a slice counts against, and what is said where it does not fit."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.builders import GIB, make_device
from vgpud.core import events as ev
from vgpud.core.model import (
    ALLOW,
    DENY,
    PAUSED,
    QUOTA,
    Asker,
    Denied,
    Quota,
    Reason,
    Share,
    SiteLimits,
    Slice,
    Spec,
    State,
)
from vgpud.core.origins import Container, Job, User
from vgpud.core.slices import invariants, queue_quota
from vgpud.core.slices.machine import step

ANN, BOB = Asker(1000, (100,)), Asker(1001, (100, 200))
TEAM, USER = Quota("team", limit_milli=1500, members=("gid:100",)), Quota("ann", "team", 1000, ("uid:1000",))
OPEN = Quota("default")


@pytest.mark.parametrize("member", ["uid:0", "gid:4294967295"])
def test_members(member: str) -> None:
    assert queue_quota.member_refusal(member) == ""


@pytest.mark.parametrize("member", ["", "uid:", "ann", "uid:-1", "uid:4294967296", "gid:" + "9" * 5000])
def test_what_is_no_member(member: str) -> None:
    assert "is not a member: write uid:1000 or gid:1000" in queue_quota.member_refusal(member)


def make_state(direct: str = QUOTA, *queues: Quota) -> State:
    state = State()
    devices = tuple(map(make_device, range(3)))
    step(state, ev.Started(SiteLimits(direct=direct), devices, (), ()), 0)
    step(state, ev.QuotasChanged(queues or (OPEN, TEAM, USER)), 0)
    return state


def create(state: State, name: str, milli: int, asker: Asker = ANN, **options: object) -> Slice | Denied:
    origin = options.pop("origin", User(name, "spare"))
    event = ev.CreateSlice("", origin, Spec(milli), -1, f"uid-{name}", 1, asker=asker, **options)  # type: ignore[arg-type]
    (answer,) = [c.result for c in step(state, event, 0) if isinstance(c, ev.Answer)]
    invariants.check(state)
    assert answer is not None
    return answer


def denial(answer: object, reason: Reason) -> str:
    assert isinstance(answer, Denied), answer
    assert answer.reason is reason
    return answer.message


def queue_of(answer: object) -> str:
    assert isinstance(answer, Slice), answer
    return answer.queue


def test_a_users_own_queue_overrides_that_of_a_group() -> None:
    state = make_state()
    assert queue_of(create(state, "a", 100, ANN)) == "ann"
    assert queue_of(create(state, "b", 100, BOB)) == "team"
    assert queue_of(create(state, "c", 100, Asker(7))) == "default"


def test_queues_with_members_are_theirs() -> None:
    state = make_state()
    other = make_state(QUOTA, OPEN, TEAM, Quota("eve", members=("uid:5",)))
    assert "use team" in denial(create(other, "a", 100, BOB, queue="eve"), Reason.DENIED)
    assert queue_of(create(state, "a", 100, Asker(0, admin=True), queue="ann")) == "ann"
    assert queue_of(create(state, "b", 100, ANN, queue="default")) == "default"
    assert "'nix'" in denial(create(state, "c", 100, ANN, queue="nix"), Reason.NOT_FOUND)
    text = denial(create(other, "c", 100, BOB, queue="nix"), Reason.NOT_FOUND)
    assert text == "no queue 'nix': the queues are default, team", "others' queues are not told of"


def test_the_limit_names_queue_holders_and_what_is_left() -> None:
    state = make_state()
    create(state, "a", 700, ANN)
    text = denial(create(state, "b", 400, ANN), Reason.NO_CAPACITY)
    assert "queue ann has a limit of 1 GPUs and 0.7 in use (slice a 0.7), 0.4 more" in text
    assert "ask for 0.3 or less" in text
    assert queue_of(create(state, "b", 300, ANN)) == "ann"


def test_a_parents_limit_counts_its_children() -> None:
    state = make_state()
    create(state, "a", 1000, ANN)
    assert "queue team has a limit of 1.5" in denial(create(state, "b", 600, BOB), Reason.NO_CAPACITY)
    assert queue_of(create(state, "b", 500, BOB)) == "team"
    assert queue_quota.used_milli(state) == {"ann": 1000, "team": 500}


def test_counted_but_not_limited_where_the_site_allows() -> None:
    state = make_state(ALLOW)
    for name in ("a", "b"):
        assert queue_of(create(state, name, 1000, ANN)) == "ann"
    assert queue_quota.used_milli(state) == {"ann": 2000}


def test_only_jobs_and_admins_where_the_site_denies() -> None:
    state = make_state(DENY)
    assert "vgpu submit" in denial(create(state, "a", 100, ANN), Reason.DENIED)
    assert queue_of(create(state, "a", 100, Asker(0, admin=True))) == "default"
    share = Share("GPU-1", 100, 100, GIB, GIB)
    assert queue_of(create(state, "j-7", 100, ANN, origin=Job(7), queue="ann", shares=(share,))) == "ann"
    assert state.slices["j-7"].shares == (share,)
    event = ev.ContainerCreated("c" * 64, Spec(100), "", Container("ctr"), 1000, 1, 1, "u-ctr", 1)
    (answer,) = [c.result for c in step(state, event, 0) if isinstance(c, ev.Answer)]
    denial(answer, Reason.DENIED)


def test_slices_keep_to_reservations_that_are_in_force() -> None:
    state = make_state(ALLOW)
    what = "reservation course (for queue team)"
    step(state, ev.DevicesReserved(tuple((uuid, "team", what) for uuid in state.devices)), 0)
    said = denial(create(state, "a", 500, Asker(9, (9,))), Reason.PRECONDITION)
    assert what in said
    assert isinstance(create(state, "b", 500, queue="team"), Slice)
    assert isinstance(create(state, "c", 250, queue="ann"), Slice), "a queue below it"
    step(state, ev.DevicesReserved(()), 0)
    assert isinstance(create(state, "d", 100, Asker(9, (9,))), Slice)


def test_containers_count_too() -> None:
    state = make_state()
    create(state, "a", 900, ANN)
    event = ev.ContainerCreated("c" * 64, Spec(200), "", Container("ctr"), 1000, 1, 1, "u-ctr", 1)
    (answer,) = [c.result for c in step(state, event, 0) if isinstance(c, ev.Answer)]
    assert "queue ann" in denial(answer, Reason.NO_CAPACITY)


def test_growth_is_held_to_the_limit_and_shrinking_is_not() -> None:
    state = make_state()
    create(state, "a", 900, ANN)

    def resize(milli: int) -> object:
        commands = step(state, ev.UpdateSlice("", "a", Spec(milli), ("gpus_milli",)), 0)
        return next(c.result for c in commands if isinstance(c, ev.Answer))

    step(state, ev.QuotasChanged((OPEN, TEAM, Quota("ann", "team", 500, ("uid:1000",)))), 0)
    denial(resize(950), Reason.NO_CAPACITY)
    assert queue_of(resize(800)) == "ann"


def test_what_is_paused_counts_for_nothing() -> None:
    state = make_state()
    create(state, "a", 1000, ANN)
    state.slices["a"] = replace(state.slices["a"], suspended=PAUSED)
    assert queue_of(create(state, "b", 1000, ANN)) == "ann"


def test_only_the_queue_changes_a_jobs_slice() -> None:
    state = make_state()
    create(state, "j-7", 100, origin=Job(7), queue="ann", shares=(Share("GPU-0", 100, 100, GIB, GIB),))
    for event in (ev.UpdateSlice("", "j-7", Spec(200), ("gpus_milli",)), ev.DeleteSlice("", "j-7", True)):
        (answer,) = [c.result for c in step(state, event, 0) if isinstance(c, ev.Answer)]
        assert "job 7" in denial(answer, Reason.PRECONDITION)
        assert isinstance(event, ev.DeleteSlice) or "`vgpu job set 7 --gpus N`" in answer.message
    denial(create(state, "j-8", 100), Reason.INVALID)
    denial(create(state, "j-8-1", 100), Reason.INVALID)
    step(state, ev.DeleteSlice("", "j-7", True, job_id=7), 0)
    assert "j-7" not in state.slices


def test_chosen_shares_are_refused_where_there_is_no_capacity() -> None:
    state = make_state()
    create(state, "a", 600, Asker(7))
    used = state.slices["a"].shares[0].device_uuid
    given = (Share(used, 500, 500, GIB, GIB),)
    job = {"origin": Job(1), "queue": "default"}
    assert "0.4" in denial(create(state, "", 500, shares=given, **job), Reason.NO_CAPACITY)
    given = (Share("GPU-9", 500, 500, GIB, GIB),)
    assert "GPU-9" in denial(create(state, "", 500, shares=given, **job), Reason.NO_CAPACITY)


def test_limits_hold_whatever_comes() -> None:
    chance = random.Random(6)
    state = make_state()
    for number in range(600):
        name = f"s{chance.randrange(12)}"
        if chance.random() < 0.5:
            create(state, name, chance.choice((100, 250, 500, 1000)), chance.choice((ANN, BOB, Asker(7))))
        elif chance.random() < 0.5:
            step(state, ev.UpdateSlice("", name, Spec(chance.choice((100, 600))), ("gpus_milli",)), number)
        else:
            step(state, ev.DeleteSlice("", name, False), number)
        used = queue_quota.used_milli(state)
        assert used.get("ann", 0) <= 1000
        assert used.get("ann", 0) + used.get("team", 0) <= 1500
