"""Jobs counted with every change, against a count of all."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from vgpud.core.jobs.counts import JobCounts
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import Ask, Job, JobSpec, JobState
from vgpud.core.model import Spec


def test_counts_are_those_of_a_walk_over_all_jobs() -> None:
    chance = random.Random(1)
    specs = [JobSpec(Ask(Spec(500)), queue=queue, uid=uid) for queue in ("a", "b") for uid in (1, 2, 3)]
    jobs = {number: Job(number, chance.choice(specs), 0) for number in range(40)}
    counts = JobCounts()
    for _ in range(1000):
        job = jobs[chance.randrange(40)]
        job.state = chance.choice(list(JobState))
        counts.see(job)
        seen = [job for job in jobs.values() if job.job_id in counts._seen]
        assert all(not job.state.is_final for job in seen)
        assert counts.total == len(seen)
        assert all(counts.of_user(uid) == sum(job.spec.uid == uid for job in seen) for uid in (1, 2, 3))
        by_state = Counter((job.spec.queue, job.state.value) for job in seen)
        assert counts.rows() == sorted((*key, count) for key, count in by_state.items())
        assert counts.in_state("a", *JobState) == sum(job.spec.queue == "a" for job in seen)


def test_what_jobs_run_is_counted_once_for_an_array() -> None:
    def runs(number: int, words: int, array: int = 0) -> Job:
        run = Launch(1, 1, (1,), ("x" * words,), "", "/", (("A", "12345"),), 0, (), "/log")
        return Job(number, JobSpec(Ask(Spec(500)), uid=1, run=run, array=array), 0)

    counts, jobs = JobCounts(), [runs(1, 100), runs(2, 1000, 2), runs(3, 1000, 2)]
    for job in jobs * 2:
        counts.see(job)
    assert counts.bytes_of_user(1) == 106 + 1006 and counts.bytes_of_user(2) == 0
    for job in jobs:
        job.spec = replace(job.spec, run=replace(job.spec.run, environment=()))  # as it is deleted when it ends
        job.state = JobState.CANCELLED
        counts.see(job)
    assert counts.bytes_of_user(1) == 0 and not counts._bytes


def test_what_ended_before_the_daemon_started_is_not_counted() -> None:
    counts = JobCounts()
    done = Job(1, JobSpec(Ask(Spec(500))), 0, state=JobState.COMPLETED)
    counts.see(done)
    assert not +counts.ends_by_state
    done.state = JobState.PENDING
    counts.see(done)
    done.state = JobState.FAILED
    counts.see(done)
    counts.see(done)
    assert +counts.ends_by_state == {("default", JobState.FAILED): 1}
