"""What would let a waiting job start: smaller requests, tried against the present free capacity, for `vgpu job
explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from vgpud.core.jobs.model import NEVER_NS, Job, JobSpec, JobState
from vgpud.core.model import Spec
from vgpud.core.queue import elasticity, strict
from vgpud.core.queue.estimate import ends_ns, expected_start_ns
from vgpud.core.queue.reasons import duration, reason
from vgpud.core.queue.state import QueueState
from vgpud.core.queue.waiting import JobQueue
from vgpud.core.units import format_gpus

#: steps in which smaller asks are tried
GPUS_STEP_MILLI = 50
MEMORY_STEP_BYTES = 1 << 30
#: no device has more of such steps
MEMORY_STEPS_MAX = 1 << 10


def advice(world: QueueState, job: Job, now_ns: int) -> list[str]:
    """One sentence for each change that would help; each has been tried."""
    if job.state is JobState.HELD:
        return [f"vgpu job release {job.job_id} lets it wait for free capacity"]
    if not world.waits(job) or world.is_pinned(job):
        return []
    line = world.line(job)
    first = strict.find_blocking_job(world, job)
    if first is not None:
        return list(_passing(world, job, first, line, now_ns))
    return [*_shrinking(world, job, line, now_ns), *_smaller(world, job)]


def _shrinking(world: QueueState, job: Job, line: JobQueue, now_ns: int) -> Iterator[str]:
    """Elastic jobs shrink for a job that has waited long enough."""
    lent_milli = elasticity.lent_to_milli(world, job, now_ns)
    left_ns = line.spec.lent_after_ns - job.waited_at(now_ns)
    if lent_milli and left_ns > 0 and line.spec.lent_after_ns < NEVER_NS and not line.account.limit_for(job.spec):
        bound = duration(line.spec.elastic_wait_ns)
        gpus = format_gpus(lent_milli)
        yield f"elastic jobs can give {gpus} GPU, and do when it has waited {bound}: in {duration(left_ns)}"


def _passing(world: QueueState, job: Job, first: Job, line: JobQueue, now_ns: int) -> Iterator[str]:
    """A job that ends before the first waiting job can start may be backfilled."""
    starts_ns = expected_start_ns(world, first, now_ns)
    if not line.spec.backfill:
        return
    if starts_ns >= NEVER_NS:
        running = [world.jobs[j] for j in world.held if world.jobs[j].state is JobState.RUNNING]
        endless = any(ends_ns(world, one, now_ns) >= NEVER_NS for one in running)
        why = "time limits of the running jobs would tell" if endless else reason(world, first, now_ns)
        yield f"it is not known when job {first.job_id} can start: {why}"
    elif ends_ns(world, job, now_ns) > starts_ns and _starts(world, job, job.spec):
        yield f"with --time-limit {max(1, (starts_ns - now_ns) // 10**9)}s or less it would pass job {first.job_id} now"


def _smaller(world: QueueState, job: Job) -> Iterator[str]:
    spec = job.spec
    asked = spec.ask.spec
    if asked.device_uuids and _starts(world, job, _with(spec, replace(asked, device_uuids=()))):
        yield "without --device it would start now"
    if asked.spread > 1 and _starts(world, job, _with(spec, replace(asked, spread=0))):
        yield "without --spread it would start now"
    steps = _find_greatest(
        asked.gpus_milli // GPUS_STEP_MILLI, lambda n: _starts(world, job, _with(spec, _gpus(asked, n)))
    )
    if steps:
        most = f"..{format_gpus(spec.elastic.most_milli)}" if spec.elastic and spec.elastic.most_milli else ""
        yield f"with --gpus {format_gpus(steps * GPUS_STEP_MILLI)}{most} it would start now"
    sizes = MEMORY_STEPS_MAX if asked.mem_min_bytes is None else -(-asked.mem_min_bytes // MEMORY_STEP_BYTES)
    steps = _find_greatest(sizes, lambda n: _starts(world, job, _with(spec, _memory(asked, n))))
    if steps:
        yield f"with --mem {steps}G it would start now"
    members = _find_greatest(spec.members, lambda n: _starts(world, job, replace(spec, members=n)))
    if members and spec.elastic is None:
        yield f"a gang of {members} would start now" if members > 1 else "one member alone would start now"


def _find_greatest(upper_bound: int, starts: Callable[[int], bool]) -> int:
    """The greatest number below `upper_bound` with which it starts; 0 = none."""
    low, high = 0, max(0, upper_bound - 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if starts(middle) else (low, middle - 1)
    return low


def _with(spec: JobSpec, slice_spec: Spec) -> JobSpec:
    return replace(spec, ask=replace(spec.ask, spec=slice_spec))


def _gpus(slice_spec: Spec, steps: int) -> Spec:
    milli = steps * GPUS_STEP_MILLI
    low = None if slice_spec.min_milli is None else min(slice_spec.min_milli, milli)
    return replace(slice_spec, gpus_milli=milli, min_milli=low)


def _memory(slice_spec: Spec, steps: int) -> Spec:
    return replace(slice_spec, mem_min_bytes=steps * MEMORY_STEP_BYTES, mem_max_bytes=steps * MEMORY_STEP_BYTES)


def _starts(world: QueueState, job: Job, spec: JobSpec) -> bool:
    """Whether such a job would fit and be within its quotas now."""
    line = world.line(job)
    if line.account.limit_for(spec) or not (spec.preemptible or world.keeps_guarantees(spec)):
        return False
    return world.find(job, spec) is not None
