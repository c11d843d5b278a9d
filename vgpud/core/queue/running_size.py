"""A user makes a running job smaller or larger: one slice on one device, while its programs keep running.

What it asks for and what it has move together, as those of an elastic job do (resizing.py). Its memory stays: programs
hold it. It grows only into capacity that no job waits for: a small job that grows as soon as something is free would
overtake the line.
"""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.jobs.model import Job, JobSpec, JobState
from vgpud.core.model import Denied, Reason
from vgpud.core.queue import estimate, sizes
from vgpud.core.queue.reservations import devices_of, touches
from vgpud.core.queue.state import QueueState
from vgpud.core.units import MILLI_PER_DEVICE, format_gpus


def resize_spec(job: Job, new_spec: JobSpec) -> JobSpec:
    """The job's present specification with the wanted GPUs and the class of similar jobs that they bring."""
    return replace(sizes.with_size(job.spec, sizes.size(new_spec)), kinds=new_spec.kinds)


def grows(job: Job, new_spec: JobSpec) -> bool:
    """Whether that is more than it has."""
    return sizes.size(new_spec) > sizes.size(job.spec)


def refusal(world: QueueState, job: Job, new_spec: JobSpec, by_admin: bool) -> Denied | None:
    """Why a running job does not get this size. If it is larger, a job of this size has been checked."""
    text = _unfit(world, job, new_spec) or _growth_refusal(world, job, sizes.size(new_spec), by_admin)
    return Denied(Reason.PRECONDITION, f"job {job.job_id} {text}", field="gpus_milli") if text else None


def _unfit(world: QueueState, job: Job, new_spec: JobSpec) -> str:
    """Why it cannot be resized at all now, from its verb on."""
    if sizes.size(new_spec) < 1:
        return "runs: it needs a part of a GPU"
    if job.state is not JobState.RUNNING:
        return f"is {job.state.value}: its GPUs can be changed while it runs or waits"
    if job.job_id in world.stopping:
        return f"is being stopped ({job.stopping}): wait for its end"
    if job.resizing:
        return "is being resized: try again in a moment"
    one_slice = job.spec.members == 1 and [len(place.shares) for place in job.placement] == [1]
    if not one_slice or job.spec.ask.spec.min_milli is not None:
        return "has several slices, or a minimum of its own: only a job with one slice on one device is resized"
    return ""


def _growth_refusal(world: QueueState, job: Job, wanted_milli: int, by_admin: bool) -> str:
    more_milli = wanted_milli - sizes.size(job.spec)
    if more_milli <= 0:
        return ""
    if wanted_milli > MILLI_PER_DEVICE:
        return "runs on one device: queue it again (vgpu job requeue, then hold) for more"
    account, more = world.line(job).account, sizes.with_size(job.spec, more_milli)
    over = account.limit_for_amount(more_milli, 0, 0) or account.limit_for_amount(more_milli, 0, 0, standing=True)
    if over is not None:
        return f"cannot grow: {over.sentence()}"
    if not job.spec.preemptible and not world.keeps_guarantees(more):
        return "cannot grow: it cannot be preempted, and would take what other queues are guaranteed"
    if not by_admin and _others_wait(world):
        return "cannot grow while other jobs wait: only an admin may let it overtake them"
    if touches(world.held[job.job_id], devices_of(world.reserved_from(job))):
        return "cannot grow: its device is reserved (vgpu reserve ls)"
    if world.stopping or world.shrinking or world.claims:
        return "cannot grow while other jobs are being stopped or started: try again in a moment"
    if world.could_have(job, sizes.slice_of(world.held[job.job_id], wanted_milli)):
        return ""
    return f"cannot grow: its device has less than {format_gpus(more_milli)} GPU free"


def _others_wait(world: QueueState) -> bool:
    """For capacity: not for a time, for other jobs or for a quota of their own. Suspended ones wait, too."""
    return any(
        not line.account.limit_for(world.jobs[job_id].spec) for line in world.lines.values() for job_id in line.waiting
    )


def begin(world: QueueState, job: Job, new_spec: JobSpec, now_ns: int) -> JobSpec:
    """The queue counts the new size from now on. Returns the specification before."""
    before = job.spec
    placement = sizes.slice_of(world.held[job.job_id], sizes.size(new_spec))
    (share,) = placement[0].shares
    spec = resize_spec(job, new_spec)
    # memory that followed the GPUs is what it has, also when it starts again
    asked, lowest, highest = spec.ask.spec, share.mem_min_bytes or None, share.mem_max_bytes or None
    if asked.mem_min_bytes is None and asked.mem_max_bytes is None:
        asked = replace(asked, mem_min_bytes=lowest, mem_max_bytes=highest)
    estimate.stops(world, job)
    world.resize(job, replace(spec, ask=replace(spec.ask, spec=asked)), placement, now_ns)
    estimate.runs(world, job)
    return before
