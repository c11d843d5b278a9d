"""What both parts of `benchmarks.predict.collect` go by."""

from __future__ import annotations

#: of the first workload of an architecture: a process that imports PyTorch and makes a context
FIRST_S = 60.0
#: the device that rows name which were measured on the CPU
SIMULATED = "SIMULATED"
