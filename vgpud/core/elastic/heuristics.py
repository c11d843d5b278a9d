"""Heuristics for the number of workers, chosen by name like policies: their input and their result.

Rules of Or, Zhang and Freedman, "Resource elasticity in distributed deep learning" (MLSys'20). All numbers are integers
or fractions, so that decisions are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from vgpud.core.elastic.measures import Mean, Point


@dataclass(frozen=True, slots=True)
class Outlook:
    """How far the job is."""

    elapsed_ns: int = 0
    done: int = 0  # samples


@dataclass(frozen=True, slots=True)
class Seen:
    """What a heuristic decides by."""

    means: Mapping[int, Mean]  # by workers
    workers: int  # at the moment
    least_members: int
    most_members: int
    outlook: Outlook = Outlook()


@dataclass(frozen=True, slots=True)
class Target:
    """A number of workers, until this many batches have been measured with them; `steps` 0: it is final."""

    members: int
    steps: int
    why: str


class Heuristic(Protocol):
    """`target` is asked when what it wanted measured has been. `name` as the user wrote it."""

    name: str

    def target(self, observation: Seen) -> Target: ...


class Rule(Protocol):
    """Is a step from `old` to `new` workers worth it? The surer the more `new` does, the less the more `old` does."""

    name: str

    def passes(self, old: Point, new: Point, outlook: Outlook) -> bool: ...

    def reason(self, old: Point, new: Point, outlook: Outlook) -> str:
        """The numbers that decide, as a part of a sentence."""
        ...


def efficiency(old: Point, new: Point) -> Fraction:
    """s_k: what each worker more brings, over what each brought before. 1 = scales perfectly, 0 = brings nothing."""
    return Fraction((new.rate - old.rate) * old.workers, (new.workers - old.workers) * old.rate)


class Efficiency:
    """Worth it while s_k is above a threshold: the paper's rule where the user gives no utility."""

    def __init__(self, name: str, threshold: Fraction) -> None:
        self.name = name
        self.threshold = threshold

    def passes(self, old: Point, new: Point, outlook: Outlook) -> bool:
        return efficiency(old, new) > self.threshold

    def reason(self, old: Point, new: Point, outlook: Outlook) -> str:
        found, least = percent(efficiency(old, new)), percent(self.threshold)
        return f"each worker from {old.workers} to {new.workers} brings {found} of what one brought; least {least}"


class Fixed:
    """The user's number, whatever is measured."""

    def __init__(self, name: str, members: int) -> None:
        self.name = name
        self.members = members

    def target(self, observation: Seen) -> Target:
        return Target(
            min(max(self.members, observation.least_members), observation.most_members),
            0,
            f"its user asked for {self.members} workers",
        )


def percent(part: Fraction) -> str:
    return f"{round(part * 100)} %"
