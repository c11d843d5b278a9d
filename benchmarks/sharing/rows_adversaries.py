"""W10: what an honest tenant keeps of its guarantee beside one that means harm.

The honest one is saturating, kernels of .2 ms, and has a guarantee of .75; the adversary (tenants/adversary.c says what
each does) has the rest, and both may borrow all. Judged is what is missing of the guarantee over the whole run; a
surplus counts as nothing. Beside 16 launching threads also what is missing in the first second after the honest tenant,
which stays attached, was idle: by then they have queued as much as they may. Infinite where an adversary did no harm
at all: then it would prove nothing.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sharing.bench import WARM_UP_S, Bench, Observed, Program, Tenant, built
from benchmarks.sharing.figures import SharingFigure, compare
from benchmarks.sharing.measure import share
from benchmarks.sharing.plan import Plan
from benchmarks.table import at_most
from vgpud.simdevice.busy_log import SECOND_NS

SECOND_US = 1_000_000
#: a guarantee of .25 is a kernel of 1 s in four seconds, and the first are launched unknown
LONG_LEAST_S = 40.0
HOOKED_ONLY = ("ring", "hang_up", "claim", "boast")  # a doorbell, a socket and a page are there under the hook only
HONEST = Tenant("honest", 0.75, 1)
#: attached so long after the others that they have queued as much as they may
LATE_S = 1.0
#: the same, idle now and then; a run is at least two such phases long
RESUMING = dataclasses.replace(HONEST, active_ms=2000, idle_ms=1000)
RESUMING_LEAST_S = 6.0


@dataclass(frozen=True)
class Late(Tenant):
    """A tenant that attaches when the others have had the device to themselves for a while, and is observed at once."""

    warm_up_s: float = 0

    def command(self, rng: random.Random, seconds: int, histogram: Path) -> list[str]:
        """A shell waits, outside of the slice's programs: only what opens the driver is attached."""
        return ["sh", "-c", f'sleep {LATE_S}; exec "$@"', "sh", *super().command(rng, seconds, histogram)]


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
    latency: bool = False
    warm_up_s: float = WARM_UP_S

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
    "only new kernels of 1 s": Adversary("strange", SECOND_US),
    "16 launching threads": Adversary("threads"),
    "dies and comes back": Adversary("respawn"),
    "gives its context back and takes another": Adversary("reopen"),
    "fork storm": Adversary("forks"),
    "floods its doorbell": Adversary("ring"),
    "stops inside launches": Adversary("stop"),
    "holds a capture open": Adversary("capture"),
    "closes its attach socket": Adversary("hang_up"),
    "claims to wait, and launches nothing": Adversary("claim", minimum=0.01),
    "boasts of what it has completed": Adversary("boast"),
    "is of the latency class": Adversary("endless", latency=True),
}


def shortfall_pp(run: Observed) -> float:
    """What is missing of the honest tenant's guarantee over the whole run, in percentage points of the device."""
    if not run.completed["adversary"]:
        return float("inf")
    return max(0.0, HONEST.minimum - run.share(HONEST.name)) * 100


def second_shortfall_pp(run: Observed) -> float:
    """The same of the worst one-second window: a stall that is made up for later shows here."""
    return max(0.0, HONEST.minimum - min(run.windows(HONEST.name))) * 100


def resume_shortfall_pp(run: Observed) -> float:
    """The same of the worst first second after the honest tenant was idle."""
    resumed = [at_ns for at_ns, phase in run.phases[HONEST.name] if phase == "active"]
    firsts = [at_ns for at_ns in resumed if run.begin_ns <= at_ns <= run.end_ns - SECOND_NS]
    if not firsts or not run.completed["adversary"]:
        return float("inf")
    least = min(share(run.spans[HONEST.name], at_ns, at_ns + SECOND_NS) for at_ns in firsts)
    return max(0.0, HONEST.minimum - least) * 100


def resuming_seconds(plan: Plan) -> float:
    """How long the run with an honest tenant that resumes is observed."""
    return max(plan.seconds, RESUMING_LEAST_S)


def seconds_of(plan: Plan, adversary: Adversary) -> float:
    """How long it is observed."""
    return max(plan.seconds, LONG_LEAST_S) if adversary.kernel_us >= SECOND_US else plan.seconds


def w10(plan: Plan) -> Iterator[SharingFigure]:
    """For each adversary the worst run, and the worst second for scale."""
    for seconds in sorted({seconds_of(plan, adversary) for adversary in CASES.values()}):
        with plan.bench((HONEST.kernel_us, SECOND_US), seconds=seconds) as here:
            for case, adversary in CASES.items():
                if seconds_of(plan, adversary) == seconds:
                    name = f"{case}, over {seconds:g} s" if adversary.kernel_us >= SECOND_US else case
                    yield from _case(plan, here, name, adversary)
    with plan.bench((HONEST.kernel_us,)) as here:
        yield from _late(plan, here)
    with plan.bench((HONEST.kernel_us,), seconds=resuming_seconds(plan)) as here:
        case = "16 launching threads, the honest tenant resumes"
        runs = _runs(plan, here, case, [RESUMING, Adversary("threads")], False)
        got = [max(map(resume_shortfall_pp, some)) for some in runs]
        yield compare("W10", case, "honest tenant lacks, worst first second, pp", got, at_most(2))


def _late(plan: Plan, bench: Bench) -> Iterator[SharingFigure]:
    case = "16 launching threads, the honest tenant attaches"
    late = Late(HONEST.name, HONEST.minimum, 1)
    runs = _runs(plan, bench, case, [late, Adversary("threads", warm_up_s=0)], False)
    got = [max(map(shortfall_pp, some)) for some in runs]
    yield compare("W10", case, "honest tenant lacks from its first second on, pp", got, at_most(2))
    firsts = [max((HONEST.minimum - run.windows(HONEST.name)[0]) * 100 for run in some) for some in runs]
    yield compare("W10", case, "the same, first second, pp", firsts)


def _case(plan: Plan, bench: Bench, case: str, adversary: Adversary) -> Iterator[SharingFigure]:
    runs = _runs(plan, bench, case, [HONEST, adversary], adversary.mode in HOOKED_ONLY)
    got = [max(map(shortfall_pp, some)) if some else None for some in runs]
    yield compare("W10", case, "honest tenant lacks, pp", got, at_most(2))
    worst = [max(map(second_shortfall_pp, some)) if some else None for some in runs]
    yield compare("W10", case, "the same, worst 1 s, pp", worst)


def _runs(plan: Plan, bench: Bench, case: str, tenants: list[Program], hooked_only: bool) -> list[list[Observed]]:
    """Runs without a hook and under our arbiter."""
    if hooked_only:
        return [[], [plan.run_once(bench, "W10", case, tenants, True, seed) for seed in range(1, plan.seeds + 1)]]
    pairs = plan.both(bench, "W10", case, tenants)
    return [[pair[i] for pair in pairs] for i in (0, 1)]
