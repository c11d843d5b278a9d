"""The job that a strict queue waits for: the first of its jobs that could start if nothing else ran.

Not for one whose devices are drained, faulty, taken by others or gone, or which is above a limit that was lowered:
whether that ever ends is unknown. Such a job keeps its place in the order, and the queue waits for it again when it
can start.
"""

from __future__ import annotations

from vgpud.core.jobs.model import Job
from vgpud.core.queue.state import QueueState


def holds_up(world: QueueState, job: Job) -> bool:
    """Whether those behind it wait for it where their queue is strict."""
    spec = job.spec
    limits = [account.spec for account in world.line(job).account.chain]
    if any(spec.width_milli > one.limit_milli for one in limits):
        return False
    if any(spec.ask.cpu_milli * spec.members > one.cpu_limit_milli for one in limits):
        return False
    if any(spec.ask.ram_bytes * spec.members > one.ram_limit_bytes for one in limits):
        return False
    return spec.members <= world.members_max and world.cluster.has_devices(
        job, job.placement if world.is_pinned(job) else ()
    )


def find_blocking_job(world: QueueState, job: Job) -> Job | None:
    """The job that a strict queue waits for before this one may start."""
    line = world.line(job)
    for job_id in line.waiting if line.spec.strict else ():
        if job_id == job.job_id:
            return None
        if holds_up(world, world.jobs[job_id]):
            return world.jobs[job_id]
    return None
