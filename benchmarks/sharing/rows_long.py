"""W3: tenants that hold the device for long: kernels of 40 ms and 1 s, deep queues, graphs of 50 ms.

Each beside a tenant with kernels of .2 ms, both saturating, each with exactly its part. A kernel of 1 s is longer than
a one-second window, so errors are those of sliding windows of 5 s; with 1 s kernels also the whole of a run of 60 s,
which only a full run has. They are measured from the 10th second on: the first two are launched before their
cost is known. A deep queue is 1000 kernels of .2 ms on each of 8 streams, 1.6 s of work; a graph has 250
nodes of .2 ms. For both the bound is that of 40 ms kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.sharing.bench import Bench, Tenant
from benchmarks.sharing.figures import SharingFigure, compare, with_window
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.rows_shares import LONG_KERNEL_US, saturating, worst_error_pp, worst_of_runs
from benchmarks.table import at_most
from vgpud.simdevice.busy_log import SECOND_NS

WINDOW_NS = 5 * SECOND_NS
MINUTE_S = 60.0
LEAST_S = 6.0
SECOND_US = 1_000_000
KERNELS_US = (200, LONG_KERNEL_US, SECOND_US)


def _second(part: float) -> Tenant:
    return Tenant("long", part, part, SECOND_US, burst=1, depth=2, warm_up_s=10)


def _deep(part: float) -> Tenant:
    return Tenant("long", part, part, burst=250, depth=32, streams=8)


def _graphs(part: float) -> Tenant:
    return Tenant("long", part, part, burst=250, depth=2, graph=True)


#: case -> (the tenant that holds the device for long, bound in percentage points over 5 s); beside it kernels of .2 ms
DEFAULT: dict[str, tuple[Tenant, float]] = {
    ".5 (40 ms)/.5": (saturating("long", 0.5, LONG_KERNEL_US), 1),
    ".5 (1 s)/.5": (_second(0.5), 1),
    ".25 (1 s)/.75": (_second(0.25), 6),
    ".5 (deep queues)/.5": (_deep(0.5), 1),
    ".25 (graphs of 50 ms)/.75": (_graphs(0.25), 1),
}
MORE: dict[str, tuple[Tenant, float]] = {
    ".25 (40 ms)/.75": (saturating("long", 0.25, LONG_KERNEL_US), 1),
    ".75 (40 ms)/.25": (saturating("long", 0.75, LONG_KERNEL_US), 1),
    ".75 (1 s)/.25": (_second(0.75), 6),
    ".25 (deep queues)/.75": (_deep(0.25), 1),
    ".5 (graphs of 50 ms)/.5": (_graphs(0.5), 1),
}


def w3(plan: Plan) -> Iterator[SharingFigure]:
    """Worst error of 5 s windows, and of whole minutes for the longest kernels."""
    cases = {**DEFAULT, **MORE} if plan.full else DEFAULT
    with plan.bench(KERNELS_US, seconds=max(plan.seconds, LEAST_S)) as here:
        for case, (long, bound_pp) in cases.items():
            yield from _case(plan, here, case, [long, saturating("short", round(1 - long.minimum, 3))], bound_pp)


def _case(plan: Plan, bench: Bench, case: str, tenants: list[Tenant], bound_pp: float) -> Iterator[SharingFigure]:
    pairs = plan.both(bench, "W3", case, tenants)
    worst = [max(worst_error_pp(pair[i], tenants, WINDOW_NS) for pair in pairs) for i in (0, 1)]
    found = compare("W3", case, "worst 5 s error, pp", worst, at_most(bound_pp))
    yield with_window(found, worst_of_runs([ours for _, ours in pairs], tenants, WINDOW_NS))
    if tenants[0].kernel_us == SECOND_US and plan.seconds >= MINUTE_S:
        whole = [max(abs(pair[i].share(t.name) - t.minimum) for pair in pairs for t in tenants) * 100 for i in (0, 1)]
        yield compare("W3", case, f"error over {plan.seconds:g} s, pp", whole, at_most(1))
