"""Users make running jobs smaller and larger."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import make_small_device
from tests.core.queue.test_changes import change
from tests.core.queue.test_elastic_properties import ElasticDriver, all_happens
from tests.core.queue.test_invariants import finish
from tests.core.queue.world import Shell, gpus, make_policy, queue, shell
from vgpud.core.jobs.events import Changed, Note, QueuesChanged, ReservationsChanged, Resized, ResizeJob
from vgpud.core.jobs.model import SECOND_NS, How, Node, Reservation
from vgpud.core.model import Denied
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine

GIB = 1 << 30


def refusal_message(at: Shell, job_id: int, amount: float, *, by_admin: bool = False, **fields: Any) -> str:
    spec = replace(at.job(job_id).spec, ask=gpus(amount).ask, **fields)
    denied = at.machine.refusal(Changed(job_id, spec, by_admin))
    assert isinstance(denied, Denied)
    return denied.message


def notes(at: Shell, kind: str) -> list[str]:
    return [command.text for command in at.log if isinstance(command, Note) and command.kind == kind]


def test_what_a_running_job_gives_starts_another_one() -> None:
    at = shell(1)
    job, waits = at.submit(gpus(1)), at.submit(gpus(0.5))
    change(at, job, ask=gpus(0.5).ask)
    assert at.running == {job, waits}
    assert at.job(job).placement[0].shares[0].min_milli == at.job(job).spec.width_milli == 500
    assert notes(at, "job.resized") == ["from 1 GPU to 0.5 GPU: its user, or an admin, has asked for it"]


def test_what_is_given_is_free_when_the_slice_is_smaller() -> None:
    at = shell(1, slow=True)
    job, waits = at.submit(gpus(1)), at.submit(gpus(0.5))
    change(at, job, ask=gpus(0.5).ask)
    resize = [command for command in at.log if isinstance(command, ResizeJob)][-1]
    assert at.running == {job} and at.job(job).resizing == resize.placement
    assert refusal_message(at, job, 0.25) == f"job {job} is being resized: try again in a moment"
    at.send(Resized(job, resize.attempt, resize.placement))
    assert at.running == {job, waits}


def test_a_job_grows_into_free_capacity() -> None:
    at = shell(1)
    job = at.submit(gpus(0.25))
    change(at, job, ask=gpus(1).ask, time_limit_ns=60 * SECOND_NS)
    assert (at.job(job).spec.width_milli, at.job(job).spec.time_limit_ns) == (1000, 60 * SECOND_NS)
    waits = at.submit(gpus(0.25))
    assert at.running == {job}
    at.end(job)
    assert at.running == {waits}


def test_service_before_counts_with_the_size_before() -> None:
    at = shell(1)
    job = at.submit(gpus(1))
    at.sleep(10)
    change(at, job, ask=gpus(0.5).ask)
    at.sleep(10)
    assert at.job(job).attained_at(at.now_ns) == 15_000 * SECOND_NS


def test_a_slice_that_cannot_be_resized_leaves_the_job_as_it_was() -> None:
    at = shell(1, slow=True)
    job = at.submit(gpus(0.5))
    before = at.job(job).placement
    change(at, job, ask=gpus(1).ask)
    at.send(Resized(job, at.job(job).attempt, before, "the device is full"))
    assert (at.job(job).spec.width_milli, at.job(job).placement) == (500, before)
    assert notes(at, "job.resize_failed") == ["it has 0.5 GPU: the device is full"]
    other = at.submit(gpus(0.5))
    assert other in at.running, "what it did not get is free"


def test_a_resize_under_way_is_ordered_again_after_a_restart() -> None:
    at = shell(1, slow=True)
    job = at.submit(gpus(0.5))
    change(at, job, ask=gpus(1).ask)
    after = shell(1)
    after.running = {job}
    after.restore([at.job(job)])
    assert [command.job_id for command in after.log if isinstance(command, ResizeJob)] == [job]
    assert (after.job(job).spec.width_milli, after.job(job).resizing) == (1000, ())


def test_a_waiting_job_is_not_overtaken() -> None:
    at = shell(2)
    job, _ = at.submit(gpus(0.5)), at.submit(gpus(1))
    at.submit(gpus(1))
    assert (
        refusal_message(at, job, 0.75)
        == f"job {job} cannot grow while other jobs wait: only an admin may let it overtake them"
    )
    change(at, job, ask=gpus(0.25).ask)
    change(at, job, by_admin=True, ask=gpus(1).ask)
    assert at.job(job).spec.width_milli == 1000


def test_only_jobs_that_could_run_are_overtaken() -> None:
    """Not those that wait for a time, or for their own queue's limit; but those that have been suspended for others."""
    at = shell(2, queue(), queue("team", limit_milli=250), queue("urgent", policy="priority"))
    job = at.submit(gpus(0.5))
    at.submit(gpus(0.5, begin_ns=10**6 * SECOND_NS))
    at.submit(gpus(0.25, queue="team"))
    at.submit(gpus(0.25, queue="team"))
    change(at, job, ask=gpus(0.75).ask)
    evicting = shell(1, queue(policy="priority"))
    low, high = evicting.submit(gpus(1)), evicting.submit(gpus(0.5, priority=9))
    assert evicting.running == {high} and evicting.state(low) == "suspended"
    assert "while other jobs wait" in refusal_message(evicting, high, 0.75, priority=9)


def test_a_reserved_device_is_not_grown_on() -> None:
    at = shell(1, queue(), queue("team"))
    job = at.submit(gpus(0.25, preemptible=False))
    at.send(ReservationsChanged((Reservation("exam", "n", ("all",), 0, 10**6 * SECOND_NS, "team"),)))
    assert "its device is reserved" in refusal_message(at, job, 0.5, preemptible=False)


def test_memory_that_followed_the_gpus_stays() -> None:
    device = make_small_device()
    cluster = Cluster([Node("n", (device,))])
    at = Shell(Machine((queue(),), cluster, make_policy))
    job = at.submit(gpus(0.5))
    before = at.job(job).placement[0].shares[0].mem_max_bytes
    change(at, job, ask=gpus(0.25).ask)
    share = at.job(job).placement[0].shares[0]
    assert (share.min_milli, share.mem_max_bytes, at.job(job).spec.ask.spec.mem_max_bytes) == (250, before, before)


def test_a_smaller_job_is_one_even_where_a_new_one_of_its_size_would_be_refused() -> None:
    at = shell(2)
    job = at.submit(gpus(1))
    at.send(QueuesChanged((queue(limit_milli=500),)))
    change(at, job, ask=gpus(0.75).ask)
    assert "it needs a part of a GPU" in refusal_message(at, job, 0)


def test_what_is_learned_of_jobs_like_it_follows_its_size() -> None:
    at = shell(1)
    job = at.submit(gpus(1, kinds=("large",)))
    change(at, job, ask=gpus(0.5).ask, kinds=("small",))
    at.sleep(10)
    at.end(job)
    assert at.job(job).spec.kinds == ("small",)
    classes = at.machine._world.estimates._classes
    assert classes.keys() >= {"large", "small"}
    assert not any(known.running for known in classes.values()), "none runs any more"


def test_growth_that_is_refused() -> None:
    at = shell(2, queue(limit_milli=900), queue("team", guarantee_milli=1500))
    job = at.submit(gpus(0.5))
    fixed = at.submit(gpus(0.25, preemptible=False))
    assert "queue default has 0.75 of its limit" in refusal_message(at, job, 0.8)
    assert "would take what other queues are guaranteed" in refusal_message(at, fixed, 0.65)
    full = shell(1)
    one = full.submit(gpus(0.5))
    full.submit(gpus(0.25))
    assert refusal_message(full, one, 0.8) == f"job {one} cannot grow: its device has less than 0.3 GPU free"


def test_jobs_that_are_not_resized() -> None:
    at = shell(4, queue(policy="priority"), slow=True)
    wide = at.submit(gpus(1))
    assert "runs on one device: queue it again" in refusal_message(at, wide, 2)
    held = replace(gpus(0.5), ask=replace(gpus(0.5).ask, spec=replace(gpus(0.5).ask.spec, min_milli=250)))
    bounded = at.submit(held)
    smaller = replace(held.ask, spec=replace(held.ask.spec, gpus_milli=400))
    denied = at.machine.refusal(Changed(bounded, replace(held, ask=smaller), True))
    assert denied is not None and "has several slices, or a minimum of its own" in denied.message
    assert "only its time limit and GPUs can be changed" in refusal_message(at, wide, 0.5, priority=3)
    goes = at.submit(gpus(0.5))
    at.submit(gpus(4, priority=9))
    assert "is being stopped" in refusal_message(at, goes, 0.25) or "is suspended" in refusal_message(at, goes, 0.25)


@pytest.mark.parametrize("amount", [0.001, 0.3, 0.999])
def test_any_fraction_of_a_device_is_a_size(amount: float) -> None:
    at = shell(1)
    job = at.submit(gpus(0.5))
    change(at, job, ask=gpus(amount).ask)
    assert at.job(job).placement[0].shares[0].min_milli == round(amount * 1000)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_to_jobs_that_are_resized(seed: int) -> None:
    """Long runs in which most of what happens is a change of size, its answer, or a stop in between."""
    chosen, driver = (
        random.Random(seed),
        ElasticDriver("cluster", (How.PAUSE, How.EVICT, How.REQUEUE), moves=seed % 2 > 0),
    )
    words = ["resize"] * 3 + ["resized"] * 4 + ["sleep"] * 2
    words += ["fails", "answer", "end", "cancel", "requeue", "fail", "restart", "slices"]
    happenings: list[tuple[Any, ...]] = []
    for _ in range(200):
        name = chosen.choice(["plain", "ann", "bob", "team"])
        fields = {"members": 1, "priority": chosen.randrange(4), "preemptible": chosen.random() < 0.8}
        submit = ("submit", name, chosen.choice([0.25, 0.5, 1]), fields, 1, chosen.choice([None, 1]), False, 0)
        happenings.append(submit if chosen.random() < 0.2 else (chosen.choice(words), chosen.randrange(50)))
    all_happens(driver, happenings)
    resized = [command for command in driver.shell.log if isinstance(command, ResizeJob)]
    assert len(resized) > 10, "what is tried here has happened"
    finish(driver)
