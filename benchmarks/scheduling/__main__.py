"""How well jobs are ordered and placed, and what that costs: the scheduler's table, from traces that are shipped.

A missed goal is a figure like any other: it is shown, kept, and makes the exit code 1. Table (Markdown) and plots lie
beside the JSON; those of some rows only in build/bench, beside no result of the whole.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

from benchmarks import harness, results
from benchmarks.scheduling import report
from benchmarks.scheduling.rows import ROWS
from benchmarks.scheduling.table import Figure, Near, line, markdown


def arguments() -> argparse.Namespace:
    """The command's options."""
    made = harness.parser(__doc__)
    made.epilog = "\n".join(f"{name:<9} {row.what}" for name, row in ROWS.items())
    made.add_argument("rows", nargs="*", metavar="ROW", help=f"rows to run: {', '.join(ROWS)} (default: all of them)")
    args = made.parse_args()
    if args.real:
        made.error("--real: this benchmark uses no device")
    for name in args.rows:
        if name not in ROWS:
            made.error(f"{name} is no row: choose from {', '.join(ROWS)}")
    args.rows = list(dict.fromkeys(args.rows)) or list(ROWS)
    if set(args.rows) != set(ROWS) and args.results == results.RESULTS:
        args.results = harness.BUILD
    return args


def _figures(name: str, raw: dict[str, Any]) -> Iterator[Figure]:
    """Those of a row. One that fails has missed a goal, and costs the other rows nothing."""
    try:
        yield from ROWS[name].figures(raw)
    except Exception as error:
        traceback.print_exc()
        raw["failed"] = f"{type(error).__name__}: {error}"
        yield Figure(name, "the row", "ran to its end (1 = yes)", 0, Near(1, 0, "= yes"))


def main() -> int:
    """Runs the rows and writes the result. Exit code 1 when a goal is missed."""
    args = arguments()
    figures: list[Figure] = []
    raw: dict[str, Any] = {}
    print(markdown([]), flush=True)
    for number, name in enumerate(args.rows, 1):
        begin = time.monotonic()
        for figure in _figures(name, raw.setdefault(name, {})):
            figures.append(figure)
            print(line(figure), flush=True)
        print(
            f"{name}: {time.monotonic() - begin:.0f} s; {number} of {len(args.rows)} rows", file=sys.stderr, flush=True
        )
    paths = report.write(figures, raw, args.results)
    print(f"{report.verdict(figures)}; {', '.join(map(str, paths))}")
    return 1 if any(figure.missed for figure in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
