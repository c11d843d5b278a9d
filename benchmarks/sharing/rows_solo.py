"""W8: what the arbiter costs a tenant that has a device to itself.

Throughput: pairs of runs of the same load, in a slice with max 1.0 and without a hook (which comes first alternates);
the mean of the pairs' ratios and Student's 95 % interval about it. Loads: kernels of 0.2 ms and of 0.02 ms without a
break, and the launch-bound one of W2. Launches: what one costs at the open gate, over a stub driver; see
benchmarks/launch_overhead.py.
"""

from __future__ import annotations

import functools
import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import harness, overhead
from benchmarks.launch_overhead import ROWS as LAUNCHES
from benchmarks.launch_overhead import THREADS, run_neighbour
from benchmarks.sharing.bench import Bench, Tenant
from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.rows_bursts import launch_bound
from benchmarks.sharing.rows_shares import saturating
from benchmarks.table import at_least, at_most

#: pairs of runs, and of how many seconds each: short and many, as it is their scatter that decides
PAIRS, PAIR_SECONDS = 6, 3.0
FULL_PAIRS, FULL_PAIR_SECONDS = 20, 10.0
#: Student's t for a two-sided 95 % interval, by number of pairs
T_95 = {PAIRS: 2.571, FULL_PAIRS: 2.093}
LAUNCH_REPEATS = 3
LOADS = {
    "0.2 ms kernels": saturating("solo", 1),
    "0.02 ms kernels": saturating("solo", 1, 20),
    "launch-bound, 0.02 ms": launch_bound("solo", 1),
}


def w8(plan: Plan) -> Iterator[SharingFigure]:
    """Throughput of a solo tenant against none of us, and ns of a launch over the direct call."""
    with plan.bench((20, 200), seconds=FULL_PAIR_SECONDS if plan.full else PAIR_SECONDS) as here:
        for case, tenant in LOADS.items():
            percents = _pairs(plan, here, case, tenant)
            mean, lower = interval(percents)
            yield SharingFigure("W8", case, "throughput, % of no hook", mean, at_least(99.5))
            yield SharingFigure("W8", case, "lower end of its 95 % interval", lower, at_least(99))
    if not plan.real:  # a launch of nothing has no place on a real device
        yield from _launches(plan)


def _pairs(plan: Plan, bench: Bench, case: str, tenant: Tenant) -> list[float]:
    """Completed work in a slice, in percent of the same without a hook, by pair. One seed: the same load."""
    percents = []
    for pair in range(FULL_PAIRS if plan.full else PAIRS):
        done = {}
        for hooked in (False, True) if pair % 2 else (True, False):
            done[hooked] = plan.run_once(bench, "W8", case, [tenant], hooked).completed[tenant.name]
        percents.append(done[True] / done[False] * 100)
    return percents


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the lower end of Student's 95 % interval about it."""
    mean = statistics.mean(values)
    return mean, mean - T_95[len(values)] * statistics.stdev(values) / math.sqrt(len(values))


def _launches(plan: Plan) -> Iterator[SharingFigure]:
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as folder, harness.system(harness.one_device()) as own:
        for name, row in LAUNCHES.items():
            stub = overhead.build_stub(Path(folder), row.events)
            for threads in THREADS:
                case = f"launch, gate open ({name.replace('_', ' ')}), {threads} thread{'s' if threads > 1 else ''}"
                measure = functools.partial(
                    overhead.measure, own, stub, row.state, row.mode, threads, row.calls, pairs=row.pairs
                )
                with run_neighbour(own, row.neighbour):
                    found = [plan.keep(("W8", case), measure)["difference_ns"] for _ in range(LAUNCH_REPEATS)]
                plan.raw.setdefault("W8", []).append({"case": case, "ns": found})
                yield SharingFigure("W8", case, "ns over direct", statistics.median(found), at_most(row.goal_ns))
