"""The founding slides' example: J1 2 GPUs x 2, J2 1 x 8, J3 2 x 6, on two GPUs, decided once in a unit of time."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from benchmarks.table import YES, Figure, equal_to_decimals
from vgpud.core.jobs.model import SECOND_NS, Ask, JobSpec
from vgpud.core.model import Spec
from vgpud.core.policy.base import Policy
from vgpud.core.policy.gittins import Gittins
from vgpud.simulate import clusters, scenario
from vgpud.simulate.engine import Outcome
from vgpud.simulate.trace import TraceJob

JOBS = ((2, 2), (1, 8), (2, 6))  # GPUs, units
SLIDES = "slides"
SHORTEST = "J1 J1 J2 J2 J2 J2 J2 J2 J2 J2 J3 J3 J3 J3 J3 J3"
#: case, policy, average, who runs in each unit
CASES = (
    ("2D-LAS, ties by job order", "2d-las(every=1)", 35 / 3, "J1 J2 J3 J2 J1 J2 J3 J2 J2 J3 J2 J2 J3 J2 J3 J3"),
    (
        "2D-LAS, ties favour the running",
        "2d-las(every=1,keep)",
        12.0,
        "J1 J2 J3 J2 J2 J1 J3 J2 J2 J3 J2 J2 J3 J2 J3 J3",
    ),
    ("2D-Gittins, the slides' values", SLIDES, 10.0, "J1 J1 J2 J2 J2 J2 J3 J3 J3 J3 J3 J3 J2 J2 J2 J2"),
    ("2D-Gittins, the true index", "2d-gittins(4,8,12)", 28 / 3, SHORTEST),
    ("SRSF", "srsf", 28 / 3, SHORTEST),
)


class SlidesGittins(Gittins):
    """The index as the slides have it, which follows from no distribution: .25 at 0, .20 at 4, rising from there."""

    def __init__(self) -> None:
        super().__init__(SLIDES, by_width=True, table=[Fraction(needed) for needed in range(4, 13)])
        self.costs = [1000 // 25, 1000 // 20, *range(49, 41, -1)]


def make(text: str) -> Policy:
    return SlidesGittins() if text == SLIDES else scenario.make_policy(text)


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """The average of each policy, and whether its schedule is the one that is written down."""
    for case, policy, wanted, schedule in CASES:
        outcome = play(policy)
        ran = " ".join(schedule_of(outcome))
        raw[case] = ran
        mean = sum(job.ended_ns for _, job in outcome.jobs) / len(JOBS) / SECOND_NS
        yield Figure("slides", case, "average completion time, units", mean, equal_to_decimals(round(wanted, 2), 2))
        yield Figure("slides", case, "the schedule is the one listed (1 = yes)", float(ran == schedule), YES)


def play(policy: str) -> Outcome:
    trace = []
    for gpus, units in JOBS:
        spec = JobSpec(Ask(Spec(1000)), gpus, duration_ns=units * SECOND_NS)
        trace.append(TraceJob(0, units * SECOND_NS, spec))
    one = scenario.Scenario(policy, scenario.COUNT)
    return scenario.run(trace, clusters.parse("1x2"), one, make=make)


def schedule_of(outcome: Outcome) -> list[str]:
    """Who ran in each unit, none beside another."""
    found: dict[int, str] = {}
    for job_id, begin_ns, end_ns in outcome.spans:
        for unit in range(begin_ns // SECOND_NS, end_ns // SECOND_NS):
            found[unit] = f"J{job_id}" if unit not in found else f"{found[unit]}+J{job_id}"
    return [found.get(unit, "-") for unit in range(max(found) + 1)]
