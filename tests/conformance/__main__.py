"""Runs the conformance suite: `python -m tests.conformance` (make conformance).

On the real device when there is one, else on the simulated one. Each row runs unhooked and in a slice, and what it says
is compared with the other and with expected/. --confirm (make conformance REAL=1) needs a real device and writes what
it said as the expectation. Exit code 1 when a row differs, 3 when --confirm finds no real device.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks import harness, results
from benchmarks.qualify import checks
from tests.conformance import suite

NO_DEVICE = 3


def driver_version() -> str:
    """The real driver's version, as NVML says it."""
    import pynvml

    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def arguments() -> argparse.Namespace:
    """The command's options."""
    made = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.conformance", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--sim", action="store_true", help="on the simulated device even where a real one is")
    made.add_argument("--confirm", action="store_true", help="write what the real device says to expected/")
    made.add_argument(
        "--results", type=Path, default=harness.BUILD, help="folder for the JSON (%(default)s; make KEEP=1: results/)"
    )
    return made.parse_args()


def main() -> int:
    """Runs all rows, prints what differs and writes the results."""
    args = arguments()
    reason = "asked for the simulated one" if args.sim else checks.has_device()
    if reason and args.confirm:
        print(f"conformance: no real device here ({reason}): nothing confirmed")
        return NO_DEVICE
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-conform-") as folder,
        harness.system(suite.SIMULATED if reason else None) as own,
    ):
        device = own.device_name()
        figures, differences, said = suite.conform(own, Path(folder))
    print(
        f"conformance: {device}: {figures['rows']} rows ({figures['skipped']} skipped here), {len(differences)} differ"
    )
    for difference in differences:
        print(f"  {difference}")
    if args.confirm:
        for family, rows in said.items():
            suite.confirm(family, rows, driver_version(), device)
    raw = {"said": said, "differences": [str(one) for one in differences]}
    goals = {"hooked_differs": 0, "not_as_expected": 0}
    common = {"is_simulated": bool(reason), "device": device, "folder": args.results, "parameters": {}}
    print(results.write("conformance", goals=goals, figures=figures, raw=raw, **common))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
