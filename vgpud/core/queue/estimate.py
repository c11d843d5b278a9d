"""When jobs will end and so when others can start, as far as their limits and durations say."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

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
    if job.job_id not in line.waiting:
        return NEVER_NS
    free_milli = world.room.free_milli()
    ends = [(ends_ns(world.jobs[j], now_ns), world.jobs[j].width_milli) for j in world.held]
    heapify(ends)
    at_ns = now_ns
    for number, job_id in enumerate(line.waiting):
        other = world.jobs[job_id]
        while free_milli < other.width_milli:
            if not ends or number > _AHEAD_JOBS_MAX:
                return NEVER_NS
            at_ns, width_milli = heappop(ends)
            if at_ns >= NEVER_NS:
                return NEVER_NS
            free_milli += width_milli
        if other is job:
            break
        free_milli -= other.width_milli
        heappush(ends, (ends_ns(other, at_ns), other.width_milli))
    return at_ns
