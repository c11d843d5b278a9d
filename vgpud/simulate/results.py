"""Figures of a simulation: completion times, queueing, makespan, utilisation, fragmentation, preemptions, fairness."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
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

    areas = sum_over_time(outcome.samples, end_ns, outcome.capacity_milli)
    held, fragmented, idle = (area / whole if whole else math.nan for area in areas)
    return Figures(
        jobs=len(done),
        refused=len(outcome.refused_jobs),
        unfinished=len(outcome.jobs) - len(done),
        jct_s=spread(jct),
        queueing_s=spread([seconds(job.ended_ns - job.submitted_ns - job.executed_ns) for _, job in done]),
        makespan_s=seconds(end_ns),
        utilisation=held,
        working=worked / whole if whole else math.nan,
        fragmentation=fragmented,
        idle_while_waiting=idle,
        preemptions=sum(job.preemptions for _, job in outcome.jobs),
        rho=spread(rho),
        jain=jain([1 / one for one in rho if one]),
        longest_wait_s=seconds(outcome.longest_wait_ns),
        decisions=outcome.decisions,
    )


def sum_over_time(samples: Iterable[Sample], end_ns: int, capacity_milli: int) -> tuple[int, int, int]:
    """milli x ns to end_ns: held, free on devices of which a part is taken, free while a job waited."""
    held = fragmented = idle = 0
    before_ns = held_milli = fragmented_milli = idle_milli = 0  # since the sample before
    for at_ns, sampled_milli, waiting, free_milli in itertools.chain(samples, [Sample(end_ns, 0, 0, 0)]):
        span_ns = min(at_ns, end_ns) - before_ns
        if span_ns > 0:
            held += held_milli * span_ns
            fragmented += fragmented_milli * span_ns
            idle += idle_milli * span_ns
        before_ns, held_milli, fragmented_milli = at_ns, sampled_milli, free_milli
        idle_milli = capacity_milli - sampled_milli if waiting else 0
    return held, fragmented, idle


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
