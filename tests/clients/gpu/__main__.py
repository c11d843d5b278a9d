"""The framework matrix on a real device: `python -m tests.clients.gpu` (make clients-gpu).

PyTorch, CuPy, JAX and Triton, unchanged, without a slice and in one of half a device: the same results, and the slice's
memory seen. Without a device or a framework rows are skipped, with the reason. Exit code 1 when a row failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import harness, results
from benchmarks.qualify import checks
from tests.clients.gpu import matrix


def arguments() -> argparse.Namespace:
    """The command's options."""
    made = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.clients.gpu", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--python", default=sys.executable, help="the Python that has the frameworks (default: this one)")
    made.add_argument("--results", type=Path, default=harness.BUILD, help="folder for the JSON (default: %(default)s)")
    made.add_argument("row", nargs="*", help="only rows whose name begins so (torch, cupy, ...)")
    return made.parse_args()


def main() -> int:
    """Runs the rows, prints the table and writes the results."""
    args = arguments()
    rows = [row for row in matrix.ROWS if not args.row or row.name.startswith(tuple(args.row))]
    if reason := checks.has_device():
        outcomes = [matrix.Outcome(row.name, skip_reason=f"no real device: {reason}") for row in rows]
        print(matrix.table(outcomes))
        return 0
    with harness.system(None) as own:
        device = own.device_name()
        print(f"clients-gpu: {device}")
        runner = matrix.Matrix(own, args.python)
        outcomes = [runner.run(row) for row in rows]
    print(matrix.table(outcomes))
    figures = {one.name: one.as_json() for one in outcomes}
    if outcomes:
        common = {"is_simulated": False, "device": device, "folder": args.results, "parameters": {}, "raw": {}}
        print(results.write("clients_gpu", goals={"failed": 0}, figures=figures, **common))
    return 1 if any(one.problems for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
