"""slurmctld is killed and has forgotten what it did last, while programs run on: none runs twice, and all end."""

from __future__ import annotations

import random

import pytest

from tests.cluster.fake_slurm import FakeNode, FakeSlurm
from tests.cluster.system import System
from tests.cluster.world import PLAIN, World
from tests.examples import is_nightly
from vgpud.cluster.core.model import Hold, Register, Release, Requeue, SlurmNode
from vgpud.cluster.core.registrations import MISSED_NS
from vgpud.cluster.shell.slurm import Slurm
from vgpud.core.jobs.model import SECOND_NS, QueueSpec
from vgpud.simulate import replay

PREEMPTING = (QueueSpec("default", min_run_ns=0), QueueSpec("team", guarantee_milli=1000, min_run_ns=0))


class Never(random.Random):
    """Draws what makes nothing happen."""

    def random(self) -> float:
        return 1.0


def asked_nodes(world: World) -> list[tuple[str, ...]]:
    """Nodes that were asked with the last look."""
    return [order.nodes for order in world.last.orders if isinstance(order, Register)]


def start_forgotten() -> tuple[World, str]:
    """Two nodes, and a job whose program runs on n1: slurmctld was killed before it had saved that."""
    world = World(FakeSlurm(n1=1, n2=1))
    job = world.slurm.submit("gpu:1")
    world.slurm.save()
    world.looks(2)
    assert world.slurm.nodes["n1"].runs == {job}
    world.slurm.kill()
    return world, job


def test_a_start_that_was_forgotten_waits_for_its_node() -> None:
    """Its program runs on, and is ended when the node registers."""
    world, job = start_forgotten()
    world.look()
    assert asked_nodes(world) == [("n1", "n2")]  # both may have jobs that slurmctld does not know of
    assert not any(isinstance(order, Release) for order in world.last.orders)
    assert world.controller.delay_reasons == {job: "slurmctld was started: n1 must register first"}
    assert world.slurm.nodes["n1"].runs == set()
    world.looks(3)
    assert world.running() == [job] and world.slurm.duplicates == 0 and not world.controller.delay_reasons
    assert world.job(job).attempt == 2 and world.job(job).failures == 0


def test_a_start_that_no_controller_saw_waits_for_its_node() -> None:
    """slurmctld has saved that the job was released, and would start it again."""
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    schedule = world.slurm.schedule
    world.slurm.schedule = list  # type: ignore[method-assign]
    world.look()
    world.slurm.save()
    world.slurm.schedule = schedule  # type: ignore[method-assign]
    assert world.slurm.schedule() == [job]
    world.slurm.kill()
    world.look()
    assert Hold(job) in world.last.orders
    world.looks(4)
    assert world.running() == [job] and world.slurm.duplicates == 0 and world.job(job).attempt == 1


@pytest.mark.parametrize(("poll_s", "abort_s"), [(2, 3), (0.5, 1.75)])
def test_a_program_that_ends_some_time_after_its_node_has_registered(poll_s: float, abort_s: float) -> None:
    """The node registers after a look, the next one sees that, and its programs may still be ending."""
    world = World(FakeSlurm(n1=1, n2=1))
    job = world.slurm.submit("gpu:1")
    world.slurm.save()
    world.looks(2)
    world.slurm.kill()
    world.slurm.abort_ns = int(abort_s * SECOND_NS)
    world.look(poll_s)
    assert world.slurm.nodes["n1"].is_registered and world.slurm.nodes["n1"].runs == {job}
    world.look(poll_s)
    assert world.controller.delay_reasons
    world.looks(12, poll_s)
    assert world.running() == [job] and world.slurm.duplicates == 0


def test_a_start_by_slurm_itself_that_was_forgotten() -> None:
    """Its node failed, and Slurm started it again where it could; elsewhere it starts when that node has registered."""
    world = World(FakeSlurm(n1=1, n2=1))
    job = world.slurm.submit("gpu:1", held=False)
    world.slurm.jobs[job].bound_to = ("n2",)
    world.slurm.save()
    assert world.slurm.schedule() == [job] and world.slurm.nodes["n2"].runs == {job}
    world.slurm.kill()
    world.slurm.draw = Never()
    world.slurm.nodes["n1"].is_registered = True
    world.looks(6)
    assert world.slurm_state(job) == "PENDING" and world.controller.delay_reasons
    world.slurm.register("n2")
    world.looks(4)
    assert world.running() == [job]


def test_a_node_that_does_not_register_is_waited_for_until_it_is_down() -> None:
    world = World(FakeSlurm(n1=1, n2=1))
    job = world.slurm.submit("gpu:1")
    world.slurm.save()
    world.looks(2)
    world.slurm.kill()
    world.slurm.deaf = True
    asked = 0
    for _ in range(20):
        world.look()
        asked += len(asked_nodes(world))
        assert not any(isinstance(order, Release) for order in world.last.orders)
    assert asked == 1  # each time would keep the node from being taken for down
    world.slurm.deaf = False
    world.slurm.nodes["n1"].state = "down*"
    world.slurm.nodes["n1"].runs.clear()
    world.slurm.register("n2")
    world.looks(4)
    assert list(world.slurm.jobs[job].has) == ["n2"]


@pytest.mark.parametrize("state", ["idle*", "drained*"])
def test_a_node_that_never_registers_is_not_waited_for_for_ever(state: str) -> None:
    """One that is drained and off, or where SlurmdTimeout is 0: Slurm never calls it down."""
    world, job = start_forgotten()
    world.slurm.draw = Never()
    world.slurm.nodes["n1"].state = state
    world.slurm.nodes["n1"].runs.clear()
    world.look()
    world.slurm.register("n2")
    world.look(290)
    assert world.controller.delay_reasons == {job: "slurmctld was started: n1 must register first"}
    world.looks(10)
    assert list(world.slurm.jobs[job].has) == ["n2"]


def test_ends_are_looked_for_although_a_node_is_off() -> None:
    world = World(FakeSlurm(n1=1, n2=1))
    world.slurm.nodes["n2"].state = "drained*"
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.save()
    world.slurm.end(job)
    world.slurm.kill()
    world.slurm.draw = Never()
    world.slurm.register("n1")
    world.look()
    world.look(MISSED_NS / SECOND_NS)
    assert asked_nodes(world) == [("n1",)]


def test_a_start_that_was_forgotten_between_two_looks_waits_a_while() -> None:
    """The node had registered before the controller looked."""
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.slurm.save()
    world.looks(2)
    world.slurm.kill()
    world.slurm.nodes["n1"].is_registered = True
    world.look()
    assert not asked_nodes(world) and world.slurm_state(job) == "PENDING"
    world.looks(4)
    assert world.controller.delay_reasons == {job: "its former run is being ended"}
    world.slurm.register("n1")
    world.looks(2)
    assert world.running() == [job] and world.slurm.duplicates == 0


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_job_whose_start_was_forgotten_while_it_was_preempted(is_seen: bool) -> None:
    """slurmctld is killed before the request to requeue it: elsewhere it starts when its program has ended. `is_seen`:
    the controller sees that its node has not registered."""
    world = World(FakeSlurm(n1=1, n2=1), PREEMPTING)
    first = world.slurm.submit("gpu:1")
    world.looks(2)
    job = world.slurm.submit("gpu:1")
    world.slurm.save()
    world.looks(1)
    (node,) = world.slurm.jobs[job].has
    world.slurm.submit("gpu:1", account="team")
    world.slurm.deaf = True
    world.look()
    assert world.job(job).stop_to is not None and Requeue(job) in world.last.orders
    world.slurm.deaf, world.slurm.abort_ns = False, 3 * SECOND_NS
    world.slurm.kill()
    world.slurm.draw = Never()  # nodes do not register by themselves
    for name in world.slurm.nodes:
        if name != node or not is_seen:
            world.slurm.register(name)
    world.slurm.end(first)
    world.looks(6)
    assert job in world.slurm.nodes[node].runs if is_seen else world.running()
    for name in world.slurm.nodes:
        world.slurm.register(name)
    world.looks(10)
    assert job in world.running() and world.slurm.duplicates == 0 and not world.controller.delay_reasons


def test_an_end_that_was_forgotten_is_found() -> None:
    """It seems to run, and is not on its node: Slurm finds that out when the node registers late enough. No controller
    has seen its end."""
    world = World(FakeSlurm(n1=1))
    job, waits = world.slurm.submit("gpu:1"), world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.save()
    world.slurm.end(job)
    world.slurm.kill()
    world.looks(3)
    assert world.slurm_state(job) == "RUNNING" and world.slurm.nodes["n1"].runs == set()
    world.look(MISSED_NS / SECOND_NS)
    assert asked_nodes(world) == [("n1",)]
    world.looks(4)
    assert world.running() == [waits] and world.state(job) == "pending"  # as Slurm does: requeued, and so run again


def requeues(world: World) -> list[str]:
    return [order.key for order in world.last.orders if isinstance(order, Requeue)]


def test_an_end_that_the_controller_saw_and_slurmctld_forgot_frees_its_node_at_once() -> None:
    world = World(FakeSlurm(n1=1))
    job, waits = world.slurm.submit("gpu:1"), world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.save()
    world.slurm.end(job)
    world.look()
    assert world.ended_jobs[-1][0] == job
    world.slurm.kill()
    world.look()
    assert not requeues(world) and world.controller.foreign == 1  # the node must register first
    asked = []
    for _ in range(5):
        world.look()
        asked += requeues(world)
    assert asked == [job] and world.running() == [waits] and world.state(job) == "pending"
    world.slurm.end(waits)
    world.looks(3)
    assert world.running() == [job]


@pytest.mark.parametrize("fields", [{"requeues": False}, {"began": "later"}, {"uid": 2000}, {"restarts": 1}])
def test_a_run_that_is_not_the_one_that_ended_continues(fields: dict[str, object]) -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.save()
    world.slurm.end(job)
    world.look()
    world.slurm.kill()
    for name, value in fields.items():
        setattr(world.slurm.jobs[job], name, value)
    for _ in range(6):
        world.look()
        assert not requeues(world)


def test_a_requeue_that_was_forgotten_is_done_again() -> None:
    """Else the job would count as started by Slurm itself, and keep its GPUs until its node is asked."""
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.save()
    world.slurm.requeue(job)
    world.looks(2)  # it waits again, and has not been released yet
    assert world.state(job) == "running" and world.slurm_state(job) == "PENDING"
    world.slurm.kill()
    asked = []
    for _ in range(5):
        world.look()
        asked += requeues(world)
    assert asked == [job] and not world.ended_jobs
    world.looks(2)
    assert world.running() == [job] and world.job(job).failures == 0


def test_a_cancelled_job_whose_end_was_forgotten_is_cancelled_again() -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.save()
    world.slurm.end(job, "CANCELLED")
    world.look()
    world.slurm.kill()
    world.looks(6)
    assert world.slurm_state(job) == "CANCELLED" and world.slurm.jobs[job].starts == 1


def test_a_run_that_the_controller_has_not_seen_end_continues() -> None:
    """slurmctld forgets a start and its requeue: the next run has the number of restarts of the first one."""
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.slurm.save()
    world.looks(2)
    world.slurm.requeue(job)
    world.looks(2)
    world.slurm.kill()
    for _ in range(12):
        world.look()
        assert not requeues(world)
    assert world.running() == [job] and world.slurm.jobs[job].restarts == 0


def test_a_job_that_slurm_starts_late_does_not_wait_for_a_node_that_is_off() -> None:
    """It was released to its node when that had registered."""
    world = World(FakeSlurm(n1=1, n2=1))
    world.slurm.nodes["n2"].state, world.slurm.nodes["n2"].is_registered = "drained*", False
    world.looks(3)
    job = world.slurm.submit("gpu:1")
    schedule = world.slurm.schedule
    world.slurm.schedule = list  # type: ignore[method-assign]
    world.looks(2)
    world.slurm.schedule = schedule  # type: ignore[method-assign]
    world.looks(2)
    assert world.running() == [job]


def test_a_requeue_that_was_seen_while_the_job_ended_is_no_forgotten_one() -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.jobs[job].state, world.slurm.jobs[job].restarts = "COMPLETING", 1
    world.look()
    world.slurm.jobs[job].restarts = 0
    world.slurm.requeue(job)
    world.looks(4)
    assert world.running() == [job]


def test_nodes_are_asked_for_ends_twice_as_an_order_may_be_lost() -> None:
    world = World(FakeSlurm(n1=1, n2=1))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.save()
    world.slurm.end(job)
    world.slurm.kill()
    world.looks(3)
    world.slurm.deaf = True
    world.look(MISSED_NS / SECOND_NS)
    assert asked_nodes(world) == [("n1",)]
    world.slurm.deaf = False
    world.looks(1)
    assert asked_nodes(world) == []
    world.look(MISSED_NS / SECOND_NS)
    assert asked_nodes(world) == [("n1",)] and world.slurm_state(job) == "PENDING"
    for _ in range(5):
        world.look(MISSED_NS / SECOND_NS)
        assert asked_nodes(world) == []


@pytest.mark.parametrize("state", ["mixed*", "draining", "down*"])
def test_a_node_that_does_not_answer_is_asked_for_ends_later(state: str) -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.save()
    world.slurm.end(job)
    world.slurm.kill()
    world.looks(3)
    world.slurm.nodes["n1"].state = state
    for _ in range(4):
        world.look(MISSED_NS / SECOND_NS)
        assert asked_nodes(world) == []
    world.slurm.nodes["n1"].state = "idle"
    asked = 0
    for _ in range(4):
        world.look()
        asked += len(asked_nodes(world))
    assert asked == 1 and world.slurm.jobs[job].restarts == 1


@pytest.mark.parametrize(("state", "answers"), [("mixed$", True), ("mixed+maint", True), ("allocated+drain", False)])
def test_nodes_that_may_be_asked_for_ends(state: str, answers: bool) -> None:
    assert SlurmNode("n1", state, 1).answers == answers


def test_a_new_controller_looks_for_ends_that_were_forgotten() -> None:
    world = World(FakeSlurm(n1=1))
    world.slurm.submit("gpu:1")
    world.looks(2)
    world.kill()
    world.look()
    assert asked_nodes(world) == []
    world.look(MISSED_NS / SECOND_NS)
    assert asked_nodes(world) == [("n1",)]


@pytest.mark.parametrize(("reason", "is_resumed"), [("Duplicate jobid", True), ("broken fan", False)])
def test_a_node_that_slurm_drained_for_a_second_start_is_resumed(reason: str, is_resumed: bool) -> None:
    world = World(FakeSlurm(n1=1))
    world.look()
    world.slurm.nodes["n1"].state, world.slurm.nodes["n1"].reason = "drained", reason
    world.slurm.deaf = True
    asked = []
    for _ in range(3):
        world.look()
        asked += asked_nodes(world)
    assert asked == ([("n1",)] if is_resumed else [])
    world.look(30)
    assert asked_nodes(world) == asked  # the order was lost
    world.slurm.deaf = False
    job = world.slurm.submit("gpu:1")
    world.look(30)
    world.looks(2)
    assert world.running() == ([job] if is_resumed else [])


def test_a_job_whose_program_hangs_starts_in_the_end() -> None:
    """Slurm ends it only with the second start, drains the node and requeues the job."""
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.slurm.nodes["n1"].runs.add(job)
    world.looks(5)
    assert world.slurm.duplicates == 1 and world.running() == [job]


def test_a_node_that_was_drained_before_stays_drained() -> None:
    world = World(FakeSlurm(n1=1, n2=1))
    world.slurm.nodes["n1"].state = "drained"
    world.slurm.save()
    world.slurm.kill()
    world.look()
    assert asked_nodes(world) == [("n2",)]


@pytest.mark.parametrize("state", ["idle", "mixed", "idle*", "draining", "mixed+drain", "unknown"])
def test_nodes_that_are_to_register(state: str) -> None:
    assert SlurmNode("n1", state, 1, is_registered=False).to_register
    assert not SlurmNode("n1", state, 1).to_register


@pytest.mark.parametrize("state", ["down", "down*", "idle~", "mixed#", "idle+powered_down", "mixed+down", "future"])
def test_nodes_that_are_not(state: str) -> None:
    assert not SlurmNode("n1", state, 1, is_registered=False).to_register


def test_what_a_node_has_is_not_forgotten_with_it() -> None:
    """slurmctld knows no shards of a node that has not registered."""
    world = World(FakeSlurm(n1=2, n2=2))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.nodes["n1"].is_registered, world.slurm.nodes["n1"].shards = False, 0
    world.slurm.deaf = True
    world.look()
    assert not world.controller.unusable and world.running() == [job]
    world.slurm.nodes["n2"].is_registered, world.slurm.nodes["n2"].shards = False, 0
    for state in ("down*", "drained*", "idle~"):
        world.slurm.nodes["n2"].state = state
        world.look()
        assert not world.controller.unusable


def test_a_node_of_which_nothing_is_known_is_not_called_misconfigured() -> None:
    slurm = FakeSlurm(n1=2, n2=2)
    slurm.nodes["n2"] = FakeNode(2, state="down*", is_registered=False, shards=0)
    world = World(slurm)
    world.look()
    said = "node n2 has not registered: slurmctld does not know its shards yet"
    assert world.controller.unusable == {"n2": said}
    slurm.nodes["n2"] = FakeNode(2)
    world.look()
    assert not world.controller.unusable


@pytest.mark.parametrize("seed", range(300 if is_nightly() else 6))
def test_all_jobs_end_and_none_runs_twice(seed: int) -> None:
    """The fake Slurm fails the test where a job would run in two places. It saves now and then, and is killed, also
    before it has received what the controller has decided; nodes register when they like, and programs end late."""
    draw = random.Random(seed)
    world = World(FakeSlurm(n1=2, n2=2), PREEMPTING if seed % 3 else PLAIN)
    slurm = world.slurm
    slurm.old, slurm.draw = seed % 2 == 1, draw
    slurm.save()
    worked: set[str] = set()
    keys: list[str] = []
    kills = 0
    for turn in range(3000):
        if len(keys) < 40 and draw.random() < 0.3:
            gres = draw.choice(("shard:300", "shard:500", "gpu:1", "gpu:1"))
            more = {"nodes": draw.choice((1, 1, 2)), "account": draw.choice(("", "team"))}
            keys.append(slurm.submit(gres, key=str(turn + 1), **more))
            slurm.save()  # a submission that is forgotten is its user's to make again
        for key in world.running():
            runs = [name for name, node in slurm.nodes.items() if key in node.runs]
            if runs and draw.random() < 0.1:
                worked.add(key)
                slurm.end(key)
        slurm.abort_ns = draw.choice((0, 1, 3)) * SECOND_NS
        slurm.deaf = turn < 1000 and draw.random() < 0.06
        if draw.random() < 0.3:
            slurm.save()
        elif turn < 1000 and draw.random() < 0.05:
            kills += 1
            slurm.kill()
            for name in slurm.nodes:
                if draw.random() < 0.2:
                    slurm.register(name)  # before the controller looks
        elif draw.random() < 0.02 and all(node.is_registered for node in slurm.nodes.values()):
            world.kill()  # what Slurm may have started by itself, a new controller does not know
        world.look()
        if slurm.deaf:
            kills += 1
            slurm.kill()
        if len(keys) == 40 and all(job.state == "COMPLETED" for job in slurm.jobs.values()):
            break
    assert worked == set(keys) == set(slurm.jobs) and kills > 3
    assert {job.state for job in slurm.jobs.values()} == {"COMPLETED"}
    world.looks(20)
    assert {node.state for node in slurm.nodes.values()} == {"idle"} and not world.controller.delay_reasons


def test_decisions_replay_where_slurmctld_is_killed() -> None:
    draw = random.Random(3)
    world = World(FakeSlurm(n1=2, n2=1), PREEMPTING)
    world.slurm.draw = draw
    world.slurm.save()
    for _ in range(150):
        if draw.random() < 0.3:
            world.slurm.submit(draw.choice(("shard:500", "gpu:1")), account=draw.choice(("", "team")))
        for key in world.running():
            if draw.random() < 0.1:
                world.slurm.end(key)
        if draw.random() < 0.3:
            world.slurm.save()
        if draw.random() < 0.1:
            world.slurm.kill()
        world.look()
    assert list(replay.same_commands(world.recording())) == []


def test_explain_and_the_log_say_it(system: System, caplog: pytest.LogCaptureFixture) -> None:
    one = system.service()
    job = system.submit("gpu:2")
    system.change(FakeSlurm.save)
    one.look()
    assert system.slurm().nodes["n1"].runs == {job}
    system.change(FakeSlurm.kill)
    one.look()
    said = system.vgpu("explain", job, "--run-dir", str(system.options.run))
    assert "n1 must register first" in said
    assert [r.message for r in caplog.records if "slurmctld" in r.message] == [
        "slurmctld was started: before jobs start, these register: n1,n2"
    ]
    assert system.slurm().nodes["n1"].is_registered and system.slurm().nodes["n1"].runs == set()
    one.close()


def test_nodes_are_asked_although_slurmctld_calls_their_state_invalid(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    one = system.service()
    system.change(FakeSlurm.save)
    system.change(FakeSlurm.kill)
    asked = system.folder / "asked"
    refused = "echo 'slurm_update error: Invalid node state specified' >&2\nexit 1\n"
    (system.folder / "bin/scontrol").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n{refused}')
    one.look()
    assert asked.read_text() == "update NodeName=n1,n2 State=UNDRAIN\n"
    assert not any("Invalid" in r.message for r in caplog.records)
    one.close()


@pytest.mark.parametrize(("reason", "state"), [("broken fan", "drained"), ("Duplicate jobid", "idle")])
def test_a_node_that_was_drained_after_the_look_stays_drained(quick_system: System, reason: str, state: str) -> None:
    def drain(slurm: FakeSlurm) -> None:
        slurm.nodes["n1"].state, slurm.nodes["n1"].reason = "drained", reason

    quick_system.change(drain)
    Slurm("gpu").tell(Register(("n1", "n2"), "slurmctld was started"))
    nodes = quick_system.slurm().nodes
    assert nodes["n1"].state == state and nodes["n1"].reason == (reason if state == "drained" else "")


def test_no_node_is_asked_where_all_were_drained_after_the_look(quick_system: System) -> None:
    def drain(slurm: FakeSlurm) -> None:
        slurm.nodes["n1"].state, slurm.nodes["n1"].reason = "draining", "broken fan"

    quick_system.change(drain)
    Slurm("gpu").tell(Register(("n1",), "slurmctld was started"))
    assert quick_system.slurm().nodes["n1"].state == "draining"
