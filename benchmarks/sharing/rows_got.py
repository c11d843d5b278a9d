"""W11: the device time that a slice is said to have used (GOT in `vgpu top`) against the device's own log.

Kernels of 10, 20, 100 us and 1 ms; a slice with a cap of .3 and one without, alone and beside a saturating neighbour
with the rest. Once a second the daemon is asked for the slice's charged time, whose last and first values are compared
with the busy log between these two moments; the worst second is shown beside. A capped slice that is alone is also to
compute its cap, not only to be said to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

from benchmarks.sharing.bench import Observed, Running, Tenant
from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.measure import share
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.rows_shares import saturating
from benchmarks.table import at_least, at_most
from vgpud.cli.demo.private_system import PartError
from vgpud.client import calls
from vgpud.simdevice.busy_log import SECOND_NS

KERNELS_US = (10, 20, 100, 1000)
CAP = 0.3
#: what a slice alone has used is read ten times a second: an answer may be a tenth of a second old
LEAST_S = 20.0
NEIGHBOUR = saturating("neighbour", 0.7)

#: when the daemon answered, CLOCK_MONOTONIC, and the device time charged to each tenant's slice until then, ns
Answer = tuple[int, dict[str, int]]


def ask_every_second(running: Running) -> list[Answer]:
    """What the daemon says at the begin, after each second, and at the end. Raises PartError."""
    answers: list[Answer] = []
    for at_ns in range(running.begin_ns, running.end_ns + 1, SECOND_NS):
        running.wait_until(at_ns)
        with running.own.client() as client:
            asked_ns = time.monotonic_ns()
            slices = {made.name: made for made in client.all(calls.slices())}
            answered_ns = time.monotonic_ns()
        charged = {name: sum(d.charged_ns for d in slices[made].devices) for name, made in running.slices.items()}
        answers.append(((asked_ns + answered_ns) // 2, charged))
    if len(answers) < 2:
        raise PartError("a run of less than a second says nothing about its usage")
    return answers


def errors_pp(run: Observed, name: str, answers: Sequence[Answer]) -> list[float]:
    """Charged minus computed device time between each two answers that follow each other, in percentage points."""
    return [
        ((now[name] - before[name]) / (now_ns - before_ns) - share(run.spans[name], before_ns, now_ns)) * 100
        for (before_ns, before), (now_ns, now) in pairwise(answers)
    ]


def _answers(run: Observed) -> list[Answer]:
    return [(at_ns, charged) for at_ns, charged in run.notes]


def w11(plan: Plan) -> Iterator[SharingFigure]:
    """Each kernel length capped and not, alone and beside the neighbour."""
    with plan.bench((*KERNELS_US, NEIGHBOUR.kernel_us), seconds=max(plan.seconds, LEAST_S)) as here:
        for kernel_us in KERNELS_US:
            capped = saturating("slice", CAP, kernel_us)
            free = Tenant("slice", CAP, 1, kernel_us, capped.burst)
            for what, tenants in (
                (f"cap {CAP:g} alone", [capped]),
                (f"cap {CAP:g} beside", [capped, NEIGHBOUR]),
                ("uncapped alone", [free]),
                (f"{CAP:g} uncapped beside", [free, NEIGHBOUR]),
            ):
                case = f"{kernel_us / 1000:g} ms, {what}"
                runs = [
                    plan.run_once(here, "W11", case, tenants, True, seed, side_task=ask_every_second)
                    for seed in range(1, plan.seeds + 1)
                ]
                yield from _case(case, runs, tenants == [capped])


def _case(case: str, runs: Sequence[Observed], capped_alone: bool) -> Iterator[SharingFigure]:
    whole: list[float] = []
    seconds: list[float] = []
    for run in runs:
        answers = _answers(run)
        for name in run.spans:
            whole += errors_pp(run, name, [answers[0], answers[-1]])
            seconds += errors_pp(run, name, answers)
    yield SharingFigure("W11", case, "GOT minus the log, pp", max(whole, key=abs))
    yield SharingFigure("W11", case, "distance, pp", max(map(abs, whole)), at_most(1))
    yield SharingFigure("W11", case, "distance, worst 1 s, pp", max(map(abs, seconds)))
    if capped_alone:
        least = min(run.share("slice") for run in runs) / CAP * 100
        yield SharingFigure("W11", case, "computed, % of the cap", least, at_least(97))


def runs_of(seeds: int) -> int:
    """How many runs the row takes."""
    return len(KERNELS_US) * 4 * seeds
