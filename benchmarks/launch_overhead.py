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

GOAL_NS = 10.0
#: row -> (state of the gate, whether the driver's events are free too, calls in a run)
ROWS = {
    "solo": ("solo", False, 20000),
    "count": ("count", True, 5000),
    "count_with_events": ("count", False, 500),
}


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
                good &= harness.verdict(label, figures[name], f"<= {GOAL_NS:g}", figures[name] <= GOAL_NS)
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
        goals={"difference_ns": GOAL_NS},
        figures=figures,
        raw=raw,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
