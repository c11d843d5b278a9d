"""Which jobs must stop for another one, found without stopping any of them.

The jobs are those that decide.py finds where only placing tells whether a job fits, by putting running jobs aside one
by one and giving back what is not needed. Here nothing is put aside but numbers: what is free, used and held.
"""

from __future__ import annotations

from collections.abc import Iterable

from vgpud.core.jobs.model import Job, JobSpec, JobState, Placement
from vgpud.core.placement.base import Leaving, Vacancy
from vgpud.core.queue.quota import Account, has_limit
from vgpud.core.queue.state import QueueState


def group_by_node(world: QueueState, jobs: Iterable[Job]) -> Leaving:
    """What these jobs hold."""
    found: dict[str, dict[int, Placement]] = {}
    for job in jobs:
        for place in world.held.get(job.job_id, ()):
            on_node = found.setdefault(place.node, {})
            on_node[job.job_id] = (*on_node.get(job.job_id, ()), place)
    return found


class VictimTrial:
    """The question for one job, at the size of `spec`. All running candidates are of its queue."""

    def __init__(self, world: QueueState, job: Job, spec: JobSpec, account: Account, vacancy: Vacancy) -> None:
        self._world = world
        self._job = job
        self._spec = spec
        self._account = account
        self._vacancy = vacancy
        self._limited = [one for one in account.chain if has_limit(one.spec)]

    def choose(self, candidates: Iterable[Job], *, are_all: bool) -> tuple[int, list[Job]]:
        """How many candidates have been looked at; those of them, in their order, that must give what they hold, none
        if that is not enough.

        `are_all`: there are no others that could be looked at.

        As many are asked for as the job needs, at least: then twice as many each time. Of these the last ones are given
        back first, if the job fits without.
        """
        freed: list[Job] = []
        fits, ask_at = False, 1
        for candidate in candidates:
            self._release(candidate)
            freed.append(candidate)
            if len(freed) < ask_at or not self._may_fit():
                continue
            fits = self._fits()
            if fits:
                break
            ask_at = 2 * len(freed)
        if are_all and not fits and freed and len(freed) < ask_at and self._may_fit():
            fits = self._fits()
        victims: list[Job] = []
        for candidate in reversed(freed):
            self._take(candidate)
            if fits and not (self._may_fit() and self._fits()):
                self._release(candidate)
                victims.append(candidate)
        for victim in victims:
            self._take(victim)
        return len(freed), victims[::-1]

    def _release(self, candidate: Job) -> None:
        placement = self._world.held.get(candidate.job_id)
        if placement is not None:
            self._world.members -= candidate.spec.members
            self._vacancy.release(placement)
        if self._limited:
            self._count(candidate, -1)

    def _take(self, candidate: Job) -> None:
        placement = self._world.held.get(candidate.job_id)
        if placement is not None:
            self._world.members += candidate.spec.members
            self._vacancy.take(placement)
        if self._limited:
            self._count(candidate, 1)

    def _count(self, candidate: Job, sign: int) -> None:
        if candidate.state is not JobState.SUSPENDED:
            for account in self._limited:
                account.used.add(candidate.spec, sign)

    def _may_fit(self) -> bool:
        is_free = self._world.cluster.free_milli() >= self._spec.width_milli
        return is_free and not (self._limited and self._account.limit_for(self._spec))

    def _fits(self) -> bool:
        world, members = self._world, self._spec.members
        has_slices = self._job.job_id in world.held or world.members + members <= world.members_max
        return has_slices and self._vacancy.fits()
