"""Collectives whose kernels no gate knows by name: how much longer the same steps take than with known ones.

Steps of data-parallel training (tenants/gang.c) by a slice with half of each of two devices: as one process with one
thread or two, or as a process per device; beside another such slice, beside a saturating slice on one device, on the
other, on both, and alone with a maximum of half of each. In turn by a known and by an unknown name, each pair in one
run; of several pairs the median. For the simulated device alone: see tenants/gang.c.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import harness, results
from benchmarks.table import at_most, judge
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError, wait_for

LIMIT = 1.3
KERNEL_US = 250
KERNELS_PER_STEP = 4
#: a run that takes longer than that counts as so long
LONGEST_S = 60.0
HALVES = ("--gpus", "1", "--spread", "2", "--mem", "2G")
PROGRAMS = {
    "one thread": (),
    "two threads": ("--threads", "2"),
    "two processes": ("--processes", "2"),
}
NEIGHBOURS = {
    "another gang": (),
    "one on the first device": ("0",),
    "one on the second device": ("1",),
    "one on each device": ("0", "1"),
    "none, at most half": None,
}
#: how the spinning kernel is launched, see tenants/gang.c
WAYS = {"plain": 0, "cooperative": 1, "with attributes": 2, "in a graph": 3}


def main() -> int:
    """Measures, prints and writes the result. 0 when all goals are met, else 1."""
    made = harness.parser(__doc__)
    made.add_argument("--steps", type=int, default=800, help="of each run (default: %(default)s)")
    made.add_argument("--pairs", type=int, default=3, help="of runs, in each case (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("kernels that spin for each other are the simulated device's")
    cases = [(program, neighbour, "plain") for program in PROGRAMS for neighbour in NEIGHBOURS]
    cases += [("two processes", neighbour, way) for way in list(WAYS)[1:] for neighbour in ("another gang",)]
    figures: dict[str, float] = {}
    raw: list[dict[str, Any]] = []
    met = True
    with harness.system({"devices": "2"}, lengths_us=(KERNEL_US,)) as own:
        runs = _Runs(own, args.steps)
        for program, neighbour, way in cases:
            pairs = [[runs.seconds(program, neighbour, way, unknown) for unknown in (0, 1)] for _ in range(args.pairs)]
            name = f"{program}, beside {neighbour}, {way}"
            figures[name] = round(statistics.median(unknown / known for known, unknown in pairs), 3)
            raw.append({"case": name, "seconds": [[round(seconds, 3) for seconds in pair] for pair in pairs]})
            met &= judge(name, figures[name], at_most(LIMIT))
        device = own.device_name()
    step = {"kernels_per_step": KERNELS_PER_STEP, "kernel_us": KERNEL_US}
    path = results.write(
        "collectives",
        is_simulated=True,
        device=device,
        parameters={"steps": args.steps, "pairs": args.pairs, **step},
        goals={"unknown_over_known": LIMIT},
        figures=figures,
        raw={"runs": raw},
        folder=args.results,
    )
    print(path)
    return 0 if met else 1


class _Runs:
    """Runs on one system, each with slices and neighbours of its own."""

    def __init__(self, own: OwnSystem, steps: int) -> None:
        self._own, self._steps, self._count = own, steps, 0
        self._gang, self._load = str(harness.build("tenants/gang.c")), str(harness.build("tenants/load.c"))

    def seconds(self, program: str, neighbour: str, way: str, unknown: int) -> float:
        """How long the steps take from the start of the program's first one."""
        self._count += 1
        work = ("--own", KERNELS_PER_STEP, "--own-us", KERNEL_US, "--unknown", unknown, "--launch", WAYS[way])
        command = [self._gang, *map(str, work), *PROGRAMS[program], "--seconds", str(int(LONGEST_S))]
        with self._neighbours(neighbour, command):
            most = "1" if NEIGHBOURS[neighbour] is None else "2"
            counted = [*command, "--steps", str(self._steps)]
            part = self._own.run(f"g{self._count}", (*HALVES, "--max", most), counted)
            try:
                return self._until_the_end(part)
            finally:
                self._end(part)

    def _until_the_end(self, part: Part) -> float:
        lines: list[dict[str, Any]] = []
        end_s = time.monotonic() + 2 * LONGEST_S
        while part.running and time.monotonic() < end_s:
            time.sleep(0.05)
            lines += part.lines()
        lines += part.lines()
        ready = [line["time_ns"] for line in lines if line["event"] == "ready"]
        if not ready:
            raise PartError(f"{part.name} did not start: {part.error_file.read_text().strip()}")
        end = [line["time_ns"] for line in lines if line["event"] == "end" and line["issued"] == self._steps]
        return (end[0] - ready[0]) / 1e9 if end else LONGEST_S

    @contextmanager
    def _neighbours(self, neighbour: str, gang_command: list[str]) -> Iterator[None]:
        devices = NEIGHBOURS[neighbour]
        parts = []
        if devices == ():
            parts.append(self._own.run(f"n{self._count}", (*HALVES, "--max", "2"), gang_command))
        for device in devices or ():
            name = f"n{self._count}on{device}"
            amounts = ("--gpus", "0.5", "--max", "1", "--mem", "2G", "--device", device)
            self._own.vgpu("slice", "create", name, *amounts)
            load = [self._load, "--kernel-us", str(KERNEL_US), "--depth", "4", "--seconds", "200"]
            parts.append(self._own.run(name, (), load))
        try:
            for part in parts:
                wait_for(part.name, lambda part=part: _runs(part))  # type: ignore[misc]
            yield
        finally:
            for part in parts:
                self._end(part)
            for device in devices or ():
                self._own.vgpu("slice", "rm", f"n{self._count}on{device}")

    def _end(self, part: Part) -> None:
        part.stop(timeout_s=2)
        self._own.tenants.remove(part)


def _runs(part: Part) -> bool:
    part.check()
    return any(line.get("completed", 0) > 0 for line in part.lines())


if __name__ == "__main__":
    raise SystemExit(main())
