"""How well jobs are ordered and placed, and what that costs: the scheduler's table, from traces that are shipped.

A missed goal is a figure like any other: it is shown, kept, and makes the exit code 1. Table (Markdown) and plots lie
beside the JSON; those of some rows only in build/bench, beside no result of the whole.
"""

from __future__ import annotations

from benchmarks.rows import Bench, main
from benchmarks.scheduling.rows import ROWS

LEGEND = """\
GPUs are counted (`--placement count`) where the released Tiresias simulator is compared with, and starting and
preempting cost nothing there; `strict:` means that the first job which does not fit keeps the others waiting. Times of
decisions are of the whole machine and cluster, with devices, shares and memory."""
BENCH = Bench("scheduling", "Scheduling", __doc__ or "", "no device: traces on a SIMULATED cluster", LEGEND, ROWS)

if __name__ == "__main__":
    raise SystemExit(main(BENCH))
