"""How well a device is shared: the arbiter's table, each row without any hook, under our arbiter, and in plain ways.

Shares come from the simulated device's own busy log (--real: from completed work against the same work alone),
throughput from completed kernels, latencies from the tenants' programs. The defaults are for work on the arbiter;
--full is for results that are kept: 60 s, 5 seeds, every case, and W1, W2 and W4 again with the simulated device's
switch cost x 0.5 and x 3. A missed goal is a figure like any other: it is shown, kept, and makes the exit code 1.
Table (Markdown) and plots lie beside the JSON; those of some rows only in build/bench, beside no result of the whole.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks import harness, results, sharing
from benchmarks.qualify.checks import has_device
from benchmarks.sharing import report
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.progress import Progress, ProgressError
from benchmarks.sharing.rows_adversaries import w10
from benchmarks.sharing.rows_bursts import w2, w2b, w4
from benchmarks.sharing.rows_gang import g1
from benchmarks.sharing.rows_live import w7
from benchmarks.sharing.rows_long import w3
from benchmarks.sharing.rows_return import w6
from benchmarks.sharing.rows_scale import w9
from benchmarks.sharing.rows_shares import w1, w5
from benchmarks.sharing.rows_solo import w8
from benchmarks.sharing.rows_trainers import w2c
from benchmarks.sharing.table import Figure, line, markdown

ROWS: dict[str, Callable[[Plan], Iterator[Figure]]] = {
    "W1": w1,
    "W2": w2,
    "W2b": w2b,
    "W2c": w2c,
    "W3": w3,
    "W4": w4,
    "W5": w5,
    "W6": w6,
    "W7": w7,
    "W8": w8,
    "W9": w9,
    "W10": w10,
    "G1": g1,
}
#: rows whose figures only the simulated device can give: its log of single spans, its number, its model of a trainer
SIMULATED_ONLY = ("W2c", "W9", "G1")
SECONDS, SEEDS = 10.0, 1
FULL_SECONDS, FULL_SEEDS = 60.0, 5
CANNOT = 3


def arguments() -> argparse.Namespace:
    """The command's options."""
    made = harness.parser(__doc__)
    made.epilog = sharing.__doc__
    made.add_argument("rows", nargs="*", metavar="ROW", help=f"rows to run: {', '.join(ROWS)} (default: all of them)")
    made.add_argument("--seconds", type=float, help=f"measured time of a run (default: {SECONDS:g}; full: 60)")
    made.add_argument("--seeds", type=int, help=f"runs, or pairs, of each case (default: {SEEDS}; full: 5)")
    made.add_argument("--full", action="store_true", help="every case, 60 s, 5 seeds, three switch costs: many hours")
    made.add_argument("--resume", action="store_true", help="go on behind the rows that an interrupted run finished")
    args = made.parse_args()
    offered = [row for row in ROWS if not (args.real and row in SIMULATED_ONLY)]
    for row in args.rows:
        if row not in offered:
            why = "needs the simulated device" if row in ROWS else "is no row"
            made.error(f"{row} {why}: choose from {', '.join(offered)}")
    args.rows = list(dict.fromkeys(args.rows)) or offered
    if set(args.rows) != set(offered) and args.results == results.RESULTS:
        args.results = harness.BUILD
    args.seconds = args.seconds or (FULL_SECONDS if args.full else SECONDS)
    args.seeds = args.seeds or (FULL_SEEDS if args.full else SEEDS)
    if args.seconds < 3 or args.seeds < 1:
        made.error("--seconds must be at least 3 (one-second windows, whole absences) and --seeds at least 1")
    return args


def run_rows(plan: Plan, rows: list[str], progress: Progress) -> list[Figure]:
    """Runs the rows that are not finished yet and prints each figure as it comes."""
    figures: list[Figure] = []
    print(markdown([]), flush=True)
    for number, row in enumerate(rows, 1):
        begin = time.monotonic()
        finished = progress.finished(row)
        if finished:
            mine, plan.raw[row] = finished
            print("\n".join(map(line, mine)), flush=True)
        else:
            mine = []
            for figure in ROWS[row](plan):
                mine.append(figure)
                print(line(figure), flush=True)
            progress.keep(row, mine, plan.raw.get(row, []))
        minutes = (time.monotonic() - begin) / 60
        print(f"{row}: {minutes:.1f} minutes; {number} of {len(rows)} rows", file=sys.stderr, flush=True)
        figures += mine
    return figures


def main() -> int:
    """Runs the rows and writes the result. Exit code 1 when a goal is missed, 3 where the table cannot be made."""
    args = arguments()
    reason = has_device() if args.real else ""
    if reason:
        print(f"sharing: no real device here ({reason}): without --real it runs on the simulated one")
        return CANNOT
    with harness.system(None if args.real else harness.one_device()) as own:
        device = own.device_name()
    parameters = {"seconds": args.seconds, "seeds": args.seeds, "full": args.full}
    made_by = {"commit": results.commit(), "device": device, **parameters}
    try:
        progress = Progress(harness.BUILD / "sharing-progress.json", made_by, args.resume)
    except ProgressError as error:
        print(f"sharing: {error}")
        return CANNOT
    plan = Plan(args.seconds, args.seeds, args.full, args.real)
    figures = run_rows(plan, args.rows, progress)
    parameters |= {"rows": args.rows, "warm_up_s": 2, "window_s": 1, "step_s": 0.1}
    parameters["shares_from"] = "completed work against the same alone" if args.real else "the device's busy log"
    paths = report.write(
        figures, plan.raw, simulated=not args.real, device=device, parameters=parameters, folder=args.results
    )
    progress.forget()
    print(f"{report.verdict(figures)}; {', '.join(map(str, paths))}")
    return 1 if any(figure.missed for figure in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
