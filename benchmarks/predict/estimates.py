"""Run-time estimates on traces that are shipped: how often quantiles hold, how far the median is off, what it gains.

These traces have no users, names or commands: jobs are alike by model and GPUs, Philly's by GPUs alone. Goals are those
of a quantile: that as many are below it as it says.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.scheduling import traces
from benchmarks.scheduling.traces import CLUSTER400, PHILLY, SIXTY, TRACE3, Trace
from benchmarks.table import Figure, near
from vgpud.core.estimates import Estimate, Estimates
from vgpud.simulate import clusters, learning, scenario
from vgpud.simulate.results import figures as results_of
from vgpud.simulate.trace import TraceJob

HOUR_S = 3600
TRACES = (SIXTY, CLUSTER400, TRACE3, PHILLY)
#: gains are simulated on those that are quick
PLAYED = (SIXTY, CLUSTER400, TRACE3)
#: as many are below a quantile as it says, within so many points
POINTS = 5
NAMES = {
    "strict:fifo": "FIFO with backfill, average completion, h",
    "2d-gittins": "2D-Gittins, average completion, h",
}


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    for trace in TRACES:
        yield from _quantiles(trace, raw.setdefault(trace.name, {}))
    for trace in PLAYED:
        yield from _gains(trace, raw[trace.name])


def _quantiles(trace: Trace, raw: dict[str, Any]) -> Iterator[Figure]:
    """Each job is estimated when it comes, by those that have ended and those that run, as if all ran at once."""
    jobs = traces.load(trace)
    found = [(job, estimate) for job, estimate in _estimate_jobs(jobs) if estimate]
    known = [(job, e.median_ns) for job, e in found if e.median_ns]
    raw["estimated"] = {"jobs": len(jobs), "estimated": len(found), "median known": len(known)}
    yield Figure("estimates", trace.name, "jobs with an estimate, %", 100 * len(found) / len(jobs))
    for name, part in (("median_ns", 50), ("high_ns", 90)):
        below = sum(job.duration_ns <= (getattr(e, name) or math.inf) for job, e in found)
        what = f"jobs not above their {part} % quantile, %"
        yield Figure("estimates", trace.name, what, 100 * below / len(found), near(part, POINTS))
    off = statistics.median(abs(math.log(median_ns / job.duration_ns)) for job, median_ns in known)
    yield Figure("estimates", trace.name, "median: typically off by a factor of", math.exp(off))


def _estimate_jobs(jobs: Sequence[TraceJob]) -> Iterator[tuple[TraceJob, Estimate | None]]:
    estimates = Estimates()
    running: list[tuple[int, int]] = []  # (when it ends, which)
    job_classes = [learning.similarity_classes(job.spec) for job in jobs]
    for number, job in enumerate(jobs):
        while running and running[0][0] <= job.submitted_ns:
            _, which = heapq.heappop(running)
            estimates.remove_running_job(which, job_classes[which])
            estimates.learn(job_classes[which], jobs[which].duration_ns, has_completed=True)
        if job.duration_ns:
            yield job, estimates.of(job_classes[number], job.submitted_ns)
        estimates.add_running_job(number, job_classes[number], job.submitted_ns)
        heapq.heappush(running, (job.submitted_ns + job.duration_ns, number))


def _gains(trace: Trace, raw: dict[str, Any]) -> Iterator[Figure]:
    """With nothing known, with estimates, and for backfill with the true durations. GPUs are counted."""
    jobs, nodes = traces.load(trace), clusters.parse(trace.cluster)
    arms = {
        "nothing known": learning.untold(jobs, learn=False),
        "estimates": learning.untold(jobs, learn=True),
        "durations told": jobs,
    }
    for policy, what in NAMES.items():
        hours: dict[str, float] = {}
        for arm, known in arms.items():
            if policy == "2d-gittins" and arm == "durations told":
                continue  # it does not look at them
            outcome = scenario.run(known, nodes, scenario.Scenario(policy, scenario.COUNT, backfill=True))
            hours[arm] = results_of(outcome).jct_s.mean / HOUR_S
            yield Figure("estimates", f"{trace.name}, {arm}", what, hours[arm])
        gain = 100 * (hours["estimates"] / hours["nothing known"] - 1)
        yield Figure("estimates", trace.name, f"{policy}: estimates against nothing known, %", gain)
        raw[policy] = hours
