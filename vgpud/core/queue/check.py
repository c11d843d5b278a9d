"""Refusals of requests before anything happens: each one line that names the value and the fix."""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.jobs.events import Cancelled, Changed, Event, Held, Released, Requeued, Resumed, Suspended
from vgpud.core.jobs.model import NEVER_NS, Job, JobSpec, JobState, QueueSpec, UserWait
from vgpud.core.model import Denied, Reason
from vgpud.core.queue import elastic_bounds, quota, running_size
from vgpud.core.queue.reasons import holders
from vgpud.core.queue.state import QueueState
from vgpud.core.units import format_bytes, format_gpus

ARRAY_JOBS_MAX = 10_000
MEMBERS_MAX = 1024
AFTER_MAX = ARRAY_JOBS_MAX  # all of an array
#: of all jobs of a user: how many others they wait for, an array's once for each of its jobs
UNMET_MAX = 100_000
RETRIES_MAX = 1000
PRIORITY_MAX = 1000


def _invalid(message: str, field: str) -> Denied:
    return Denied(Reason.INVALID, message, field=field)


def check_job(world: QueueState, spec: JobSpec, count: int) -> Denied | None:
    """Why such a job, or an array of them, is refused."""
    wrong = _check_numbers(spec, count) or elastic_bounds.check(spec) or _check_after(world, spec, count)
    if wrong:
        return wrong
    line = world.lines.get(spec.queue)
    if line is None:
        names = ", ".join(world.lines) or "none"
        return Denied(Reason.NOT_FOUND, f"there is no queue {spec.queue!r}: choose one of {names}", field="queue")
    spec = world.cluster.shared(spec)
    for account in line.account.chain:
        limits = account.spec
        if spec.width_milli > limits.limit_milli:
            return _invalid(
                f"{format_gpus(spec.width_milli)} GPUs are more than queue {limits.name} may ever have:"
                f" its limit is {format_gpus(limits.limit_milli)}",
                "gpus_milli",
            )
        if spec.ask.cpu_milli * spec.members > limits.cpu_limit_milli:
            return _invalid(
                f"{format_gpus(spec.ask.cpu_milli * spec.members)} CPUs are more than queue {limits.name} may ever"
                f" have: its limit is {format_gpus(limits.cpu_limit_milli)}",
                "cpu_milli",
            )
        if spec.ask.ram_bytes * spec.members > limits.ram_limit_bytes:
            return _invalid(
                f"{format_bytes(spec.ask.ram_bytes * spec.members)} of RAM is more than queue {limits.name} may ever"
                f" have: its limit is {format_bytes(limits.ram_limit_bytes)}",
                "ram_bytes",
            )
    if not spec.preemptible and not world.keeps_guarantees(spec, is_alone=True):
        return _invalid(
            f"{format_gpus(spec.width_milli)} GPUs that cannot be preempted would take what other queues are"
            " guaranteed: ask for less, or let it be preempted",
            "not_preemptible",
        )
    if spec.members > world.members_max:
        return _invalid(
            f"a gang of {spec.members} members: at most {world.members_max} members of jobs run at once",
            "members",
        )
    never = world.cluster.never_fits_reason(Job(0, spec, 0))
    if never:
        return _invalid(never, "gpus_milli")
    return elastic_bounds.check_most(world, spec) if spec.elastic else None


def _check_numbers(spec: JobSpec, count: int) -> Denied | None:
    if not 1 <= count <= ARRAY_JOBS_MAX:
        return _invalid(f"an array of {count} jobs: 1 to {ARRAY_JOBS_MAX} can be submitted at once", "array")
    if spec.ask.spec.copy_min_milli:
        text = "copy_min is for slices that are made directly: the queue does not place jobs by links, leave it out"
        return _invalid(text, "copy_min_milli")
    if spec.index < 0:
        return _invalid(f"array index {spec.index} is negative: begin at 0 or above", "array")
    if not 0 <= spec.array_limit <= ARRAY_JOBS_MAX:
        text = f"{spec.array_limit} jobs of an array at once: write 1 to {ARRAY_JOBS_MAX}, or none"
        return _invalid(text, "array_limit")
    if not 1 <= spec.members <= MEMBERS_MAX:
        return _invalid(f"a gang of {spec.members} members: write 1 to {MEMBERS_MAX}", "members")
    if not 0 < spec.time_limit_ns <= NEVER_NS:
        return _invalid(
            f"a time limit of {spec.time_limit_ns} ns is out of range: write more than 0, or none", "time_limit"
        )
    if not 0 <= spec.begin_ns < NEVER_NS:
        return _invalid(f"a begin at {spec.begin_ns} ns is out of range: write a time, or none", "begin_time")
    if not 0 <= spec.duration_ns < NEVER_NS:
        return _invalid(
            f"an expected duration of {spec.duration_ns} ns is out of range: write more than 0, or none",
            "expected_duration",
        )
    if not 0 <= spec.retries <= RETRIES_MAX:
        return _invalid(f"retries {spec.retries} is out of range: write 0 to {RETRIES_MAX}", "retries")
    if abs(spec.priority) > PRIORITY_MAX:
        return _invalid(
            f"priority {spec.priority} is out of range: write {-PRIORITY_MAX} to {PRIORITY_MAX}", "priority"
        )
    return None


def _check_after(world: QueueState, spec: JobSpec, count: int) -> Denied | None:
    """A job depends on earlier jobs only, so that there are no cycles."""
    if len(spec.after) > AFTER_MAX:
        return _invalid(f"it comes after {len(spec.after)} jobs: at most {AFTER_MAX} are allowed", "after")
    unmet, more = world.unmet_of[spec.uid], len(spec.after) * count
    if more and unmet + more > UNMET_MAX:
        text = (
            f"{count} job(s) that each wait for {len(spec.after)} others, beside {unmet} such waits of uid {spec.uid}"
        )
        return _invalid(
            f"{text}: at most {UNMET_MAX} are allowed; have one job wait for all, and the others for it", "after"
        )
    for job_id in spec.after:
        other = world.jobs.get(job_id)
        if other is None:
            return _invalid(
                f"there is no job {job_id} for it to come after: name one that has been submitted before", "after"
            )
        if other.state.is_final and not spec.is_satisfied_by(job_id, other.state):
            return _invalid(
                f"the dependency on job {job_id} cannot be satisfied, it is {other.state.value}: leave it out, or"
                " accept any end (--after-any)",
                "after",
            )
    return None


def refusal(world: QueueState, event: Event) -> Denied | None:
    """Why this request of a user is refused."""
    if not isinstance(event, Cancelled | Held | Released | Requeued | Suspended | Resumed | Changed):
        return None
    job = world.jobs.get(event.job_id)
    if job is None:
        return Denied(Reason.NOT_FOUND, f"there is no job {event.job_id}: see vgpu job ls")
    if isinstance(event, Changed):
        return _refuse_change(world, job, event)
    state = job.state
    remedy = ""
    if isinstance(event, Cancelled) and state.is_final:
        remedy = "there is nothing to cancel"
    elif isinstance(event, Held) and state is not JobState.PENDING:
        remedy = "only pending jobs can be held"
    elif isinstance(event, Released) and state is not JobState.HELD:
        remedy = "only held jobs can be released"
    elif isinstance(event, Suspended):
        remedy = _why_not_suspended(job)
    elif isinstance(event, Resumed) and job.user_wait is not UserWait.RESUME:
        remedy = "its user has not suspended it"
    elif isinstance(event, Resumed) and job.stop_to is not None:
        remedy = f"it is being stopped ({job.stopping}): try again"
    elif isinstance(event, Requeued) and state in (JobState.PENDING, JobState.HELD):
        remedy = "it waits already"
    elif isinstance(event, Requeued) and job.stop_to not in (None, JobState.SUSPENDED):
        remedy = f"it is being stopped ({job.stopping}): wait for its end"
    elif isinstance(event, Requeued) and state.is_final:
        remedy = "its environment was deleted when it ended, submit it again"
    return Denied(Reason.PRECONDITION, f"job {job.job_id} is {state.value}: {remedy}") if remedy else None


def _why_not_suspended(job: Job) -> str:
    if job.user_wait is UserWait.RESUME:
        return "its user has suspended it already"
    if job.state is not JobState.RUNNING:
        return "only running jobs can be suspended"
    if job.stop_to is not None or job.resizing:
        return f"it is being {'resized' if job.stop_to is None else f'stopped ({job.stopping})'}: try again"
    if not job.spec.ask.spec.gpus_milli:
        return "it has no GPUs to give up"
    if job.spec.elastic is not None and job.spec.elastic.most_members:
        return "its workers come and go by themselves: cancel it, or requeue it"
    return ""


def _refuse_change(world: QueueState, job: Job, event: Changed) -> Denied | None:
    state, limit_ns = job.state, event.spec.time_limit_ns
    if state.is_final:
        return Denied(Reason.PRECONDITION, f"job {job.job_id} is {state.value}: there is nothing to change")
    if job.spec.elastic and (event.spec.ask.spec, event.spec.members) != (job.spec.ask.spec, job.spec.members):
        text = f"job {job.job_id} is elastic: its size stays within its bounds by itself; cancel it and submit another"
        return Denied(Reason.PRECONDITION, text, field="gpus_milli")
    if state not in (JobState.PENDING, JobState.HELD):
        other = event.spec.ask.spec.gpus_milli != job.spec.ask.spec.gpus_milli
        sized = running_size.resize_spec(job, event.spec) if other else job.spec
        if event.spec != replace(sized, time_limit_ns=limit_ns):
            text = f"job {job.job_id} is {state.value}: only its time limit and GPUs can be changed, the rest while it"
            return Denied(Reason.PRECONDITION, f"{text} waits (vgpu job requeue, then hold)")
        if limit_ns > job.spec.time_limit_ns and not event.by_admin:
            text = f"job {job.job_id} is {state.value}: only admins raise the time limit of a job that has started"
            return Denied(Reason.DENIED, f"{text}, its user may lower it", field="time_limit")
        if not other:
            return _check_numbers(event.spec, 1)
        larger = running_size.grows(job, event.spec)
        checked = check_job(world, replace(event.spec, after=()), 1) if larger else _check_numbers(event.spec, 1)
        return checked or running_size.refusal(world, job, event.spec, event.by_admin)
    return check_job(world, replace(event.spec, after=()), 1)


def check_queues(world: QueueState, queues: tuple[QueueSpec, ...]) -> Denied | None:
    """Why queues cannot become these."""
    wrong = quota.check_queues(queues)
    if wrong:
        return wrong
    for queue in queues:
        try:
            world.make_policy(queue.policy)
        except ValueError as error:
            return _invalid(f"queue {queue.name}: {error}", "policy")
    after = {q.name: q for q in queues}
    for name, line in world.lines.items():
        account = line.account
        busy = [j.job_id for j in world.jobs.values() if j.spec.queue == name and not j.state.is_final]
        moved = name not in after or after[name].parent != line.spec.parent
        if moved and (busy or account.used.milli):
            what = f"job {busy[0]}" if busy else f"slices of {format_gpus(account.used.milli)} GPUs"
            return Denied(
                Reason.PRECONDITION,
                f"queue {name} is in use by {what}: wait for their end or cancel them before it is moved or removed",
                field="name",
            )
    total = sum(q.guarantee_milli for q in queues if not q.parent)
    have = world.cluster.total_milli()
    if total > have and total > sum(line.spec.guarantee_milli for line in world.lines.values() if not line.spec.parent):
        return _invalid(
            f"all guarantees together are {format_gpus(total)} GPUs, there are {format_gpus(have)}: lower one",
            "guarantee_milli",
        )
    return None


def check_direct(world: QueueState, queue: str, milli: int, cpu_milli: int, ram_bytes: int) -> Denied | None:
    """Why a slice that is no job of the queue is refused."""
    line = world.lines.get(queue)
    if line is None:
        names = ", ".join(world.lines) or "none"
        return Denied(Reason.NOT_FOUND, f"there is no queue {queue!r}: choose one of {names}", field="queue")
    over = line.account.limit_for_amount(milli, cpu_milli, ram_bytes, standing=True)
    if over is None:
        return None
    text = over.sentence() + holders(world, over.account)
    return Denied(Reason.NO_CAPACITY, text, field="queue", subject=over.account.spec.name)
