"""What a launch costs through the hook with its gate open, over the direct call, with 1, 2 and 16 threads.

Rows: alone; capped (COUNT) with events that cost nothing, which is the hook's own work; the same with a neighbour
attached, a second slice whose process does nothing; and capped with launches and events that cost what they cost over
the simulated driver (2.5, 0.25 and with timing 2.5 us), of kernels of half a microsecond. All of them are complete at
once. Kernels longer than a launch, or more of them at once than the device can run, would wait at the bound: there the
device sets the pace and not the cost of a launch. So these are launch-bound programs, which leave the device idle in
between: they measure when their work runs, and are counted also where they are alone (shim/gate/solo.c).

Each figure is the highest of the threads' own medians over pairs of runs. A run has recordings in their proportion: one
launch in 4096 is timed, one in 64 to 512 has a marker behind it. Without cost of their own, runs are far shorter than a
time slice of the operating system, so the median pair was not interrupted, even where sixteen threads share fewer
processors. With events that cost, runs are longer, and what counts is the thread's processor time: all that a launch
costs but sleep, which the raw data have (elapsed_difference_ns).
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness, overhead, results
from benchmarks.table import at_most, judge
from vgpud.cli.demo.private_system import OwnSystem, wait_for

THREADS = (1, 2, 16)
NEIGHBOUR = ("--gpus", "0.1", "--max", "0.1")


@dataclass(frozen=True)
class Row:
    """What is launched under, and what it may cost."""

    state: str
    events: overhead.Events
    calls: int
    goal_ns: float
    mode: str = "launch"
    pairs: int = overhead.PAIRS
    neighbour: bool = False


ROWS = {
    "solo": Row("solo", overhead.Events.FREE, 20000, 1.5),
    "count": Row("count", overhead.Events.FREE, 5000, 10),
    "count_with_neighbour": Row("count", overhead.Events.FREE, 5000, 10, neighbour=True),
    "count_with_events": Row("count", overhead.Events.PAID, 4096, 25, mode="launch-cpu", pairs=101),
    "graph": Row("count", overhead.Events.FREE, 5000, 20, mode="graph"),
    "graph_with_events": Row("count", overhead.Events.PAID, 4096, 38, mode="graph-cpu", pairs=101),
}


@contextmanager
def run_neighbour(own: OwnSystem, neighbour: bool) -> Iterator[None]:
    """With a process attached in a slice of its own, if there is to be one. It has a context and does nothing."""
    if not neighbour:
        yield
        return
    part = own.run("neighbour", NEIGHBOUR, [str(harness.build("tenants/attached.c")), "1"])
    try:
        wait_for("the neighbour", lambda: not part.running or any(part.lines()))
        part.check()
        yield
    finally:
        part.stop()


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when the goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument(
        "--repeats", type=int, default=5, help="runs of each row, the median counts (default: %(default)s)"
    )
    harness.add_load(made)
    args = made.parse_args()
    if args.real:
        made.error(
            "launch overhead is measured against a stub driver; on a real device use python -m benchmarks.qualify"
        )
    figures: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    good = True
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-bench-") as folder,
        harness.system(harness.one_device()) as own,
        harness.load_processors(args.load),
    ):
        stubs = {events: overhead.build_stub(Path(folder), events) for events in {row.events for row in ROWS.values()}}
        for (row, of), threads in itertools.product(ROWS.items(), THREADS):
            name = f"{row}_{threads}_threads"
            with run_neighbour(own, of.neighbour):
                stub = stubs[of.events]
                measure = partial(overhead.measure, own, stub, of.state, of.mode, threads, of.calls, pairs=of.pairs)
                raw[name] = [measure() for _ in range(args.repeats)]
            figures[name] = statistics.median(run["difference_ns"] for run in raw[name])
            label = f"launch, gate open ({row}), {threads} thread(s), ns over direct"
            good &= judge(label, figures[name], at_most(of.goal_ns))
        device = own.device_name()
    parameters = {
        "pairs": {name: row.pairs for name, row in ROWS.items()},
        "calls": {name: row.calls for name, row in ROWS.items()},
        "repeats": args.repeats,
        "driver": "stub over the simulated one",
        "load": args.load,
    }
    path = results.write(
        harness.loaded_name("launch_overhead", args.load),
        is_simulated=True,
        device=device,
        parameters=parameters,
        goals={f"{name}_difference_ns": row.goal_ns for name, row in ROWS.items()},
        figures=figures,
        raw=raw,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
