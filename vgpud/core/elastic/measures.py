"""Throughput of an elastic job by number of workers: means with their precision.

Rates are integers, micro-samples per second: a model that needs a minute for a sample still has five digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isqrt

#: a value counts as this many batches at most: older ones fade. The paper keeps a list and compacts it to (mean, count)
#: at this length; a sum is compact from the beginning.
STEPS_MAX = 1000


@dataclass(slots=True)
class Mean:
    """Of values that each stand for some batches (steps). The sums are weighted by these."""

    values: int = 0
    steps: int = 0
    total: int = 0
    squares: int = 0

    def add(self, rate: int, steps: int) -> None:
        steps = min(steps, STEPS_MAX)
        if self.steps + steps > STEPS_MAX:
            keep = STEPS_MAX - steps
            self.values = -(-self.values * keep // self.steps)
            self.total = self.total * keep // self.steps
            self.squares = self.squares * keep // self.steps
            self.steps = keep
        self.values += 1
        self.steps += steps
        self.total += rate * steps
        self.squares += rate * rate * steps

    @property
    def rate(self) -> int:
        return self.total // self.steps

    @property
    def variance(self) -> int:
        """Of the mean, not of the values; 0 when there is but one value to judge by."""
        if self.values < 2:
            return 0
        return max(0, self.squares * self.steps - self.total**2) // (self.steps**2 * (self.values - 1))

    def plain(self) -> list[int]:
        return [self.values, self.steps, self.total, self.squares]


@dataclass(frozen=True, slots=True)
class Point:
    """A number of workers and their rate."""

    workers: int
    rate: int


def across(lower_means: Iterable[Mean], upper_means: Iterable[Mean]) -> tuple[int, int, int]:
    """The rates before and after a step of one worker, and the standard error of their difference.

    From as many neighbouring sizes below the step as above it: more of them are more precise, if they lie on a line.
    Rates are 1 at least, as measured ones are, since they are divided by.
    """
    low, high = list(lower_means), list(upper_means)
    wide = len(low)
    bottom, top = sum(mean.rate for mean in low), sum(mean.rate for mean in high)
    middle, half_step = (bottom + top) // (2 * wide), (top - bottom) // (2 * wide * wide)
    error = isqrt(sum(mean.variance for mean in (*low, *high))) // (wide * wide)
    return max(1, middle - half_step), max(1, middle + half_step), error
