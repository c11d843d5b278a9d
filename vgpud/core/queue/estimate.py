"""When jobs will end and so when others can start, as far as their limits and durations say."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import islice

from vgpud.core.queue.line import Line
from vgpud.core.queue.model import NEVER_NS, Job, JobState
from vgpud.core.queue.world import World

#: so many jobs before one are looked at
_AHEAD_JOBS_MAX = 1000


def ends_ns(job: Job, now_ns: int) -> int:
    """When it ends at the latest, or is expected to, if it runs from now on."""
    most_ns = min(job.spec.time_limit_ns, job.spec.duration_ns or NEVER_NS)
    if most_ns >= NEVER_NS:
        return NEVER_NS
    return now_ns + max(0, most_ns - job.executed_at(now_ns))


def reserved_start_ns(world: World, job: Job, now_ns: int) -> int:
    """When this job fits if those that run end as they say and nobody else starts (EASY backfill, Lifka 1995)."""
    holders = [world.jobs[j] for j in world.held if world.jobs[j].state is JobState.RUNNING or j in world.claims]
    ends = sorted((ends_ns(j, now_ns), j.job_id) for j in holders)
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
    if key not in world.asked:
        world.asked[key] = _starts(world, line, now_ns)
    starts: dict[int, int] = world.asked[key]
    return max(now_ns, starts.get(job.job_id, NEVER_NS))


def _starts(world: World, line: Line, now_ns: int) -> dict[int, int]:
    """Of the first that wait in a queue, as far as it can be said."""
    free_milli = world.room.free_milli()
    ends = [(ends_ns(world.jobs[j], now_ns), world.jobs[j].width_milli) for j in world.held]
    heapify(ends)
    at_ns = now_ns
    found: dict[int, int] = {}
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
        heappush(ends, (ends_ns(job, at_ns), job.width_milli))
    return found


def expected_start_ns(world: World, job: Job, now_ns: int) -> int:
    """As reserved_start_ns(), for those who ask: found out once until something happens."""
    key = "reserved", job.job_id
    if key not in world.asked:
        world.asked[key] = reserved_start_ns(world, job, now_ns)
    return max(now_ns, int(world.asked[key]))
