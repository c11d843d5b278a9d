"""What happened to the jobs of a trace, in the figures of a simulation, where the trace says when each job ended.

A job counts as if it had run in one go until its end; when it was preempted, and which devices it had, is not known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from vgpud.core.jobs.model import Job, JobState
from vgpud.simulate.engine import Outcome, Sample
from vgpud.simulate.results import Figures, figures
from vgpud.simulate.rows import Rows
from vgpud.simulate.trace import TraceJob


def is_known(trace: Sequence[TraceJob]) -> bool:
    """Whether it says of each job when it ended."""
    return bool(trace) and all(one.jct_ns >= 0 for one in trace)


def outcome(trace: Sequence[TraceJob], capacity_milli: int) -> Outcome:
    """`capacity_milli`: of the cluster that it is compared with."""
    jobs = [(one, _job(number, one)) for number, one in enumerate(trace, 1)]
    return Outcome(
        capacity_milli,
        jobs,
        samples=Rows(Sample._make, len(Sample._fields), _samples([job for _, job in jobs])),
        longest_wait_ns=max((job.started_ns - job.submitted_ns for _, job in jobs), default=0),
    )


def figures_of(trace: Sequence[TraceJob], capacity_milli: int) -> Figures:
    """Without what is not known."""
    return replace(figures(outcome(trace, capacity_milli)), fragmentation=math.nan, preemptions=math.nan)


def peak_milli(trace: Sequence[TraceJob]) -> int:
    """What its jobs had at once at most; 0 where the trace does not say of each when it ended."""
    if not is_known(trace):
        return 0
    return max(sample.held_milli for sample in _samples([_job(number, one) for number, one in enumerate(trace, 1)]))


def _job(number: int, one: TraceJob) -> Job:
    ended_ns = one.submitted_ns + one.jct_ns
    started_ns = max(one.submitted_ns, ended_ns - one.duration_ns)
    return Job(
        number,
        one.spec,
        one.submitted_ns,
        state=JobState.COMPLETED,
        started_ns=started_ns,
        first_started_ns=started_ns,
        ended_ns=ended_ns,
        executed_ns=one.duration_ns,
        attempt=1,
    )


def _samples(jobs: Sequence[Job]) -> list[Sample]:
    """(time, GPUs, jobs that wait) of each change, summed up."""
    changes = [(job.submitted_ns, 0, 1) for job in jobs]
    changes += [(job.started_ns, job.width_milli, -1) for job in jobs]
    changes += [(job.ended_ns, -job.width_milli, 0) for job in jobs]
    held = waiting = 0
    found = []
    for at_ns, here in itertools.groupby(sorted(changes), key=lambda change: change[0]):
        for _, milli, count in here:
            held, waiting = held + milli, waiting + count
        found.append(Sample(at_ns, held, waiting, 0))
    return found
