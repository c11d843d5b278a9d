"""A thousand processes that attach to one slice at once: how long each waits for its pages.

The processes speak the attach protocol as the hook does and load no driver (tenants/attach.c), so these are the
daemon's figures alone, with what the kernel takes to run so many processes: the floor, measured beside them with a
program that accepts and sends one descriptor back, and looks at nothing (tenants/answer.c). start_together has whole
programs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.table import at_most, judge
from vgpud.cli.demo.private_system import OwnSystem, PartError, wait_for
from vgpud.client import calls

SLICE = "crowd"
GOAL_P99_MS = 50.0
#: a slice's and a user's bounds: so many are allowed on a device
CONFIG = ("processes_per_slice_max = 1024", "processes_per_user_max = 1024")


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


@contextmanager
def attach_processes(path: Path, count: int) -> Iterator[dict[str, list[float]]]:
    """Processes that stay attached meanwhile; milliseconds of each by step. Raises PartError when one was refused."""
    command = [str(harness.build("tenants/attach.c")), str(path), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as part:
        assert part.stdin
        assert part.stdout
        rows = [[int(word) / 1e6 for word in part.stdout.readline().split()] for _ in range(count)]
        connect, answer, maps = (list(column) for column in zip(*rows, strict=True))
        yield {"all": [sum(row) for row in rows], "connect": connect, "answer": answer, "map": maps}
        part.stdin.close()
    if part.returncode:
        raise PartError(f"not all of {count} processes could attach")


def crowd(own: OwnSystem, count: int) -> dict[str, list[float]]:
    """Milliseconds of each process by step. Raises PartError when one was refused."""
    with attach_processes(own.folder / "run" / "slices" / SLICE / "attach.sock", count) as took, own.client() as client:
        wait_for("all processes in the list", lambda: len(client.all(calls.processes(SLICE))) == count)
    with own.client() as client:
        wait_for("the end of all processes", lambda: not client.all(calls.processes(SLICE)))
    return took


def floor(folder: Path, count: int) -> dict[str, list[float]]:
    """The same of a program that only sends one descriptor back."""
    path = folder / "floor.sock"
    path.unlink(missing_ok=True)
    command = [str(harness.build("tenants/answer.c")), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        server.stdout.readline()  # it listens
        with attach_processes(path, count) as took:
            pass
        server.communicate("")
    return took


def spread(took: dict[str, list[float]]) -> dict[str, list[float]]:
    """Of each step the milliseconds of the quickest tenth, the median, the slowest tenth and hundredth, the last."""
    return {step: [quantile(times, part) for part in (0.1, 0.5, 0.9, 0.99, 1.0)] for step, times in took.items()}


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when the goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--processes", type=int, default=1000, help="at once (default: %(default)s)")
    made.add_argument("--repeats", type=int, default=5, help="crowds, one after another (default: %(default)s)")
    harness.add_load(made)
    args = made.parse_args()
    with harness.system(None if args.real else harness.one_device(), CONFIG) as own, harness.load_processors(args.load):
        own.vgpu("slice", "create", SLICE, "--gpus", "0.5")
        alone = [crowd(own, 1) for _ in range(2 * args.repeats)]
        runs, floors = [], []
        for _ in range(args.repeats):
            runs.append(crowd(own, args.processes))
            floors.append(floor(own.folder, args.processes))
        device = own.device_name()
    figures: dict[str, Any] = {}
    for step in ("all", "connect", "answer", "map"):
        figures[f"{step}_p50_ms"] = statistics.median(quantile(run[step], 0.5) for run in runs)
        figures[f"{step}_p99_ms"] = statistics.median(quantile(run[step], 0.99) for run in runs)
        figures[f"{step}_alone_ms"] = statistics.median(run[step][0] for run in alone)
    figures["floor_p50_ms"] = statistics.median(quantile(run["all"], 0.5) for run in floors)
    figures["floor_p99_ms"] = statistics.median(quantile(run["all"], 0.99) for run in floors)
    for name, value in figures.items():
        print(f"  {name:<20} {value:10.3f}")
    value = figures["all_p99_ms"]
    good = judge(f"{args.processes} attaches at once, p99 ms", value, at_most(GOAL_P99_MS))
    path = results.write(
        harness.loaded_name("attach_crowd", args.load),
        is_simulated=not args.real,
        device=device,
        parameters={
            "processes": args.processes,
            "repeats": args.repeats,
            "processors": os.cpu_count(),
            "load": args.load,
        },
        goals={"all_p99_ms": GOAL_P99_MS},
        figures=figures,
        raw={"alone": alone, "crowds": [spread(run) for run in runs], "floors": [spread(run) for run in floors]},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
