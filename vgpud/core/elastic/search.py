"""The search of MLSys'20: upward by SPAWN workers while every step is worth it, then down by one until steps are again.

It settles at the first size whose next step is not worth it, below which RUN steps in a row are. The next target
follows from the measurements alone: each size is measured at most three times (to look, to settle, and longer where
noise hides what a step brings), so a search ends after at most 3 x (most - least + 1) changes.

At 50 workers one more is 2 % of the rate. Where noise is larger, it measures longer, up to UNCLEAR_STEPS, and looks at
up to WIDE sizes on either side of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from vgpud.core.elastic.heuristics import Rule, Seen, Target
from vgpud.core.elastic.measures import Point, across

SPAWN = 4
RUN = 3
#: batches to look at a size, and to settle at one: there and with one worker more
PROBE_STEPS = 20
SETTLE_STEPS = 200
#: ... and as long as noise hides what a step brings
UNCLEAR_STEPS = 500
WIDE = 4


@dataclass(frozen=True, slots=True)
class Step:
    """Between two sizes that were measured next to each other. `clear`: noise does not decide about it."""

    old: Point
    new: Point
    passes: bool
    clear: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """What the search goes by."""

    observation: Seen
    sizes: list[int]  # that have been measured, in ascending order
    steps: list[Step]  # between each two of them
    settle_at: int  # the size to settle at: below it RUN steps in a row are worth it, the step above it is not
    run: int  # steps in a row below `settle_at` that are worth it, RUN at most

    @classmethod
    def of(cls, observation: Seen, sizes: list[int], steps: list[Step]) -> Measured:
        settle_at, run = sizes[-1], 0
        for step in reversed(steps):
            settle_at, run = (settle_at, run + 1) if step.passes else (step.old.workers, 0)
            if run == RUN:
                break
        return cls(observation, sizes, steps, settle_at, run)


class Search:
    """A heuristic for every rule that judges steps."""

    def __init__(self, rule: Rule) -> None:
        self.name = rule.name
        self._rule = rule

    def target(self, observation: Seen) -> Target:
        sizes = sorted(
            k
            for k, mean in observation.means.items()
            if mean.steps >= PROBE_STEPS and observation.least_members <= k <= observation.most_members
        )
        if observation.workers not in sizes:
            # while a straggler is replaced there is one more
            size = min(max(observation.workers, observation.least_members), observation.most_members)
            return Target(size, PROBE_STEPS, f"what it does with {size} is to be measured first")
        found = [self._step(observation, low, high) for low, high in pairwise(sizes)]
        here = observation.means[observation.workers].steps
        noisy = next((step for step in found if not step.clear and _hides(observation, step)), None)
        if noisy and here < UNCLEAR_STEPS:
            return Target(observation.workers, here + PROBE_STEPS, f"{self._why(observation, noisy)}: not sure yet")
        return self._next(observation, sizes, found)

    def _next(self, observation: Seen, sizes: list[int], steps: list[Step]) -> Target:
        measured = Measured.of(observation, sizes, steps)
        for phase in _PHASES:
            target = phase(self, measured)
            if target is not None:
                return target
        failed = [step for step in steps if step.old.workers == measured.settle_at]
        why = (
            self._why(observation, failed[0])
            if failed
            else f"{measured.settle_at} workers pay off, which is the maximum"
        )
        return Target(measured.settle_at, 0, why)

    # ---- the phases of the search: each returns the next size to measure, or None when it is over ----

    def _grow(self, m: Measured) -> Target | None:
        """Upward by SPAWN while every step is worth it."""
        top = m.sizes[-1]
        if not m.settle_at == top < m.observation.most_members:
            return None
        why = self._why(m.observation, m.steps[-1]) if m.steps else "there is nothing to compare with"
        return Target(min(top + SPAWN, m.observation.most_members), PROBE_STEPS, f"{why}: more are tried")

    def _refine_down(self, m: Measured) -> Target | None:
        """Downward by one: to the first step that is not worth it, then until RUN steps below it are."""
        if m.settle_at < m.observation.most_members and m.settle_at + 1 not in m.sizes:
            above = next(size for size in m.sizes if size > m.settle_at)
            return self._probe_size(m, above - 1)
        if m.settle_at > m.observation.least_members and m.settle_at - 1 not in m.sizes:
            return self._probe_size(m, m.settle_at - 1)
        if m.run < RUN and m.settle_at > m.sizes[0] > m.observation.least_members:
            return self._probe_size(m, m.sizes[0] - 1)
        return None

    def _probe_size(self, m: Measured, size: int) -> Target:
        failed = [step for step in m.steps if not step.passes and step.new.workers > size]
        why = f"{self._why(m.observation, failed[0])}: " if failed else ""
        return Target(size, PROBE_STEPS, f"{why}{size} {'is' if size == 1 else 'are'} tried")

    def _confirm(self, m: Measured) -> Target | None:
        """Longer at the size to settle at, and with one worker more."""
        for size in (m.settle_at + 1, m.settle_at):
            if size <= m.observation.most_members and m.observation.means[size].steps < SETTLE_STEPS:
                return Target(size, SETTLE_STEPS, f"{size} workers are measured again before it settles")
        return None

    def _clear_noise(self, m: Measured) -> Target | None:
        """Longest where noise hides what a step to or from the size to settle at brings."""
        for step in m.steps:
            if step.clear or m.settle_at not in (step.new.workers, step.old.workers):
                continue
            for point in (step.new, step.old):
                if m.observation.means[point.workers].steps < UNCLEAR_STEPS:
                    return Target(point.workers, UNCLEAR_STEPS, f"{self._why(m.observation, step)}: not sure yet")
        return None

    def _why(self, observation: Seen, step: Step) -> str:
        return self._rule.reason(step.old, step.new, observation.outlook)

    def _step(self, observation: Seen, low: int, high: int) -> Step:
        """From the two means, or of a step by one worker from as many neighbours as make it clear."""
        for wide in range(1, WIDE + 1):
            below, above = range(low - wide + 1, low + 1), range(high, high + wide)
            known = all(
                size in observation.means and observation.means[size].steps >= PROBE_STEPS for size in (*below, *above)
            )
            if wide > 1 and (high - low > 1 or not known):
                break
            old_rate, new_rate, error = across(
                [observation.means[k] for k in below], [observation.means[k] for k in above]
            )
            step = self._judge_step(observation, Point(low, old_rate), Point(high, new_rate), error)
            if step.clear:
                break
        return step

    def _judge_step(self, observation: Seen, old: Point, new: Point, error: int) -> Step:
        """Clear if the rule decides the same two standard errors to either side."""

        def passes(shift: int) -> bool:
            return self._rule.passes(
                Point(old.workers, max(1, old.rate - shift)),
                Point(new.workers, max(1, new.rate + shift)),
                observation.outlook,
            )

        return Step(old, new, passes(0), passes(error) == passes(-error))


#: in this order; when all are over, the search settles
_PHASES: tuple[Callable[[Search, Measured], Target | None], ...] = (
    Search._grow,
    Search._refine_down,
    Search._confirm,
    Search._clear_noise,
)


def _hides(observation: Seen, step: Step) -> bool:
    """Whether it is the noise at the present size, and not that at the other one, which hides what the step brings."""
    if observation.workers not in (step.old.workers, step.new.workers):
        return False
    other = step.old.workers if observation.workers == step.new.workers else step.new.workers
    return 2 * observation.means[observation.workers].variance > observation.means[other].variance
