"""Prediction, co-location and elasticity beside the papers' figures: on shipped data, in the simulator, and live.

A missed goal is a figure like any other: it is shown, kept, and makes the exit code 1. Table (Markdown) and plots lie
beside the JSON; those of some rows only in build/bench, beside no result of the whole.
"""

from __future__ import annotations

from benchmarks.predict.rows import ROWS
from benchmarks.rows import Bench, main

LEGEND = """\
What is said to be simulated is replayed by the simulator that `vgpu whatif` runs, with the machine, the policies and
the autoscaler of the daemon."""
BENCH = Bench(
    "predict", "Prediction, co-location, elasticity", __doc__ or "", "no device: a SIMULATED cluster", LEGEND, ROWS
)

if __name__ == "__main__":
    raise SystemExit(main(BENCH))
