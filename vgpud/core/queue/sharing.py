"""Jobs that share a device: their measured usage counts from then on, and pairs that slow each other down are separated
(Gandiva's undo). The shell finds such pairs by the jobs' speeds (core/colocate/watch.py)."""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.jobs.events import Measured, PairLoses, SaveJob
from vgpud.core.jobs.model import How, Job, JobState, Placement
from vgpud.core.queue.lifecycle import Lifecycle
from vgpud.core.queue.state import QueueState


def update_utilisation(world: QueueState, lives: Lifecycle, event: Measured) -> None:
    """Where its placement goes by what jobs use, that is now known of a job that runs."""
    job = world.jobs.get(event.job_id)
    if job is None or job.state is not JobState.RUNNING:
        return
    ask = replace(job.spec.ask, utilisation_milli=event.utilisation_milli)
    job.spec = replace(job.spec, ask=ask)
    noted = world.cluster.annotate_placement(job, job.placement)
    if noted != job.placement:
        if world.held.get(job.job_id) == job.placement:
            world.hold(job, noted)
        job.placement = noted
    lives.commands.append(SaveJob(job))


def part(world: QueueState, lives: Lifecycle, event: PairLoses, now_ns: int) -> None:
    """Jobs of these similarity classes share no device from now on. The first job leaves, in the way that is cheapest
    for its user: it resumes elsewhere, or when the other one has gone. Jobs without classes stay: they would be put
    together again."""
    job, other = world.jobs.get(event.job_id), world.jobs.get(event.other_id)
    if job is None or other is None or not _share_device(job, other):
        return
    kind, others = job.placement[0].kind, other.placement[0].kind
    if not kind or not others:
        return
    world.cluster.lose(kind, others)
    leaves = job.spec.preemptible and not {job.job_id, other.job_id} & world.stopping.keys()
    if leaves and now_ns >= job.started_ns + world.line(job).spec.min_run_ns:
        why = f"it and job {other.job_id} lose more on one device than they gain: {event.why}"
        lives.stop(job, _how(world, job), JobState.SUSPENDED, why, now_ns)


def _share_device(job: Job, other: Job) -> bool:
    """Both run, on a device that they share."""
    running = job.state is other.state is JobState.RUNNING
    return running and job is not other and bool(_devices(job.placement) & _devices(other.placement))


def _devices(placement: Placement) -> set[str]:
    return {share.device_uuid for place in placement for share in place.shares}


def _how(world: QueueState, job: Job) -> How:
    """Its memory must leave the device with it: paused it would only wait there."""
    return How.EVICT if How.EVICT in world.hows else How.REQUEUE
