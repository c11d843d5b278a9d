"""What classes by user can bring the order of new queues: users are drawn, since no shipped trace has any.

Each job has one of 20 users, drawn so that users explain a part of how much service jobs need (R2 of normal scores of
the service, among jobs of the trace). The same trace, in the order of new queues:

- without users: classes by GPUs alone;
- with users, learnt as the queue learns them;
- bound: the same order, to which the tables of all users were known beforehand, with and without a trial.

As a further bound, `srsf`, which knows the service of each job.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from benchmarks.scheduling.traces import CLUSTER400, SIXTY, TRACE1, TRACE3, Trace, load
from benchmarks.table import Figure, at_most
from vgpud.core.jobs.model import Job, JobState
from vgpud.core.policy import registry
from vgpud.core.policy.base import Policy
from vgpud.core.policy.learnt_gittins import DEFAULT_TUNING, LearntGittins
from vgpud.simulate import clusters, scenario
from vgpud.simulate.results import figures as of_outcome
from vgpud.simulate.trace import TraceJob

ROW = "users"
TRACES = (SIXTY, CLUSTER400, TRACE3, TRACE1)
USERS = 20
#: of how much service a job needs, the part that its user explains
EXPLAINED = (0.25, 0.5, 0.75, 0.95)
GOAL = at_most(0.85)
WITHOUT, LEARNT, KNOWN = "without", "learnt", "known beforehand"
KNOWN_WITHOUT_TRIAL = f"{KNOWN}, without a trial"


@dataclass(frozen=True)
class Arm:
    """An order, and the trace's jobs with their classes."""

    name: str
    jobs: Sequence[TraceJob]

    def make(self, _name: str) -> Policy:
        if self.name == "srsf":
            return registry.make("srsf")
        if self.name in (WITHOUT, LEARNT):
            return LearntGittins(self.name, by_width=True)
        trial = DEFAULT_TUNING.trial if self.name == KNOWN else 0
        policy = LearntGittins(self.name, by_width=True, tuning=replace(DEFAULT_TUNING, trial=trial, kept_ppm=10**6))
        for number, job in enumerate(self.jobs):
            past = Job(-1 - number, job.spec, 0, state=JobState.COMPLETED, executed_ns=job.duration_ns)
            past.attained = job.duration_ns * job.spec.width_milli
            policy.record_end(past)
        return policy


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """Average completion times over those without users."""
    means = {trace: mean_s(trace, Arm(WITHOUT, draw_users(trace, 0, has_users=False))) for trace in TRACES}
    ratios = [mean_s(trace, Arm("srsf", load(trace))) / means[trace] for trace in TRACES]
    yield Figure(ROW, "srsf, which knows the service of each job", _WHAT, statistics.geometric_mean(ratios))
    for part in EXPLAINED:
        for name in (LEARNT, KNOWN, KNOWN_WITHOUT_TRIAL):
            found = {t.name: mean_s(t, Arm(name, draw_users(t, part))) / means[t] for t in TRACES}
            raw[f"{part:g}, {name}"] = found
            case = f"users explain {part:.0%} of the service, {name}"
            goal = GOAL if name == LEARNT else None
            yield Figure(ROW, case, _WHAT, statistics.geometric_mean(found.values()), goal)


_WHAT = f"average completion time over that without users, {len(TRACES)} traces"


def draw_users(trace: Trace, part: float, *, has_users: bool = True) -> list[TraceJob]:
    """The same trace, its jobs with their classes; the same part, the same users."""
    draw, jobs = random.Random(f"{trace.name} {part}"), load(trace)
    order = sorted(range(len(jobs)), key=lambda i: (jobs[i].duration_ns * jobs[i].spec.width_milli, i))
    scores = {i: NormalDist().inv_cdf((rank + 0.5) / len(jobs)) for rank, i in enumerate(order)}
    noisy = {i: part**0.5 * score + (1 - part) ** 0.5 * draw.gauss(0, 1) for i, score in scores.items()}
    user = {i: rank * USERS // len(jobs) for rank, i in enumerate(sorted(noisy, key=lambda i: noisy[i]))}
    made = []
    for i, job in enumerate(jobs):
        size = f"size-{job.spec.width_milli}"
        kinds = (f"user-{user[i]}", size) if has_users else (size,)
        made.append(replace(job, spec=replace(job.spec, kinds=kinds)))
    return made


def mean_s(trace: Trace, arm: Arm) -> float:
    """Average completion time; GPUs are counted."""
    asked = scenario.Scenario(placement=scenario.COUNT)
    outcome = scenario.run(arm.jobs, clusters.parse(trace.cluster), asked, make=arm.make)
    return of_outcome(outcome).jct_s.mean
