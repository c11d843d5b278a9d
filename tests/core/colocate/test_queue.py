"""Jobs that share devices in the queue: guarantees, what is measured, pairs that are separated and remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.placement.world import GIB, node
from tests.core.queue.world import Shell, make_policy, queue
from vgpud.core.jobs.events import Measured, Note, PairLoses, PairsKnown, Resized, StopJob
from vgpud.core.jobs.model import Ask, Elastic, How, JobSpec, QueueSpec
from vgpud.core.model import Spec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine

RULE = "colocate(120,2)"


def uses(percent: int, kind: str = "", gib: int = 8, min_milli: int | None = None, **fields: object) -> JobSpec:
    """A job of one device that is said to use so much of it (-1: nothing is said)."""
    wanted = Spec(1000, min_milli=min_milli, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB)
    known_milli = 10 * percent if percent >= 0 else -1
    classes = (kind,) if kind else ()
    return JobSpec(Ask(wanted, utilisation_milli=known_milli), kinds=classes, **fields)  # type: ignore[arg-type]


def make_shell(
    gpus: int = 1, *queues: QueueSpec, hows: tuple[How, ...] = (How.PAUSE, How.EVICT, How.REQUEUE), moves: bool = False
) -> Shell:
    queues = queues or (queue(placement=RULE),)
    return Shell(Machine(queues, Cluster([node("n", gpus)]), make_policy, hows=hows, moves=moves))


def where(at: Shell, job_id: int) -> str:
    return at.job(job_id).placement[0].shares[0].device_uuid if at.state(job_id) == "running" else ""


def separate_pair(at: Shell, job_id: int, other_id: int) -> list[StopJob]:
    commands = at.send(PairLoses(job_id, other_id, "0.7 together"))
    return [command for command in commands if isinstance(command, StopJob)]


# ---- free capacity ----


def test_two_jobs_share_what_one_asked_for() -> None:
    at = make_shell()
    first, second, third = at.submit(uses(60)), at.submit(uses(50)), at.submit(uses(5))
    assert [at.state(j) for j in (first, second, third)] == ["running", "running", "pending"]
    share = at.job(first).placement[0].shares[0]
    assert (share.min_milli, share.max_milli) == (500, 1000), "guaranteed a half, and all of it while it is alone"
    assert "no device has 0.5 GPU" in at.reason(third)
    at.end(first)
    assert at.state(third) == "running"


def test_a_minimum_that_was_asked_for_is_kept() -> None:
    at = make_shell()
    whole, other = at.submit(uses(10, min_milli=1000)), at.submit(uses(10))
    assert (at.state(whole), at.state(other)) == ("running", "pending")
    at = make_shell()
    large, small = at.submit(uses(10, min_milli=700)), at.submit(uses(10))
    assert at.state(small) == "pending", "the sum of what is guaranteed is never more than a device"
    at.end(large)
    assert at.state(small) == "running"


def test_the_limit_of_a_queue_counts_what_is_guaranteed() -> None:
    at = make_shell(2, queue(placement=RULE, limit_milli=500))
    assert at.machine.check(uses(10)) is None
    first, second = at.submit(uses(10)), at.submit(uses(10))
    assert (at.state(first), at.state(second)) == ("running", "pending")
    denied = at.machine.check(uses(10, min_milli=1000))
    assert denied is not None and "1 GPUs are more than queue default may ever have" in denied.message


def test_why_it_waits() -> None:
    at = make_shell()
    at.submit(uses(90))
    waits = at.submit(uses(35))
    assert at.reason(waits).startswith("no device can be shared with this job: device 0 of n would be 125 % used")


def test_a_job_that_frees_capacity_is_not_kept_beside_one_it_may_not_share_with() -> None:
    at = make_shell(1, queue(placement=RULE, policy="priority"))
    first, second = at.submit(uses(90)), at.submit(uses(90, priority=5))
    assert [at.state(j) for j in (first, second)] == ["suspended", "running"]
    assert at.job(first).suspended_how is How.PAUSE, "its memory fits beside"
    assert at.state(at.submit(uses(25))) == "running", "who is paused uses nothing of the device"
    at.end(second)
    assert at.state(first) == "running"


# ---- measured ----


def test_what_is_measured_replaces_what_was_predicted() -> None:
    at = make_shell()
    first, second = at.submit(uses(90)), at.submit(uses(60))
    assert at.state(second) == "pending"
    at.send(Measured(first, 555))
    assert at.state(second) == "running"
    assert [at.job(j).placement[0].utilisation_milli for j in (first, second)] == [555, 600]
    at.end(first)
    at.end(second)
    assert at.state(at.submit(uses(100))) == "running", "and what is taken back is what was put there"


def test_who_uses_more_than_was_said_keeps_others_out_but_stays() -> None:
    at = make_shell()
    first, second = at.submit(uses(20)), at.submit(uses(60))
    at.send(Measured(first, 1000))
    assert [at.state(j) for j in (first, second)] == ["running", "running"], "the limit is a soft one"
    at.end(second)
    assert at.state(at.submit(uses(25))) == "pending"


def test_measured_too_late_is_nothing() -> None:
    at = make_shell()
    job, waits = at.submit(uses(30)), at.submit(uses(100))
    at.send(Measured(waits, 5))
    assert at.job(waits).spec.ask.utilisation_milli == 1000
    at.end(job)
    assert at.send(Measured(job, 5), Measured(99, 5)) == []


def test_other_placements_take_no_notice() -> None:
    at = make_shell(1, queue(placement="best-fit"))
    job = at.submit(uses(90))
    before = at.job(job).placement
    at.send(Measured(job, 10))
    assert at.job(job).placement == before
    assert at.state(at.submit(uses(1))) == "pending"


# ---- pairs that lose ----


def test_the_one_that_is_named_continues_elsewhere() -> None:
    at = make_shell(2, moves=True)
    first, filler = at.submit(uses(50, "a")), at.submit(uses(110, "x"))
    second = at.submit(uses(40, "b"))
    at.end(filler)
    assert (where(at, first), where(at, second)) == ("n/0", "n/0")
    at.slow = True
    (stop,) = separate_pair(at, second, first)
    assert stop.how is How.EVICT and stop.why.startswith(f"it and job {first} lose more on one device than they gain")
    at.answer_stops()
    assert (where(at, first), where(at, second)) == ("n/0", "n/1")
    assert at.job(second).preemptions == 1 and at.machine.pairs() == (("a", "b"),)


def test_on_one_device_it_waits_until_the_other_has_gone() -> None:
    at = make_shell()
    first, second = at.submit(uses(50, "a")), at.submit(uses(40, "b"))
    separate_pair(at, second, first)
    assert at.state(second) == "suspended", "its work is kept, and it is not put beside the other again"
    third = at.submit(uses(40, "c"))
    assert at.state(third) == "running"
    at.end(first)
    assert at.state(second) == "running"


def test_without_a_checkpoint_it_starts_again() -> None:
    at = make_shell(hows=(How.PAUSE, How.REQUEUE))
    first, second = at.submit(uses(50, "a")), at.submit(uses(40, "b"))
    (stop,) = separate_pair(at, second, first)
    assert stop.how is How.REQUEUE and at.state(second) == "pending"
    at.end(first)
    assert at.state(second) == "running" and at.job(second).attempt == 2


def test_such_jobs_are_kept_apart_from_then_on_also_after_a_restart() -> None:
    at = make_shell(2)
    at.submit(uses(50, "a"))
    separate_pair(at, at.submit(uses(10, "a")), 1)  # on another device: nothing to part
    assert at.machine.pairs() == () and where(at, 2) == "n/1"
    again = make_shell()
    again.send(PairsKnown((("a", "b"), ("b", "b"))))
    first, second = again.submit(uses(10, "b")), again.submit(uses(10, "a"))
    assert (again.state(first), again.state(second)) == ("running", "pending")
    assert "such jobs lose more than they gain" in again.reason(second)
    assert again.machine.pairs() == (("a", "b"), ("b", "b"))


@pytest.mark.parametrize("what", ["not preemptible", "min run", "no kinds", "best-fit"])
def test_who_is_not_separated(what: str) -> None:
    rules: dict[str, object] = {"min_run_ns": 10**12} if what == "min run" else {}
    at = make_shell(1, queue(placement="best-fit" if what == "best-fit" else RULE, **rules))
    fields = {"preemptible": False} if what == "not preemptible" else {}
    kind = "" if what == "no kinds" else "k"
    half = 500 if what == "best-fit" else None
    first, second = (at.submit(uses(30, kind, min_milli=half, **fields)) for _ in range(2))
    assert separate_pair(at, second, first) == []
    assert [at.state(j) for j in (first, second)] == ["running", "running"]
    remembered = what in ("not preemptible", "min run")
    assert at.machine.pairs() == ((("k", "k"),) if remembered else ())


def test_what_has_gone_meanwhile_is_not_separated() -> None:
    at = make_shell(1)
    at.slow = True
    first, second = at.submit(uses(30, "a")), at.submit(uses(30, "b"))
    separate_pair(at, second, first)
    assert separate_pair(at, second, first) == [] and separate_pair(at, first, second) == [], "it is on its way"
    at.answer_stops()
    at.end(first)
    assert separate_pair(at, second, first) == [] and separate_pair(at, second, 99) == []


def test_it_is_reported_to_its_user() -> None:
    at = make_shell()
    first, second = at.submit(uses(50, "a")), at.submit(uses(40, "b"))
    separate_pair(at, second, first)
    notes = [command for command in at.log if isinstance(command, Note) and command.kind == "job.preempted"]
    assert [note.job_id for note in notes] == [second] and "0.7 together" in notes[0].text


def test_a_restart_finds_them_where_they_were() -> None:
    at = make_shell()
    first, second = at.submit(uses(50, "a")), at.submit(uses(40, "b"))
    at.send(Measured(first, 700))
    again = make_shell()
    again.running |= {first, second}
    again.next_id = 3
    again.restore([replace(job) for job in at.machine.jobs.values()])
    assert [again.state(j) for j in (first, second)] == ["running", "running"]
    again.end(second)
    assert again.state(again.submit(uses(55))) == "pending" and again.state(again.submit(uses(50))) == "running"


def test_an_elastic_slice_grows_only_as_far_as_its_rule_lets_it_beside_others() -> None:
    at = make_shell()
    other = at.submit(uses(80, min_milli=100))
    wanted = Spec(250, mem_min_bytes=GIB, mem_max_bytes=GIB)
    grows = at.submit(JobSpec(Ask(wanted), elastic=Elastic(least_milli=250, most_milli=900)))
    assert at.state(grows) == "running", "what it uses is not known: its quarter counts"
    at.sleep(300)
    assert at.job(grows).width_milli == 400, "0.8 and 0.4 are the most, though half of the device is free"
    at.end(other)
    at.sleep(300)
    assert at.job(grows).width_milli == 900, "alone everybody is welcome"


def test_workers_that_were_measured_are_resized_whatever_their_shell_knew_of_them() -> None:
    at = make_shell(4)
    wanted = Spec(1000, mem_min_bytes=GIB, mem_max_bytes=GIB)
    workers = Elastic(least_members=1, most_members=3)
    job_id = at.submit(JobSpec(Ask(wanted), kinds=("k",), elastic=workers))
    first = at.job(job_id).placement[0]
    at.send(Measured(job_id, 555))
    at.slow = True
    at.sleep(60)
    (resize,) = at.resizes
    at.resizes.clear()
    at.send(Resized(job_id, 1, (first, *resize.placement[1:])))
    assert not [note for note in at.log if isinstance(note, Note) and note.kind == "job.resize_failed"]
    assert [place.utilisation_milli for place in at.job(job_id).placement] == [555] * 3
    at.send(Measured(job_id, 900))
    at.end(job_id)
    assert at.state(at.submit(uses(100))) == "running", "what is taken back is what was put there"
