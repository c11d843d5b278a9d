"""Figures of a simulation: completion times, queueing, makespan, utilisation, fragmentation, preemptions, fairness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vgpud.core.jobs.model import SECOND_NS, Job, JobState
from vgpud.core.units import finite
from vgpud.simulate.engine import Outcome, Sample
from vgpud.simulate.trace import TraceJob

#: times are shown in seconds below this, and in hours from there on
HOURS_FROM_S = 10_800.0
#: columns of the table of jobs
COLUMNS = (
    "job_id",
    "queue",
    "uid",
    "submitted_s",
    "started_s",
    "ended_s",
    "gpus_milli",
    "members",
    "duration_s",
    "state",
    "jct_s",
    "queueing_s",
    "preemptions",
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Average and percentiles of one figure over all jobs, in seconds or as it is."""

    mean: float
    p50: float
    p95: float
    p99: float
    maximum: float

    def as_json(self) -> dict[str, float]:
        return {"mean": self.mean, "p50": self.p50, "p95": self.p95, "p99": self.p99, "max": self.maximum}


def spread(values: Sequence[float]) -> Spread:
    """Of nothing: not a number."""
    if not values:
        return Spread(*[math.nan] * 5)
    inorder = sorted(values)
    p50, p95, p99 = (percentile(inorder, part) for part in (0.5, 0.95, 0.99))
    return Spread(math.fsum(inorder) / len(inorder), p50, p95, p99, inorder[-1])


def percentile(inorder: Sequence[float], part: float) -> float:
    """Between the two nearest ranks in proportion, as numpy does it."""
    at = part * (len(inorder) - 1)
    low = int(at)
    high = min(low + 1, len(inorder) - 1)
    return inorder[low] + (inorder[high] - inorder[low]) * (at - low)


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 when all are equal, 1/n when one has everything."""
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else math.nan


@dataclass(frozen=True, slots=True)
class Figures:
    """What one policy made of a trace. Times in seconds, parts of the cluster from 0 to 1."""

    jobs: int
    refused: int
    unfinished: int
    jct_s: Spread
    queueing_s: Spread  # from its submission to its end without what it ran
    makespan_s: float
    utilisation: float  # of all GPU time until the last job ended: had by jobs
    working: float  # and that in which they made progress
    fragmentation: float  # of all GPU time: free on devices of which a part was taken
    idle_while_waiting: float  # of all GPU time: free while at least one job waited
    preemptions: float  # not a number where they are not known
    rho: Spread  # Themis' finish-time fairness: time to complete over that alone on the cluster
    jain: float  # of the jobs' progress (1 / rho)
    longest_wait_s: float  # without a pause, at one time
    decisions: int

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            found[name] = value.as_json() if isinstance(value, Spread) else value
        return {name: finite(value) for name, value in found.items()}  # those of no jobs are not numbers


def figures(outcome: Outcome) -> Figures:
    """Of the jobs that have ended; the others are counted."""
    done = [(traced, job) for traced, job in outcome.jobs if job.state.is_final]
    end_ns = max((job.ended_ns for _, job in done), default=0)
    jct = [seconds(job.ended_ns - job.submitted_ns) for _, job in done]
    rho = [(job.ended_ns - job.submitted_ns) / traced.duration_ns for traced, job in done if traced.duration_ns]
    whole = outcome.capacity_milli * end_ns
    worked = sum(
        traced.duration_ns * traced.spec.width_milli for traced, job in done if job.state is JobState.COMPLETED
    )

    def idle_milli(sample: Sample) -> int:
        return outcome.capacity_milli - sample.held_milli if sample.waiting else 0

    values = (lambda sample: sample.held_milli, lambda sample: sample.fragmented_milli, idle_milli)
    over_time = [total / whole if whole else math.nan for total in integrals(outcome.samples, end_ns, values)]
    return Figures(
        jobs=len(done),
        refused=len(outcome.refused_jobs),
        unfinished=len(outcome.jobs) - len(done),
        jct_s=spread(jct),
        queueing_s=spread([seconds(job.ended_ns - job.submitted_ns - job.executed_ns) for _, job in done]),
        makespan_s=seconds(end_ns),
        utilisation=over_time[0],
        working=worked / whole if whole else math.nan,
        fragmentation=over_time[1],
        idle_while_waiting=over_time[2],
        preemptions=sum(job.preemptions for _, job in outcome.jobs),
        rho=spread(rho),
        jain=jain([1 / one for one in rho if one]),
        longest_wait_s=seconds(outcome.longest_wait_ns),
        decisions=outcome.decisions,
    )


def integrals(samples: Iterable[Sample], end_ns: int, values: Sequence[Callable[[Sample], int]]) -> list[int]:
    """Of several figures over time, to end_ns."""
    totals, before_ns, rates = [0] * len(values), 0, [0] * len(values)
    for sample in samples:
        span_ns = min(sample.at_ns, end_ns) - before_ns
        if span_ns > 0:
            totals = [total + rate * span_ns for total, rate in zip(totals, rates, strict=True)]
        before_ns, rates = sample.at_ns, [value(sample) for value in values]
    span_ns = max(0, end_ns - before_ns)
    return [total + rate * span_ns for total, rate in zip(totals, rates, strict=True)]


def seconds(ns: int) -> float:
    return ns / SECOND_NS


def rows(outcome: Outcome) -> list[tuple[object, ...]]:
    """A line for each job, in the order of the trace; the first columns are those that a trace is read from."""
    return [_row(traced, job) for traced, job in outcome.jobs]


def _row(trace_job: TraceJob, job: Job) -> tuple[object, ...]:
    spec = trace_job.spec
    jct_ns = job.ended_ns - job.submitted_ns
    return (
        spec.name or job.job_id,
        spec.queue,
        spec.uid,
        _exact(job.submitted_ns),
        _exact(job.first_started_ns),
        _exact(job.ended_ns),
        spec.ask.width_milli,
        spec.members,
        _exact(job.executed_ns),
        job.state.value,
        _exact(jct_ns) if job.ended_ns >= 0 else "",
        _exact(jct_ns - job.executed_ns) if job.ended_ns >= 0 else "",
        job.preemptions,
    )


def _exact(ns: int) -> str:
    """Seconds without rounding; "" for never."""
    if ns < 0:
        return ""
    whole, rest = divmod(ns, SECOND_NS)
    return f"{whole}.{rest:09}".rstrip("0").rstrip(".")
