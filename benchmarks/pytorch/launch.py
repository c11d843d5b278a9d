"""Processor time of `x.add_(1)` of PyTorch in a slice, over the same without a slice on the same simulated device.

Two programs are there all the time, and measure in turn, so that each pair of samples has the same machine around it.
Of the pairs' ratios the median counts. The slice is one without a maximum, then one with a maximum of .9, which is
never reached. The interpreter is the one that VGPU_TORCH_PYTHON names; exit code 3 without PyTorch's CUDA build.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks import harness, results
from benchmarks.pytorch.interpreter import CANNOT, find_python
from benchmarks.start_together import environment
from benchmarks.table import Figure, at_most, format_figures
from vgpud.libraries.environment import preload_simulated

GOAL_RATIO = 1.02
CALLS = 2000  # of a sample: some milliseconds, shorter than a scheduler's turn
SHARES = {"uncapped": ("0.5", ""), "capped": ("0.9", "0.9")}
PROGRAM = Path(__file__).with_name("launch_samples.py")


class Program:
    """A program that measures whenever it is asked. Raises RuntimeError when it has ended."""

    def __init__(self, python: str, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [python, str(PROGRAM)], env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read_ns()  # it has warmed up

    def _read_ns(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{PROGRAM.name} ended with {self._process.wait()}")
        return float(line)

    def measure_ns(self, calls: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()
        return self._read_ns()

    def end(self) -> None:
        self._process.communicate()


def sample(python: str, shares: tuple[str, str], pairs: int) -> tuple[list[dict[str, float]], str]:
    """The pairs, and the device's name."""
    with harness.system(harness.one_device()) as own:
        hooked = environment(own, *shares)
        unhooked = preload_simulated(hooked)
        hooked["LD_PRELOAD"] += f":{unhooked['LD_PRELOAD']}"  # environment() leaves the CUDA libraries out
        programs = {"hooked": Program(python, hooked), "unhooked": Program(python, unhooked)}
        try:
            found = [{way: one.measure_ns(CALLS) for way, one in programs.items()} for _ in range(pairs)]
            return found, own.device_name()
        finally:
            for program in programs.values():
                program.end()


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--pairs", type=int, default=200, help="of samples, for each slice (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("a real device's launches are measured by python -m benchmarks.qualify")
    python = find_python()
    if not python:
        return CANNOT
    figures, raw, device = [], {}, ""
    for name, shares in SHARES.items():
        raw[name], device = sample(python, shares, args.pairs)
        ratio = statistics.median(pair["hooked"] / pair["unhooked"] for pair in raw[name])
        figures.append(
            Figure("x.add_(1)", name, "processor time over that without a slice", ratio, at_most(GOAL_RATIO))
        )
        for way in ("hooked", "unhooked"):
            value = statistics.median(pair[way] for pair in raw[name])
            figures.append(Figure("x.add_(1)", name, f"{way}, ns", value))
    print(format_figures(figures))
    title = "A launch of PyTorch in a slice"
    paths = results.write_figures(
        "pytorch_launch",
        figures,
        results.Page(title, [(__doc__ or "").strip()]),
        is_simulated=True,
        device=device,
        parameters={"pairs": args.pairs, "calls": CALLS, "processors": os.cpu_count()},
        raw=raw,
        folder=args.results,
    )
    print(*paths)
    return 1 if any(figure.is_missed for figure in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
