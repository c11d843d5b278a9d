"""L1: whether opening the next gate ahead of the drain wins: two saturating tenants without look-ahead and with it.

It is to be on only if the tenants have more together for it, and no tenant's share is worse.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.sharing.bench import Observed
from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.measure import MS
from benchmarks.sharing.plan import Plan, at_switch
from benchmarks.sharing.rows_shares import DEAR_SWITCH_US, saturating, worst_error_pp
from benchmarks.table import at_least
from vgpud.config import ArbiterConfig

TENANTS = (saturating("a", 0.5), saturating("b", 0.5))
LOOKAHEADS_NS = (0, ArbiterConfig().lookahead_ns)


def l1(plan: Plan) -> Iterator[SharingFigure]:
    """Share error and sum of both at the shipped switch cost and a dear one, and what is gained."""
    for switch_us in (None,) if plan.real else (None, DEAR_SWITCH_US):
        sums, errors = [], []
        for lookahead_ns in LOOKAHEADS_NS:
            case = at_switch(f".5/.5, look-ahead {lookahead_ns / MS:g} ms", switch_us)
            runs = _runs(plan, case, switch_us, lookahead_ns)
            sums.append(statistics.median(sum(run.shares().values()) * 100 for run in runs))
            errors.append(max(worst_error_pp(run, TENANTS) for run in runs))
            yield SharingFigure("L1", case, "together, % of the device, median", sums[-1])
            yield SharingFigure("L1", case, "worst 1 s error, pp", errors[-1])
        case = at_switch(".5/.5, with look-ahead over without", switch_us)
        yield SharingFigure("L1", case, "together, gained, pp", sums[1] - sums[0], at_least(0))
        yield SharingFigure("L1", case, "worst 1 s error, added, pp", errors[1] - errors[0])


def _runs(plan: Plan, case: str, switch_us: int | None, lookahead_ns: int) -> list[Observed]:
    config = ("[arbiter]", f"lookahead_ns = {lookahead_ns}")
    with plan.bench((200,), switch_us, config=config) as here:
        return [plan.run_once(here, "L1", case, TENANTS, True, seed) for seed in range(1, plan.seeds + 1)]
