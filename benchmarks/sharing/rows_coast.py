"""C1: what shares are without a daemon.

Two saturating tenants with .25 and .75 of the device. After a third of the time the daemon is killed (SIGKILL), after
another third it is started again. From the device's log:
- until coasting: after how many ms a window of one period of the timetable begins in which both have their parts,
  within a tenth of them (it may begin up to a slot before the waiting tenant's first own slot); how long the device
  did nothing until then, and what the one that had to wait has missed by then;
- from there to the new daemon's start: the farthest that a one-second window of a tenant is from its part;
- the same of the windows that the new daemon's first second lies in or touches, and of those after it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.sharing.bench import Observed, Running
from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.measure import MS, first_ms_within, share, window_shares
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.rows_shares import saturating
from benchmarks.table import Goal, at_most
from vgpud.simdevice.busy_log import SECOND_NS, WINDOW_NS

TENANTS = (saturating("a", 0.25), saturating("b", 0.75))
#: three phases, long enough for windows of a second and for the changes between them
LEAST_S = 9.0
PERIOD_NS = 20 * MS
#: DESIGN D9: while coasting shares stay within this part of themselves
NEAR = 0.1


def kill_and_restart(running: Running) -> dict[str, int]:
    """When the daemon was killed, when it was started again and when it answered."""
    own, phase_ns = running.own, (running.end_ns - running.begin_ns) // 3
    running.wait_until(running.begin_ns + phase_ns)
    assert own.daemon
    killed_ns = time.monotonic_ns()
    own.daemon.kill()
    running.wait_until(running.begin_ns + 2 * phase_ns)
    started_ns = time.monotonic_ns()
    own.start_daemon()
    return {"killed_ns": killed_ns, "started_ns": started_ns, "answered_ns": time.monotonic_ns()}


@dataclass(frozen=True)
class Coasted:
    """What one run shows; times in ms, infinite for what never came."""

    before_pp: float
    until_coasting_ms: float
    idle_ms: float
    shortfall_ms: float
    farthest_percent: float  # of its part
    coasting_pp: float
    kept_percent: float  # of what all had together before
    return_pp: float
    after_pp: float
    lost_kernels: float


def read_coast(run: Observed) -> Coasted:
    """Reads a run with kill_and_restart()."""
    killed_ns, started_ns = run.notes["killed_ns"], run.notes["started_ns"]
    near = [(run.spans[t.name], t.minimum * (1 - NEAR), t.minimum * (1 + NEAR)) for t in TENANTS]
    until_ms = first_ms_within(near, killed_ns, started_ns, PERIOD_NS)
    coasting_ns = _add_ms(killed_ns, until_ms, started_ns)
    settled_ns = started_ns + SECOND_NS
    waited_ms = (coasting_ns - killed_ns) / MS
    had_ms = {t.name: share(run.spans[t.name], killed_ns, coasting_ns) * waited_ms for t in TENANTS}
    before, coasting = (
        sum(share(run.spans[t.name], *phase) for t in TENANTS)
        for phase in ((run.begin_ns, killed_ns), (coasting_ns, started_ns))
    )
    coasting_pp = {t.name: _worst_pp(run, t.name, t.minimum, coasting_ns, started_ns) for t in TENANTS}
    return Coasted(
        before_pp=_worst_of_all_pp(run, run.begin_ns, killed_ns),
        until_coasting_ms=until_ms,
        idle_ms=waited_ms - sum(had_ms.values()),
        shortfall_ms=max(t.minimum * waited_ms - had_ms[t.name] for t in TENANTS),
        farthest_percent=max(coasting_pp[t.name] / t.minimum for t in TENANTS),
        coasting_pp=max(coasting_pp.values()),
        kept_percent=coasting / before * 100,
        return_pp=_worst_of_all_pp(run, started_ns - WINDOW_NS, settled_ns + WINDOW_NS),
        after_pp=_worst_of_all_pp(run, settled_ns, run.end_ns),
        lost_kernels=sum(run.lost_work.values()),
    )


def _worst_of_all_pp(run: Observed, begin_ns: int, end_ns: int) -> float:
    return max(_worst_pp(run, t.name, t.minimum, begin_ns, end_ns) for t in TENANTS)


def _add_ms(from_ns: int, ms: float, latest_ns: int) -> int:
    return latest_ns if math.isinf(ms) else min(from_ns + round(ms * MS), latest_ns)


def _worst_pp(run: Observed, name: str, part: float, begin_ns: int, end_ns: int) -> float:
    """The largest distance of a one-second window from its part; infinite without any window."""
    found = window_shares(run.spans[name], begin_ns, end_ns)
    return max((abs(got - part) * 100 for got in found), default=float("inf"))


def c1(plan: Plan) -> Iterator[SharingFigure]:
    """Before, without and after the daemon: the worst of all runs."""
    case = ".25/.75, daemon killed and back"
    with plan.bench((200,), seconds=max(plan.seconds, LEAST_S)) as here:
        seeds = range(1, plan.seeds + 1)
        runs = [read_coast(plan.run_once(here, "C1", case, TENANTS, True, seed, kill_and_restart)) for seed in seeds]

    def worst_figure(what: str, values: list[float], goal: Goal | None = None) -> SharingFigure:
        return SharingFigure("C1", case, what, max(values), goal)

    yield worst_figure("before, worst 1 s error, pp", [run.before_pp for run in runs])
    until = [run.until_coasting_ms for run in runs]
    yield SharingFigure("C1", case, "until coasting, ms, median", statistics.median(until))
    yield worst_figure("until coasting, ms, worst", until)
    yield worst_figure("device idle until then, ms, worst", [run.idle_ms for run in runs])
    yield worst_figure("who waits lacks by then, ms, worst", [run.shortfall_ms for run in runs])
    yield worst_figure(
        "coasting, worst 1 s, % off its part", [run.farthest_percent for run in runs], at_most(NEAR * 100)
    )
    yield worst_figure("coasting, worst 1 s error, pp", [run.coasting_pp for run in runs])
    yield SharingFigure("C1", case, "coasting, sum, % of before", min(run.kept_percent for run in runs))
    yield worst_figure("daemon back, worst 1 s error, pp", [run.return_pp for run in runs])
    yield worst_figure("after, worst 1 s error, pp", [run.after_pp for run in runs], at_most(1.5))
    yield worst_figure("kernels lost", [run.lost_kernels for run in runs], at_most(0))
