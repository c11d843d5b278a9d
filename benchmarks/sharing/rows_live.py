"""W7: shares that change while all tenants work.

Two saturating tenants hold .2 and .8 of the device and swap their parts every second, by the calls that `vgpu slice
set` makes: first the larger slice is made small, then the smaller one large, so that the minima fit at every moment. A
change is in force from the first moment at which a window of 100 ms begins in which both have their new parts (within
2 pp); windows begin every millisecond and lie wholly between this change and the next. That moment is counted from the
start of the first of the two calls, so both calls are in it. The tolerance is worth 3 ms of the old parts in a window;
and as a window may be lucky, the rest of the second is shown as well.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.sharing.bench import Observed, Running
from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.measure import MS, first_ms_within, share
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.rows_shares import saturating
from benchmarks.table import at_most
from vgpud.client import calls
from vgpud.simdevice.busy_log import SECOND_NS
from vgpud.v1alpha1 import vgpud_pb2 as pb

PARTS = (0.2, 0.8)
FIRST, SECOND = saturating("first", PARTS[0]), saturating("second", PARTS[1])
WINDOW_NS = 100 * MS
TOLERANCE = 0.02
#: a change has this long at most; what comes after it is the new share at rest
SETTLED_NS = 50 * MS


@dataclass(frozen=True)
class Change:
    """When the first call of a swap began and the last was answered, and the parts from then on."""

    began_ns: int
    answered_ns: int
    parts: Mapping[str, float]


def swap(running: Running) -> list[dict[str, Any]]:
    """Swaps the parts of both tenants every second of the measured time; the changes, as JSON."""
    changes: list[Change] = []
    at_ns, small, large = running.begin_ns + SECOND_NS, SECOND.name, FIRST.name
    with running.own.client() as client:
        while at_ns + SECOND_NS <= running.end_ns:
            running.wait_until(at_ns)
            began_ns = time.monotonic_ns()
            parts = dict(zip((small, large), PARTS, strict=True))
            for name, part in parts.items():
                milli = round(part * 1000)
                spec = pb.SliceSpec(gpus_milli=milli, min_milli=milli, max_milli=milli)
                client.send(calls.update_slice(running.slices[name], spec))
            changes.append(Change(began_ns, time.monotonic_ns(), parts))
            small, large = large, small
            at_ns += SECOND_NS
    return [dataclasses.asdict(change) for change in changes]


def in_force_ms(run: Observed, changes: list[Change]) -> list[float]:
    """For each change: after how long it was in force."""
    return [
        first_ms_within(
            [(run.spans[name], part - TOLERANCE, part + TOLERANCE) for name, part in change.parts.items()],
            change.began_ns,
            until_ns,
            WINDOW_NS,
        )
        for change, until_ns in _with_ends(run, changes)
    ]


def rest_errors_pp(run: Observed, changes: list[Change]) -> list[float]:
    """For each change: the larger distance from the new parts over the time in which nothing changes any more."""
    return [
        max(
            abs(share(run.spans[name], change.began_ns + SETTLED_NS, until_ns) - part) * 100
            for name, part in change.parts.items()
        )
        for change, until_ns in _with_ends(run, changes)
    ]


def _with_ends(run: Observed, changes: list[Change]) -> Iterator[tuple[Change, int]]:
    """Each change with the time of the next one, or the end."""
    yield from zip(changes, [*(change.began_ns for change in changes[1:]), run.end_ns], strict=True)


def w7(plan: Plan) -> Iterator[SharingFigure]:
    """When each change is in force, what the shares are from then on, and whether anything was lost."""
    case = ".2/.8 swapped every second"
    until, rest, calls, lost = [], [], [], 0.0
    with plan.bench((FIRST.kernel_us,)) as here:
        for seed in range(1, plan.seeds + 1):
            run = plan.run_once(here, "W7", case, [FIRST, SECOND], True, seed, swap)
            changes = [Change(**noted) for noted in run.notes]
            until += in_force_ms(run, changes)
            rest += rest_errors_pp(run, changes)
            calls += [(change.answered_ns - change.began_ns) / MS for change in changes]
            lost += sum(run.lost_work.values())
    yield SharingFigure("W7", case, "in force, ms, median", statistics.median(until))
    yield SharingFigure("W7", case, "in force, ms, worst", max(until), at_most(50))
    yield SharingFigure("W7", case, "of that the two calls, ms, worst", max(calls))
    yield SharingFigure("W7", case, "rest of the second, worst error, pp", max(rest))
    yield SharingFigure("W7", case, "kernels lost", lost, at_most(0))
