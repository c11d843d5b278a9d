"""When jobs will end, and so when others can start, as far as their time limits and durations say: durations that users
gave, or that similar jobs took (core/estimates.py). Of the latter the high quantile is used for backfill and the median
for estimated starts. A job that outlasts both only loses its estimate."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import islice

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.queue import strict
from vgpud.core.queue.state import QueueState
from vgpud.core.queue.waiting import JobQueue

#: jobs of a queue for which starts are estimated
_AHEAD_JOBS_MAX = 1000
#: how long an answer is valid while nothing happens
STARTS_NS = 5 * SECOND_NS


def ends_ns(world: QueueState, job: Job, now_ns: int, *, uses_median: bool = False) -> int:
    """The latest end of the job if it runs from now on; with `uses_median` the end that is as often early as late."""
    ran_ns = job.executed_at(now_ns)
    expected_ns = job.spec.duration_ns or _learnt_ns(world, job, ran_ns, now_ns, uses_median=uses_median)
    most_ns = min(job.spec.time_limit_ns, expected_ns or NEVER_NS)
    if most_ns >= NEVER_NS:
        return NEVER_NS
    return now_ns + max(0, most_ns - ran_ns)


def _learnt_ns(world: QueueState, job: Job, ran_ns: int, now_ns: int, *, uses_median: bool) -> int:
    """How long jobs like it took; 0 = not known, or it has taken longer."""
    found = world.estimates.of(job.spec.kinds, now_ns)
    if found is None:
        return 0
    if uses_median and found.median_ns > ran_ns:
        return found.median_ns
    return found.high_ns if found.high_ns > ran_ns else 0


def expect(world: QueueState, job: Job, now_ns: int) -> None:
    """Stores what is known now with the job, for later readers."""
    found = None if job.spec.duration_ns else world.estimates.of(job.spec.kinds, now_ns)
    job.median_ns, job.expected_ns = (found.median_ns, found.high_ns) if found else (0, 0)


def runs(world: QueueState, job: Job) -> None:
    """The job runs from now on."""
    world.estimates.add_running_job(job.job_id, job.spec.kinds, job.started_ns - job.executed_ns)


def stops(world: QueueState, job: Job) -> None:
    """The job no longer runs."""
    world.estimates.remove_running_job(job.job_id, job.spec.kinds)


def learn(world: QueueState, job: Job) -> None:
    """The job has ended. Only completed jobs, and those that reached their time limit, count."""
    if job.state in (JobState.COMPLETED, JobState.TIMED_OUT) and job.executed_ns:
        world.estimates.learn(job.spec.kinds, job.executed_ns, has_completed=job.state is JobState.COMPLETED)


def reserved_start_ns(world: QueueState, job: Job, now_ns: int) -> int:
    """When this job fits if running jobs end when they should and no other job starts (EASY backfill, Lifka 1995)."""
    holders = [world.jobs[j] for j in world.held if world.jobs[j].state is JobState.RUNNING or j in world.claims]
    ends = sorted((ends_ns(world, j, now_ns), j.job_id) for j in holders)
    lent = []
    starts_ns = NEVER_NS
    account = world.line(job).account
    for at_ns, job_id in ends:
        if at_ns >= NEVER_NS:
            break
        other = world.jobs[job_id]
        world.cluster.release(world.held[job_id])
        world.count(other, -1, now_ns)
        lent.append(other)
        if not account.limit_for(job.spec) and world.find(job) is not None:
            starts_ns = at_ns
            break
    for other in lent:
        world.cluster.take(world.held[other.job_id])
        world.count(other, 1, now_ns)
    return starts_ns


def estimated_start_ns(world: QueueState, job: Job, now_ns: int) -> int:
    """Estimated start, by the widths of all jobs before it in its queue and the ends of running jobs; NEVER_NS:
    unknown."""
    line = world.line(job)
    if job.job_id in world.claims:
        return now_ns
    key = "starts", line.spec.name
    starts: dict[int, int]
    made_ns, starts = world.answer_cache.get(key, (-STARTS_NS, {}))
    if now_ns >= made_ns + STARTS_NS:  # running jobs may have outlasted their estimates
        starts = _starts(world, line, now_ns)
        world.answer_cache[key] = now_ns, starts
    return max(now_ns, starts.get(job.job_id, NEVER_NS))


def _starts(world: QueueState, line: JobQueue, now_ns: int) -> dict[int, int]:
    """Estimated starts of the first waiting jobs of a queue: none fits now, so each needs others to end before."""
    free_milli = world.cluster.free_milli()
    ends = [(ends_ns(world, world.jobs[j], now_ns, uses_median=True), world.jobs[j].width_milli) for j in world.held]
    heapify(ends)
    found: dict[int, int] = {}
    at_ns, width_milli = heappop(ends) if ends else (NEVER_NS, 0)
    if at_ns >= NEVER_NS:
        return found
    free_milli += width_milli
    for job_id in islice(line.waiting, _AHEAD_JOBS_MAX):
        job = world.jobs[job_id]
        if not strict.holds_up(world, job):
            continue  # when its devices are offered again is unknown
        while free_milli < job.width_milli:
            if not ends:
                return found
            at_ns, width_milli = heappop(ends)
            if at_ns >= NEVER_NS:
                return found
            free_milli += width_milli
        found[job_id] = at_ns
        free_milli -= job.width_milli
        heappush(ends, (ends_ns(world, job, at_ns, uses_median=True), job.width_milli))
    return found


def expected_start_ns(world: QueueState, job: Job, now_ns: int) -> int:
    """As reserved_start_ns(), cached until something happens."""
    key = "reserved", job.job_id
    if key not in world.answer_cache:
        world.answer_cache[key] = reserved_start_ns(world, job, now_ns)
    return max(now_ns, int(world.answer_cache[key]))
