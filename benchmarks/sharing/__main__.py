"""How well a device is shared: the arbiter's table, each row without any hook and under our arbiter.

Shares come from the simulated device's own busy log, throughput from completed kernels, latencies from the tenants'
programs. The defaults are for work on the arbiter; --full is for results that are kept: 60 s, 5 seeds, every case, and
W1, W2 and W4 again with the device's switch cost x 0.5 and x 3. A missed goal is a figure like any other: it is shown,
kept, and makes the exit code 1. A table of some rows only is kept in build/bench, beside no result of the whole one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from benchmarks import harness, results, sharing
from benchmarks.sharing import report
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.rows_adversaries import w10
from benchmarks.sharing.rows_bursts import w2, w2b, w4
from benchmarks.sharing.rows_gang import g1
from benchmarks.sharing.rows_live import w7
from benchmarks.sharing.rows_long import w3
from benchmarks.sharing.rows_return import w6
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
    "W10": w10,
    "G1": g1,
}
#: rows of the table that are not here yet: naming one is refused, not passed over
ABSENT = "W9"
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
    args = made.parse_args()
    for row in args.rows:
        if row not in ROWS:
            missing = "is not there yet" if row in ABSENT else "is no row"
            made.error(f"{row} {missing}: choose from {', '.join(ROWS)}")
    args.rows = list(dict.fromkeys(args.rows)) or list(ROWS)
    if set(args.rows) != set(ROWS) and args.results == results.RESULTS:
        args.results = harness.BUILD
    args.seconds = args.seconds or (FULL_SECONDS if args.full else SECONDS)
    args.seeds = args.seeds or (FULL_SEEDS if args.full else SEEDS)
    if args.seconds < 3 or args.seeds < 1:
        made.error("--seconds must be at least 3 (one-second windows, whole absences) and --seeds at least 1")
    return args


def main() -> int:
    """Runs the rows and writes the result. Exit code 1 when a goal is missed, 3 with --real."""
    args = arguments()
    if args.real:
        print("sharing: the real device is not there yet: without --real it runs on the simulated one")
        return CANNOT
    plan = Plan(args.seconds, args.seeds, args.full)
    figures: list[Figure] = []
    print(markdown([]), flush=True)
    for row in args.rows:
        for figure in ROWS[row](plan):
            figures.append(figure)
            print(line(figure), flush=True)
    with harness.system(harness.one_device()) as own:
        device = own.device_name()
    parameters = {"rows": args.rows, "absent_rows": list(ABSENT), "seconds": args.seconds, "seeds": args.seeds}
    parameters |= {"full": args.full, "warm_up_s": 2, "window_s": 1, "step_s": 0.1}
    paths = report.write(figures, plan.raw, simulated=True, device=device, parameters=parameters, folder=args.results)
    print(f"{report.verdict(figures)}; {', '.join(map(str, paths))}")
    return 1 if any(figure.missed for figure in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
