"""The choice among candidates that have been measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core.tune.model import Candidate, Work

#: a candidate and its samples a second
RatedCandidate = tuple[Candidate, float]


def choose(pairs: Sequence[RatedCandidate], work: Work) -> RatedCandidate | None:
    """The cheapest that meets the deadline; without one the best throughput per GPU. None: none meets it."""
    good = [one for one in pairs if work.is_met(*one)]
    return min(good, key=lambda one: work.rank(*one)) if good else None


def find_frontier(pairs: Sequence[RatedCandidate], work: Work) -> list[RatedCandidate]:
    """Those than which no other is at once as fast (by the duration of the work, if it is known) and as cheap; fastest
    first."""

    def slowness(one: RatedCandidate) -> float:
        return work.duration_s(*one) or 1 / one[1]

    frontier: list[RatedCandidate] = []
    for one in sorted(pairs, key=lambda one: (slowness(one), work.gpu_seconds(*one))):
        if not frontier or work.gpu_seconds(*one) < work.gpu_seconds(*frontier[-1]):
            frontier.append(one)
    return frontier
