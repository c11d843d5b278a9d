"""Qualifies a machine with a real device: `python -m benchmarks.qualify` (make qualify). No network or docker needed.

Attach and gate under PyTorch, CuPy, tinygrad and a C program; pointer identity of cuGetProcAddress; hooked against
unhooked results of the CIFAR trainers; the conformance suite; and the constants of the simulated device, measured.
Results go to benchmarks/results/. Without a real device it says so and exits 3; --sim runs the same program on the
simulated device, to test the program itself: what it then measures are the simulator's own constants.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.qualify import checks
from benchmarks.qualify.checks import Found
from tests.conformance import suite
from vgpud.cli.own_system import OwnSystem

#: lengths of the spin kernels of constants.c and load.c
LENGTHS_US = (1, 20, 100, 200, 100000)
NO_DEVICE = 3


def arguments() -> argparse.Namespace:
    """The command's options."""
    made = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.qualify", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--sim", action="store_true", help="run on the simulated device: tests this program")
    made.add_argument(
        "--python", default=sys.executable, help="the Python that has PyTorch and CuPy (default: this one)"
    )
    made.add_argument("--results", type=Path, default=results.RESULTS, help="folder for the JSON")
    made.add_argument("--only", action="append", help="run only this check (constants, identity, gate_c, torch, ...)")
    return made.parse_args()


def say(name: str, found: Found, seconds: float) -> None:
    """One line per check, and its problems below."""
    state = f"skipped: {found.skipped}" if found.skipped else ("NOT AS ASSUMED" if found.problems else "ok")
    print(f"  {name:<12} {seconds:6.1f} s  {state}", flush=True)
    for problem in found.problems:
        print(f"               {problem}")
    for key, value in found.figures.items():
        if isinstance(value, (int, float, str)):
            print(f"               {key} = {value}")


def conformance(own: OwnSystem) -> Found:
    """The conformance suite: rows that differ hooked and unhooked, or from what is expected of a device."""
    with tempfile.TemporaryDirectory(prefix="vgpu-conform-") as folder:
        figures, differences, _said = suite.conform(own, Path(folder))
    return Found(figures, [str(one) for one in differences])


def main() -> int:
    """Runs the checks and writes the results. Exit code 1 when something is not as assumed, 3 without a device."""
    args = arguments()
    reason = "" if args.sim else checks.has_device()
    if reason:
        print(
            f"qualify: no real device here ({reason}): nothing measured; --sim tests this program on the simulated one"
        )
        return NO_DEVICE
    found: dict[str, Found] = {}
    raw: dict[str, Any] = {}
    with harness.system(suite.SIMULATED if args.sim else None, lengths_us=LENGTHS_US) as own:
        device = own.device_name()
        print(f"qualify: {device}" + (" (simulated: this tests the program, not a device)" if args.sim else ""))
        plan: list[tuple[str, tuple[Any, ...]]]
        plan = [("constants", (checks.constants, own)), ("identity", (checks.identity, own))]
        plan += [("gate_c", (checks.gate_c, own)), ("conformance", (conformance, own))]
        plan += [(name, (checks.trainer, own, name, args.python)) for name in checks.TRAINERS]
        for name, call in plan:
            if args.only and name not in args.only:
                continue
            found[name], seconds = checks.timed(*call)
            raw[name] = {"seconds": round(seconds, 2)}
            say(name, found[name], seconds)
    common = {"simulated": args.sim, "device": device, "folder": args.results, "parameters": {}, "raw": raw}
    if "constants" in found and found["constants"].figures:
        print(results.write("constants", goals={}, figures=found["constants"].figures, **common))
    figures = {
        name: {"figures": one.figures, "problems": one.problems, "skipped": one.skipped} for name, one in found.items()
    }
    print(results.write("qualify", goals={"problems": 0}, figures=figures, **common))
    return 1 if any(one.problems for one in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
