"""Ends that slurmctld has mistaken after it was killed: those jobs run once more, and others' ends stand."""

from __future__ import annotations

import pytest

from tests.cluster.fake_slurm import FakeSlurm
from tests.cluster.world import PLAIN, World
from vgpud.cluster.core.model import Register, Release, Requeue
from vgpud.cluster.core.registrations import MISSED_NS
from vgpud.cluster.core.reruns import GIVEN_UP_NS, REPORTED_NS, RERUNS_MAX
from vgpud.core.jobs.model import SECOND_NS, QueueSpec
from vgpud.simulate import replay

PREEMPTING = (QueueSpec("default", min_run_ns=0), QueueSpec("team", guarantee_milli=1000, min_run_ns=0))


def requeues(world: World) -> list[str]:
    return [order.key for order in world.last.orders if isinstance(order, Requeue)]


def one_that_runs(queues: tuple[QueueSpec, ...] = PLAIN, **fields: object) -> tuple[World, str]:
    world = World(FakeSlurm(n1=1), queues)
    job = world.slurm.submit("gpu:1", **fields)
    world.looks(2)
    assert world.running() == [job]
    world.slurm.save()
    return world, job


def runs_again(world: World, job: str) -> None:
    while job not in world.running():
        world.look()
    world.look()
    world.slurm.save()


def after_a_kill(**fields: object) -> tuple[World, str]:
    """A job that has begun since slurmctld was started."""
    world, job = one_that_runs(**fields)
    world.slurm.kill()
    world.looks(3)
    world.slurm.requeue(job)
    runs_again(world, job)
    return world, job


def test_a_job_that_fails_soon_after_slurmctlds_start_runs_once_more() -> None:
    """Its node refused the start, or reported the end of its former run."""
    world, job = after_a_kill()
    world.slurm.end(job, "FAILED", 1)
    world.look()
    assert requeues(world) == [job] and not world.ended_jobs
    world.looks(4)
    assert world.running() == [job] and world.job(job).failures == 0 and world.job(job).attempt == 3
    world.slurm.end(job, "FAILED", 1)  # once only
    world.look()
    assert requeues(world) == [] and [(key, one.exit_code) for key, one in world.ended_jobs] == [(job, 1)]
    assert list(replay.same_commands(world.recording())) == []


def test_one_that_is_refused_before_it_was_seen_to_run() -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.slurm.save()
    world.slurm.kill()
    while job not in world.running():
        world.look()
    world.slurm.end(job, "FAILED", 1)
    world.looks(6)
    assert world.running() == [job] and not world.ended_jobs and world.job(job).failures == 0


@pytest.mark.parametrize(
    ("state", "late_s", "fields"),
    [
        ("COMPLETED", 0, {}),
        ("TIMEOUT", 0, {}),
        ("OUT_OF_MEMORY", 0, {}),
        ("CANCELLED", 0, {}),
        ("FAILED", REPORTED_NS / SECOND_NS, {}),
        ("FAILED", 0, {"requeues": False}),
    ],
)
def test_other_ends_stand(state: str, late_s: float, fields: dict[str, object]) -> None:
    world, job = one_that_runs(**fields)
    world.slurm.kill()
    world.looks(3)
    if not fields:
        world.slurm.requeue(job)
        runs_again(world, job)
    world.look(late_s)
    world.slurm.end(job, state, 1)
    world.look()
    assert requeues(world) == [] and world.ended_jobs[-1][0] == job


def test_without_a_start_of_slurmctld_a_failure_stands() -> None:
    world, job = one_that_runs()
    world.slurm.end(job, "FAILED", 1)
    world.look()
    assert requeues(world) == [] and world.ended_jobs[-1][0] == job


def test_a_failure_of_what_ran_before_stands() -> None:
    """There is no other run of it whose end that could be."""
    world, job = one_that_runs()
    world.slurm.kill()
    world.looks(3)
    world.slurm.end(job, "FAILED", 1)
    world.look()
    assert requeues(world) == [] and world.ended_jobs[-1][0] == job


@pytest.mark.parametrize("state", ["drained*", "down*"])
def test_a_node_that_is_off_is_no_start_of_slurmctld(state: str) -> None:
    """It has not registered for weeks: a controller that starts finds it so."""
    world = World(FakeSlurm(n1=1, n2=1))
    world.slurm.nodes["n2"].state, world.slurm.nodes["n2"].is_registered = state, False
    world.slurm.deaf = True
    world.look()
    world.slurm.deaf = False
    world.kill()
    job = world.slurm.submit("gpu:1")
    while job not in world.running():
        world.look(10)
    world.look()
    world.slurm.nodes["n2"].state = "idle*"  # its administrator has resumed it
    world.look()
    world.slurm.end(job, "FAILED", 1)
    world.look()
    assert requeues(world) == [] and world.ended_jobs[-1][0] == job


def test_a_controller_that_starts_with_slurmctld_knows_that() -> None:
    """Both were on a machine that was lost. The program has ended itself as the controller had asked."""
    world, job = one_that_runs(PREEMPTING)
    world.slurm.submit("gpu:1", account="team")
    world.slurm.save()
    world.look()
    assert requeues(world) == [job]
    world.slurm.kill()
    world.kill()
    world.slurm.end(job, "COMPLETED")
    world.looks(6)
    assert not world.ended_jobs and world.state(job) == "pending"


def test_an_order_that_was_repeated_and_lost() -> None:
    world, job = one_that_runs(PREEMPTING)
    world.slurm.submit("gpu:1", account="team")
    world.slurm.save()
    world.look()
    world.slurm.kill()
    world.slurm.deaf = True
    world.looks(2)
    assert requeues(world) == [job]
    world.slurm.deaf = False
    world.slurm.register("n1")
    world.slurm.end(job, "COMPLETED")
    world.looks(4)
    assert not world.ended_jobs and world.state(job) == "pending"


def test_a_failure_stands_where_slurm_does_not_requeue_the_job() -> None:
    world, job = after_a_kill()
    world.slurm.end(job, "FAILED", 3)
    world.slurm.deaf = True
    tried = 0
    for _ in range(round(GIVEN_UP_NS / SECOND_NS / 2) + 1):
        world.look()
        tried += len(requeues(world))
    assert tried == 5 and world.ended_jobs[-1][0] == job and world.job(job).exit_code == 3


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
@pytest.mark.parametrize("is_seen", [True, False])
def test_the_end_of_a_program_whose_requeue_was_forgotten(state: str, is_seen: bool) -> None:
    """It was asked to end, and did, with whatever exit code. `is_seen`: the controller has seen that it waits again."""
    world, job = one_that_runs(PREEMPTING)
    world.slurm.submit("gpu:1", account="team")
    world.slurm.save()
    world.look()
    assert requeues(world) == [job]
    if is_seen:
        world.look(0.1)
    world.slurm.kill()
    world.slurm.end(job, state, 143)  # slurmstepd has waited for slurmctld
    world.looks(6)
    assert not world.ended_jobs and world.state(job) == "pending" and world.slurm_state(job) == "PENDING"


@pytest.mark.parametrize("kind", ["afterany", "afternotok"])
def test_what_comes_after_a_job_that_runs_once_more_waits_for_its_end(kind: str) -> None:
    world, job = after_a_kill()
    after = world.slurm.submit("gpu:1", dependency=f"{kind}:{job}(unfulfilled)")
    world.slurm.end(job, "FAILED", 1)
    world.looks(5)
    assert world.running() == [job] and after not in world.controller.bindings
    world.slurm.end(job, "FAILED", 1)
    world.look()
    assert after in world.controller.bindings


def after_a_start_that_its_node_did_not_take(sent_again_s: float) -> tuple[World, str]:
    """The node did not respond in that moment. The job is requeued, and could start again at once."""
    world = World(FakeSlurm(n1=1), PREEMPTING)
    job = world.slurm.submit("gpu:1")
    world.look()
    world.slurm.unsent[job] = 0, world.now_ns + round(sent_again_s * SECOND_NS)
    world.slurm.nodes["n1"].state = "allocated*"
    world.look()
    assert world.running() == [job]
    world.slurm.nodes["n1"].state = "allocated"
    first = world.slurm.submit("gpu:1", account="team")
    while first not in world.running():
        world.look(1)
    world.slurm.end(first)
    return world, job


def test_a_start_that_is_sent_again_does_not_end_the_next_run() -> None:
    world, job = after_a_start_that_its_node_did_not_take(sent_again_s=11)
    world.looks(2)
    assert world.controller.delay_reasons == {job: "its former run is being ended"}
    world.looks(8)
    assert not world.slurm.unsent and world.running() == [job] and world.slurm.jobs[job].restarts == 1


def test_a_run_that_a_start_of_the_former_one_has_ended_runs_once_more() -> None:
    """It was sent even later."""
    world, job = after_a_start_that_its_node_did_not_take(sent_again_s=25)
    while world.slurm.unsent:
        world.look()
    assert requeues(world) == [job] and job in world.controller.bindings
    world.looks(4)
    assert world.running() == [job] and world.slurm.jobs[job].restarts == 2 and world.job(job).failures == 0


def test_a_job_that_fails_by_itself_does_not_run_for_ever() -> None:
    world, job = one_that_runs()
    runs = 0
    while not world.ended_jobs:
        runs += 1
        world.slurm.kill()
        world.looks(3)
        world.slurm.requeue(job)
        runs_again(world, job)
        world.slurm.end(job, "FAILED", 1)
        world.look()
    assert runs == RERUNS_MAX + 1 and world.job(job).exit_code == 1


def test_nothing_is_released_to_a_node_that_is_asked_to_register() -> None:
    """Slurm starts a job there all the same, sometimes, and sends it 10 s later."""
    world = World(FakeSlurm(n1=2))
    world.slurm.submit("gpu:1")
    world.looks(2)
    world.now_ns += MISSED_NS
    world.slurm.submit("gpu:1")
    world.look()
    asked = [type(order) for order in world.last.orders]
    assert Register in asked and Release not in asked
    world.looks(2)
    assert len(world.running()) == 2


def test_a_node_is_not_asked_while_a_job_may_start_there() -> None:
    world = World(FakeSlurm(n1=2))
    world.slurm.submit("gpu:1")
    world.looks(2)
    starts = world.slurm.schedule
    world.slurm.schedule = list  # type: ignore[method-assign]  # Slurm takes its time
    late = world.slurm.submit("gpu:1")
    world.look(MISSED_NS / SECOND_NS - 5)
    assert world.slurm.jobs[late].state != "RUNNING" and world.slurm.jobs[late].priority
    for _ in range(4):
        world.look()
        assert not any(isinstance(order, Register) for order in world.last.orders)
    world.slurm.schedule = starts  # type: ignore[method-assign]
    world.slurm.schedule()
    world.look()
    assert [order.nodes for order in world.last.orders if isinstance(order, Register)] == [("n1",)]
