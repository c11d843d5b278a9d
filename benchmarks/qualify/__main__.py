"""Qualifies a machine with a real device: `python -m benchmarks.qualify` (make qualify). No network or docker needed.

Attach and gate under PyTorch, CuPy, tinygrad and a C program; pointer identity of cuGetProcAddress; hooked against
unhooked results of the CIFAR trainers; the conformance suite; the framework matrix; how fast processes are
checkpointed; the constants of the simulated device, measured; and some models measured for the predictor
(benchmarks.predict.collect goes on with the rest). At the end the figures beside the simulated ones.
Under nine minutes: each step has a budget. What is finished is kept: --resume goes on after an interruption.
Results go to benchmarks/results/. Without a real device it says so and exits 3; --sim runs the same program on the
simulated device, to test the program itself: what it then measures are the simulator's own constants.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.qualify import checks, steps, table
from benchmarks.qualify.checks import Found
from benchmarks.sharing.kept import Kept, KeptError
from tests.conformance import suite

#: lengths of the spin kernels of constants.c and load.c
LENGTHS_US = (1, 20, 100, 200, 100000)
NO_DEVICE = 3
USAGE = 2


def arguments() -> argparse.Namespace:
    """The command's options."""
    made = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.qualify", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--sim", action="store_true", help="run on the simulated device: tests this program")
    made.add_argument(
        "--python", default=sys.executable, help="the Python that has PyTorch, CuPy and JAX (default: this one)"
    )
    made.add_argument("--results", type=Path, default=results.RESULTS, help="folder for the JSON")
    made.add_argument("--kept", type=Path, default=harness.BUILD / "qualify-steps", help="folder for finished steps")
    made.add_argument("--only", action="append", help="run only this step (constants, identity, gate_c, torch, ...)")
    made.add_argument("--resume", action="store_true", help="go on behind the steps that are kept")
    return made.parse_args()


def say(step: steps.Step, found: Found, seconds: float) -> None:
    """One line per step, and its problems below."""
    state = f"skipped: {found.skipped}" if found.skipped else ("NOT AS ASSUMED" if found.problems else "ok")
    took = f"{seconds:6.1f} s" if seconds else "    kept"
    print(f"  {step.name:<24} {took} of {step.budget_s:3.0f}  {state}", flush=True)
    for problem in found.problems:
        print(f"      {problem}")


def made_by(device: str, args: argparse.Namespace) -> dict[str, Any]:
    """What steps must have in common to be one qualification."""
    code = {"commit": results.commit(), "changes": results.changes()}
    return {**code, "device": device, "cpu": results.machine()["cpu"], "python": args.python}


def main() -> int:
    """Runs the steps and writes the results. Exit code 1 when something is not as assumed, 3 without a device."""
    args = arguments()
    reason = "" if args.sim else checks.has_device()
    if reason:
        print(
            f"qualify: no real device here ({reason}): nothing measured; --sim tests this program on the simulated one"
        )
        return NO_DEVICE
    with harness.system(suite.SIMULATED if args.sim else None, lengths_us=LENGTHS_US) as own:
        device = own.device_name()
        print(f"qualify: {device}" + (" (simulated: this tests the program, not a device)" if args.sim else ""))
        try:
            store = Kept(args.kept, made_by(device, args), args.resume)
        except KeptError as error:
            print(f"qualify: {error}", file=sys.stderr)
            return USAGE
        plan = [step for step in steps.plan(args.python) if not args.only or step.name in args.only]
        found, seconds = steps.run(plan, own, store, say)
        store.close()
    figures = {
        name: {"figures": one.figures, "problems": one.problems, "skipped": one.skipped} for name, one in found.items()
    }
    beside = table.kept(results.RESULTS / f"qualify-{'real' if args.sim else 'sim'}.json")
    print(table.table(*((figures, beside) if args.sim else (beside, figures))))
    raw = {name: {"seconds": taken} for name, taken in seconds.items()}
    common = {"simulated": args.sim, "device": device, "folder": args.results, "parameters": {}, "raw": raw}
    if "constants" in found and found["constants"].figures:
        print(results.write("constants", goals={}, figures=found["constants"].figures, **common))
    print(results.write("qualify", goals={"problems": 0}, figures=figures, **common))
    return 1 if any(one.problems for one in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
