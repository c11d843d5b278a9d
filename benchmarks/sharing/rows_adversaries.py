"""W10: what an honest tenant keeps of its guarantee beside one that means harm.

The honest one is saturating, kernels of .2 ms, and has a guarantee of .75; the adversary (tenants/adversary.c says what
each does) has the rest, and both may borrow all. The figure is what lacks of the guarantee over the whole run; a
surplus counts as nothing. Infinite where an adversary did no harm at all: then it would prove nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sharing.bench import Observed, Tenant, bench, built
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.table import Figure, Goal, compared

SECOND_US = 1_000_000
HONEST = Tenant("honest", 0.75, 1)


@dataclass(frozen=True)
class Adversary:
    """A slice with tenants/adversary.c in it."""

    mode: str
    kernel_us: int = 200
    name: str = "adversary"
    minimum: float = 0.25
    maximum: float = 1
    processes: int = 1
    times_bursts: bool = False

    @property
    def env(self) -> Mapping[str, str]:
        return {}

    def command(self, rng: random.Random, seconds: int, histogram: Path) -> list[str]:
        """It runs until SIGTERM. The seed moves its random moments."""
        return [str(built("tenants/adversary.c")), self.mode, str(self.kernel_us), str(rng.randint(1, 1 << 30))]

    def work(self, line: Mapping[str, Any]) -> tuple[int, int] | None:
        """Its misdeeds."""
        return line["issued"], line["completed"]


CASES: dict[str, Adversary] = {
    "never synchronises": Adversary("endless"),
    "only kernels of 1 s": Adversary("endless", SECOND_US),
    "16 launching threads": Adversary("threads"),
    "dies and comes back": Adversary("respawn"),
    "fork storm": Adversary("forks"),
    "floods its doorbell": Adversary("ring"),
    "stops inside launches": Adversary("stop"),
}


def lacking_pp(run: Observed) -> float:
    """What the honest tenant lacks of its guarantee, in percentage points of the device."""
    if not run.completed["adversary"]:
        return float("inf")
    return max(0.0, HONEST.minimum - run.share(HONEST.name)) * 100


def w10(plan: Plan) -> Iterator[Figure]:
    """One figure for each adversary: the worst run."""
    with bench(plan.seconds, (HONEST.kernel_us, SECOND_US)) as here:
        for case, adversary in CASES.items():
            pairs = plan.both(here, "W10", case, [HONEST, adversary])
            got = [max(lacking_pp(pair[i]) for pair in pairs) for i in (0, 1)]
            yield compared("W10", case, "honest tenant lacks, pp", got, Goal(2))
