"""W2, W2b: tenants that leave gaps. W4: inference beside training."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from operator import truediv

from benchmarks.sharing.bench import Bench, Observed, Tenant
from benchmarks.sharing.figures import SharingFigure, compare
from benchmarks.sharing.measure import merge_histograms
from benchmarks.sharing.plan import Plan, at_switch
from benchmarks.table import at_least, at_most

KERNELS_US = (20, 200, 2000)
INFERENCE_PERIOD_US = 8000
#: the yardstick is the best of these: a machine's own hiccup must not make it longer and the goal easier
ALONE_RUNS = 3


def launch_bound(name: str, part: float) -> Tenant:
    """50 kernels of 20 us, then a host gap of the same length: half a device busy when alone."""
    return Tenant(name, part, part, kernel_us=20, burst=50, gap_us=1000)


def w2(plan: Plan) -> Iterator[SharingFigure]:
    """2, 3 and 4 launch-bound tenants in equal parts, against the same without a hook, in interleaved pairs."""
    for switch_us in plan.switches_us():
        with plan.bench(KERNELS_US, switch_us) as here:
            for count in (2, 3, 4):
                yield from _w2_case(plan, here, at_switch(f"{count} launch-bound", switch_us), count)


def _w2_case(plan: Plan, bench: Bench, case: str, count: int) -> Iterator[SharingFigure]:
    tenants = [launch_bound(f"l{i}", 1000 // count / 1000) for i in range(count)]
    ways = plan.all_ways(bench, "W2", case, tenants, is_paired=True)
    free, *together = [[sum(run.completed.values()) for run in runs] for runs in ways]
    rates = [statistics.median(done) / plan.seconds / 1000 for done in (free, *together)]
    yield compare("W2", case, "together, thousand kernels/s", rates)
    ratios = [statistics.median(map(truediv, done, free)) * 100 for done in together]
    yield compare("W2", case, "together, % of no hook", [None, *ratios], at_least(98))
    least = [min(map(least_part, runs)) * 100 for runs in ways]
    yield compare("W2", case, "least, % of an equal part", least, at_least(90))


def least_part(run: Observed) -> float:
    """The smallest tenant's completed work over an equal part of all that was completed."""
    done = list(run.completed.values())
    return min(done) * len(done) / sum(done)


def w2b(plan: Plan) -> Iterator[SharingFigure]:
    """A launch-bound tenant beside a saturating one: each against the smaller of its demand and its part."""
    with plan.bench(KERNELS_US) as here:
        free = plan.run_once(here, "W2b", "launch-bound alone", [launch_bound("bound", 1)], False)
        demand = {"bound": free.share("bound"), "saturating": 1.0}
        yield SharingFigure("W2b", "launch-bound alone", "share, %", None, unhooked_value=demand["bound"] * 100)
        for part in (0.2, 0.4):
            tenants = [launch_bound("bound", part), Tenant("saturating", 1 - part, 1 - part)]
            case = f"launch-bound {part:g}/saturating {1 - part:g}"
            ways = plan.all_ways(here, "W2b", case, tenants)
            for tenant in tenants:
                due = min(demand[tenant.name], tenant.minimum)
                got = [min(run.share(tenant.name) for run in runs) / due * 100 for runs in ways]
                yield compare("W2b", case, f"{tenant.name}, % of its due", got, at_least(95))


def w4(plan: Plan) -> Iterator[SharingFigure]:
    """Bursts of 4 ms due every 8 ms beside saturating training; latencies against the same bursts alone."""
    inference = Tenant("inference", 0.5, 1, burst=20, period_us=INFERENCE_PERIOD_US, latency=True)
    for switch_us in plan.switches_us():
        with plan.bench(KERNELS_US, switch_us) as here:
            case = at_switch("inference alone", switch_us)
            alone = [plan.run_once(here, "W4", case, [inference], False, seed) for seed in range(1, ALONE_RUNS + 1)]
            alone_ns = min(p99_ns([run]) for run in alone)
            yield SharingFigure("W4", case, "p99, ms", None, unhooked_value=alone_ns / 1e6)
            for kernel_us, bound in ((200, 1.5), (2000, 1.35)):
                trainer = Tenant("training", 0.5, 1, kernel_us, burst=3200 // kernel_us)
                case = at_switch(f"beside training ({kernel_us / 1000:g} ms)", switch_us)
                ways = plan.all_ways(here, "W4", case, [inference, trainer])
                yield compare("W4", case, "p99 / p99 alone", [p99_ns(runs) / alone_ns for runs in ways], at_most(bound))
                skipped = [skipped_part(runs, plan.seconds) * 100 for runs in ways]
                yield compare("W4", case, "bursts not begun in their period, %", skipped)
                kept = [min(run.share("training") for run in runs) * 100 for runs in ways]
                yield compare("W4", case, "training keeps, %", kept, at_least(47))


def p99_ns(runs: list[Observed]) -> float:
    """99th percentile of the inference bursts of all runs."""
    return merge_histograms(h for run in runs for h in run.latencies["inference"]).percentile_ns(0.99)


def skipped_part(runs: list[Observed], seconds: float) -> float:
    """Periods in which no burst was begun because an earlier one still ran, of all periods: the tail's other half."""
    skipped = sum(h.skipped_periods for run in runs for h in run.latencies["inference"])
    return skipped / (len(runs) * seconds * 1e6 / INFERENCE_PERIOD_US)
