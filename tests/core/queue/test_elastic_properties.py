"""Elastic jobs whatever happens: never below their least nor above their most, nothing over-committed, at rest at last.

Beside jobs that are not elastic, with stops, failures, answers that come late or in part, new targets and restarts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.queue.test_invariants import CLUSTERS, PHASES, QUEUES, Driver, finish, happenings, sound
from tests.core.queue.world import gpus, make_policy
from tests.examples import examples
from vgpud.core.jobs.events import Changed, Note, Resized, ResizeJob, Submitted, Wished
from vgpud.core.jobs.model import SECOND_NS, Elastic, How, Job, JobState
from vgpud.core.queue import sizes
from vgpud.core.queue.machine import Machine

QUICK = tuple(replace(q, elastic_wait_ns=5 * SECOND_NS, elastic_idle_ns=10 * SECOND_NS) for q in QUEUES)
EAGER = tuple(replace(q, elastic_eager=True) for q in QUICK)


@st.composite
def elastic_happenings(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    names = st.sampled_from(["plain", "ann", "bob", "team", "strict"])
    fields = st.fixed_dictionaries({"priority": st.integers(0, 3)}, optional={"preemptible": st.just(False)})
    workers = st.tuples(
        st.just("workers"), names, st.integers(1, 3), st.integers(0, 5), st.sampled_from([0.5, 1, 1]), fields
    )
    slices = st.tuples(st.just("slice"), names, st.integers(1, 12), st.integers(0, 12), st.just(0), fields)
    number = st.integers(0, 50)
    words = ["resized", "resized", "resized", "fails", "in part", "lost", "wish", "sleep", "sleep"]
    other = st.tuples(st.sampled_from([*words, *["resize"] * 4]), number)
    own = draw(st.lists(st.one_of(workers, slices, other, other), max_size=30))
    return draw(st.permutations([*own, *draw(happenings())]))


class ElasticDriver(Driver):
    """Also of elastic jobs."""

    lost_jobs: frozenset[int] = frozenset()
    queues = QUICK

    def machine(self, capacity: Any) -> Machine:
        return Machine(self.queues, capacity, make_policy, hows=self.hows, moves=self.moves)

    def does(self, what: tuple[Any, ...]) -> None:
        at, machine = self.shell, self.shell.machine
        at.resizes = [r for r in at.resizes if self.resizes(r)]
        if what[0] in ("workers", "slice"):
            kind, name, least, more, width, fields = what
            spec = gpus(width, members=least, queue=name, elastic=Elastic(0, 0, least, least + more), **fields)
            if kind == "slice":
                elastic = Elastic(50 * least, min(1000, 50 * (least + more)))
                spec = gpus(0.05 * least, queue=name, elastic=elastic, **fields)
            if machine.check(spec) is None:
                self.send(Submitted((at.next_id,), spec))
                at.next_id += 1
        elif what[0] in ("resized", "fails", "in part") and at.resizes:
            self.answer_resize(at.resizes[what[1] % len(at.resizes)], what[0])
        elif what[0] == "resize":
            for job_id in sorted(at.running):
                spec = machine.jobs[job_id].spec
                sized = replace(spec.ask.spec, gpus_milli=what[1] * 170 % 1000 + 50)
                self.send(Changed(job_id, replace(spec, ask=replace(spec.ask, spec=sized)), what[1] % 2 == 0))
        elif what[0] == "lost":
            for job in self.list_resizable_jobs():
                if not job.resizing and len(job.placement) > 1:
                    self.lost_jobs |= {job.job_id}
                    at.send(Resized(job.job_id, job.attempt, job.placement[1:], "it is lost"))
                    break
        elif what[0] == "wish":
            for job in self.list_resizable_jobs()[:1]:
                at.send(Wished(job.job_id, what[1] % 9, "as it was measured"))
        else:
            super().does(what)

    def list_resizable_jobs(self) -> list[Job]:
        jobs = [self.shell.machine.jobs[job_id] for job_id in sorted(self.shell.running)]
        stopping_ids = {stop.job_id for stop in self.shell.stops}
        return [
            j
            for j in jobs
            if (j.spec.elastic or j.resizing) and j.job_id not in stopping_ids and j.state is JobState.RUNNING
        ]

    def resizes(self, one: ResizeJob) -> bool:
        """Whether that is still to be done: a stop wins."""
        job = self.shell.machine.jobs[one.job_id]
        return job in self.list_resizable_jobs() and job.attempt == one.attempt and bool(job.resizing)

    def answer_resize(self, one: ResizeJob, how: str) -> None:
        at, job = self.shell, self.shell.machine.jobs[one.job_id]
        at.resizes.remove(one)
        if not self.resizes(one):
            return
        placement = one.placement
        if how == "fails":
            placement = job.placement
        elif how == "in part" and len(placement) > len(job.placement):
            placement = placement[: len(job.placement) + 1]
        at.send(Resized(one.job_id, one.attempt, placement, "" if how == "resized" else "it could not be done"))

    def restart(self) -> None:
        before = {j.job_id: (j.spec, j.placement, j.resizing) for j in self.list_resizable_jobs()}
        self.shell.resizes = []
        super().restart()
        for job_id, (spec, placement, resizing) in before.items():
            job = self.shell.machine.jobs[job_id]
            assert job.spec == spec and job.placement == placement and job.resizing == resizing


class EagerElasticDriver(ElasticDriver):
    queues = EAGER


def check_elastic_jobs(driver: ElasticDriver) -> None:
    world = driver.shell.machine._world
    for job in driver.shell.machine.jobs.values():
        spec = job.spec
        assert not job.resizing or (job.state is JobState.RUNNING and job.job_id not in world.stopping), job
        if spec.elastic is None:
            continue
        least, most = sizes.min_size(spec), spec.elastic.most_members or spec.elastic.most_milli
        assert sizes.size(spec) <= most, job
        assert sizes.size(spec) >= least or job.job_id in driver.lost_jobs, job
        if job.state is JobState.RUNNING and job.job_id not in world.stopping:
            assert sizes.has(spec, world.held[job.job_id]) == sizes.size(spec), job
            assert world.held[job.job_id] == (job.resizing or job.placement), job
            assert job.job_id in world.elastic
        if job.state in (JobState.PENDING, JobState.HELD) and job.job_id not in world.claims:
            assert sizes.size(spec) == least, job
        assert not job.resizing or (job.state is JobState.RUNNING and job.job_id not in world.stopping), job
    resize_log = [
        c for c in driver.shell.log if isinstance(c, ResizeJob | Note) and getattr(c, "kind", "") != "job.started"
    ]
    for index, command in enumerate(resize_log):
        if isinstance(command, ResizeJob) and "restarted" not in command.why:
            note = resize_log[index + 1]
            assert isinstance(note, Note) and note.kind == "job.resized" and command.why in note.text


@pytest.mark.parametrize("room", CLUSTERS)
@pytest.mark.parametrize("hows", [(How.EVICT,), (How.PAUSE, How.EVICT, How.REQUEUE)], ids=["moves", "stays"])
@settings(max_examples=examples(50), deadline=None, phases=PHASES)
@given(what=elastic_happenings())
def test_whatever_happens(room: str, hows: tuple[How, ...], what: list[tuple[Any, ...]]) -> None:
    driver = ElasticDriver(room, hows, moves=len(hows) == 1)
    all_happens(driver, what)
    at_rest(driver)
    finish(driver)


@pytest.mark.parametrize("room", CLUSTERS)
@settings(max_examples=examples(50), deadline=None, phases=PHASES)
@given(what=elastic_happenings())
def test_whatever_happens_to_eager_ones(room: str, what: list[tuple[Any, ...]]) -> None:
    driver = EagerElasticDriver(room, (How.PAUSE, How.EVICT, How.REQUEUE), moves=False)
    all_happens(driver, what)
    finish(driver)


def all_happens(driver: ElasticDriver, what: list[tuple[Any, ...]]) -> None:
    for happening in what:
        driver.does(happening)
        sound(driver)
        check_elastic_jobs(driver)


def at_rest(driver: ElasticDriver) -> None:
    """When nothing happens any more, no job is resized any more, and nothing that would help a job is withheld."""
    at = driver.shell
    seen = 0
    for turn in range(30):
        at.sleep(400)
        while at.resizes or at.stops:
            if at.stops:
                driver.answer(at.stops[0].job_id)
            else:
                driver.answer_resize(at.resizes[0], "resized")
        sound(driver)
        check_elastic_jobs(driver)
        resized = sum(isinstance(command, ResizeJob) for command in at.log)
        if turn > 20 and not len(at.machine._world.lines["bob"].waiting):  # there they take turns for ever
            assert resized == seen, [c for c in at.log if isinstance(c, ResizeJob)][seen:]
        seen = resized
    world = at.machine._world
    for job_id in world.lines["plain"].waiting:
        job = at.machine.jobs[job_id]
        rest = [
            j for j in world.elastic.values() if j.spec.queue == "plain" and sizes.size(j.spec) > sizes.min_size(j.spec)
        ]
        if driver.cluster_kind == "counted" and job.spec.preemptible and not world.is_pinned(job):
            free = world.cluster.free_milli() + sum(j.width_milli - j.spec.least_width_milli for j in rest)
            assert job.spec.width_milli > free, job
