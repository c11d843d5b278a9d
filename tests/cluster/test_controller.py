"""The controller over a fake Slurm: starts, preempts, and resumes after whatever happens to either."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.cluster.fake_slurm import FakeNode, FakeSlurm
from tests.cluster.world import World
from vgpud.cluster.core.model import Hold, Release, Requeue, Settings
from vgpud.core.jobs.model import JobState, QueueSpec
from vgpud.simulate import replay
from vgpud.userfiles import rates


def queue(name: str = "default", **fields: object) -> QueueSpec:
    return QueueSpec(name, **{"min_run_ns": 0, **fields})  # type: ignore[arg-type]


# ---- starts ----


def test_a_held_job_is_bound_and_released() -> None:
    world = World(FakeSlurm(n1=2, n2=2))
    job = world.slurm.submit("gpu:2")
    assert world.look().orders == [Release(job, ("n1",))]
    assert world.slurm_state(job) == "RUNNING" and list(world.slurm.jobs[job].has) == ["n1"]
    world.slurm.end(job)
    world.look()
    assert world.state(job) == "completed" and world.controller.bindings == {}


def test_jobs_wait_in_the_order_of_the_queue_and_start_when_there_is_capacity() -> None:
    world = World(FakeSlurm(n1=1), (queue(policy="srtf"),))
    first = world.slurm.submit("gpu:1", requeues=False)
    world.look()
    long = world.slurm.submit("gpu:1", comment="vgpu duration=2h")
    short = world.slurm.submit("gpu:1", comment="vgpu duration=1m")
    world.looks(2)
    assert world.running() == [first]
    world.slurm.end(first)
    world.looks(2)
    assert world.running() == [short]
    world.slurm.end(short)
    world.looks(2)
    assert world.running() == [long]


def test_fractions_share_a_device() -> None:
    world = World(FakeSlurm(n1=2))
    keys = [world.slurm.submit(f"shard:{part}") for part in (300, 700, 600, 400, 100)]
    world.looks(2)
    assert world.running() == keys[:4] and world.state(keys[4]) == "pending"


def test_a_gang_gets_as_many_nodes_as_it_asks_for() -> None:
    world = World(FakeSlurm(n1=2, n2=2, n3=2))
    wide = world.slurm.submit("gpu:1", nodes=3)
    (order,) = world.look().orders
    assert order == Release(wide, ("n1", "n2", "n3"))
    assert world.slurm_state(wide) == "RUNNING"


def test_a_gang_stays_below_one_switch() -> None:
    settings = Settings(switches={"n1": ("s1", "top"), "n2": ("s2", "top"), "n3": ("s2", "top")})
    world = World(FakeSlurm(n1=1, n2=1, n3=1), settings=settings)
    wide = world.slurm.submit("gpu:1", nodes=2)
    assert world.look().orders == [Release(wide, ("n2", "n3"))]


def test_a_model_is_asked_for() -> None:
    slurm = FakeSlurm(n1=1, n2=1)
    slurm.nodes["n2"].model = "a100"
    world = World(slurm)
    job = slurm.submit("gpu:a100:1")
    assert world.look().orders == [Release(job, ("n2",))]


def test_jobs_go_to_the_model_that_suits_them() -> None:
    slurm = FakeSlurm(n1=1, n2=1)
    slurm.nodes["n1"].model, slurm.nodes["n2"].model = "slow", "fast"
    settings = Settings(rates={"resnet": (("fast", 1000), ("slow", 100))})
    world = World(slurm, (queue(placement="throughput"),), settings)
    job = slurm.submit("gpu:1", comment="vgpu model=resnet")
    assert world.look().orders == [Release(job, ("n2",))]


def test_shipped_speeds_meet_the_types_of_slurm() -> None:
    slurm = FakeSlurm(n1=1, n2=1)
    slurm.nodes["n1"].model, slurm.nodes["n2"].model = "tesla_k80", "tesla_v100-sxm2-16gb"
    world = World(slurm, (queue(placement="throughput"),), Settings(rates=rates.read_all(["gavel"])))
    job = slurm.submit("gpu:1", comment="vgpu model=ResNet-50")
    assert world.look().orders == [Release(job, ("n2",))]


def test_accounts_are_queues_and_have_limits() -> None:
    world = World(FakeSlurm(n1=4), (queue(), queue("team", limit_milli=1500)))
    keys = [world.slurm.submit("gpu:1", account="team") for _ in range(2)] + [world.slurm.submit("gpu:1", account="x")]
    world.looks(2)
    assert world.running() == [keys[0], keys[2]]
    assert world.job(keys[2]).spec.queue == "default"


# ---- what is not the queue's ----


@pytest.mark.parametrize(
    ("gres", "words"),
    [
        ("gpu:5", "largest has 2"),
        ("shard:1001", "not a part of one device"),
        ("gpu:1,shard:200", "either"),
        ("craynetwork:1", "write --gres=gpu:N"),
    ],
)
def test_what_cannot_be_placed_is_reported_once(gres: str, words: str) -> None:
    world = World(FakeSlurm(n1=2))
    job = world.slurm.submit(gres)
    world.looks(3)
    assert world.controller.refusal_reasons.keys() == {job} and world.slurm.jobs[job].controller_text.startswith(
        "not queued: "
    )
    assert world.slurm_state(job) == "PENDING"
    if gres != "gpu:5":
        assert words in world.slurm.jobs[job].controller_text
    assert world.last.orders == []


def test_a_refused_job_is_looked_at_again_when_nodes_change() -> None:
    world = World(FakeSlurm(n1=2))
    job = world.slurm.submit("gpu:4")
    world.looks(2)
    assert world.controller.refusal_reasons
    world.slurm.nodes["n2"] = FakeNode(4)
    world.looks(2)
    assert world.slurm_state(job) == "RUNNING" and not world.controller.refusal_reasons


def test_dependencies_are_slurms() -> None:
    world = World(FakeSlurm(n1=2))
    job = world.slurm.submit("gpu:1", dependency="afterok:9")
    world.looks(2)
    assert not world.controller.bindings
    world.slurm.jobs[job].dependency = ""
    world.looks(2)
    assert world.slurm_state(job) == "RUNNING"


@pytest.mark.parametrize(
    ("dependency", "states", "starts"),
    [
        ("afterok:1(unfulfilled)", ("COMPLETED", "RUNNING", "RUNNING"), True),
        ("afterok:1(unfulfilled)", ("FAILED", "RUNNING", "RUNNING"), False),
        ("afterok:1(unfulfilled)", ("COMPLETING", "RUNNING", "RUNNING"), False),
        ("afternotok:1(unfulfilled)", ("FAILED", "RUNNING", "RUNNING"), True),
        ("afterok:1(unfulfilled),afterany:7_*(unfulfilled)", ("COMPLETED", "COMPLETED", "RUNNING"), False),
        ("afterok:1(unfulfilled),afterany:7_*(unfulfilled)", ("COMPLETED", "COMPLETED", "FAILED"), True),
        ("afterok:7_1(unfulfilled)", ("RUNNING", "RUNNING", "COMPLETED"), True),
        ("afterok:7_2(unfulfilled)", ("COMPLETED", "COMPLETED", "COMPLETED"), False),
        ("afterok:99(unfulfilled)", ("COMPLETED", "COMPLETED", "COMPLETED"), False),
        ("singleton(unfulfilled)", ("COMPLETED", "COMPLETED", "COMPLETED"), False),
        ("afterok:1(unfulfilled)?afterok:7_1(unfulfilled)", ("COMPLETED", "COMPLETED", "COMPLETED"), False),
    ],
)
def test_dependencies_of_held_jobs(dependency: str, states: tuple[str, str, str], starts: bool) -> None:
    """Slurm looks at them once a minute; what is not known here is left to it."""
    world = World(FakeSlurm(n1=8))
    keys = [world.slurm.submit("gpu:1", key=key) for key in ("1", "7_0", "7_1")]
    world.looks(2)
    for key, state in zip(keys, states, strict=True):
        world.slurm.jobs[key].state = state
        world.slurm.jobs[key].has = {} if state in ("COMPLETED", "FAILED") else world.slurm.jobs[key].has
    job = world.slurm.submit("gpu:1", key="20", dependency=dependency)
    world.looks(2)
    assert (job in world.controller.bindings) == starts


def test_users_hold_and_release() -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1", user_hold=True)
    world.looks(2)
    assert world.state(job) == "held" and world.slurm_state(job) == "PENDING"
    world.slurm.jobs[job].user_hold = False  # with priority 0: as slurm_job_modify has it
    world.looks(2)
    assert world.slurm_state(job) == "RUNNING"


@pytest.mark.parametrize("old", [False, True])
def test_what_others_use_is_not_given_away(old: bool) -> None:
    world = World(FakeSlurm(n1=2, n2=1))
    world.slurm.old = old
    other = world.slurm.submit("gpu:1", held=False)
    world.slurm.jobs[other].bound_to = ("n1",)
    world.slurm.schedule()
    wide = world.slurm.submit("gpu:2")
    one = world.slurm.submit("shard:500")
    world.looks(2)
    assert world.state(wide) == "pending" and world.slurm_state(one) == "RUNNING"
    assert world.controller.foreign == 1
    world.slurm.end(other)
    world.slurm.end(one)
    world.looks(2)
    assert world.slurm_state(wide) == "RUNNING"


@pytest.mark.parametrize("old", [False, True])
def test_slurm_chooses_other_devices(old: bool) -> None:
    """The queue fills device 0 and Slurm the last one: nothing waits for what is free, nothing is counted twice."""
    world = World(FakeSlurm(n1=3))
    world.slurm.old = old
    half = world.slurm.submit("shard:500")
    world.looks(2)
    assert world.slurm.jobs[half].has == {"n1": {2: 500}}
    assert [share.device_uuid for share in world.job(half).placement[0].shares] == ["n1/2"]
    wide, other = world.slurm.submit("gpu:2"), world.slurm.submit("shard:500")
    world.looks(2)
    assert world.running() == [half, wide, other]


def test_a_node_without_as_many_shards_as_its_gpus_make_is_not_used() -> None:
    world = World(FakeSlurm(n1=2), settings=Settings(shards_per_device=100))
    job = world.slurm.submit("gpu:1")
    world.look()
    assert "write Gres=gpu:2,shard:200" in world.controller.unusable["n1"]
    assert job in world.controller.refusal_reasons


def test_a_slurm_without_shards_gives_out_whole_gpus() -> None:
    slurm = FakeSlurm(n1=2, n2=1)
    for node in slurm.nodes.values():
        node.shards = 0
    world = World(slurm)
    keys = [slurm.submit("gpu:2"), slurm.submit("gpu:1")]
    world.looks(2)
    assert world.running() == keys and not world.controller.unusable


def test_a_node_without_shards_beside_others_is_not_used() -> None:
    slurm = FakeSlurm(n1=1, n2=1)
    slurm.nodes["n1"].shards = 0
    world = World(slurm)
    job = slurm.submit("shard:500")
    world.looks(2)
    assert "n1 has 0 shards for 1 GPUs: write Gres=gpu:1,shard:1000" in world.controller.unusable["n1"]
    assert list(slurm.jobs[job].has) == ["n2"]


# ---- preemption ----


def test_a_job_is_requeued_for_a_better_one() -> None:
    world = World(FakeSlurm(n1=2), (queue(), queue("team", guarantee_milli=2000)))
    low = world.slurm.submit("gpu:2")
    world.looks(2)
    high = world.slurm.submit("gpu:2", account="team")
    assert world.look().orders == [Requeue(low)]
    world.looks(3)
    assert world.running() == [high] and world.state(low) == "pending" and world.job(low).preemptions == 1
    world.slurm.end(high)
    world.looks(3)
    assert world.running() == [low] and world.slurm.jobs[low].starts == 2


def test_a_requeued_job_is_released_in_another_second() -> None:
    """Within the same one Slurm's nodes refuse it, and it has failed."""
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.requeue(job)
    orders = []
    for _ in range(6):
        orders += [(world.now_ns, order) for order in world.look(0.3).orders]
    (hold_ns, hold), (release_ns, release) = orders
    assert (hold, release) == (Hold(job), Release(job, ("n1",)))
    assert release_ns - hold_ns > 1_000_000_000 and world.slurm_state(job) == "RUNNING"


def test_jobs_that_may_not_be_requeued_stay() -> None:
    world = World(FakeSlurm(n1=2), (queue(), queue("team", guarantee_milli=1000)))
    low = world.slurm.submit("gpu:1", requeues=False)
    world.looks(2)
    high = world.slurm.submit("gpu:2", account="team")
    world.looks(3)
    assert world.running() == [low] and world.state(high) == "pending"


# ---- faults ----


def test_a_cancelled_job_is_cancelled() -> None:
    world = World(FakeSlurm(n1=1))
    runs, waits = world.slurm.submit("gpu:1"), world.slurm.submit("gpu:1")
    world.looks(2)
    for key in (waits, runs):
        world.slurm.end(key, "CANCELLED")
    world.look()
    assert world.state(runs) == world.state(waits) == "cancelled"


@pytest.mark.parametrize(
    ("state", "exit_code", "queue_state", "queue_code"),
    [
        ("COMPLETED", 0, "completed", 0),
        ("FAILED", 3, "failed", 3),
        ("TIMEOUT", 0, "failed", 143),
        ("OUT_OF_MEMORY", 0, "failed", 143),
        ("NODE_FAIL", 0, "failed", 143),
    ],
)
def test_how_it_ended(state: str, exit_code: int, queue_state: str, queue_code: int) -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.end(job, state, exit_code)
    world.look()
    assert (world.state(job), world.job(job).exit_code) == (queue_state, queue_code)


def test_what_slurm_does_not_start_waits_again() -> None:
    world = World(FakeSlurm(n1=1, n2=1))
    job = world.slurm.submit("gpu:1")
    world.slurm._start = lambda job: False  # type: ignore[assignment,method-assign]
    world.looks(10)
    assert world.state(job) == "running"  # as decided
    orders = [order for _ in range(10) for order in world.look().orders]
    assert Hold(job) in orders and world.job(job).start_failures == 1
    del world.slurm._start  # type: ignore[method-assign]
    world.looks(10)
    assert world.slurm_state(job) == "RUNNING"


def test_a_job_that_starts_while_it_is_given_up_runs() -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    start = world.slurm._start
    world.slurm._start = lambda job: False  # type: ignore[assignment,method-assign]
    world.looks(2)
    world.slurm.deaf = True
    world.look(60)
    assert isinstance(world.last.orders[0], Hold)
    world.slurm.deaf, world.slurm._start = False, start  # type: ignore[method-assign]
    world.slurm.schedule()
    world.looks(2)
    assert world.slurm_state(job) == "RUNNING" and world.job(job).start_failures == 0
    assert world.slurm.jobs[job].starts == 1


@pytest.mark.parametrize("runs", [False, True])
def test_a_number_that_slurm_gives_away_again(runs: bool) -> None:
    """slurmctld was killed before it had saved a job, and another user's gets its number."""
    world = World(FakeSlurm(n1=2))
    first = world.slurm.submit("gpu:2", uid=1000)
    job = first if runs else world.slurm.submit("gpu:1", uid=1000)
    world.looks(2)
    assert world.state(job) == ("running" if runs else "pending")
    del world.slurm.jobs[job]
    world.slurm.save()
    world.slurm.kill()
    world.slurm.submit("shard:500", key=job, uid=2000)
    if not runs:
        world.slurm.end(first)
    world.looks(4)
    assert world.job(job).spec.uid == 2000 and world.slurm_state(job) == "RUNNING"
    assert world.ended_jobs[-1][1].spec.uid == 1000


def test_a_released_job_asks_for_something_else() -> None:
    """It is not started on what was meant for less."""
    world = World(FakeSlurm(n1=2), (queue(limit_milli=1000),))
    job = world.slurm.submit("shard:500")
    world.slurm._start = lambda job: False  # type: ignore[assignment,method-assign]
    world.looks(2)
    world.slurm.jobs[job].gres = "gres:gpu:1"
    assert world.look().orders == [Hold(job)]
    world.looks(3)
    del world.slurm._start  # type: ignore[method-assign]
    world.looks(3)
    assert world.job(job).spec.width_milli == 1000 and world.slurm_state(job) == "RUNNING"


def test_slurm_starts_a_job_by_itself() -> None:
    """It ran before it could be held: what it takes counts, and the queue does not start it again."""
    world = World(FakeSlurm(n1=1))
    first = world.slurm.submit("gpu:1")
    world.looks(2)
    second = world.slurm.submit("gpu:1")
    world.look()
    world.slurm.end(first)
    world.slurm.jobs[second].priority = 100
    world.slurm.schedule()
    world.looks(3)
    assert world.slurm.jobs[second].starts == 1 and world.controller.foreign == 1
    third = world.slurm.submit("gpu:1")
    world.looks(3)
    assert world.state(third) == "pending"


def test_a_node_goes_down_with_jobs_on_it() -> None:
    world = World(FakeSlurm(n1=1, n2=1))
    job = world.slurm.submit("gpu:1")
    world.looks(2)
    world.look(20)
    world.slurm.fail("n1")
    world.looks(3)
    assert list(world.slurm.jobs[job].has) == ["n2"]
    assert world.job(job).attempt == 2 and world.job(job).failures == 0


def test_a_node_comes_back_with_another_count_of_devices() -> None:
    world = World(FakeSlurm(n1=2))
    job = world.slurm.submit("gpu:2")
    world.looks(2)
    world.slurm.nodes["n1"] = FakeNode(1)
    world.looks(2)
    assert world.slurm_state(job) == "RUNNING"  # it is Slurm's to say that it does not
    world.slurm.end(job, "NODE_FAIL")
    small = world.slurm.submit("gpu:1")
    world.looks(2)
    assert world.running() == [small]
    world.slurm.nodes["n1"] = FakeNode(4)
    more = world.slurm.submit("gpu:3")
    world.looks(2)
    assert world.running() == [small, more]


def test_a_drained_node_gets_nothing_new() -> None:
    world = World(FakeSlurm(n1=2))
    first = world.slurm.submit("gpu:1")
    world.looks(2)
    world.slurm.nodes["n1"].state = "draining"
    second = world.slurm.submit("gpu:1")
    world.looks(2)
    assert world.running() == [first] and world.state(second) == "pending"


def test_jobs_that_slurm_forgot_have_ended() -> None:
    world = World(FakeSlurm(n1=1))
    runs, waits = world.slurm.submit("gpu:1"), world.slurm.submit("gpu:1")
    world.looks(2)
    del world.slurm.jobs[runs], world.slurm.jobs[waits]
    world.look()
    assert (world.state(runs), world.state(waits)) == ("failed", "cancelled")
    assert "was not seen" in world.job(runs).reason


def test_an_order_without_effect_is_given_again() -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.slurm.deaf = True
    assert world.look().orders == [Release(job, ("n1",))]
    assert world.look(1).orders == []  # it takes its time
    world.slurm.deaf = False
    assert world.look(10).orders == [Release(job, ("n1",))]


def test_a_controller_is_killed_between_decision_and_order() -> None:
    world = World(FakeSlurm(n1=1))
    job = world.slurm.submit("gpu:1")
    world.slurm.deaf = True
    world.look()
    world.kill()
    world.slurm.deaf = False
    assert world.look().orders == [Release(job, ("n1",))]
    world.look()
    assert world.job(job).attempt == 1 and world.slurm.jobs[job].starts == 1


def test_a_controller_is_killed_while_a_job_is_requeued() -> None:
    world = World(FakeSlurm(n1=2), (queue(), queue("team", guarantee_milli=2000)))
    low = world.slurm.submit("gpu:2")
    world.looks(2)
    high = world.slurm.submit("gpu:2", account="team")
    world.slurm.deaf = True
    world.look()
    world.kill()
    world.slurm.deaf = False
    world.looks(4)
    assert world.running() == [high] and world.state(low) == "pending"


def test_a_lost_database_loses_no_job() -> None:
    world = World(FakeSlurm(n1=1))
    first = world.slurm.submit("gpu:1")
    world.looks(2)
    second = world.slurm.submit("gpu:1")
    world.look()
    world.jobs.clear()
    world.bindings.clear()
    world.next_id = 1
    world.kill()
    world.looks(2)
    assert world.running() == [first] and world.state(second) == "pending"
    world.slurm.end(first)
    world.looks(2)
    assert world.running() == [second]


# ---- all of it ----

QUEUES = (queue(policy="2d-las(3600)"), queue("team", guarantee_milli=3000, limit_milli=5000, policy="2d-las(3600)"))


def _disturb(world: World, draw: random.Random) -> None:
    """Something that a cluster lives through."""
    running = world.running()
    what = draw.random()
    if what < 0.15:
        world.kill()
    elif what < 0.25 and running:
        world.slurm.requeue(draw.choice(running))
    elif what < 0.3:
        world.slurm.deaf = not world.slurm.deaf
    elif what < 0.35:
        world.slurm.fail(draw.choice(sorted(world.slurm.nodes)))
    elif what < 0.55:
        for node in world.slurm.nodes.values():
            node.state = "idle"


@pytest.mark.parametrize("seed", range(4))
def test_all_jobs_end_once_and_quotas_hold(seed: int) -> None:
    """120 mixed jobs of two queues, with kills, lost orders, failing nodes and requeues."""
    draw = random.Random(seed)
    world = World(FakeSlurm(n1=4, n2=4, n3=2), QUEUES)
    world.slurm.old = seed % 2 == 1
    done: dict[str, int] = {}
    for turn in range(4000):
        if len(world.slurm.jobs) < 120 and draw.random() < 0.5:
            if draw.random() < 0.1 and len(world.slurm.jobs) < 117:
                world.slurm.array("gpu:1", 3, limit=draw.choice((1, 2)))
            gres = draw.choice(("shard:250", "shard:500", "shard:700", "gpu:1", "gpu:2", "gpu:4"))
            nodes = draw.choice((1, 1, 1, 2)) if gres in ("gpu:1", "gpu:2") else 1
            world.slurm.submit(gres, nodes=nodes, account=draw.choice(("", "team")))
        for key in world.running():
            if draw.random() < 0.08:
                world.slurm.end(key)
                done[key] = done.get(key, 0) + 1
        if turn < 3000:
            _disturb(world, draw)
        else:
            world.slurm.deaf = False
            for node in world.slurm.nodes.values():
                node.state = "idle"
        world.look()
        assert world.used_milli("team") <= 5000
        for array, limit in world.slurm.limits.items():
            jobs = [job for job in world.controller.machine.jobs.values() if job.spec.array == array]
            assert sum(job.state is JobState.RUNNING and job.stop_to is None for job in jobs) <= limit
        if len(done) == 120:
            break
    world.slurm.deaf = False
    world.looks(3)
    assert set(done) == set(world.slurm.jobs) and set(done.values()) == {1}
    assert world.count_jobs(JobState.PENDING) == world.count_jobs(JobState.RUNNING) == 0
    assert sum(job.starts for job in world.slurm.jobs.values()) > 130  # requeues and preemptions have happened


def test_decisions_replay() -> None:
    """The simulator's machine says the same to the same events, in the same order; queues and limits of arrays change
    meanwhile."""
    draw = random.Random(7)
    world = World(FakeSlurm(n1=4, n2=2), QUEUES)
    for _ in range(300):
        if draw.random() < 0.4:
            world.slurm.submit(draw.choice(("shard:500", "gpu:1", "gpu:2")), account=draw.choice(("", "team")))
        for key in world.running():
            if draw.random() < 0.1:
                world.slurm.end(key, *draw.choice((("COMPLETED", 0), ("FAILED", 2), ("CANCELLED", 0))))
        if draw.random() < 0.1:
            world.slurm.array("gpu:1", 3, limit=2)
        if draw.random() < 0.05 and world.slurm.limits:
            world.slurm.limits[draw.choice(list(world.slurm.limits))] = draw.choice((0, 1, 2))
        if draw.random() < 0.05:
            world.slurm.fail("n2")
        elif draw.random() < 0.2:
            world.slurm.nodes["n2"].state = "idle"
        other = QUEUES[1] if draw.random() < 0.5 else replace(QUEUES[1], limit_milli=4000, policy="fifo")
        world.look(queues=(QUEUES[0], other) if draw.random() < 0.05 else ())
    recording = world.recording()
    assert len(recording.steps) > 200
    assert list(replay.same_commands(recording)) == []
