"""W6: a neighbour goes idle and comes back.

Equal parts, both may borrow all. For every absence and return, from the device's log:
- after how many ms a window of 20 ms begins in which the tenant that stayed has 98 % of the device;
- what the tenant that came back had of the first 5 ms, against an equal part of them;
- after how many ms a window of 50 ms begins in which it has its guarantee (98 % of it: a window cuts leases at its
  ends). The goal's 50 ms grow by what its neighbour may have queued when it came.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.sharing.bench import Observed, Tenant
from benchmarks.sharing.figures import SharingFigure, compare
from benchmarks.sharing.measure import MS, first_ms_with_share, pairs, share
from benchmarks.sharing.plan import Plan
from benchmarks.table import at_least, at_most

STAYS = Tenant("stays", 0.5, 1)
GOES = Tenant("goes", 0.5, 1, active_ms=500, idle_ms=500)
FIRST_NS = 5 * MS
ABSENCE_WINDOW_NS = 20 * MS
RETURN_WINDOW_NS = 50 * MS
NEARLY_ALL = 0.98


def absences_ms(run: Observed) -> list[float]:
    """For each absence: when the tenant that stayed had nearly all."""
    found = pairs(run.phases["goes"], "idle", "active")
    return [
        first_ms_with_share(run.spans["stays"], gone_ns, back_ns, ABSENCE_WINDOW_NS, NEARLY_ALL)
        for gone_ns, back_ns in found
        if run.begin_ns <= gone_ns and back_ns <= run.end_ns
    ]


def returns(run: Observed) -> list[tuple[float, float]]:
    """For each return: (part of an equal part of the first 5 ms, ms until it had its guarantee)."""
    spans = run.spans["goes"]
    return [
        (
            share(spans, back_ns, back_ns + FIRST_NS) / GOES.minimum,
            first_ms_with_share(spans, back_ns, gone_ns, RETURN_WINDOW_NS, NEARLY_ALL * GOES.minimum),
        )
        for back_ns, gone_ns in pairs(run.phases["goes"], "active", "idle")
        if run.begin_ns <= back_ns and gone_ns <= run.end_ns
    ]


def w6(plan: Plan) -> Iterator[SharingFigure]:
    """Absences and returns of half a second each; worst of all, and the median for scale."""
    case = "stays/goes for .5 s"
    with plan.bench((200,)) as here:
        both = plan.both(here, "W6", case, [STAYS, GOES])
    runs = [[pair[i] for pair in both] for i in (0, 1)]
    gone = [[ms for run in some for ms in absences_ms(run)] for some in runs]
    back = [[one for run in some for one in returns(run)] for some in runs]
    yield compare("W6", case, "98 % for who stays, ms, median", map(statistics.median, gone))
    yield compare("W6", case, "98 % for who stays, ms, worst", map(max, gone), at_most(20))
    first = [[part * 100 for part, _ms in some] for some in back]
    first_goal = None if plan.real else at_least(45)  # a report of a burst of 3 ms says too little of 5 ms
    yield compare("W6", case, "first 5 ms, % of an equal part, median", map(statistics.median, first))
    yield compare("W6", case, "first 5 ms, % of an equal part, worst", map(min, first), first_goal)
    until = [[ms for _part, ms in some] for some in back]
    yield compare("W6", case, "its guarantee, ms, median", map(statistics.median, until))
    yield compare("W6", case, "its guarantee, ms, worst", map(max, until), at_most(50 + STAYS.queued_ms))
