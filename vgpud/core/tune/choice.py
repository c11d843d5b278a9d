"""The choice among measured candidates. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core.tune.model import Candidate, Work

#: a candidate and its samples a second
Measured = tuple[Candidate, float]


def choose(measured: Sequence[Measured], work: Work) -> Measured | None:
    """The cheapest that meets the deadline; without one the best throughput per GPU. None: none meets it."""
    good = [one for one in measured if work.is_met(*one)]
    return min(good, key=lambda one: work.rank(*one)) if good else None


def find_frontier(measured: Sequence[Measured], work: Work) -> list[Measured]:
    """Those than which no other is at once as fast (by the duration of the work, if it is known) and as cheap; fastest
    first."""

    def slowness(one: Measured) -> float:
        return work.duration_s(*one) or 1 / one[1]

    frontier: list[Measured] = []
    for one in sorted(measured, key=lambda one: (slowness(one), work.gpu_seconds(*one))):
        if not frontier or work.gpu_seconds(*one) < work.gpu_seconds(*frontier[-1]):
            frontier.append(one)
    return frontier
