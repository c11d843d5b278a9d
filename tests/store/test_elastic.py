"""What the store keeps of elastic jobs: their size of now, their workers, what was noted of them, pairs that lose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.queue.test_elastic import make_elastic_spec, workers
from tests.core.queue.world import shell
from vgpud.core.jobs.facts import Launch, Predicted
from vgpud.core.jobs.model import Ask, Elastic, Job, JobSpec, JobState, Place
from vgpud.core.model import Share, Spec
from vgpud.store.database import Store
from vgpud.store.elastic import NOTES_KEPT, NOTES_MAX, ElasticStore, Noted
from vgpud.store.jobs import JobStore

PLACE = Place("n1", (Share("a", 250, 250, 1, 1),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    yield made
    made.close()


def test_an_elastic_job_is_found_with_the_size_that_it_had(store: Store) -> None:
    jobs = JobStore(store)
    job = Job(1, JobSpec(Ask(Spec(250)), elastic=Elastic(250, 1000)), 0, state=JobState.RUNNING, placement=(PLACE,))
    jobs.save([job])
    job.spec = replace(job.spec, ask=replace(job.spec.ask, spec=Spec(900)))
    job.resizing = (replace(PLACE, shares=(Share("a", 900, 900, 1, 1),)),)
    jobs.save([job])
    (found,) = jobs.load().jobs
    assert found.spec == job.spec
    assert found.resizing == job.resizing


@pytest.mark.parametrize("spec", [workers(1, 3), make_elastic_spec(0.25, 0.75)], ids=["workers", "slice"])
def test_a_job_that_has_grown_is_believed_after_a_restart(tmp_path: Path, spec: JobSpec) -> None:
    """Its run counts with its new size from the beginning: what it attained in earlier runs is below 0."""
    at = shell(4)
    job = at.job(at.submit(spec))
    at.sleep(60)
    assert job.attained < 0 < job.attained_at(at.now_ns)
    before = Store(tmp_path)
    JobStore(before).save([job])
    before.close()
    after = Store(tmp_path)
    kept = JobStore(after).load()
    after.close()
    assert [(found.job_id, found.attained) for found in kept.jobs] == [(job.job_id, job.attained)]


def test_what_was_measured_of_a_job_is_found_again(store: Store) -> None:
    jobs = JobStore(store)
    job = Job(1, JobSpec(Ask(Spec(250))), 0)
    jobs.save([job])
    job.spec = replace(job.spec, ask=replace(job.spec.ask, utilisation_milli=450))
    jobs.save([job])
    (found,) = jobs.load().jobs
    assert found.spec.ask.utilisation_milli == 450


def test_what_was_predicted_and_the_batch_stay_with_the_launch(store: Store) -> None:
    numbers = (0.5, 0.25, 0.75)
    predicted = Predicted("net:make", "h200", numbers, numbers, (1e9, 1e9, 2e9), features=(("flops", 1e12),))
    launch = Launch(0, 0, (), ("train",), "", "/", (), 0, (), "/log", batch=8, batch_max=64, prediction=predicted)
    jobs = JobStore(store)
    jobs.save([Job(1, JobSpec(Ask(Spec(250)), run=launch), 0)])
    found = jobs.find(1)
    assert found and found.spec.run == launch


def test_worker_groups_are_kept_until_they_are_said_to_be_gone(store: Store) -> None:
    jobs, elastic = JobStore(store), ElasticStore(store)
    jobs.save([], groups={1: "one", 2: "two"})
    jobs.save([], groups={1: "other"})
    assert elastic.groups() == {1: "other", 2: "two"}
    jobs.save([], groups={1: None})
    assert elastic.groups() == {2: "two"}


def test_notes_are_bounded_and_the_first_ones_stay(store: Store) -> None:
    jobs, elastic = JobStore(store), ElasticStore(store)
    for number in range(3 * NOTES_MAX):
        jobs.save(
            [], notes=[Noted(1, number, "job.resized", str(number)), Noted(2, 0, "job.started", "")][: 2 - bool(number)]
        )
    found = [note.at_ns for note in elastic.notes(1)]
    assert len(found) == NOTES_MAX
    assert found[:NOTES_KEPT] == list(range(NOTES_KEPT))
    assert found[NOTES_KEPT:] == list(range(2 * NOTES_MAX + NOTES_KEPT, 3 * NOTES_MAX))
    assert len(elastic.notes(2)) == 1


def test_notes_go_with_their_job(store: Store) -> None:
    jobs, elastic = JobStore(store), ElasticStore(store)
    ended = Job(1, JobSpec(Ask(Spec(250))), 0, state=JobState.COMPLETED, ended_ns=5)
    jobs.save([ended, Job(2, ended.spec, 0)], notes=[Noted(1, 1, "job.completed", ""), Noted(2, 1, "job.started", "")])
    jobs.forget_before(10, 10)
    assert elastic.notes(1) == []
    assert len(elastic.notes(2)) == 1


def test_a_pair_is_the_same_either_way(store: Store) -> None:
    elastic = ElasticStore(store)
    elastic.add_pair("b", "a", 1)
    elastic.add_pair("a", "b", 2)
    elastic.add_pair("c", "c", 3)
    assert elastic.pairs() == (("a", "b"), ("c", "c"))
