"""Why a job waits, in one sentence each with its numbers. Computed on request, not at every decision."""

from __future__ import annotations

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job, JobSpec, JobState, UserWait
from vgpud.core.queue import sizes, strict
from vgpud.core.queue.estimate import expected_start_ns
from vgpud.core.queue.quota import Account
from vgpud.core.queue.state import QueueState
from vgpud.core.units import format_gpus

#: jobs named in a sentence
_NAMED_MAX = 3


def duration(ns: int) -> str:
    """A duration for messages, at most two units, the second rounded: 90 s is 1 min 30 s. Begun seconds count."""
    seconds = -(-ns // SECOND_NS)
    for unit, finer in ((86400, 3600), (3600, 60)):
        rounded = (seconds + finer // 2) // finer * finer
        if rounded >= unit:
            seconds = rounded
            break
    parts = []
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, unit)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts) or "0 s"


def _jobs(ids: list[int]) -> str:
    named = ", ".join(str(i) for i in ids[:_NAMED_MAX])
    more = f" and {len(ids) - _NAMED_MAX} more" if len(ids) > _NAMED_MAX else ""
    return f"job{'s' if len(ids) > 1 else ''} {named}{more}"


def _dependencies(job: Job, ids: list[int]) -> str:
    """The jobs it still depends on, by what they must do."""
    spec = job.spec
    ends = [i for i in ids if spec.waits_for_end(i)]
    fails = [i for i in ids if spec.waits_for_failure(i)]
    rest = [i for i in ids if not spec.waits_for_end(i) and not spec.waits_for_failure(i)]
    several = (rest, "to complete"), (fails, "to fail"), (ends, "to end")
    return " and ".join(f"{_jobs(found)} {verb}" for found, verb in several if found)


def time_limit(job: Job) -> str:
    return f"its time limit of {duration(job.spec.time_limit_ns)} has run out"


def explain_preemption(world: QueueState, victim: Job, claimant: Job) -> str:
    """Why a job is preempted."""
    if claimant.spec.queue == victim.spec.queue:
        policy = world.line(victim).policy.name
        return f"was preempted for job {claimant.job_id}, which comes before it in queue {victim.spec.queue} ({policy})"
    return (
        f"was preempted for job {claimant.job_id}: queue {claimant.spec.queue} is below its guarantee, queue"
        f" {victim.spec.queue} above its own"
    )


def explain_order(world: QueueState, job: Job, now_ns: int, viewer_uid: int | None) -> str:
    """Why the job just before a waiting one is before it; of the first one, why it is before the next. "" = it does not
    wait, or alone. What the other job used is only for those who may see it: its user, and admins (None)."""
    if not world.waits(job):
        return ""
    line = world.line(job)
    entry = line.waiting.entry(job.job_id)
    neighbour = line.waiting.find_neighbour(entry)
    if neighbour is None:
        return ""
    other = world.jobs[neighbour[1]]
    first, second = (other, job) if neighbour < entry else (job, other)
    text = f"job {first.job_id} is before job {second.job_id} in queue {line.spec.name} ({line.policy.name})"
    shown = [one for one in (first, second) if one is job or viewer_uid in (None, one.spec.uid)]
    why = [f"job {one.job_id} {words}" for one in shown if (words := line.policy.describe(one, now_ns))]
    return f"{text}: {'; '.join(why)}" if why else text


def explain_eviction(world: QueueState, victim: Job, claimant: Job) -> str:
    """Why a suspended job gives up what it kept."""
    if victim.waits_for_user:
        why = "it was not used" if victim.user_wait is UserWait.USE else "its user had suspended it"
        return f"its memory was needed for job {claimant.job_id}, and {why}"
    return explain_preemption(world, victim, claimant)


def shrunk(world: QueueState, job: Job, claimant: Job, now_ns: int) -> str:
    """Why an elastic job gives capacity to another."""
    line, text = world.line(claimant), f"shrinks for job {claimant.job_id}"
    waited_ns = claimant.waited_at(now_ns) or now_ns - claimant.waiting_since_ns
    if waited_ns >= line.spec.lent_after_ns:
        bound = duration(line.spec.elastic_wait_ns)
        text += f", which has waited for {duration(waited_ns)} (elastic jobs shrink after {bound})"
    elif line is world.line(job):
        text += f", which comes before it in queue {line.spec.name} ({line.policy.name})"
    else:
        text += f": queue {claimant.spec.queue} is below its guarantee, queue {job.spec.queue} above its own"
    return f"{text}; it never has less than {sizes.words(job.spec, sizes.min_size(job.spec))}"


def explain_growth(world: QueueState, job: Job, old_spec: JobSpec, idle_ns: int) -> str:
    """Why an elastic job takes more, as it has it already."""
    more = format_gpus(job.width_milli - old_spec.width_milli)
    free = format_gpus(world.cluster.free_milli())
    text = f"{more} GPUs were idle and nothing was started, stopped or resized for {duration(idle_ns)}; {free} are left"
    return f"{text}, and it wants no more than {sizes.words(job.spec, sizes.max_size(job))}"


def grown_ahead(world: QueueState, job: Job, old_spec: JobSpec) -> str:
    """Why an elastic job takes more although others wait."""
    more, queue = format_gpus(job.width_milli - old_spec.width_milli), job.spec.queue
    text, wanted = f"{more} GPUs were free, and", sizes.words(job.spec, sizes.max_size(job))
    if not world.line(job).spec.elastic_eager:
        text += f" it is no wider with them than the first job that waits in queue {queue}: a GPU does more for the"
        return f"{text} narrower of two jobs; it wants no more than {wanted}"
    text += f" elastic jobs of queue {queue} that come first take them before others start (elastic-eager)"
    return f"{text}; it wants no more than {wanted}"


def explain_target(job: Job) -> str:
    """Why an elastic job gives back workers that no other job has asked for."""
    return f"more than {sizes.words(job.spec, sizes.max_size(job))} do not pay off"


def explain_placement(world: QueueState, job: Job) -> str:
    """Where it runs, and why there."""
    gpus = f"{format_gpus(job.width_milli)} GPU"
    if world.line(job).spec.elastic_eager and job.spec.elastic and sizes.size(job.spec) > sizes.min_size(job.spec):
        gpus += f" ({sizes.words(job.spec, sizes.size(job.spec))}: elastic-eager takes all that it can use)"
    why = world.cluster.why_here(job, job.placement)
    if why:
        return f"{gpus} {why}"
    nodes = sorted({place.node for place in job.placement})
    devices = sum(len(place.shares) for place in job.placement)
    return f"{gpus} on {devices} device(s) of {', '.join(nodes[:_NAMED_MAX])}"


def reason(world: QueueState, job: Job, now_ns: int) -> str:
    """Why it waits; how it ended; what is being done to it; "" when it simply runs."""
    if job.state.is_final:
        return job.reason
    if job.job_id in world.stopping:
        return f"it is being stopped: {job.stopping}"
    if job.state is JobState.RUNNING:
        return ""
    if job.state is JobState.HELD:
        return f"it is held: release it with vgpu job release {job.job_id}"
    if job.user_wait is UserWait.USE:
        return "it was not used, and is paused until it is: opening its page continues it"
    if job.user_wait is UserWait.RESUME:
        return f"its user has suspended it: resume it with vgpu job resume {job.job_id}"
    if job.job_id in world.unmet:
        return f"it waits for {_dependencies(job, sorted(world.unmet[job.job_id]))}"
    if job.not_before_ns > now_ns and job.not_before_ns == job.spec.begin_ns:
        return f"it was submitted to begin in {duration(job.not_before_ns - now_ns)} at the earliest"
    if job.not_before_ns > now_ns:
        after = "failed" if not job.start_failures else "could not be started"
        return f"it {after}: its next try begins in {duration(job.not_before_ns - now_ns)}"
    if world.arrays.waits(job):
        first, most = job.spec.array, job.spec.array_limit
        running = f"{most} jobs are" if most > 1 else "1 job is"
        return f"the array of job {first} is at its limit: {running} running or starting"
    if job.job_id in world.claims:
        return f"its GPUs are being freed: {_jobs(_in_its_way(world, job))} must {_give_way(world, job)} first"
    return _capacity_reason(world, job, now_ns)


def _in_its_way(world: QueueState, job: Job) -> list[int]:
    nodes = {place.node for place in job.placement}
    there = (world.stopping | world.shrinking).items()
    return [j for j, placement in there if any(place.node in nodes for place in placement)]


def _give_way(world: QueueState, job: Job) -> str:
    return "stop" if any(j in world.stopping for j in _in_its_way(world, job)) else "shrink"


def holders(world: QueueState, account: Account) -> str:
    """The jobs that use a quota, the widest first: the end of a sentence."""
    key = "holders", account.spec.name
    if key not in world.answer_cache:
        world.answer_cache[key] = _holders(world, account)
    return str(world.answer_cache[key])


def _holders(world: QueueState, account: Account) -> str:
    running = [j for line in world.lines.values() if account in line.account.chain for j in line.running]
    widest = sorted((world.jobs[j] for j in running), key=lambda job: (-job.width_milli, job.job_id))
    parts = [f"job {job.job_id} ({format_gpus(job.width_milli)} GPU)" for job in widest[:_NAMED_MAX]]
    more = len(widest) - _NAMED_MAX
    if more > 0:
        parts.append(f"{more} more job{'s' if more > 1 else ''}")
    slices = sum(amount.milli for amount in account.direct.values())
    if slices:
        parts.append(f"slices ({format_gpus(slices)} GPU)")
    return f"; in use by {', '.join(parts)}" if parts else ""


def _find_neighbours(world: QueueState, devices: set[str], job: Job) -> list[int]:
    """Other jobs that have a part of these devices."""
    return [
        other_id
        for other_id, placement in world.held.items()
        if other_id != job.job_id and any(s.device_uuid in devices for place in placement for s in place.shares)
    ]


def reserved(world: QueueState, job: Job, now_ns: int) -> str:
    """The reservation without which it would start, "" where none is in its way."""
    against = world.reserved_from(job) if world.reservations.all else []
    if not against or world.find(job) is not None:
        return ""
    if world.is_pinned(job):
        would = world.could_have(job, job.placement)
    else:
        would = world.cluster.place(job) is not None
    if not would:
        return ""
    first = min(against, key=lambda one: (one.begin_ns, one.name))
    if first.begin_ns > now_ns:
        begins = f"{first.what} begins in {duration(first.begin_ns - now_ns)}"
        return f"{begins}, and this job may run longer: it can start with a --time-limit that ends before then"
    return f"its devices are kept by {first.what}, for another {duration(first.end_ns - now_ns)}"


def _capacity_reason(world: QueueState, job: Job, now_ns: int) -> str:
    line = world.line(job)
    over = line.account.limit_for(job.spec)
    if over is not None:
        return over.sentence() + holders(world, over.account)
    first = strict.find_blocking_job(world, job)
    if first is not None:
        starts_ns = expected_start_ns(world, first, now_ns)
        ahead = f"job {first.job_id}"
        when = "" if starts_ns >= NEVER_NS else f"; {ahead} is expected to start in {duration(starts_ns - now_ns)}"
        return f"queue {line.spec.name} is strict, and {ahead} is ahead of this job{when}"
    if not job.spec.preemptible and not world.keeps_guarantees(job.spec):
        chain = line.account.chain
        beside = [o.account for o in world.lines.values() if o.account not in chain]
        others = sum(one.spec.guarantee_milli for one in beside if one.parent is None or one.parent in chain)
        return (
            f"it cannot be preempted, and others are guaranteed {format_gpus(others)} of"
            f" {format_gpus(world.cluster.total_milli())} GPUs: it waits until all jobs that cannot be"
            " preempted fit beside these"
        )
    if not world.has_slices(job):
        most = f"{world.members} of {world.members_max} job slices are in use"
        return f"{most}; this job needs {job.spec.members} more"
    kept_out = reserved(world, job, now_ns)
    if kept_out:
        return kept_out
    if world.is_pinned(job):
        missing = world.shortage(job)
        devices = {share.device_uuid for place in job.placement for share in place.shares}
        there = _find_neighbours(world, devices, job)
        if missing:
            who = f"; {_jobs(there)} {'is' if len(there) == 1 else 'are'} there" if there else ""
            return f"it can resume only where it was, but {missing}{who}"
        if world.find(job) is None:
            residents = _jobs(there) if there else "the programs there"
            return f"it can resume only where it was, which it does not share with {residents}"
    elif world.find(job) is None:
        return world.cluster.why_not(job)
    return "it starts with the next decision"
