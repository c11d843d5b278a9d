"""W2c: two unmodified training programs, which pause between their launches as Python does.

CIFAR trainers (benchmarks/cifar), each with exactly its part, against the same two without a hook in interleaved
pairs. Work is what they report, samples; shares are the device's log. Apart from what they do together, none is to fall
below 90 % of its part of it; at .25/.75 the worst one-second window is judged as well.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.sharing.bench import WARM_UP_S, Bench, Observed
from benchmarks.sharing.figures import SharingFigure, compare, with_window
from benchmarks.sharing.plan import Plan, at_switch
from benchmarks.sharing.rows_shares import worst_error_pp, worst_of_runs
from benchmarks.table import at_least, at_most
from vgpud import paths


@dataclass(frozen=True)
class Trainer:
    """A slice with a CIFAR trainer in it."""

    name: str
    minimum: float
    maximum: float
    processes: int = 1
    times_bursts: bool = False
    latency: bool = False
    warm_up_s: float = WARM_UP_S

    @property
    def env(self) -> Mapping[str, str]:
        """Kernels take what the trainers' model says, so tinygrad need not spend its time on making them fast."""
        return {
            "VGPU_SIM_KERNELS": str(ROOT / "benchmarks" / "cifar" / "kernels.model"),
            "CACHEDB": str(paths.make_private_dir(paths.cache_dir(), 0o755) / "tinygrad.db"),
            "NOOPT": "1",
            "PARALLEL": "0",
        }

    def command(self, rng: random.Random, seconds: int, histogram: Path) -> list[str]:
        """The seed has nothing to move but the start."""
        return [sys.executable, "-m", "benchmarks.cifar.train_tinygrad", "--seconds", str(seconds)]

    def work(self, line: Mapping[str, Any]) -> tuple[int, int] | None:
        """Samples, from the first step after its set-up; what is not completed yet is not reported."""
        if line["event"] == "start":
            return None
        samples = int(line.get("samples", 0))
        return samples, samples


CASES: dict[str, tuple[Trainer, Trainer]] = {
    ".5/.5": (Trainer("a", 0.5, 0.5), Trainer("b", 0.5, 0.5)),
    ".25/.75": (Trainer("a", 0.25, 0.25), Trainer("b", 0.75, 0.75)),
}


def least_of_part(run: Observed, trainers: tuple[Trainer, ...]) -> float:
    """The smallest ratio of a trainer's part of all that was completed to the part it was given."""
    done = sum(run.completed.values())
    return min(run.completed[t.name] / done / t.minimum for t in trainers)


def w2c(plan: Plan) -> Iterator[SharingFigure]:
    """Two trainers in equal and in unequal parts."""
    for switch_us in plan.switches_us():
        with plan.bench((), switch_us) as here:
            for case, trainers in CASES.items():
                yield from _case(plan, here, at_switch(f"trainers {case}", switch_us), trainers)


def _case(plan: Plan, bench: Bench, case: str, trainers: tuple[Trainer, ...]) -> Iterator[SharingFigure]:
    pairs = plan.both(bench, "W2c", case, trainers, is_paired=True)
    together = [tuple(sum(run.completed.values()) for run in pair) for pair in pairs]
    rates = [statistics.median(done[i] for done in together) / plan.seconds for i in (0, 1)]
    yield compare("W2c", case, "together, samples/s", rates)
    ratio = statistics.median(hooked / free for free, hooked in together)
    yield SharingFigure("W2c", case, "together, % of no hook", ratio * 100, at_least(98))
    least = [min(least_of_part(pair[i], trainers) for pair in pairs) * 100 for i in (0, 1)]
    yield compare("W2c", case, "least, % of its part", least, at_least(90))
    errors = [max(worst_error_pp(pair[i], trainers) for pair in pairs) for i in (0, 1)]
    equal = trainers[0].minimum == trainers[1].minimum
    found = compare("W2c", case, "worst 1 s error, pp", errors, None if equal else at_most(3))
    yield with_window(found, worst_of_runs([ours for _, ours in pairs], trainers))
