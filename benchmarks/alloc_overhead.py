"""What cuMemAlloc + cuMemFree cost through the hook's ledger, over the direct calls, and how many system calls, for
three sizes.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness, overhead, results
from benchmarks.table import at_most, equal_to, judge
from vgpud.cli.demo.private_system import OwnSystem, wait_for

#: by number of threads
GOALS_NS = {1: 80.0, 2: 100.0}
CALLS = 1000
SIZES = (256, 2 << 20, 64 << 20)


def system_calls(own: OwnSystem, stub: Path, size: int) -> int:
    """How many the hook makes in CALLS pairs of calls. Raises PartError when it cannot be counted."""
    program = str(harness.build("tenants/alloc_syscalls.c"))
    command = ["env", f"VGPU_DRIVER={stub}", program, str(CALLS), str(size)]
    part = own.run("counted", overhead.STATES["solo"], command)
    wait_for("the count of system calls", lambda: not part.running)
    if part.process.returncode:
        part.check()
    return int(json.loads(part.output_file.read_text())["system_calls"])


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when the goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument(
        "--repeats", type=int, default=5, help="runs of each row, the median counts (default: %(default)s)"
    )
    args = made.parse_args()
    if args.real:
        made.error("allocation overhead is measured against a stub driver: a real one's own cost hides it")
    figures: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    good = True
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as folder, harness.system(harness.one_device()) as own:
        stub = overhead.build_stub(Path(folder))
        for size in SIZES:
            for threads, goal_ns in GOALS_NS.items():
                name = f"{size}_bytes_{threads}_threads"
                runs = [
                    overhead.measure(own, stub, "solo", "alloc", threads, CALLS, str(size)) for _ in range(args.repeats)
                ]
                raw[name] = runs
                figures[name] = statistics.median(run["difference_ns"] for run in runs)
                label = f"alloc+free of {size} bytes, {threads} thread(s), ns over direct"
                good &= judge(label, figures[name], at_most(goal_ns))
            name = f"{size}_bytes_system_calls"
            figures[name] = system_calls(own, stub, size)
            good &= judge(f"alloc+free of {size} bytes, system calls in {CALLS}", figures[name], equal_to(0))
        device = own.device_name()
    parameters = {
        "pairs": overhead.PAIRS,
        "calls": CALLS,
        "repeats": args.repeats,
        "driver": "stub over the simulated one",
    }
    path = results.write(
        "alloc_overhead",
        is_simulated=True,
        device=device,
        parameters=parameters,
        goals={"difference_ns": {str(threads): goal for threads, goal in GOALS_NS.items()}, "system_calls": 0},
        figures=figures,
        raw=raw,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
