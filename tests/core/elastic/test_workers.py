"""Worker groups on a fake clock: which workers work together, what they are sent and when, and which are replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.elastic.worker_world import World, place, places
from vgpud.core.elastic import worker_events as we
from vgpud.core.elastic.live_group import JOIN_MAX_NS, LEAVE_MAX_NS, LEAVE_NS, LOST_NS, READY_NS, STAND_IN_NS
from vgpud.core.elastic.members import refusal
from vgpud.core.elastic.worker_group import (
    WORKER_TRANSITIONS,
    ProgressReport,
    WorkerEvent,
    WorkerGroup,
    WorkerState,
    difference,
)
from vgpud.core.jobs.model import SECOND_NS, JobState
from vgpud.core.queue import group_record

# ---- memberships ----


def test_the_first_membership_is_of_all_and_sent_twice() -> None:
    world = World(3)
    world.hello(2)
    world.hello(0)
    assert not world.mail
    world.hello(1)
    world.say(2, store="127.0.0.1:6")  # which is the first one's to say
    world.meet(0, 1, 2)
    assert world.group.members == (0, 1, 2)
    assert world.group.store == "127.0.0.1:5"
    assert world.joins == [(0, 1, 2)]
    assert len(world.notes) == 1 and "3 workers work together" in world.notes[0][1]


def test_a_worker_that_is_not_there_is_not_waited_for_for_ever() -> None:
    world = World(2)
    world.hello(1)
    world.sleep(READY_NS / SECOND_NS - 1)
    assert not world.mail
    world.sleep(1)
    world.meet(1)
    world.hello(0)
    world.meet(0, 1)
    assert world.group.members == (1, 0), "survivors first"


def test_newcomers_are_notified_when_all_of_them_are_ready_and_survivors_keep_their_rank() -> None:
    world = World(2, batch=8, batch_max=20)
    world.begin(0, 1)
    world.send(we.Resize(places("aabb"), "there is capacity"))
    assert world.started_workers == [2, 3]
    world.hello(3)
    assert not world.mail
    world.hello(2)
    membership = world.take_membership(0)
    assert (membership.workers, membership.batch, membership.reason) == ((0, 1, 2, 3), 20, "there is capacity")
    assert world.group.generation == 2


def test_a_leaving_worker_is_notified_and_has_time_until_the_others_continue() -> None:
    world = World(3)
    world.begin(0, 1, 2)
    world.send(we.Resize(places("aa"), "another job waits"))
    for worker in (0, 1, 2):
        assert world.take_membership(worker).workers == (0, 1)
    world.sleep(LEAVE_NS / SECOND_NS)
    assert world.stopped_workers == []
    world.say(0, store="127.0.0.1:5")
    for worker in (0, 1):
        world.say(worker, has_joined=True)
    world.sleep(LEAVE_NS / SECOND_NS)
    assert world.stopped_workers == [2], "they work without it"
    world.ends(2)
    assert world.group.generation == 2, "that it has gone by now is nothing new"
    assert world.resizes == [(places("aa"), "")]


def test_a_leaving_worker_is_notified_although_the_membership_changes_again_at_once() -> None:
    world = World(3, retries=1)
    world.begin(0, 1, 2)
    world.slow_disk = True
    world.send(we.Resize(places("aa"), "another job waits"))
    world.ends(1, 3)
    assert world.unsaved_generations == [2, 3] and not world.mail
    for command in world.disk_has():
        world._carry_out(command)
    assert world.take_membership(0).workers == world.take_membership(2).workers == (0,)


def test_a_leaving_worker_that_the_others_wait_for_is_stopped_in_the_end() -> None:
    world = World(2)
    world.begin(0, 1)
    world.send(we.Resize(places("a"), "another job waits"))
    world.sleep(LEAVE_MAX_NS / SECOND_NS - 1)
    assert world.stopped_workers == []
    world.sleep(1)
    assert world.stopped_workers == [1]


def test_one_that_leaves_and_never_said_a_word_is_ended_at_once() -> None:
    world = World(2)
    world.send(we.Resize(places("a"), "another job waits"))
    world.sleep(0)
    assert world.stopped_workers == [1]
    world.hello(0)
    assert world.take_membership(0).workers == (0,)


def test_a_death_makes_a_new_membership_and_an_old_loss_none() -> None:
    world = World(3, retries=1)
    world.begin(0, 1, 2)
    world.ends(0, 3)
    (made,) = world.started_workers
    membership = world.take_membership(1)
    assert (membership.workers, membership.reason) == ((1, 2), "worker 0 has ended")
    world.say(1, generation=1, has_lost_peers=True)
    world.say(2, generation=1, has_lost_peers=True)
    world.sleep(LOST_NS / SECOND_NS)
    assert world.group.generation == 2
    world.take_membership(2)
    world.say(1, has_lost_peers=True)
    world.say(2, has_lost_peers=True)
    world.sleep(LOST_NS / SECOND_NS)
    assert world.take_membership(1).generation == 3
    world.sleep(LOST_NS / SECOND_NS)
    assert (world.group.generation, world.group.members) == (3, (1, 2)), "once for both"
    world.hello(made)
    membership = world.take_membership(made)
    assert (membership.workers, membership.reason) == ((1, 2, made), "more workers are ready")


def test_after_a_restart_nothing_is_sent_to_those_who_work() -> None:
    before = World(2)
    before.begin(0, 1)
    world = World(2, record=before.disk)
    world.send(we.Adopted(running=(0, 1)))
    world.hello(0, 1)
    world.hello(1, 1)
    assert not world.mail
    assert world.joins == [(0, 1)]
    assert world.group.generation == 1


def test_a_worker_that_has_not_heard_of_the_newest_membership_is_notified_again() -> None:
    before = World(2)
    before.begin(0, 1)
    before.group.renew((0, 1))
    world = World(2, record=group_record.dump(before.group))
    world.send(we.Adopted(running=(0, 1)))
    world.hello(0, 1)
    assert world.take_membership(0).generation == 2
    world.say(0, store="127.0.0.1:6")
    world.take_membership(0)
    world.hello(1, 1)
    assert world.take_membership(1).store == "127.0.0.1:6"


def test_a_generation_that_was_not_kept_is_never_given_again() -> None:
    world = World(2)
    world.hello(0, 7)
    world.hello(1, 7)
    assert world.take_membership(1).generation == 8


def test_when_one_has_done_its_work_there_are_no_more_memberships() -> None:
    world = World(2)
    world.begin(0, 1)
    world.send(we.Resize(places("aab"), "there is capacity"))
    world.ends(0, 0)
    world.hello(2)
    assert world.take_membership(2).workers == ()
    world.say(1, has_lost_peers=True)
    assert world.take_membership(1).workers == ()
    assert world.group.generation == 1


def test_silent_workers_are_started_again() -> None:
    world = World(2)
    for worker in (0, 1):
        world.hello(worker)
    world.take_membership(0)
    world.say(0, store="127.0.0.1:5")
    world.say(0, has_joined=True)
    world.job.state = JobState.SUSPENDED
    world.sleep(JOIN_MAX_NS / SECOND_NS)
    assert world.stopped_workers == [], "all stand still: that is no fault of theirs"
    world.job.state = JobState.RUNNING
    world.sleep(JOIN_MAX_NS / SECOND_NS)
    assert 1 in world.stopped_workers and 0 not in world.stopped_workers
    world.ends(1, 143, is_stopped=True)
    assert world.started_workers == [2]
    world.hello(2)
    assert world.take_membership(0).workers == (0, 2)


def test_memberships_without_end_leave_no_deadlines_behind() -> None:
    world = World(1)
    for generation in range(200):
        world.hello(0, 2 * generation)
        world.take_membership(0)
    assert len(world.live.deadlines) < 10


def test_streams_of_workers_that_there_are_not_are_refused() -> None:
    world = World(2)
    assert refusal(world.live, ProgressReport(1, 1, 1)) is None
    world.ends(1, 0)
    for report in (ProgressReport(1, 1, 1), ProgressReport(1, 1, 7), ProgressReport(1, 2, 0)):
        denied = refusal(world.live, report)
        assert denied and "vgpu submit --workers" in denied.message


# ---- stand-ins and replacements ----


def straggling(world: World, number: int, where: str | None = "b") -> None:
    world.send(we.Straggling(number, f"worker {number} is slow", place(where) if where else None))


def test_a_stand_in_that_works_relieves_the_straggler_and_the_queue_is_notified_where_it_is() -> None:
    world = World(3)
    world.begin(0, 1, 2)
    straggling(world, 1)
    straggling(world, 2)
    assert world.started_workers == [3], "one at a time"
    world.hello(3)
    assert world.group.members == (0, 1, 2, 3), "the straggler works until its stand-in does"
    world.mail.clear()
    world.say(0, store="127.0.0.1:5")
    for worker in (0, 1, 2, 3):
        world.say(worker, has_joined=True)
    assert world.group.members == (0, 2, 3)
    assert world.resizes == []
    world.ends(1)
    assert world.resizes == [(places("aab"), "")]


def test_a_stand_in_that_does_not_work_is_dismissed_in_time() -> None:
    world = World(2)
    world.begin(0, 1)
    straggling(world, 1)
    world.sleep(STAND_IN_NS / SECOND_NS - 1)
    assert world.stopped_workers == []
    world.sleep(1)
    assert set(world.stopped_workers) == {2}
    assert world.worker(2).state is WorkerState.LEAVING and world.worker(2).replaces < 0
    assert [worker.number for worker in world.group.retained_workers] == [0, 1], "the straggler stays"
    assert "has not begun to work" in world.notes[-1][1]


def test_a_stand_in_that_works_is_not_dismissed() -> None:
    world = World(2)
    world.begin(0, 1)
    straggling(world, 1)
    world.hello(2)
    world.say(0, store="127.0.0.1:5")
    for worker in (0, 1, 2):
        world.say(worker, has_joined=True)
    world.ends(1)
    world.sleep(STAND_IN_NS / SECOND_NS)
    assert world.stopped_workers == [] and world.worker(2).state is WorkerState.ACTIVE


@pytest.mark.parametrize("unstartable", [False, True])
def test_without_capacity_for_a_stand_in_the_straggler_leaves_first(unstartable: bool) -> None:
    world = World(2)
    world.unstartable = {2} if unstartable else set()
    world.begin(0, 1)
    straggling(world, 1, "b" if unstartable else None)
    assert world.worker(1).state is WorkerState.RESPAWNING
    assert "no capacity for a stand-in beside it" in world.notes[-1][1]
    world.ends(1)
    assert world.running == {0, world.group.workers[1].number}
    assert world.group.placement == places("aa")


@pytest.mark.parametrize("silent", [False, True])
def test_a_straggler_that_ends_before_its_stand_in_works_gets_no_second_one(silent: bool) -> None:
    world = World(2, retries=1)
    world.begin(0, 1)
    straggling(world, 1)
    if silent:
        world.group.apply(1, WorkerEvent.RESPAWN)
    world.ends(1, 3)
    assert world.started_workers == [2] and world.worker(2).state is WorkerState.ACTIVE
    assert world.resizes == [(places("ab"), "")]


def test_while_a_job_is_suspended_no_worker_of_it_begins() -> None:
    for respawns in (False, True):
        for state, begins in ((JobState.SUSPENDED, []), (JobState.RUNNING, [2])):
            world = World(2, retries=1)
            world.begin(0, 1)
            if respawns:
                straggling(world, 1, None)
            world.job.state = state
            world.ends(1, 3)
            assert world.started_workers == begins
            assert world.group.worker(1) is None, "it has gone"


def test_a_worker_that_fails_is_replaced_as_often_as_the_job_may_be_tried() -> None:
    world = World(2, retries=1)
    world.begin(0, 1)
    world.ends(1, 3, why="killed by signal 9")
    assert world.started_workers == [2]
    assert world.notes[-1] == (
        "job.worker_failed",
        "worker 1 ended with exit code 3: killed by signal 9; worker 2 takes its place",
    )
    world.ends(2, 3)
    assert world.group.ending and world.stopped_workers == [0]
    world.ends(0, 143, is_stopped=True)
    assert world.end_count == 1
    assert (world.group.code, world.group.why, world.group.stopped) == (3, "worker 2 ended with it", False)


def test_a_replacement_that_cannot_be_started_fails_the_attempt() -> None:
    world = World(2, retries=1)
    world.unstartable = {2}
    world.begin(0, 1)
    world.ends(1, 3)
    assert world.group.why == "worker 1 could not be replaced: the disk is full"
    assert world.stopped_workers == [0]


def test_what_cannot_be_started_is_reported_to_the_queue() -> None:
    world = World(1)
    world.unstartable = {2}
    world.begin(0)
    world.send(we.Resize(places("abc"), "there is capacity"))
    assert world.resizes == [(places("ab"), "the disk is full")]


# ---- stopping, and restarts ----


def test_a_group_that_is_stopped_ends_when_its_last_worker_has() -> None:
    world = World(2)
    world.begin(0, 1)
    world.send(we.StopAll())
    assert world.stopped_workers == [0, 1]
    world.ends(0, 143, is_stopped=True)
    assert world.end_count == 0
    world.ends(1, 0, is_stopped=True, cpu_ns=5, ram_peak_bytes=7)
    assert (world.end_count, world.group.stopped, world.group.code) == (1, True, 143)
    assert (world.group.cpu_ns, world.group.ram_peak_bytes) == (5, 7)


def test_an_attempt_of_which_nothing_has_begun_begins_as_a_new_one() -> None:
    world = World(2)
    world.send(we.Adopted(unstarted_workers=(0, 1)))
    assert world.begun_again
    world.send(we.Begin())
    assert world.started_workers == [0, 1]


def test_one_that_was_to_start_starts_after_a_restart() -> None:
    world = World(2)
    world.running = {0}
    world.send(we.Adopted(running=(0,), unstarted_workers=(1,)))
    world.send(we.Unstarted(1))
    assert world.started_workers == [1]
    world.job.state = JobState.SUSPENDED
    other = World(2, record=world.disk)
    other.job.state = JobState.SUSPENDED
    other.send(we.Adopted(running=(0,), unstarted_workers=(1,)))
    other.send(we.Unstarted(1))
    assert other.started_workers == [] and other.group.worker(1) is None


def test_when_none_runs_after_a_restart_and_one_has_failed_none_is_replaced() -> None:
    world = World(2, retries=5)
    world.running = set()
    lost = [we.WorkerEnded(number, 0, why="the machine was restarted", is_lost=True) for number in (0, 1)]
    world.send(we.Adopted(ended_workers=tuple(lost)))
    for event in lost:
        world.send(event)
    assert (world.started_workers, world.end_count) == ([], 1)
    assert (world.group.code, world.group.lost, world.group.why) == (1, True, "the machine was restarted")


def test_a_queue_that_knows_another_place_is_notified() -> None:
    world = World(2)
    world.begin(0, 1)
    world.send(we.Reconcile())
    assert world.resizes == []
    world.job.placement = places("ac")
    world.send(we.Reconcile())
    assert world.resizes == [(places("aa"), "it was found so")]


# ---- groups as data ----


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_who_stays_stays_and_places_add_up(old_devices: list[str], new_devices: list[str]) -> None:
    group = WorkerGroup(1, 1)
    for device in old_devices:
        group.add(place(device))
    leaving, missing = difference(group.retained_workers, tuple(map(place, new_devices)))
    staying = [worker.place for worker in group.workers if worker not in leaving]
    devices = [where.shares[0].device_uuid for where in [*staying, *missing]]
    assert sorted(devices) == sorted(new_devices)
    assert not {w.place for w in leaving} & set(missing), "no worker is exchanged for the like"


@given(st.lists(st.sampled_from(["add", "leave", "gone", "renew", "fail"]), max_size=30), st.randoms())
def test_numbers_are_never_given_twice_and_survivors_keep_their_order(steps: list[str], chance: Any) -> None:
    group = WorkerGroup(1, 1)
    given_, generations = set(), [0]
    for one in steps:
        numbers = [worker.number for worker in group.workers]
        before = group.members
        if one == "add":
            made = group.add(place("a"))
        elif one == "fail" and numbers:
            made = group.replace_gone(chance.choice(numbers))
        else:
            if one == "leave" and numbers:
                group.apply(chance.choice(numbers), WorkerEvent.LEAVE)
            elif one == "gone" and numbers:
                group.apply(chance.choice(numbers), WorkerEvent.END)
            elif one == "renew":
                group.renew(group.next_members(set(numbers)))
                generations.append(group.generation)
                kept = [number for number in before if number in group.members]
                assert list(group.members[: len(kept)]) == kept
            assert group_record.parse(group_record.dump(group)) == group
            continue
        assert made.number not in given_
        given_.add(made.number)
    assert generations == sorted(set(generations))


def test_a_group_that_an_older_version_wrote_is_read() -> None:
    group = WorkerGroup(1, 1)
    for device in "abcde":
        group.add(place(device))
    old = [{}, {"leaving": True}, {"leaving": True, "again": True}, {"done": True}, {"stands_for": 0}]
    body = group_record.encode(group)
    body["workers"] = [worker | flags for worker, flags in zip(body["workers"], old, strict=True)]
    found = group_record.parse(group_record.seal(body))
    states = [WorkerState.ACTIVE, WorkerState.LEAVING, WorkerState.RESPAWNING, WorkerState.DONE, WorkerState.STAND_IN]
    expected = [replace(worker, state=state) for worker, state in zip(group.workers, states, strict=True)]
    expected[-1] = replace(expected[-1], replaces=0)
    assert found.workers == tuple(expected)


@pytest.mark.parametrize("flags", [{"stands_for": "x"}, {"stands_for": None}, {"leaving": 1}, {"state": ["active"]}])
def test_a_damaged_group_is_refused_as_such(flags: dict[str, Any]) -> None:
    group = WorkerGroup(1, 1)
    group.add(place("a"))
    body = group_record.encode(group)
    body["workers"] = [body["workers"][0] | flags]
    with pytest.raises(ValueError, match=f"{next(iter(flags))}|is not a valid"):
        group_record.parse(group_record.seal(body))


def test_every_state_is_reached_and_left_by_the_table() -> None:
    reached = {WorkerState.ACTIVE, WorkerState.STAND_IN, *WORKER_TRANSITIONS.values()}
    assert reached == set(WorkerState)
    assert {state for state, _ in WORKER_TRANSITIONS} == set(WorkerState) - {WorkerState.GONE}
