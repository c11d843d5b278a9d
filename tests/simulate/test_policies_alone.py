"""The queue's machine against the smallest world that a policy can live in: to the nanosecond the same, job by job.

Neither knows of the other: there a heap for each width and a walk from scratch, here the machine with its shortcuts.
"""

from __future__ import annotations

import pytest

from benchmarks.scheduling.traces import CLUSTER400, load
from tests.core.policy.test_properties import POLICIES
from tests.core.policy.world import World, make_job
from vgpud.core.jobs.model import SECOND_NS
from vgpud.core.policy.registry import make
from vgpud.simulate import clusters, scenario

JOBS = 150
GPUS = 32
TRACE = [*POLICIES, "las(3250,7200,narrow,promote=4)", "2d-las(3250,7200,promote=0.5,quantum=600)", "ftf"]
#: in which little would happen on this trace, or too much
SKIPPED = {"las(every=25)", "2d-las(every=25,keep)", "ftf(lease=40)"}


@pytest.mark.parametrize("policy", [policy for policy in TRACE if policy not in SKIPPED])
def test_machine_decides_as_a_walk_from_scratch(policy: str) -> None:
    trace = load(CLUSTER400)[:JOBS]
    outcome = scenario.run(trace, clusters.parse("4x8"), scenario.Scenario(policy, scenario.COUNT))
    jobs = [
        make_job(number, job.spec.width_milli / 1000, job.duration_ns / SECOND_NS, job.submitted_ns / SECOND_NS)
        for number, job in enumerate(trace, 1)
    ]
    World(make(policy), GPUS).run(jobs)
    assert [job.ended_ns for _, job in outcome.jobs] == [job.ended_ns for job in jobs]
    assert [job.preemptions for _, job in outcome.jobs] == [job.preemptions for job in jobs]
