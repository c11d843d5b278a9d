"""What a launch costs through the hook with its gate open (SOLO and COUNT), over the direct call, 1 and 2 threads.

COUNT twice: with events that cost nothing (the hook's own work), and with the simulated driver's events, which the hook
records as markers and for calibration.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness, overhead, results

#: row -> (state of the gate, whether the driver's events are free too, calls in a run)
ROWS = {
    "solo": ("solo", False, 20000),
    "count": ("count", True, 5000),
    "count_with_events": ("count", False, 500),
}
#: what is the hook's own; the events are the driver's
GOALS_NS = {"solo": 3.0, "count": 100.0}


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when the goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument(
        "--repeats", type=int, default=5, help="runs of each row, the median counts (default: %(default)s)"
    )
    args = made.parse_args()
    if args.real:
        made.error(
            "launch overhead is measured against a stub driver; on a real device use python -m benchmarks.qualify"
        )
    figures: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    good = True
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as folder, harness.system(harness.one_device()) as own:
        stubs = {free: overhead.build_stub(Path(folder), free) for free in (False, True)}
        for row, (state, free_events, calls) in ROWS.items():
            stub = stubs[free_events]
            for threads in (1, 2):
                name = f"{row}_{threads}_threads"
                runs = [overhead.measure(own, stub, state, "launch", threads, calls) for _ in range(args.repeats)]
                raw[name] = runs
                figures[name] = statistics.median(run["difference_ns"] for run in runs)
                label = f"launch, gate open ({row}), {threads} thread(s), ns over direct"
                if goal := GOALS_NS.get(row):
                    good &= harness.verdict(label, figures[name], f"<= {goal:g}", figures[name] <= goal)
                else:
                    print(f"  {label:<58} {figures[name]:>12,.3f}   reported", flush=True)
        device = own.device_name()
    parameters = {
        "pairs": overhead.PAIRS,
        "calls": {row: calls for row, (_, _, calls) in ROWS.items()},
        "repeats": args.repeats,
        "driver": "stub over the simulated one",
    }
    path = results.write(
        "launch_overhead",
        simulated=True,
        device=device,
        parameters=parameters,
        goals={f"{row}_difference_ns": goal for row, goal in GOALS_NS.items()},
        figures=figures,
        raw=raw,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
