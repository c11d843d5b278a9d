"""The size of a job: a number of members (workers) if that is what its elasticity changes, or the milli-GPU of its one
slice.

Also what a job of another size asks for, and its placement then: remaining members stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from vgpud.core.jobs.model import Elastic, Job, JobSpec, Place, Placement
from vgpud.core.units import format_gpus

#: a slice grows and shrinks by so much at a time, and by no less but for the last step to a bound
STEP_MILLI = 50


def size(spec: JobSpec) -> int:
    """Its present size."""
    return spec.members if by_members(spec) else spec.ask.spec.gpus_milli


def by_members(spec: JobSpec) -> bool:
    """Whether its number of workers changes; else its slice grows and shrinks."""
    return spec.elastic is not None and spec.elastic.most_members > 0


def bounds(spec: JobSpec) -> Elastic:
    """Of an elastic job."""
    assert spec.elastic is not None, "only elastic jobs have another size"
    return spec.elastic


def min_size(spec: JobSpec) -> int:
    """The size that it always has when it runs."""
    return bounds(spec).least_members if by_members(spec) else bounds(spec).least_milli


def max_size(job: Job) -> int:
    """The size that it may have: no more workers than its autoscaler wants."""
    spec = job.spec
    if not by_members(spec):
        return bounds(spec).most_milli
    target_members = job.wished_members or bounds(spec).most_members
    return max(bounds(spec).least_members, min(target_members, bounds(spec).most_members))


def step(spec: JobSpec) -> int:
    """By how much its size changes at a time."""
    return 1 if by_members(spec) else STEP_MILLI


def step_milli(spec: JobSpec) -> int:
    """GPUs that it gives at a time."""
    return spec.ask.width_milli if by_members(spec) else min(STEP_MILLI, size(spec) - min_size(spec))


def growth_milli(spec: JobSpec) -> int:
    """GPUs that it takes at a time, at most."""
    return spec.ask.width_milli if by_members(spec) else STEP_MILLI


def with_size(spec: JobSpec, new_size: int) -> JobSpec:
    """The same job at this size."""
    if by_members(spec):
        return replace(spec, members=new_size)
    return replace(spec, ask=replace(spec.ask, spec=replace(spec.ask.spec, gpus_milli=new_size)))


def at_least(spec: JobSpec) -> JobSpec:
    """The same job at the size at which it starts."""
    return with_size(spec, min_size(spec)) if spec.elastic and size(spec) != min_size(spec) else spec


def beginning(spec: JobSpec, new_size: int) -> JobSpec:
    """What a job at its minimum asks for to start at this size; no more memory than at its minimum."""
    if by_members(spec):
        return with_size(spec, new_size)
    return replace(spec, ask=replace(spec.ask, spec=replace(spec.ask.spec, min_milli=new_size)))


def has(spec: JobSpec, placement: Placement) -> int:
    """The size of a job with this placement."""
    return len(placement) if by_members(spec) else placement[0].shares[0].min_milli


def slice_of(placement: Placement, new_size: int) -> Placement:
    """The placement of a slice at this size: same device, same memory."""
    (place,) = placement
    (share,) = place.shares
    highest = new_size if share.max_milli == share.min_milli else max(share.max_milli, new_size)
    return (replace(place, shares=(replace(share, min_milli=new_size, max_milli=highest),)),)


def subtract_placement(spec: JobSpec, placement: Placement, other_placement: Placement) -> Placement:
    """What the first placement has and the second has not."""
    if by_members(spec):
        left = list(other_placement)
        return tuple(place for place in placement if not _took(left, place))
    more = has(spec, placement) - has(spec, other_placement)
    if more <= 0:
        return ()
    share = placement[0].shares[0]
    return (
        Place(placement[0].node, (replace(share, min_milli=more, max_milli=more, mem_min_bytes=0, mem_max_bytes=0),)),
    )


def _took(places: list[Place], place: Place) -> bool:
    if place in places:
        places.remove(place)
        return True
    return False


def words(spec: JobSpec, amount: int) -> str:
    """A size for messages."""
    if not by_members(spec):
        return f"{format_gpus(amount)} GPU"
    return f"{amount} worker{'' if amount == 1 else 's'}"


@dataclass(slots=True, eq=False)
class Trim:
    """A job that is made smaller in a decision: what it had before, and what of that it gives."""

    job: Job
    spec: JobSpec
    placement: Placement
    removed_members: set[int] = field(default_factory=set)  # members, by their place before
    gone_milli: int = 0

    def now(self) -> tuple[JobSpec, Placement]:
        """Its spec and its placement without that."""
        if by_members(self.spec):
            left = tuple(place for index, place in enumerate(self.placement) if index not in self.removed_members)
            return with_size(self.spec, len(left)), left
        left_milli = size(self.spec) - self.gone_milli
        return with_size(self.spec, left_milli), slice_of(self.placement, left_milli)


@dataclass(frozen=True, slots=True)
class Cut:
    """One step of that: a member, or so much of a slice."""

    trim: Trim
    member: int = -1
    milli: int = 0

    def apply(self) -> None:
        if self.member >= 0:
            self.trim.removed_members.add(self.member)
        else:
            self.trim.gone_milli += self.milli

    def undo(self) -> None:
        if self.member >= 0:
            self.trim.removed_members.discard(self.member)
        else:
            self.trim.gone_milli -= self.milli


def next_cut(trim: Trim) -> Cut:
    """The next step of a job above its minimum: of members the last one."""
    if by_members(trim.spec):
        return Cut(trim, member=max(i for i in range(len(trim.placement)) if i not in trim.removed_members))
    return Cut(trim, milli=step_milli(trim.job.spec))
