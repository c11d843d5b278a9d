"""A trace as a whole, by the number of its jobs: seconds and memory of a process that reads and replays it.

`python -m benchmarks.scheduling.scale TRACE` is that process: it does what `vgpu whatif --trace TRACE --cluster 125x8`
does, and prints what it took as JSON.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scheduling.speed import exponent
from benchmarks.table import Figure, at_most, below_bound
from vgpud.simulate import clusters, readers, results, scenario

SIZES = (10_000, 100_000, 1_000_000)
CLUSTER = "125x8"
GPUS = 1_000
#: GPUs of a job, and how often
WIDTHS, WEIGHTS = (1, 2, 4, 8), (50, 20, 15, 15)
#: durations: lognormal, of seconds; the jobs come so fast that the GPUs are in use for this part of the time
MU, SIGMA, MEAN_S = 7.2, 1.4, 3569
LOAD = 0.95
SEED = 1
SECONDS_MAX, GIB_MAX = 180, 2
EXPONENT_MAX = 1.15
LIMIT_S = 3600


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """Of each size, and how they grow."""
    raw["runs"] = []
    with tempfile.TemporaryDirectory() as folder:
        for jobs in SIZES:
            run = measure(write_trace(Path(folder) / "trace.csv", jobs))
            raw["runs"].append({"jobs": jobs, **run})
            is_largest = jobs == SIZES[-1]
            case = f"{jobs:,} jobs on {GPUS:,} GPUs, fifo"
            yield Figure("scale", case, "s", run["total_s"], at_most(SECONDS_MAX) if is_largest else None)
            yield Figure("scale", case, "GiB", run["peak_gib"], below_bound(GIB_MAX) if is_largest else None)
    grows = exponent(SIZES, [run["total_s"] for run in raw["runs"]])
    yield Figure("scale", f"{GPUS:,} GPUs, fifo", "exponent by jobs", grows, at_most(EXPONENT_MAX))


def write_trace(path: Path, jobs: int) -> Path:
    """The same jobs for the same number."""
    draw, at_s = random.Random(SEED), 0.0
    mean_width = sum(width * weight for width, weight in zip(WIDTHS, WEIGHTS, strict=True)) / sum(WEIGHTS)
    gap_s = MEAN_S * mean_width / (GPUS * LOAD)
    with path.open("w", encoding="utf-8") as file:
        file.write("job_id,num_gpu,submit_time,duration\n")
        for number in range(jobs):
            at_s += draw.expovariate(1 / gap_s)
            (width,) = draw.choices(WIDTHS, WEIGHTS)
            file.write(f"{number},{width},{at_s:.3f},{draw.lognormvariate(MU, SIGMA):.3f}\n")
    return path


def measure(trace: Path) -> dict[str, float]:
    """In a process of its own, whose memory is nothing else's."""
    command = [sys.executable, "-m", "benchmarks.scheduling.scale", str(trace)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=LIMIT_S)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(path: str) -> None:
    begin = time.perf_counter()
    jobs = readers.read(Path(path))
    read_s = time.perf_counter() - begin
    outcome = scenario.run(jobs, clusters.parse(CLUSTER), scenario.Scenario("fifo"))
    found = results.figures(outcome)
    total_s = time.perf_counter() - begin
    values = {"read_s": read_s, "total_s": total_s, "processor_s": time.process_time(), "peak_gib": _peak_gib()}
    print(json.dumps({**values, "utilisation": found.utilisation, "jct_mean_s": found.jct_s.mean}))


def _peak_gib() -> float:
    """Of this program's memory; getrusage() has that of its parent in it."""
    status = Path("/proc/self/status").read_text().splitlines()
    (peak_kib,) = (line.split()[1] for line in status if line.startswith("VmHWM:"))
    return int(peak_kib) / (1 << 20)


if __name__ == "__main__":
    main(sys.argv[1])
