"""Copies of a trace that are a little otherwise: the same for the same seed, and no more otherwise than is said."""

from __future__ import annotations

from benchmarks.scheduling.perturbed import LATER_NS, copy
from benchmarks.scheduling.traces import SIXTY, load


def test_copies_differ_a_little_and_by_seed() -> None:
    once, again, other = copy(SIXTY, 1), copy(SIXTY, 1), copy(SIXTY, 2)
    assert once == again != other
    assert [job.submitted_ns for job in once] == sorted(job.submitted_ns for job in once)
    of_name = {job.spec.name: job for job in once}
    for job in load(SIXTY):
        made = of_name.pop(job.spec.name)
        assert 0 <= made.submitted_ns - job.submitted_ns <= LATER_NS
        assert abs(made.duration_ns - job.duration_ns) * 10 <= job.duration_ns
        assert made.spec.duration_ns == made.duration_ns, "who is told durations is told the true ones"
    assert not of_name
