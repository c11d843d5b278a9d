"""Events against counters that the device writes (cuStreamWriteValue32): what the gate's markers should be.

What recording and looking costs the host, how late the end of a kernel is seen by each, what a marker every 16 kernels
of 20 us costs the stream, and what a capturing stream says. A C program with the device to itself; on the simulated
device costs are its constants and counters are written by a thread of the driver, so that only the real device's
figures decide about times.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks import harness, results

ROUNDS = 500


def main() -> int:
    """Measures, prints and writes the result."""
    made = harness.parser(__doc__)
    args = made.parse_args()
    program = str(harness.build("tenants/markers.c"))
    with harness.system(None if args.real else harness.one_device(), lengths_us=(20,)) as own:
        part = own.run("markers", ("--gpus", "1"), [program, str(ROUNDS)])
        part.process.wait(120)
        if part.process.returncode:
            part.check()
        measured: dict[str, Any] = json.loads(part.output_file.read_text())
        device = own.device_name()
    figures = {
        name: value["median"] if isinstance(value, dict) and "median" in value else value
        for name, value in measured.items()
    }
    for name, figure in figures.items():
        print(f"  {name:<28} {figure}")
    path = results.write(
        "markers",
        is_simulated=not args.real,
        device=device,
        parameters={"rounds": ROUNDS, "kernel_us": 20, "kernels_per_marker": 16},
        goals={},
        figures=figures,
        raw=measured,
        folder=args.results,
    )
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
