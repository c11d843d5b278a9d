"""Qualifies a machine with a real device: `python -m benchmarks.qualify` (make qualify). No network or docker needed.

Attach and gate under PyTorch, CuPy, tinygrad and a C program; pointer identity of cuGetProcAddress; hooked against
unhooked results of the CIFAR trainers; the conformance suite; the framework matrix; how fast processes are
checkpointed; what the driver holds slices to (memory limits, time slices); the constants of the simulated device,
measured; and some models measured for the predictor
(benchmarks.predict.collect continues with the rest). At the end the figures beside the simulated ones.
Under ten minutes: each step has a budget. What a step found is kept, and the results in benchmarks/results/ are
written, as soon as it is over: --resume continues after an interruption. --sim runs the same program on the simulated
device, to test the program itself: what it then measures are the simulator's own constants.

Exit code: 0 all steps ran and all is as assumed, 1 something is not as assumed, 2 wrong usage, 3 there is no real
device and nothing was measured, 4 what ran is as assumed, but steps were skipped; the last lines say which, and why.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.qualify import checks, steps, table
from benchmarks.qualify.checks import Found
from benchmarks.sharing.kept import Kept, KeptError
from tests.conformance import suite

#: lengths of the spin kernels of constants.c and load.c
LENGTHS_US = (1, 20, 100, 200, 100000)
NOT_AS_ASSUMED = 1
USAGE = 2
NO_DEVICE = 3
SKIPPED = 4


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
    made.add_argument("--resume", action="store_true", help="continue after the steps that are kept")
    return made.parse_args()


def say(step: steps.Step, finding: Found, seconds: float) -> None:
    """One line per step, and its problems below."""
    state = (
        f"skipped: {finding.skip_reason}" if finding.skip_reason else ("NOT AS ASSUMED" if finding.problems else "ok")
    )
    took = f"{seconds:6.1f} s" if seconds else "    kept"
    print(f"  {step.name:<24} {took} of {step.budget_s:3.0f}  {state}", flush=True)
    for problem in finding.problems:
        print(f"      {problem}")


def made_by(device: str, args: argparse.Namespace) -> dict[str, Any]:
    """What steps must have in common to be one qualification."""
    code = {"commit": results.commit(), "changes": results.changes()}
    return {**code, "device": device, "cpu": results.machine()["cpu"], "python": args.python}


class Results:
    """The result files, written again after each step: what is there is what has been measured so far."""

    def __init__(self, args: argparse.Namespace, device: str, step_count: int) -> None:
        self._common = {"is_simulated": args.sim, "device": device, "folder": args.results}
        self._planned = step_count
        self.findings: dict[str, Found] = {}
        self._seconds: dict[str, float] = {}
        self.paths: list[Path] = []

    def figures(self) -> dict[str, Any]:
        """What the steps found, as the file has it."""
        return {
            name: {"figures": one.figures, "problems": one.problems, "skipped": one.skip_reason}
            for name, one in self.findings.items()
        }

    def add(self, step: steps.Step, finding: Found, seconds: float) -> None:
        """What a step found, at once."""
        say(step, finding, seconds)
        self.findings[step.name], self._seconds[step.name] = finding, seconds
        raw = {name: {"seconds": taken} for name, taken in self._seconds.items()}
        common = {**self._common, "raw": raw, "parameters": {"steps": len(self.findings), "of": self._planned}}
        self.paths = [results.write("qualify", goals={"problems": 0}, figures=self.figures(), **common)]
        constants = self.findings.get("constants")
        if constants and constants.figures:
            self.paths.append(results.write("constants", goals={}, figures=constants.figures, **common))


def verdict(findings: Mapping[str, Found]) -> int:
    """The exit code, and what was skipped in words."""
    skipped = {name: one.skip_reason for name, one in findings.items() if one.skip_reason}
    if skipped:
        print(f"{len(skipped)} of {len(findings)} steps were skipped:")
    for name, why in skipped.items():
        print(f"  {name}: {why}")
    if any(one.problems for one in findings.values()):
        return NOT_AS_ASSUMED
    return SKIPPED if skipped else 0


def main() -> int:
    """Runs the steps and writes the results."""
    args = arguments()
    reason = "" if args.sim else checks.has_device()
    if reason:
        print(
            f"qualify: no real device here ({reason}): nothing measured; --sim tests this program on the simulated one"
        )
        return NO_DEVICE
    plan = [step for step in steps.plan(args.python) if not args.only or step.name in args.only]
    if not plan:
        print(f"qualify: no step is called {', '.join(args.only)}", file=sys.stderr)
        return USAGE
    with harness.system(suite.SIMULATED if args.sim else None, lengths_us=LENGTHS_US) as own:
        device = own.device_name()
        print(f"qualify: {device}" + (" (simulated: this tests the program, not a device)" if args.sim else ""))
        try:
            store = Kept(args.kept, made_by(device, args), args.resume)
        except KeptError as error:
            print(f"qualify: {error}", file=sys.stderr)
            return USAGE
        written = Results(args, device, len(plan))
        steps.run(plan, own, store, written.add)
        store.close()
    beside = table.read_figures(results.RESULTS / f"qualify-{'real' if args.sim else 'sim'}.json")
    print(table.compare(*((written.figures(), beside) if args.sim else (beside, written.figures()))))
    print("\n".join(map(str, written.paths)))
    return verdict(written.findings)


if __name__ == "__main__":
    raise SystemExit(main())
