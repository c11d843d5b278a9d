"""Sessions that no user uses are ended or paused: the daemon's part, with a fake controller and a fake clock."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from vgpud.core.jobs.events import Cancelled, Idled
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.idleness import GRACE_NS, LOOK_NS
from vgpud.core.jobs.model import SECOND_NS, Ask, Job, JobSpec, JobState
from vgpud.core.model import Spec
from vgpud.daemon.jobs.idleness import FACT, SessionIdleness
from vgpud.errors import StoreError

AFTER_NS = 1800 * SECOND_NS
WHY = "it was not used for 30 min (--idle-after)"


def make_job(job_id: int, *, preemptible: bool = False, after_ns: int = AFTER_NS) -> Job:
    run = Launch(1, 1, (), ("x",), "", "/", (), 18, (), "", session="web", idle_after_ns=after_ns)
    spec = JobSpec(Ask(Spec(250)), preemptible=preemptible, run=run)
    return Job(job_id, spec, 0, state=JobState.RUNNING, attempt=1, started_ns=SECOND_NS)


class Controller:
    """What the part sees of it."""

    def __init__(self, *jobs: Job) -> None:
        self.machine = SimpleNamespace(jobs={job.job_id: job for job in jobs})
        self.now_ns = SECOND_NS
        self.clock = SimpleNamespace(now_ns=lambda: self.now_ns)
        self.facts: dict[int, dict[str, Any]] = {job.job_id: {"cpu_ns": 5} for job in jobs}
        self.store = SimpleNamespace(facts=self._facts, set_facts=self._set_facts)
        self.launches = 0
        counters = SimpleNamespace(of_slice=lambda _: [SimpleNamespace(launches=self.launches)])
        self.host = SimpleNamespace(counters=counters)
        self.slices = SimpleNamespace(of=lambda job: [job.job_id])
        self.viewers: set[int] = set()
        self.attempts = SimpleNamespace(has_viewer=self.viewers.__contains__)
        self.events: list[Any] = []
        self.enqueue_event = self.events.append
        self.is_broken = False
        controller: Any = self
        self.part = SessionIdleness(controller)
        for job in jobs:
            self.part.see(job)

    def _facts(self, job_id: int) -> dict[str, Any]:
        return dict(self.facts[job_id])

    def _set_facts(self, job_id: int, facts: dict[str, Any]) -> None:
        if self.is_broken:
            raise StoreError("disk full")
        self.facts[job_id] = facts

    def sleep(self, span_ns: int) -> None:
        for _ in range(span_ns // LOOK_NS):
            self.now_ns += LOOK_NS
            self.part.tick()


def test_a_session_that_is_not_used_is_ended_or_paused() -> None:
    at = Controller(make_job(1), make_job(2, preemptible=True), make_job(3, after_ns=0))
    at.sleep(AFTER_NS - LOOK_NS)
    assert at.events == []
    at.sleep(2 * AFTER_NS)
    assert at.events == [Cancelled(1, WHY), Idled(2, WHY)], "each once"


def test_requests_terminals_and_launches_are_use() -> None:
    at = Controller(make_job(1), make_job(2), make_job(3))
    for number in range(10):
        at.part.use(1)
        at.viewers.add(2)
        at.launches += number
        at.sleep(AFTER_NS - LOOK_NS)
    assert at.events == [], "one counter for all three"
    at.viewers.clear()
    at.sleep(AFTER_NS + 2 * LOOK_NS)
    assert {event.job_id for event in at.events} == {1, 2, 3}


def test_it_outlives_the_daemon() -> None:
    at = Controller(make_job(1))
    at.sleep(AFTER_NS // 2)
    at.part.use(1)
    used_ns = at.now_ns
    at.sleep(2 * LOOK_NS)
    assert at.facts[1] == {"cpu_ns": 5, FACT: used_ns}, "what else is known stays"
    again = Controller()
    again.machine, again.facts, again.now_ns = at.machine, at.facts, used_ns + AFTER_NS // 2
    again.part.adopt(at.machine.jobs[1])
    again.part.see(at.machine.jobs[1])
    assert again.part.last_use_ns(1) == used_ns
    late = Controller()
    late.machine, late.facts, late.now_ns = at.machine, at.facts, used_ns + 9 * AFTER_NS
    late.part.adopt(at.machine.jobs[1])
    late.sleep(GRACE_NS - LOOK_NS)
    assert late.events == [], "uses while there was no daemon were not seen"
    late.sleep(3 * LOOK_NS)
    assert late.events == [Cancelled(1, WHY)]


def test_a_job_that_does_not_run_is_not_idle() -> None:
    job = make_job(1, preemptible=True)
    at = Controller(job)
    job.state = JobState.SUSPENDED
    at.part.see(job)
    at.sleep(3 * AFTER_NS)
    assert at.events == []
    job.state, job.started_ns = JobState.RUNNING, at.now_ns
    at.part.see(job)
    assert at.part.last_use_ns(1) == at.now_ns
    at.part.see(replace(job, state=JobState.COMPLETED))
    assert at.part.last_use_ns(1) == -1


def test_a_store_that_fails_ends_nothing() -> None:
    at = Controller(make_job(1))
    at.is_broken = True
    at.sleep(AFTER_NS // 2)
    at.part.use(1)
    at.sleep(AFTER_NS // 2)
    assert at.events == [] and FACT not in at.facts[1]
