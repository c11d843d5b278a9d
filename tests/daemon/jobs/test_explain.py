"""Why a job is as it is: facts in a reader's order, with the numbers that decided and no other user's names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.placement.world import GIB, ask, node
from tests.core.queue.world import Shell, queue
from tests.examples import examples
from vgpud.core import origins
from vgpud.core.jobs.events import Cancelled, Measured, Note, RoomChanged, Suspended
from vgpud.core.jobs.facts import Fact, Facts, Launch, Predicted
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Elastic, Job, JobSpec
from vgpud.core.jobs.similarity import classes
from vgpud.core.model import Drain, Share, SiteLimits, Slice, Spec, State
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue.machine import Machine
from vgpud.core.slices.rotation import Cost, Load, estimate_cost
from vgpud.daemon.jobs.explain import NEIGHBOURS_MAX, Known, explain

ANN, BEN = 1000, 1001
MINUTE_NS = 60 * SECOND_NS


class Explainer(Shell):
    """A machine with one node, a trail of its notes, and who asks."""

    def __init__(self, devices: int = 1, **rules: object) -> None:
        self.node = node("n1", devices)
        super().__init__(Machine((queue(**rules),), Cluster([self.node]), registry.make))
        self.node_state = State(devices={device.uuid: device for device in self.node.devices})
        self.claims: dict[str, list[int]] = {device.uuid: [] for device in self.node.devices}  # of slices in turn
        self.rates = {"": 40 * GIB}  # by slice

    def cost_with(self, uuid: str, more_bytes: Sequence[int] = ()) -> Cost:
        return estimate_cost([Load(size, 40 * GIB) for size in (*self.claims[uuid], *more_bytes)], 80 * GIB)

    def rate(self, slice_: Slice | None, *_: object) -> int:
        return self.rates[slice_.name if slice_ else ""]

    def ask(self, job_id: int, uid: int | None = ANN, trail: Sequence[Fact] | None = None) -> list[tuple[str, str]]:
        """(kind, text) of each fact."""
        return [(fact.kind, fact.text) for fact in self.facts(job_id, uid, trail)]

    def facts(
        self, job_id: int, uid: int | None = ANN, trail: Sequence[Fact] | None = None, anomalies: Sequence[str] = ()
    ) -> list[Fact]:
        machine, job = self.machine, self.machine.jobs[job_id]
        notes = [c for c in self.log if isinstance(c, Note) and c.job_id == job_id]
        said = [Fact(7, note.kind, note.text) for note in notes] if trail is None else trail
        shown = job if job.state.is_final else replace(job, reason=machine.reason(job_id, self.now_ns))
        facts = Facts(
            position=machine.position(job_id),
            estimated_start_ns=NEVER_NS if job.state.is_final else machine.estimated_start(job_id, self.now_ns),
            measured_milli=job.spec.ask.utilisation_milli or -1,
        )
        return explain(machine, self.node_state, shown, Known(facts, said, anomalies, self.now_ns, uid, self))


def spec(gpus: float = 0.5, mem: int = 8 * GIB, uid: int = ANN, name: str = "train", **fields: object) -> JobSpec:
    wanted = ask(round(gpus * 1000), mem_min_bytes=mem, mem_max_bytes=mem)
    made = JobSpec(wanted, uid=uid, name=name, **fields)  # type: ignore[arg-type]
    return replace(made, kinds=classes(name, "", (name,), uid, made))


def texts(facts: Sequence[tuple[str, str]], kind: str) -> list[str]:
    return [text for about, text in facts if about == kind]


def test_notifications_that_failed_are_shown_after_the_end_as_well() -> None:
    explainer = Explainer()
    job_id = explainer.submit(spec())
    trail = [Fact(n, "job.notify_failed", f"the webhook did not answer {n}") for n in range(7)]
    said = [f"the webhook did not answer {n}" for n in range(2, 7)]
    assert texts(explainer.ask(job_id, trail=trail), "anomaly") == said
    explainer.end(job_id)
    assert texts(explainer.ask(job_id, trail=trail), "anomaly") == said


def test_one_that_waits_reads_why_and_what_would_help() -> None:
    explainer = Explainer()
    explainer.submit(spec(0.5, 60 * GIB))
    job_id = explainer.submit(spec(0.75, 30 * GIB))
    facts = explainer.ask(job_id)
    assert facts[0] == (
        "queue",
        "no device has 0.75 GPU and 30GiB free: device 0 of n1 has the most free: 0.5 GPU and 20GiB;"
        " place 1 in queue default",
    )
    assert texts(facts, "help") == [], "neither less time nor less memory alone would do"
    assert texts(explainer.ask(explainer.submit(spec(0.5, 30 * GIB))), "help") == ["with --mem 20G it would start now"]
    assert texts(explainer.ask(explainer.submit(spec(0.75, 20 * GIB))), "help") == [
        "with --gpus 0.5 it would start now"
    ]
    assert [kind for kind, _ in facts] == ["queue", "estimate", "size", "estimate"]


def test_a_drained_device_is_named_with_the_reason() -> None:
    explainer = Explainer()
    uuid = explainer.node.devices[0].uuid
    explainer.node_state.drains[uuid] = Drain(uuid, "cables")
    explainer.send(RoomChanged("n1", (), ()))
    job_id = explainer.submit(spec())
    assert texts(explainer.ask(job_id), "device") == ["device 0 is drained: cables"]


def test_what_helps_is_true() -> None:
    """Each piece of advice, followed, starts the job."""
    explainer = Explainer(2)
    explainer.submit(spec(0.7, 50 * GIB))
    explainer.submit(spec(0.6, 50 * GIB))
    gang = explainer.submit(replace(spec(0.4, 8 * GIB), members=3))
    assert texts(explainer.ask(gang), "help")[-1] == "one member alone would start now"
    pinned = ask(400, device_uuids=("n1/0",), mem_min_bytes=GIB, mem_max_bytes=GIB)
    named = explainer.submit(JobSpec(pinned, uid=ANN))
    assert texts(explainer.ask(named), "help") == [
        "without --device it would start now",
        "with --gpus 0.3 it would start now",
    ]
    assert (
        explainer.state(explainer.submit(JobSpec(replace(pinned, spec=replace(pinned.spec, gpus_milli=300)))))
        == "running"
    )


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 60)), min_size=1, max_size=8),
    st.tuples(st.integers(1, 20), st.integers(1, 80)),
    st.booleans(),
)
def test_whatever_helps_starts_it(rows: list[tuple[int, int]], request: tuple[int, int], elastic: bool) -> None:
    """Jobs of twentieths of a device and GiB: each piece of advice, followed in the same world, is true."""

    def world() -> tuple[Explainer, int]:
        explainer = Explainer(2)
        for twentieths, gib in rows:
            explainer.submit(spec(twentieths / 20, gib * GIB))
        made = spec(request[0] / 20, request[1] * GIB)
        return explainer, explainer.submit(replace(made, elastic=Elastic(request[0] * 50, 1000)) if elastic else made)

    explainer, job_id = world()
    for text in texts(explainer.ask(job_id), "help"):
        found = re.fullmatch(r"with --(gpus|mem) ([\d.]+?)(G|\.\.1)? it would start now", text)
        assert found, text
        gpus, gib = (float(found[2]), request[1]) if found[1] == "gpus" else (request[0] / 20, int(found[2]))
        other, _ = world()
        before = {j for j in other.machine.jobs if other.state(j) == "running"}
        started = other.submit(spec(gpus, gib * GIB))
        assert other.state(started) == "running", (text, other.reason(started))
        assert before <= other.running


def test_a_quota_and_who_is_before_it() -> None:
    explainer = Explainer(2, limit_milli=1000)
    explainer.submit(spec(0.75))
    limited = explainer.ask(explainer.submit(spec(0.5)))
    assert "its limit of 1 GPUs" in limited[0][1]
    assert texts(limited, "help") == ["with --gpus 0.25 it would start now"]
    strict = Explainer(1, strict=True)
    strict.submit(spec(0.75, time_limit_ns=10 * MINUTE_NS))
    strict.submit(spec(1))
    behind = strict.ask(strict.submit(spec(0.25)))
    assert behind[0][1].startswith("queue default is strict, and job 2 is ahead of this job")
    assert texts(behind, "help") == ["with --time-limit 600s or less it would pass job 2 now"]


def test_the_order_is_said_in_one_sentence_without_what_others_used() -> None:
    explainer = Explainer(1, policy=registry.NEW_QUEUE)
    explainer.submit(spec(1))
    first, second = (explainer.submit(spec(1, uid=uid)) for uid in (BEN, ANN))
    before = f"job {first} is before job {second} in queue default (2d-gittins): "
    used = "is in its trial (0 of 4200 GPU-seconds used)"
    assert texts(explainer.ask(second, uid=ANN), "queue")[1] == f"{before}job {second} {used}"
    assert texts(explainer.ask(second, uid=None), "queue")[1] == f"{before}job {first} {used}; job {second} {used}"


def test_a_held_one() -> None:
    explainer = Explainer()
    job_id = explainer.submit(spec(), held=True)
    assert texts(explainer.ask(job_id), "help") == [f"vgpu job release {job_id} lets it wait for free capacity"]


def test_elastic_jobs_give_capacity_to_a_job_that_has_waited() -> None:
    explainer = Explainer()
    explainer.submit(replace(spec(0.25), elastic=Elastic(250, 1000)))
    explainer.sleep(61)
    assert explainer.job(1).spec.ask.spec.gpus_milli == 1000
    job_id = explainer.submit(spec(0.5))
    explainer.sleep(10)
    (text, *_) = texts(explainer.ask(job_id), "help")
    assert text == "elastic jobs can give 0.75 GPU, and do when it has waited 30 s: in 20 s"
    assert texts(explainer.ask(1), "size")[0].startswith(
        "1 GPU of 0.25..1: grows while capacity is idle, shrinks when other"
    )
    (resized,) = texts(explainer.ask(1), "resize")
    assert "0.25" in resized or "idle" in resized


def test_the_memory_of_an_elastic_job_is_the_same_at_each_size() -> None:
    """It said that a quarter of the device's memory is the same part of it as the whole GPU that the job has."""
    explainer = Explainer()
    explainer.submit(replace(spec(), ask=ask(250), elastic=Elastic(250, 1000)))
    explainer.sleep(61)
    assert explainer.job(1).spec.ask.spec.gpus_milli == 1000
    assert texts(explainer.ask(1), "size")[0].endswith("of memory, whatever its size")


def test_one_that_runs() -> None:
    explainer = Explainer(2)
    predicted = Predicted("net:make", "h200", (0.5, 0.4, 0.6), (0, 0, 0), (8 * GIB, 7 * GIB, 9 * GIB))
    launch = Launch(ANN, ANN, (), ("x",), "", "/", (), 0, (), "/l", prediction=predicted)
    job_id = explainer.submit(replace(spec(), run=launch))
    facts = explainer.ask(job_id)
    assert [kind for kind, _ in facts] == ["device", "neighbour", "size", "prediction", "estimate"]
    assert facts[0][1] == (
        "0.5 GPU on device 0 of n1: of 2 that fit, the one that is left with the least (best-fit); 0.5 GPU and 72GiB"
        " are left there"
    )
    assert facts[1:4] == [
        ("neighbour", "no other slice has a part of device 0"),
        ("size", "0.5 GPU, as submitted; 8GiB of memory, as submitted"),
        ("prediction", "net:make on h200: 50 % of it (40 % to 60 %) and 8GiB (7GiB to 9GiB) predicted"),
    ]
    explainer.send(Measured(job_id, 430))
    assert texts(explainer.ask(job_id), "prediction")[0].endswith("predicted; 43 % measured"), "nothing goes by it here"


def test_neighbours_of_others_have_neither_names_nor_owners() -> None:
    explainer = Explainer(1)
    own = explainer.submit(spec(0.25, name="mine"))
    explainer.submit(spec(0.25, name="second"))
    explainer.submit(spec(0.25, uid=BEN, name="secret"))
    share = Share("n1/0", 100, 100, GIB, GIB)
    made = Slice(origins.User("theirs"), "u", 1, Spec(100), (share,), BEN, 0)
    explainer.node_state.slices["theirs"] = made
    assert texts(explainer.ask(own), "neighbour") == [
        "job 2 (second) has 0.25 GPU and 8GiB of device 0",
        "job 3 has 0.25 GPU and 8GiB of device 0",
        "a slice that is no job's has 0.1 GPU of device 0",
    ]
    said = str(explainer.ask(own))
    assert "secret" not in said and "theirs" not in said and str(BEN) not in said
    admin = texts(explainer.ask(own, None), "neighbour")
    assert "job 3 (secret) has" in admin[1] and "slice theirs has" in admin[2]


def test_many_neighbours_are_counted() -> None:
    explainer = Explainer(1)
    for _ in range(NEIGHBOURS_MAX + 4):
        explainer.submit(spec(0.05, GIB))
    assert texts(explainer.ask(1), "neighbour")[-1] == "and 3 more"


def test_estimates_say_what_they_go_by() -> None:
    explainer = Explainer(1)
    for minutes in (10, 12, 14):
        job_id = explainer.submit(spec(1))
        explainer.sleep(minutes * 60)
        explainer.end(job_id)
    job_id = explainer.submit(spec(1))
    explainer.sleep(120)
    assert texts(explainer.ask(job_id), "estimate") == [
        "the last 3 jobs with the same command and size took about 12 min, four of five between 10 min and 28 min",
        "it has run 2 min, so about 10 min are left",
    ]
    explainer.sleep(1200)
    assert texts(explainer.ask(job_id), "estimate")[-1] == "it has run 22 min"
    explainer.end(job_id)
    assert texts(explainer.ask(job_id), "estimate") == ["it ran 22 min; about 12 min, at most 28 min was expected"]
    declared_id = explainer.submit(spec(1, duration_ns=MINUTE_NS))
    assert texts(explainer.ask(declared_id), "estimate")[0] == "its user expects 1 min, and the queue goes by that"


def test_what_is_wrong_comes_first_of_one_that_runs() -> None:
    explainer = Explainer(1)
    job_id = explainer.submit(spec())
    trail = [
        Fact(5, "job.started", "there"),
        Fact(6, "job.anomaly", "old"),
        Fact(9, "job.anomaly", "now"),
    ]
    facts = explainer.facts(job_id, ANN, trail, ["now"])
    assert [(fact.at_ns, fact.kind, fact.text) for fact in facts[:3]] == [
        (-1, "anomaly", "now"),
        (6, "anomaly", "old"),
        (5, "device", "there"),
    ]


@pytest.mark.parametrize("kind", ["job.resized", "job.preempted", "job.anomaly"])
def test_of_a_long_trail_the_last_ones(kind: str) -> None:
    explainer = Explainer(1)
    job_id = explainer.submit(spec())
    trail = [Fact(i, kind, f"number {i}") for i in range(100)]
    found = [fact for fact in explainer.facts(job_id, ANN, trail) if fact.text.startswith("number")]
    assert 3 <= len(found) <= 5 and found[-1].at_ns == 99


def test_one_that_has_ended_and_is_known_by_the_store_alone() -> None:
    explainer = Explainer(1)
    job = Job(77, spec(), 0, executed_ns=MINUTE_NS)
    job.state = job.state.FAILED
    job.reason = "it ended with exit code 3"
    facts = explain(explainer.machine, explainer.node_state, job, Known(Facts(), [], (), 0, ANN, explainer))
    assert [(fact.kind, fact.text) for fact in facts] == [
        ("queue", "it ended with exit code 3"),
        ("size", "0.5 GPU, as submitted; 8GiB of memory, as submitted"),
        ("estimate", "it ran 1 min"),
    ]


def test_a_job_that_waits_for_memory_starts_when_another_ends() -> None:
    explainer = Explainer(1)
    explainer.submit(spec(0.25, 60 * GIB, time_limit_ns=100 * SECOND_NS))
    job_id = explainer.submit(spec(0.25, 30 * GIB))
    assert texts(explainer.ask(job_id), "estimate")[0] == "it is expected to start in about 1 min 40 s"
    explainer.sleep(40)
    assert texts(explainer.ask(job_id), "estimate")[0] == "it is expected to start in about 1 min"
    unknown = Explainer(1)
    unknown.submit(spec(0.25, 60 * GIB))
    (first, *_) = texts(unknown.ask(unknown.submit(spec(0.25, 30 * GIB))), "estimate")
    assert first == "its start is not known, because the durations of the jobs that must end first are not"


# ---- rotation ----


def rotating(gib: int, **fields: object) -> JobSpec:
    return JobSpec(ask(250, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB, mem_swap=True), uid=ANN, **fields)  # type: ignore[arg-type]


def test_what_turns_would_cost_is_said_before_it_runs() -> None:
    explainer = Explainer(2)
    job_id = explainer.submit(rotating(60), held=True)
    explainer.claims["n1/0"] = [60 * GIB]
    assert texts(explainer.ask(job_id), "rotation") == [
        "with this job, slices with mem-swap claim 60GiB together of 80GiB that device 1 has for them:"
        " they fit, none leaves",
        "with this job, slices with mem-swap claim 120GiB together of 80GiB that device 0 has for them:"
        " turns of up to 1 min, 4.8 % of the time lost in moves at 40GiB/s, 60GiB of the host's RAM",
    ]
    gang = explainer.submit(rotating(60, members=2), held=True)
    assert texts(explainer.ask(gang), "rotation")[0].startswith("with a member of this job, ")
    explainer.node_state.drains["n1/1"] = Drain("n1/1", "cables")
    (alone,) = texts(explainer.ask(job_id), "rotation")
    assert "device 0" in alone
    plain = explainer.submit(spec(), held=True)
    assert texts(explainer.ask(plain), "rotation") == []


def test_one_that_runs_is_among_those_in_turn() -> None:
    explainer = Explainer(2)
    job_id = explainer.submit(rotating(60))
    explainer.claims["n1/0"] = [60 * GIB, 50 * GIB]
    (said,) = texts(explainer.ask(job_id), "rotation")
    assert said.startswith("slices with mem-swap claim 110GiB together of 80GiB that device 0 has for them: turns of")
    explainer.send(Suspended(job_id))
    (said,) = texts(explainer.ask(job_id), "rotation")
    assert said.startswith("with this job, slices with mem-swap claim 170GiB")
    explainer.send(Cancelled(job_id, ""))
    assert texts(explainer.ask(job_id), "rotation") == []


def test_what_sleeping_costs_is_said() -> None:
    explainer = Explainer()
    wanted = ask(500, mem_min_bytes=8 * GIB, mem_max_bytes=20 * GIB, idle_after_ns=10 * MINUTE_NS)
    job_id = explainer.submit(JobSpec(wanted, uid=ANN))
    assert texts(explainer.ask(job_id), "rotation") == [
        "after 10 min without work it sleeps: up to 20GiB leave the device in up to 0.5 s, and its next call waits as"
        " long for them (40GiB/s)"
    ]
    share = Share("n1/0", 500, 500, 8 * GIB, 20 * GIB)
    made = Slice(origins.Job(job_id), "u", 1, wanted.spec, (share,), ANN, 0)
    explainer.node_state.slices[made.name], explainer.rates[made.name] = made, 10 * GIB
    assert "in up to 2.0 s" in texts(explainer.ask(job_id), "rotation")[0], "by the rate of its own slice"
    by_site = explainer.submit(spec())
    assert texts(explainer.ask(by_site), "rotation") == []
    explainer.node_state.policy = SiteLimits(idle_after_ns=MINUTE_NS)
    assert texts(explainer.ask(by_site), "rotation")[0].startswith("after 1 min without work it sleeps")
