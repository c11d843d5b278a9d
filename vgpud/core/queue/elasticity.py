"""Elastic jobs shrink for waiting jobs, and grow into idle capacity: the rules of DRAGON.

Lin, Yeh and Chou, "DRAGON: A Dynamic Scheduling and Scaling Controller for Managing Distributed Deep Learning Jobs in
Kubernetes Cluster" (CLOSER 2019), the scheduler of Elastic-KubeFlow. When a job has waited for
QueueSpec.elastic_wait_ns, running elastic jobs shrink, never below their minimum, step by step, until the job fits.
When nothing has been started, stopped or resized for elastic_idle_ns, elastic jobs grow into free capacity.

Unlike in that paper, a GPU goes to the narrower of two jobs, for which it does more (Smith's rule: the time that jobs
of one age have left is alike, so a GPU shortens it by 1 / width): jobs with elastic workers grow before the first
waiting job starts until they are as wide as that, and do not become narrower than a job merely because it waits
(decide.py). By the paper's rules alone, wait and run together were longer than those of rigid jobs.

Beyond that paper: what an elastic job has above its minimum is lent. A queue below its guarantee, or a job that may
preempt the elastic one, takes it at once, before any job is stopped; and what is guaranteed to a queue is not taken
from its elastic jobs for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from vgpud.core.jobs.model import NEVER_NS, Job, JobSpec, Place, Placement
from vgpud.core.queue import sizes
from vgpud.core.queue.sizes import Cut, Trim
from vgpud.core.queue.state import QueueState
from vgpud.core.queue.waiting import JobQueue


def surplus_milli(job: Job) -> int:
    """GPUs above its minimum."""
    return job.spec.width_milli - job.spec.least_width_milli


def may_change(world: QueueState, job: Job, now_ns: int) -> bool:
    """Whether it runs, and is neither stopped nor resized at this moment."""
    settled = not job.resizing and job.job_id in world.line(job).running
    return settled and now_ns >= world.left_alone_ns.get(job.job_id, 0)


def tried_again_ns(world: QueueState, now_ns: int) -> int:
    """When the next job that could not be resized may be resized again."""
    return min((at_ns for at_ns in world.left_alone_ns.values() if at_ns > now_ns), default=NEVER_NS)


def lent_milli(world: QueueState, now_ns: int) -> int:
    """What all elastic jobs could give."""
    return sum(surplus_milli(job) for job in _find_lenders(world, now_ns))


def lent_to_milli(world: QueueState, waiting: Job, now_ns: int) -> int:
    """What they give to a job merely because it waits, in its own queue: none becomes narrower than it (decide.py)."""
    line, given_milli = world.line(waiting), 0
    for job in _find_lenders(world, now_ns):
        kept = kept_milli(line, job, waiting.spec) if world.line(job) is line else 0
        given_milli += max(0, min(surplus_milli(job), job.spec.width_milli - kept))
    return given_milli


def kept_milli(line: JobQueue, job: Job, waiting: JobSpec) -> int:
    """What an elastic job has at least when one of its queue merely waits: with workers as much as that asks for. A
    slice yields to its minimum, since it borrows what others of its device leave; so do all for the first job of a
    strict queue, for which all others wait."""
    return waiting.width_milli if sizes.by_members(job.spec) and not line.spec.strict else 0


def _find_lenders(world: QueueState, now_ns: int) -> list[Job]:
    return [job for job in world.elastic.values() if surplus_milli(job) and may_change(world, job, now_ns)]


def cuts(world: QueueState, trims: dict[int, Trim], now_ns: int, may_give: Callable[[Job, int], bool]) -> Iterator[Cut]:
    """Steps by which elastic jobs shrink, one for each that is taken from this iterator: first of the job most above
    its minimum, then of the one resized last. The caller applies a step before it takes the next one.

    `may_give`: whether a job may give this many milli-GPU; asked before each step.
    """
    heap = [
        (-surplus_milli(job), -job.resized_ns, -job.job_id)
        for job in world.elastic.values()
        if sizes.size(job.spec) > sizes.min_size(job.spec) and may_change(world, job, now_ns)
    ]
    heapify(heap)
    while heap:
        _, resized_ns, job_id = heappop(heap)
        job = world.jobs[-job_id]
        if job.job_id not in world.line(job).running:  # it has been put aside as a whole meanwhile
            continue
        if not may_give(job, sizes.step_milli(job.spec)):
            continue
        yield sizes.next_cut(trims.get(job.job_id) or Trim(job, job.spec, world.held[job.job_id]))
        if sizes.size(job.spec) > sizes.min_size(job.spec):
            heappush(heap, (-surplus_milli(job), resized_ns, job_id))


def may_borrow(world: QueueState, job: Job, place: Place) -> bool:
    """Whether it may have one more member there for a while: the capacity is free, and within its quotas."""
    if world.stopping or world.shrinking or world.claims or world.members >= world.members_max:
        return False
    ask, account = job.spec.ask, world.line(job).account
    over = account.limit_for_amount(ask.width_milli, ask.cpu_milli, ask.ram_bytes)
    return over is None and world.cluster.suits(job, (place,))


# ---- growing ----


def acted_ns(world: QueueState, job: Job) -> int:
    """When something was done last that keeps this job from growing."""
    return max(world.acted_ns, job.resized_ns, job.started_ns)


def grow_at_ns(world: QueueState, now_ns: int) -> int:
    """When elastic jobs grow if nothing happens; not after now_ns: at once; NEVER_NS: there is nothing for them."""
    if world.stopping or world.shrinking or world.claims:
        return NEVER_NS  # what is free is not yet free
    if world.cluster.free_milli() <= 0 and any(job.spec.width_milli for job in world.elastic.values()):
        return NEVER_NS
    times = (
        acted_ns(world, job) + world.line(job).spec.elastic_idle_ns
        for job in world.elastic.values()
        if sizes.size(job.spec) < sizes.max_size(job) and may_change(world, job, now_ns)
    )
    return min(times, default=NEVER_NS)


def grow(world: QueueState, now_ns: int) -> dict[int, tuple[JobSpec, Placement]]:
    """Gives elastic jobs free capacity, a step at a time, to the one with the smallest part of its maximum.

    Returns what each of those that grew had before; their new sizes are reserved already.
    """
    before: dict[int, tuple[JobSpec, Placement]] = {}
    heap = [
        (_part(job), job.job_id)
        for job in world.elastic.values()
        if may_change(world, job, now_ns)
        and acted_ns(world, job) + world.line(job).spec.elastic_idle_ns <= now_ns
        and sizes.size(job.spec) < sizes.max_size(job)
    ]
    heapify(heap)
    while heap:
        _, job_id = heappop(heap)
        job = world.jobs[job_id]
        had = job.spec, world.held[job_id]
        if _grow_once(world, job, now_ns):
            before.setdefault(job_id, had)
            if sizes.size(job.spec) < sizes.max_size(job):
                heappush(heap, (_part(job), job_id))
    return before


def _part(job: Job) -> int:
    """The part of its maximum that it has, in millionths."""
    return sizes.size(job.spec) * 1_000_000 // sizes.max_size(job)


def _grow_once(world: QueueState, job: Job, now_ns: int) -> bool:
    more = one_more(world, job)
    if more is not None:
        world.resize(job, *more, now_ns)
    return more is not None


def grow_to_most(world: QueueState, job: Job, most_milli: int, now_ns: int) -> bool:
    """Grows it as far as capacity is free, to this width at most; returns whether it grew."""
    before, milli = job.spec, sizes.growth_milli(job.spec)
    while (
        sizes.size(job.spec) < sizes.max_size(job)
        and job.spec.width_milli + milli <= most_milli
        and _grow_once(world, job, now_ns)
    ):
        pass
    return job.spec is not before


def one_more(world: QueueState, job: Job) -> tuple[JobSpec, Placement] | None:
    """A running job, one step larger, if that is free and within its quotas."""
    spec, placement = job.spec, world.held[job.job_id]
    wanted = min(sizes.size(spec) + sizes.step(spec), sizes.max_size(job))
    larger = sizes.with_size(spec, wanted)
    ask = spec.ask
    members = larger.members - spec.members
    more = larger.width_milli - spec.width_milli, ask.cpu_milli * members, ask.ram_bytes * members
    account = world.line(job).account
    if account.limit_for_amount(*more) or account.limit_for_amount(*more, standing=True):
        return None
    if sizes.by_members(spec):
        newcomer = world.newcomer(job)
        return None if newcomer is None else (larger, placement + newcomer)
    grown = sizes.slice_of(placement, wanted)
    return (larger, grown) if world.could_have(job, grown) else None
