"""W1: shares of saturating tenants. W5: caps of a tenant that has the device to itself."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.sharing.bench import Bench, Observed, Program, Tenant
from benchmarks.sharing.figures import SharingFigure, compare, with_window
from benchmarks.sharing.measure import WorstWindow, jain, worst_window
from benchmarks.sharing.plan import Plan, at_switch
from benchmarks.table import at_least, at_most
from vgpud.simdevice.busy_log import WINDOW_NS

LONG_KERNEL_US = 40_000
#: W1's sum has a goal of its own at this switch cost
DEAR_SWITCH_US = 100


def saturating(name: str, part: float, kernel_us: int = 200, processes: int = 1) -> Tenant:
    """Exactly this part of the device, always busy. About 3 ms a burst, three of them in flight."""
    burst = max(1, 3200 // kernel_us)
    return Tenant(name, part, part, kernel_us, burst, processes=processes)


def _eighths(kernels_us: Sequence[int]) -> tuple[Tenant, ...]:
    return tuple(saturating(f"t{i}", 0.125, kernels_us[i % len(kernels_us)]) for i in range(8))


#: case -> tenants; kernels of .2 ms where the name says nothing else
W1_DEFAULT: Mapping[str, tuple[Tenant, ...]] = {
    ".5/.5": (saturating("a", 0.5), saturating("b", 0.5)),
    ".25 (.02 ms)/.75 (2 ms)": (saturating("a", 0.25, 20), saturating("b", 0.75, 2000)),
    ".5/.3 (2 ms)/.2 (40 ms)": (saturating("a", 0.5), saturating("b", 0.3, 2000), saturating("c", 0.2, LONG_KERNEL_US)),
    "8 x .125 (.02, .2, 2 ms)": _eighths((20, 200, 2000)),
    ".5 by 4 processes/.5 by 1": (saturating("a", 0.5, processes=4), saturating("b", 0.5)),
}
W1_MORE: Mapping[str, tuple[Tenant, ...]] = {
    ".5 (.02 ms)/.5 (40 ms)": (saturating("a", 0.5, 20), saturating("b", 0.5, LONG_KERNEL_US)),
    ".5 (2 ms)/.5": (saturating("a", 0.5, 2000), saturating("b", 0.5)),
    ".25/.75": (saturating("a", 0.25), saturating("b", 0.75)),
    ".25 (40 ms)/.75": (saturating("a", 0.25, LONG_KERNEL_US), saturating("b", 0.75)),
    ".1/.9": (saturating("a", 0.1), saturating("b", 0.9)),
    ".1 (2 ms)/.9 (.02 ms)": (saturating("a", 0.1, 2000), saturating("b", 0.9, 20)),
    ".5 (.02 ms)/.3/.2 (2 ms)": (saturating("a", 0.5, 20), saturating("b", 0.3), saturating("c", 0.2, 2000)),
    "8 x .125": _eighths((200,)),
    "8 x .125 (.02, .2, 2, 40 ms)": _eighths((20, 200, 2000, LONG_KERNEL_US)),
}
KERNELS_US = (20, 200, 2000, LONG_KERNEL_US)


def worst_error_pp(run: Observed, tenants: Sequence[Program], window_ns: int = WINDOW_NS) -> float:
    """The largest distance of a window of a tenant (of one second) from its part, in percentage points."""
    return max(abs(got - t.minimum) * 100 for t in tenants for got in run.windows(t.name, window_ns))


def worst_of_runs(runs: Sequence[Observed], tenants: Sequence[Program], window_ns: int = WINDOW_NS) -> WorstWindow:
    """worst_error_pp() of several runs, with what the host took in that window."""
    return worst_window(
        (abs(got - t.minimum) * 100, stolen)
        for run in runs
        for t in tenants
        for got, stolen in zip(run.windows(t.name, window_ns), run.stolen(window_ns), strict=True)
    )


def worst_jain(run: Observed) -> float:
    """The smallest fairness index of a one-second window."""
    each = [run.windows(name) for name in run.spans]
    return min(jain(together) for together in zip(*each, strict=True))


def w1(plan: Plan) -> Iterator[SharingFigure]:
    """Worst one-second error, sum against one tenant alone, fairness of equal parts."""
    mixes = {**W1_DEFAULT, **W1_MORE} if plan.full else W1_DEFAULT
    for switch_us in plan.switches_us(DEAR_SWITCH_US):
        with plan.bench(KERNELS_US, switch_us) as here:
            alone = plan.run_once(here, "W1", at_switch("alone", switch_us), [saturating("alone", 1)], False).share(
                "alone"
            )
            for name, tenants in mixes.items():
                yield from _w1_case(plan, here, at_switch(name, switch_us), tenants, alone, switch_us)


def _w1_case(
    plan: Plan, bench: Bench, case: str, tenants: Sequence[Tenant], solo_work: float, switch_us: int | None
) -> Iterator[SharingFigure]:
    ways = plan.all_ways(bench, "W1", case, tenants)
    long_kernels = any(t.kernel_us >= LONG_KERNEL_US for t in tenants)
    errors = [max(worst_error_pp(run, tenants) for run in runs) for runs in ways]
    found = compare("W1", case, "worst 1 s error, pp", errors, at_most(2 if long_kernels else 1))
    yield with_window(found, worst_of_runs(ways[1], tenants))
    sums = [min(sum(run.shares().values()) for run in runs) / solo_work * 100 for runs in ways]
    goal = at_least(98 if switch_us == DEAR_SWITCH_US else 99)
    yield compare("W1", case, "sum, % of one alone", sums, goal)
    several = [t for t in tenants if t.processes > 1]
    if several:  # their own changes of context are lost without any other tenant, too
        own = sum(
            (plan.run_once(bench, "W1", f"{case}, alone", [t], False).share(t.name) - solo_work) * t.minimum
            for t in several
        )
        yield compare(
            "W1", case, "sum, % of the same tenants alone", [part * solo_work / (solo_work + own) for part in sums]
        )
    if len({t.minimum for t in tenants}) == 1:
        fairness = [min(worst_jain(run) for run in runs) for runs in ways]
        yield compare("W1", case, "Jain, worst 1 s", fairness, at_least(0.99))


def w5(plan: Plan) -> Iterator[SharingFigure]:
    """How exactly a cap holds for a slice alone, and what it costs one that stays below it."""
    with plan.bench(KERNELS_US) as here:
        for cap in (0.1, 0.3, 0.5):
            yield _cap(plan, here, cap, 200)
        for cap in (0.1, 0.3, 0.5) if plan.full else (0.3,):
            yield _cap(plan, here, cap, LONG_KERNEL_US)
        below = Tenant("below", 0.5, 0.5, burst=15, period_us=10_000)
        case = "busy 30 % under a cap of .5"
        free, *ways = plan.all_ways(here, "W5", case, [below], is_paired=True)
        lost = [statistics.median(_lost_percent(*pair) for pair in zip(free, runs, strict=False)) for runs in ways]
        yield compare("W5", case, "completed work lost, %", [None, *lost], at_most(1))


def _lost_percent(free: Observed, held: Observed) -> float:
    return (1 - held.completed["below"] / free.completed["below"]) * 100


def _cap(plan: Plan, bench: Bench, cap: float, kernel_us: int) -> SharingFigure:
    """Without a hook nothing caps: only the others are run. No goal for long kernels, they are reported."""
    tenant = saturating("capped", cap, kernel_us)
    case = f"cap {cap:g} ({kernel_us / 1000:g} ms) alone"
    ways = plan.all_ways(bench, "W5", case, [tenant], free=False)
    worst = [max(worst_error_pp(run, [tenant]) for run in runs) for runs in ways]
    goal = at_most(1) if kernel_us < LONG_KERNEL_US else None
    found = compare("W5", case, "worst 1 s error, pp", [None, *worst], goal)
    return with_window(found, worst_of_runs(ways[0], [tenant]))
