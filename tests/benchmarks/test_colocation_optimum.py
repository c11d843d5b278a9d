"""The search for the least makespan, by hand; and that no rule is better."""

from __future__ import annotations

import math

import pytest

from benchmarks.predict import colocation_optimum as optimum
from benchmarks.predict.colocation import RULE
from vgpud.core.jobs.model import SECOND_NS, Ask, JobSpec
from vgpud.core.model import Spec
from vgpud.simulate.trace import TraceJob

GIB = 1 << 30


def job(seconds: int, utilisation_milli: int, gib: int = 1) -> TraceJob:
    ask = Ask(Spec(1000, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB), utilisation_milli=utilisation_milli)
    duration_ns = seconds * SECOND_NS
    return TraceJob(0, duration_ns, JobSpec(ask, duration_ns=duration_ns), utilisation_milli=utilisation_milli)


@pytest.mark.parametrize(
    ("jobs", "seconds"),
    [
        ([job(100, 1000)] * 2, 100),  # each on a GPU of its own
        ([job(100, 500)] * 3, 108),  # two together, as the table has it at a sum of 100 %
        ([job(100, 500, gib=50)] * 3, 200),  # whose memory does not allow that
        ([job(100, 1000)] * 4, 170),  # in pairs they are 1.7 times slower each; one after the other takes 200
        ([job(300, 1000), job(100, 1000), job(100, 1000), job(100, 1000)], 300),  # the long one must be left alone
    ],
)
def test_by_hand(jobs: list[TraceJob], seconds: float) -> None:
    found = optimum.Search(jobs, math.inf).run()
    assert found / SECOND_NS == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_rule_is_better(seed: int) -> None:
    jobs = optimum.draw(seed)
    ours_ns = optimum.ours_ns(jobs, RULE)
    assert optimum.Search(jobs, math.inf).run() <= ours_ns * (1 + 1e-6)


def test_an_instance_that_is_too_large_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "STATES_MAX", 10)
    with pytest.raises(optimum.TooLargeError):
        optimum.Search(optimum.draw(0), math.inf).run()
