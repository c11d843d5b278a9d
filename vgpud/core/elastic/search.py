"""The search of MLSys'20: upward by SPAWN workers while every step is worth it, then down by one until steps are again.

It settles at the first size whose next step is not worth it, below which RUN steps in a row are. What it wants next
follows from what has been measured alone: each size is asked for at most three times (to look, to settle, and to be
sure where noise hides what a step brings), so a search ends after at most 3 x (most - least + 1) changes.

At 50 workers one more is 2 % of the rate. Where noise is larger, it measures longer, up to UNCLEAR_STEPS, and looks at
up to WIDE sizes on either side of a step.
"""

from __future__ import annotations

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


class Search:
    """A heuristic for every rule that judges steps."""

    def __init__(self, rule: Rule) -> None:
        self.name = rule.name
        self._rule = rule

    def target(self, seen: Seen) -> Target:
        sizes = sorted(
            k for k, mean in seen.means.items() if mean.steps >= PROBE_STEPS and seen.least <= k <= seen.most
        )
        if seen.workers not in sizes:
            size = min(max(seen.workers, seen.least), seen.most)  # while a straggler is replaced there is one more
            return Target(size, PROBE_STEPS, f"what it does with {size} is to be measured first")
        found = [self._step(seen, low, high) for low, high in pairwise(sizes)]
        here = seen.means[seen.workers].steps
        noisy = next((step for step in found if not step.clear and _hides(seen, step)), None)
        if noisy and here < UNCLEAR_STEPS:
            return Target(seen.workers, here + PROBE_STEPS, f"{self._why(seen, noisy)}: not sure yet")
        return self._next(seen, sizes, found)

    def _next(self, seen: Seen, sizes: list[int], found: list[Step]) -> Target:
        top = sizes[-1]
        rest, run = top, 0
        for step in reversed(found):
            rest, run = (rest, run + 1) if step.passes else (step.old.workers, 0)
            if run == RUN:
                break
        if rest == top < seen.most:
            why = self._why(seen, found[-1]) if found else "there is nothing to compare with"
            return Target(min(top + SPAWN, seen.most), PROBE_STEPS, f"{why}: more are tried")
        if rest < seen.most and rest + 1 not in sizes:
            above = next(size for size in sizes if size > rest)
            return self._down(seen, found, above - 1)
        if rest > seen.least and rest - 1 not in sizes:
            return self._down(seen, found, rest - 1)
        if run < RUN and rest > sizes[0] > seen.least:
            return self._down(seen, found, sizes[0] - 1)
        for size in (rest + 1, rest):
            if size <= seen.most and seen.means[size].steps < SETTLE_STEPS:
                return Target(size, SETTLE_STEPS, f"{size} workers are measured again before it settles")
        for step in found:
            for point in (step.new, step.old):
                unsure = not step.clear and rest in (step.new.workers, step.old.workers)
                if unsure and seen.means[point.workers].steps < UNCLEAR_STEPS:
                    return Target(point.workers, UNCLEAR_STEPS, f"{self._why(seen, step)}: not sure yet")
        failed = [step for step in found if step.old.workers == rest]
        return Target(rest, 0, self._why(seen, failed[0]) if failed else f"{rest} workers are worth it, and the most")

    def _down(self, seen: Seen, found: list[Step], size: int) -> Target:
        failed = [step for step in found if not step.passes and step.new.workers > size]
        why = f"{self._why(seen, failed[0])}: " if failed else ""
        return Target(size, PROBE_STEPS, f"{why}{size} {'is' if size == 1 else 'are'} tried")

    def _why(self, seen: Seen, step: Step) -> str:
        return self._rule.reason(step.old, step.new, seen.outlook)

    def _step(self, seen: Seen, low: int, high: int) -> Step:
        """From the two means, or of a step by one worker from as many neighbours as make it clear."""
        for wide in range(1, WIDE + 1):
            below, above = range(low - wide + 1, low + 1), range(high, high + wide)
            known = all(size in seen.means and seen.means[size].steps >= PROBE_STEPS for size in (*below, *above))
            if wide > 1 and (high - low > 1 or not known):
                break
            old_rate, new_rate, error = across([seen.means[k] for k in below], [seen.means[k] for k in above])
            step = self._judged(seen, Point(low, old_rate), Point(high, new_rate), error)
            if step.clear:
                break
        return step

    def _judged(self, seen: Seen, old: Point, new: Point, error: int) -> Step:
        """Clear if the rule says the same two standard errors to either side."""

        def passes(shift: int) -> bool:
            return self._rule.passes(
                Point(old.workers, max(1, old.rate - shift)), Point(new.workers, max(1, new.rate + shift)), seen.outlook
            )

        return Step(old, new, passes(0), passes(error) == passes(-error))


def _hides(seen: Seen, step: Step) -> bool:
    """Whether it is the noise at the present size, and not that at the other one, which hides what the step brings."""
    if seen.workers not in (step.old.workers, step.new.workers):
        return False
    other = step.old.workers if seen.workers == step.new.workers else step.new.workers
    return 2 * seen.means[seen.workers].variance > seen.means[other].variance
