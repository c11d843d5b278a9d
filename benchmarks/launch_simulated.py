"""What a launch costs over the simulated driver, under a maximum of .9, more than in a program without the hook.

launch_overhead has the hook alone: here are also the helper thread, which shares the processors with threads that
launch, markers that are asked for, and what a launch waits for. Programs with the hook and without run in turn; of each
pair the difference counts, of the elapsed time and of the launching threads' processor time. The kernels take no device
time: a launch never has to wait for the device, and the maximum is never reached.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import harness, results
from benchmarks.launch_overhead import run_neighbour
from benchmarks.start_together import environment
from benchmarks.table import at_most, judge

KERNEL = "spin_0"
SAMPLES = 60


@dataclass(frozen=True)
class Row:
    """A program, and what a launch of it may take longer."""

    kind: str
    threads: int
    calls: int
    goal_ns: float
    neighbour: bool = False


ROWS = {
    "one_thread": Row("kernels", 1, 2000, 120),
    "two_threads": Row("kernels", 2, 2000, 120),
    "two_threads_with_neighbour": Row("kernels", 2, 2000, 180, neighbour=True),
    "graphs_of_eight": Row("graphs", 1, 500, 120),
}


def launch_ns(row: Row, env: Mapping[str, str]) -> dict[str, float]:
    """ns of a launch, elapsed and of the thread's processor time. Raises CalledProcessError when the program fails."""
    program = str(harness.build("tenants/launches.c"))
    command = [program, row.kind, str(row.threads), str(SAMPLES), str(row.calls), KERNEL]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    harness.add_load(made)
    made.add_argument("--pairs", type=int, default=15, help="of programs, for each row (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("a real device's launches are measured by python -m benchmarks.qualify")
    figures: dict[str, float] = {}
    raw: dict[str, Any] = {}
    good = True
    with harness.system(harness.one_device(), lengths_us=[0]) as own, harness.load_processors(args.load):
        hooked = environment(own, "0.9", "0.9")
        unhooked = harness.without_hook(hooked)
        for name, row in ROWS.items():
            with run_neighbour(own, row.neighbour) if row.neighbour else contextlib.nullcontext():
                pairs = [
                    {way: launch_ns(row, env) for way, env in (("hooked", hooked), ("unhooked", unhooked))}
                    for _ in range(args.pairs)
                ]
            raw[name] = pairs
            for what in ("elapsed_ns", "cpu_ns"):
                figures[f"{name}_{what}"] = statistics.median(p["hooked"][what] - p["unhooked"][what] for p in pairs)
            value = figures[f"{name}_elapsed_ns"]
            print(f"  {name:<58} {figures[f'{name}_cpu_ns']:12.1f}   of processor time")
            label = f"launch over the simulated driver ({name}), ns more"
            good &= judge(label, value, at_most(row.goal_ns))
        device = own.device_name()
    path = results.write(
        harness.loaded_name("launch_simulated", args.load),
        is_simulated=True,
        device=device,
        parameters={"pairs": args.pairs, "samples": SAMPLES, "load": args.load, "processors": os.cpu_count()},
        goals={f"{name}_elapsed_ns": row.goal_ns for name, row in ROWS.items()},
        figures=figures,
        raw=raw,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
