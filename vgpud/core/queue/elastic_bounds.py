"""Invalid bounds of elastic jobs, each refused in one line that names the value and the fix."""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.elastic import registry
from vgpud.core.jobs.model import Elastic, Job, JobSpec
from vgpud.core.model import Denied, Reason
from vgpud.core.queue.state import QueueState
from vgpud.core.units import MILLI_PER_DEVICE, format_gpus

MEMBERS_MAX = 1024


def _invalid(message: str, field: str) -> Denied:
    return Denied(Reason.INVALID, message, field=field)


def check(spec: JobSpec) -> Denied | None:
    """By themselves."""
    elastic = spec.elastic
    if elastic is None:
        return None
    slices = elastic.least_milli or elastic.most_milli
    workers = elastic.least_members or elastic.most_members
    if slices and workers:
        return _invalid(
            "its GPUs and its workers are both elastic: choose one, a range of GPUs or a range of workers", "elastic"
        )
    if workers:
        return _check_workers(spec, elastic)
    if slices:
        return _check_slice(spec, elastic)
    return _invalid("it is elastic between nothing and nothing: write for example --workers 1-8", "elastic")


def _check_workers(spec: JobSpec, elastic: Elastic) -> Denied | None:
    least, most = elastic.least_members, elastic.most_members
    if least < 1 or most > MEMBERS_MAX:
        wrong = f"a minimum of {least} workers" if least < 1 else f"a maximum of {most} workers"
        return _invalid(f"{wrong} is out of range: write 1 to {MEMBERS_MAX}, for example 1-8", "elastic.workers_min")
    if least > most:
        return _invalid(
            f"a minimum of {least} workers is above the maximum of {most}: write the smaller one first, {most}-{least}",
            "elastic.workers_min",
        )
    if spec.members != least:
        return _invalid(
            f"it has {spec.members} members and begins with {least} workers: leave the members out, workers are its"
            " members",
            "members",
        )
    refusal = registry.check(elastic.heuristic)
    return _invalid(refusal, "elastic.heuristic") if refusal else None


def _check_slice(spec: JobSpec, elastic: Elastic) -> Denied | None:
    least, most = elastic.least_milli, elastic.most_milli
    field = "elastic.gpus_milli_min"
    if least < 1:
        return _invalid(f"a minimum of {format_gpus(least)} GPUs is too little: write 0.001 or more", field)
    if least > most:
        return _invalid(
            f"{format_gpus(least)} GPUs at least are more than {format_gpus(most)} at most: write the smaller number"
            f" first, {format_gpus(max(most, 1))}..{format_gpus(least)}",
            field,
        )
    if most > MILLI_PER_DEVICE:
        return _invalid(
            f"{format_gpus(most)} GPUs at most: an elastic slice stays on its device, so at most 1;"
            " for more devices make the workers elastic (--workers 1-8)",
            "elastic.gpus_milli_max",
        )
    if spec.members != 1:
        return _invalid(
            f"a gang of {spec.members} members cannot have elastic slices: make the workers elastic (--workers) or give"
            " all members the same GPUs",
            "members",
        )
    asked = spec.ask.spec
    if asked.gpus_milli != least:
        return _invalid(
            f"{format_gpus(asked.gpus_milli)} GPUs are asked for and {format_gpus(least)} are its least: it begins with"
            " that, ask for as much",
            "gpus_milli",
        )
    if asked.min_milli is not None or asked.max_milli is not None:
        return _invalid("the bounds of an elastic slice are its min and max: leave out --min and --max", "min_milli")
    if asked.spread > 1:
        return _invalid(
            f"an elastic slice spread over {asked.spread} devices: it has one, leave out --spread", "spread"
        )
    if elastic.heuristic:
        return _invalid(
            f"heuristic {elastic.heuristic!r} says how many workers pay off: a slice has none", "elastic.heuristic"
        )
    return None


def check_most(world: QueueState, spec: JobSpec) -> Denied | None:
    """Whether this site could ever give it its maximum; its minimum was checked before."""
    elastic = spec.elastic
    if elastic is None or not elastic.most_members:
        return None  # a device has all of itself
    most = elastic.most_members
    if most > world.members_max:
        return _invalid(
            f"{most} workers are too many: at most {world.members_max} members of jobs run at once;"
            f" write {spec.members}-{world.members_max}",
            "elastic.workers_max",
        )
    never = world.cluster.never_fits_reason(Job(0, replace(spec, members=most), 0))
    return _invalid(f"up to {most} workers: {never}", "elastic.workers_max") if never else None
