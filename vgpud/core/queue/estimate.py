"""When jobs will end and so when others can start, as far as their limits and durations say: those that users gave, or
that jobs like them took (core/estimates.py). Of the latter the high quantile holds for backfill and the median for
estimated starts; a job that outlasts both has lost its estimate and nothing else.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import islice

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.queue.state import World
from vgpud.core.queue.waiting import Line

#: so many jobs before one are looked at
_AHEAD_JOBS_MAX = 1000
#: as long is an answer good while nothing happens
STARTS_NS = 5 * SECOND_NS


def ends_ns(world: World, job: Job, now_ns: int, *, likely: bool = False) -> int:
    """When it ends at the latest, or is expected to, if it runs from now on. `likely`: as often later as earlier."""
    ran_ns = job.executed_at(now_ns)
    expected_ns = job.spec.duration_ns or _learnt_ns(world, job, ran_ns, now_ns, likely=likely)
    most_ns = min(job.spec.time_limit_ns, expected_ns or NEVER_NS)
    if most_ns >= NEVER_NS:
        return NEVER_NS
    return now_ns + max(0, most_ns - ran_ns)


def _learnt_ns(world: World, job: Job, ran_ns: int, now_ns: int, *, likely: bool) -> int:
    """How long jobs like it took; 0 = not known, or it has taken longer."""
    found = world.estimates.of(job.spec.kinds, now_ns)
    if found is None:
        return 0
    if likely and found.median_ns > ran_ns:
        return found.median_ns
    return found.high_ns if found.high_ns > ran_ns else 0


def expect(world: World, job: Job, now_ns: int) -> None:
    """Keeps with the job what is known now, for those who look at it later."""
    found = None if job.spec.duration_ns else world.estimates.of(job.spec.kinds, now_ns)
    job.median_ns, job.expected_ns = (found.median_ns, found.high_ns) if found else (0, 0)


def runs(world: World, job: Job) -> None:
    """It runs from now on, as it is."""
    world.estimates.started(job.job_id, job.spec.kinds, job.started_ns - job.executed_ns)


def stops(world: World, job: Job) -> None:
    """It runs no longer."""
    world.estimates.stopped(job.job_id, job.spec.kinds)


def learn(world: World, job: Job) -> None:
    """It has ended. What ran badly says nothing of how long such jobs take."""
    if job.state in (JobState.COMPLETED, JobState.TIMED_OUT) and job.executed_ns:
        world.estimates.learn(job.spec.kinds, job.executed_ns, ended=job.state is JobState.COMPLETED)


def reserved_start_ns(world: World, job: Job, now_ns: int) -> int:
    """When this job fits if those that run end as they say and nobody else starts (EASY backfill, Lifka 1995)."""
    holders = [world.jobs[j] for j in world.held if world.jobs[j].state is JobState.RUNNING or j in world.claims]
    ends = sorted((ends_ns(world, j, now_ns), j.job_id) for j in holders)
    lent = []
    starts_ns = NEVER_NS
    account = world.line(job).account
    for at_ns, job_id in ends:
        if at_ns >= NEVER_NS:
            break
        other = world.jobs[job_id]
        world.room.release(world.held[job_id])
        world.count(other, -1, now_ns)
        lent.append(other)
        if not account.limit_for(job.spec) and world.find(job) is not None:
            starts_ns = at_ns
            break
    for other in lent:
        world.room.take(world.held[other.job_id])
        world.count(other, 1, now_ns)
    return starts_ns


def estimated_start_ns(world: World, job: Job, now_ns: int) -> int:
    """When it may start, by the widths of all before it in its queue and the ends of all that run; NEVER_NS: unknown"""
    line = world.line(job)
    if job.job_id in world.claims:
        return now_ns
    key = "starts", line.spec.name
    starts: dict[int, int]
    made_ns, starts = world.asked.get(key, (-STARTS_NS, {}))
    if now_ns >= made_ns + STARTS_NS:  # who runs may have outlasted what it was expected to take
        starts = _starts(world, line, now_ns)
        world.asked[key] = now_ns, starts
    return max(now_ns, starts.get(job.job_id, NEVER_NS))


def _starts(world: World, line: Line, now_ns: int) -> dict[int, int]:
    """Of the first that wait in a queue, as far as it can be said: none fits now, so somebody must end before."""
    free_milli = world.room.free_milli()
    ends = [(ends_ns(world, world.jobs[j], now_ns, likely=True), world.jobs[j].width_milli) for j in world.held]
    heapify(ends)
    found: dict[int, int] = {}
    at_ns, width_milli = heappop(ends) if ends else (NEVER_NS, 0)
    if at_ns >= NEVER_NS:
        return found
    free_milli += width_milli
    for job_id in islice(line.waiting, _AHEAD_JOBS_MAX):
        job = world.jobs[job_id]
        while free_milli < job.width_milli:
            if not ends:
                return found
            at_ns, width_milli = heappop(ends)
            if at_ns >= NEVER_NS:
                return found
            free_milli += width_milli
        found[job_id] = at_ns
        free_milli -= job.width_milli
        heappush(ends, (ends_ns(world, job, at_ns, likely=True), job.width_milli))
    return found


def expected_start_ns(world: World, job: Job, now_ns: int) -> int:
    """As reserved_start_ns(), for those who ask: found out once until something happens."""
    key = "reserved", job.job_id
    if key not in world.asked:
        world.asked[key] = reserved_start_ns(world, job, now_ns)
    return max(now_ns, int(world.asked[key]))
