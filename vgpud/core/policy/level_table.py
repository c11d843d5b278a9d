"""What is known of jobs by levels of service: how many ended in each, how many got beyond, what a job done costs.

Of learnt_gittins.py. As JSON values it outlives a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vgpud.core.policy.gittins import UNKNOWN

#: fixed point of counted jobs, which become fractions of jobs as they are forgotten
JOB = 1 << 20
PPM = 1_000_000
#: no count is higher, and no cost: of written ones
_COUNT_MAX, _COST_MAX = 1 << 62, UNKNOWN << 16


@dataclass(slots=True)
class Table:
    """How many jobs ended in each level of service, and how many got beyond it, in JOB; the costs that follow."""

    ended_in: list[int]
    got_beyond: list[int]
    jobs: int = 0
    costs: list[int] = field(default_factory=list)  # in force; none before a job of it has ended
    next_costs: list[int] = field(default_factory=list)  # what they will be

    @classmethod
    def empty(cls, levels: int) -> Table:
        """Nothing was counted yet."""
        return cls([0] * levels, [0] * levels)

    def count_beyond(self, first: int, level: int) -> None:
        for passed in range(first, level):
            self.got_beyond[passed] += JOB

    def count_end(self, first: int, level: int, kept_ppm: int) -> None:
        self.ended_in = [count * kept_ppm // PPM for count in self.ended_in]
        self.got_beyond = [count * kept_ppm // PPM for count in self.got_beyond]
        self.jobs = self.jobs * kept_ppm // PPM + JOB
        self.count_beyond(first, level)
        self.ended_in[level] += JOB

    def chances(self, wider: Sequence[tuple[int, int]], jobs: int) -> list[tuple[int, int]]:
        """(dividend, divisor) to end in each level; what is `wider` counts as much as so many jobs."""
        found = []
        for ended, beyond, (dividend, divisor) in zip(self.ended_in, self.got_beyond, wider, strict=True):
            part = jobs * JOB * dividend // divisor
            found.append((ended + part, ended + beyond + jobs * JOB))
        return found

    @property
    def is_published(self) -> bool:
        """Whether the costs that will be are in force."""
        return self.costs == self.next_costs

    def encode(self) -> dict[str, Any]:
        """As JSON values; levels that no job has reached are left out."""
        made = {"jobs": self.jobs, "ended_in": _shorten(self.ended_in), "got_beyond": _shorten(self.got_beyond)}
        return made | {"costs": self.costs} | ({} if self.is_published else {"next_costs": self.next_costs})

    @classmethod
    def decode(cls, body: Mapping[str, Any], levels: int) -> Table:
        """Raises ValueError."""
        jobs = read_numbers([body.get("jobs")], 1, _COUNT_MAX)
        counts = [read_numbers(body.get(name), levels, _COUNT_MAX) for name in ("ended_in", "got_beyond")]
        ended_in, got_beyond = (found + [0] * (levels - len(found)) for found in counts)
        costs = read_numbers(body.get("costs"), levels + 1, _COST_MAX)
        next_costs = read_numbers(body.get("next_costs", costs), levels + 1, _COST_MAX)
        if any(len(found) not in (0, levels + 1) for found in (costs, next_costs)):
            raise ValueError("it has costs of some levels only")
        return cls(ended_in, got_beyond, jobs[0], costs, next_costs)


def _shorten(counts: Sequence[int]) -> list[int]:
    """Without zeros at the end."""
    length = max((level for level, count in enumerate(counts, 1) if count), default=0)
    return list(counts[:length])


def read_numbers(value: Any, count_max: int, number_max: int) -> list[int]:
    """At most so many integers from 0 to `number_max`. Raises ValueError."""
    if not isinstance(value, list) or len(value) > count_max:
        raise ValueError(f"it has no list of at most {count_max} numbers where one should be")
    if any(type(number) is not int or not 0 <= number <= number_max for number in value):
        raise ValueError("it has a number that cannot be")
    return value
