"""The daemon stands still (SIGSTOP, then SIGCONT) while tenants run: how soon do capped slices compute at their shares?

Without the daemon's arbiter the tenants follow their timetables. The figure is the time from SIGCONT until a window of
100 ms begins in which a slice has nine tenths of what it had in the two seconds before SIGSTOP, by the simulated
device's busy log: of all tries the worst. Slices with a maximum below 1, alone and beside others, and one without.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import harness, results, shares
from benchmarks.shares import Tenant
from benchmarks.sharing.measure import MS, first_ms_with_share
from benchmarks.table import at_most, judge
from vgpud.cli.demo.private_system import OwnSystem, wait_for
from vgpud.simdevice.busy_log import SECOND_NS, mean_share, read_busy_log

CASES: dict[str, tuple[Tenant, ...]] = {
    "cap .1": (Tenant("a", 0.1, 0.1),),
    "cap .25": (Tenant("a", 0.25, 0.25),),
    "cap .25, with pauses": (Tenant("a", 0.25, 0.25, kernel_us=20, gap_us=500, batch=25),),
    "cap .25 beside one that borrows": (Tenant("a", 0.25, 0.25), Tenant("b", 0.25, 1, exact=False)),
    "no cap": (Tenant("a", 0.5, 1, exact=False),),
}
#: what the slice does when the daemon stops is a matter of chance, so a length is tried more than once
STOPS_S = (1.0, 8.0, 32.0, 1.0, 8.0, 1.0)
GOAL_MS = 100.0
NEARLY = 0.9
WINDOW_NS = 100 * MS
USUAL_NS = 2 * SECOND_NS


def stand_still(own: OwnSystem, seconds: float) -> tuple[int, int]:
    """Stops the daemon for so long; returns when it was stopped and when it continued."""
    assert own.daemon
    stopped_ns = time.monotonic_ns()
    own.daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    back_ns = time.monotonic_ns()
    own.daemon.process.send_signal(signal.SIGCONT)
    return stopped_ns, back_ns


def run_case(tenants: Sequence[Tenant], stops_s: Sequence[float], watched_s: float) -> list[dict[str, float]]:
    """For each stop: ms until each tenant computes at its share again; infinite if it does not while it is watched."""
    with harness.system(harness.one_device(), lengths_us=[t.kernel_us for t in tenants]) as own:
        run_s = sum(stops_s) + (watched_s + 3) * len(stops_s) + 60
        reports = shares.Reports(shares.start(own, tenants, random.Random(1), run_s))
        wait_for("the tenants", reports.all_ready, 30)
        gaps: list[tuple[int, int]] = []
        for seconds in stops_s:
            time.sleep(USUAL_NS / SECOND_NS + 1)
            gaps.append(stand_still(own, seconds))
            time.sleep(watched_s)
            reports.poll()
        time.sleep(0.5)  # the log is written behind the device's time
        spans = read_busy_log(own.busy_log())
    found: list[dict[str, float]] = []
    for stopped_ns, back_ns in gaps:
        until_ns = back_ns + int(watched_s * SECOND_NS)
        row: dict[str, float] = {}
        for name, pid in reports.pids.items():
            mine = [s for s in spans if s.pid == pid]
            usual = mean_share(mine, pid, stopped_ns - USUAL_NS, stopped_ns)
            row[name] = first_ms_with_share(mine, back_ns, until_ns, WINDOW_NS, NEARLY * usual)
        found.append(row)
    return found


def worst_ms(rows: Sequence[tuple[float, dict[str, float]]]) -> dict[str, float]:
    """Length of the stop -> the longest of all tenants and tries."""
    return {f"{length:g}": max(max(row.values()) for s, row in rows if s == length) for length in {s for s, _ in rows}}


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--stops", default=",".join(f"{s:g}" for s in STOPS_S), help="seconds (default: %(default)s)")
    made.add_argument("--watched", type=float, default=3.0, help="seconds after a stop (default: %(default)s)")
    made.add_argument("--case", action="append", choices=list(CASES), help="default: all")
    args = made.parse_args()
    if args.real:
        made.error("when a slice computes again needs the simulated device's busy log")
    stops_s = [float(part) for part in args.stops.split(",")]
    figures: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    good = True
    for case in args.case or CASES:
        rows = run_case(CASES[case], stops_s, args.watched)
        raw[case] = [{"stop_s": seconds, **row} for seconds, row in zip(stops_s, rows, strict=True)]
        figures[case] = worst_ms(list(zip(stops_s, rows, strict=True)))
        for length in sorted(figures[case], key=float):
            ms = figures[case][length]
            good &= judge(f"{case}, stopped {length} s: ms", ms, at_most(GOAL_MS))
    with harness.system(harness.one_device()) as own:
        device = own.device_name()
    path = results.write(
        "daemon_stopped",
        is_simulated=True,
        device=device,
        parameters={
            "stops_s": stops_s,
            "watched_s": args.watched,
            "window_ms": WINDOW_NS / MS,
            "nearly": NEARLY,
            "tenants": {case: [asdict(t) for t in CASES[case]] for case in figures},
        },
        goals={"back_ms": GOAL_MS},
        figures=figures,
        raw=raw,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
