"""How well a device is shared: the arbiter's table, each row without any hook, under our arbiter, and in plain ways.

Shares come from the simulated device's own busy log (--real: from completed work against the same work alone),
throughput from completed kernels, latencies from the tenants' programs. The defaults are for work on the arbiter;
--full is for results that are kept: 60 s, 5 seeds, every case, and W1, W2, W2c and W4 once more each with the simulated
device's switch cost x 0.5 and x 3. How long it takes is said before the first run. Every run is kept as it ends: Ctrl-C
and SIGTERM cost the one at work, and --resume continues behind the others; --hours divides a table into parts. A missed
goal is a figure like any other: it is shown, kept, and makes the exit code 1. Table (Markdown) and plots lie beside the
JSON; those of some rows only in build/bench, beside no result of the whole.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import harness, results
from benchmarks.qualify.checks import has_device
from benchmarks.rows import add_rows, choose_rows
from benchmarks.sharing import estimate, report
from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.kept import Kept, KeptError
from benchmarks.sharing.plan import Plan, TimeIsUp
from benchmarks.sharing.rows import ROWS
from benchmarks.spinning import spinning
from benchmarks.table import count_met, format_line, format_table

SECONDS, SEEDS = 10.0, 1
#: the spinning processes end by themselves after a day, if nothing else ends them
SPIN_S = 86_400.0
FULL_SECONDS, FULL_SEEDS = 60.0, 5
CANNOT, INTERRUPTED = 3, 130


def arguments() -> argparse.Namespace:
    """The command's options."""
    made = harness.parser(__doc__)
    add_rows(made, {name: row.what for name, row in ROWS.items()})
    made.add_argument("--seconds", type=float, help=f"measured time of a run (default: {SECONDS:g}; full: 60)")
    made.add_argument("--seeds", type=int, help=f"runs, or pairs, of each case (default: {SEEDS}; full: 5)")
    made.add_argument("--full", action="store_true", help="every case, 60 s, 5 seeds, three switch costs: many hours")
    made.add_argument(
        "--resume", action="store_true", help="continue after the runs that an interrupted table finished"
    )
    made.add_argument(
        "--hours",
        type=float,
        default=math.inf,
        metavar="H",
        help="begin no run after H hours; --resume continues with the next part (default: all runs)",
    )
    made.add_argument(
        "--busy",
        type=int,
        default=0,
        metavar="N",
        help="beside N processes that only spin, at normal priority: a busy host (default: none)",
    )
    args = made.parse_args()
    offered = [name for name, row in ROWS.items() if not (args.real and row.simulated_only)]
    for name in args.rows:
        if name in ROWS and name not in offered:
            made.error(f"{name} needs the simulated device: choose from {', '.join(offered)}")
    args.rows = choose_rows(made, args.rows, offered)
    if set(args.rows) != set(offered) and args.results == results.RESULTS:
        args.results = harness.BUILD
    args.seconds = args.seconds or (FULL_SECONDS if args.full else SECONDS)
    args.seeds = args.seeds or (FULL_SEEDS if args.full else SEEDS)
    if args.seconds < 3 or args.seeds < 1:
        made.error("--seconds must be at least 3 (one-second windows, whole absences) and --seeds at least 1")
    if args.hours <= 0:
        made.error("--hours must be above 0")
    if args.busy < 0:
        made.error("--busy must be at least 0")
    return args


def run_rows(plan: Plan, rows: list[str]) -> list[SharingFigure]:
    """Runs the rows and prints each figure as it comes."""
    figures: list[SharingFigure] = []
    print(format_table(SharingFigure.HEADER), flush=True)
    for number, name in enumerate(rows, 1):
        begin = time.monotonic()
        for found in ROWS[name].figures(plan):
            figure = found if found.stolen is not None else replace(found, stolen=plan.stolen(name, found.case))
            figures.append(figure)
            print(format_line(figure.cells()), flush=True)
        minutes = (time.monotonic() - begin) / 60
        left = f"{number} of {len(rows)} rows, about {estimate.hours(plan, rows[number:]):.1f} hours left"
        print(f"{name}: {minutes:.1f} minutes; {left}", file=sys.stderr, flush=True)
    return figures


def where_kept(folder: Path, made_by: dict[str, Any], resume: bool, must_keep: bool) -> Kept | None:
    """Where finished runs are kept; None while another table keeps its own. Raises KeptError where they must be."""
    try:
        # beside the result, but not where git would see it
        return Kept((harness.BUILD if folder == results.RESULTS else folder) / "sharing-runs", made_by, resume)
    except KeptError as error:
        if must_keep:
            raise
        print(f"{error}: these are not kept", file=sys.stderr)
        return None


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """Runs the rows and writes the result. Exit code 1 when a goal is missed, 3 where the table cannot be made."""
    args = arguments()
    signal.signal(signal.SIGTERM, _interrupt)  # everything that was started is ended in order
    reason = has_device() if args.real else ""
    if reason:
        print(f"sharing: no real device here ({reason}): without --real it runs on the simulated one")
        return CANNOT
    with harness.system(None if args.real else harness.one_device()) as own:
        device = own.device_name()
    machine = {key: value for key, value in results.machine().items() if key != "load_1min"}
    made_by = {"commit": results.commit(), "changes": results.changes(), "seconds": args.seconds, "device": device}
    made_by |= {"busy": args.busy}
    must_keep = args.resume or math.isfinite(args.hours)
    try:
        kept = where_kept(args.results, made_by | {"machine": machine}, args.resume, must_keep)
    except KeptError as error:
        print(f"sharing: {error}")
        return CANNOT
    until_s = time.monotonic() + args.hours * 3600
    plan = Plan(args.seconds, args.seeds, args.full, args.real, kept, until_s)
    print(estimate.text(plan, args.rows), file=sys.stderr, flush=True)
    try:
        with spinning(args.busy, SPIN_S):
            figures = run_rows(plan, args.rows)
    except (KeyboardInterrupt, TimeIsUp):
        print(
            f"not finished: {kept.count() if kept else 0} finished runs are kept, --resume continues after them",
            file=sys.stderr,
        )
        return INTERRUPTED
    parameters = {"seconds": args.seconds, "seeds": args.seeds, "full": args.full, "busy": args.busy}
    parameters |= {"rows": args.rows, "warm_up_s": 2, "window_s": 1, "step_s": 0.1}
    parameters["shares_from"] = "completed work against the same alone" if args.real else "the device's busy log"
    paths = report.write(
        figures, plan.raw, is_simulated=not args.real, device=device, parameters=parameters, folder=args.results
    )
    if kept:
        kept.forget()
    print(f"{count_met(figures)}; {', '.join(map(str, paths))}")
    return 1 if any(figure.is_missed for figure in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
