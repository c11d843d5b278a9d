"""Draws what the Philly traces do not say of their jobs: utilisation, memory, and how wrong a prediction is.

    python -m benchmarks.predict.colocation_draw

writes benchmarks/data/colocation, which is committed: no policy sees anything that was drawn after it ran. Of each job
three numbers are drawn, normal and independent, from one seed:

- utilisation: logistic(m + 1.2 z), with m such that the mean over the jobs is 30, 52 or 70 %; so the three cases have
  the same jobs in the same order. 52 % is the mean that the traces' authors report for their cluster; the spread, a
  standard deviation of about 24 points, is an assumption: from nearly idle to nearly full, as they draw it.
- memory: log-normal, half of the jobs use at most a quarter of a device (as on Perlmutter: Li et al., ISC 2023), a
  fifth more than half of it; whole GiB of an 80-GiB device, at most 78.
- error: by how many standard deviations a prediction of its utilisation is off.

Jobs: the first 1,500 of one GPU, in order of submission, that ran for at most a day (`day`, `other_day`), or however
long (`all`): the makespan of `all` is decided by one job that runs for 17 days, whatever a scheduler does.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from benchmarks import results
from vgpud.core.jobs.model import SECOND_NS
from vgpud.simulate import readers
from vgpud.simulate.trace import TraceJob

DATA = results.ROOT / "benchmarks" / "data"
FOLDER = DATA / "colocation"
SEED = 20201307
JOBS = 1500
MEANS = (30, 52, 70)
SPREAD = 1.2
DEVICE_GIB, MEMORY_GIB_MAX = 80, 78
MEDIAN_GIB = DEVICE_GIB / 4
#: so that a fifth is above half of a device, twice the median
MEMORY_SPREAD = math.log(2) / NormalDist().inv_cdf(0.8)
DAY_S = 86_400
COLUMNS = ("job", "submitted_s", "duration_s", *(f"utilisation_{mean}" for mean in MEANS), "memory_gib", "error")


@dataclass(frozen=True)
class Jobs:
    """Which jobs: a file of the traces, and how long they may have run."""

    trace: str
    most_s: float


SETS = {
    "day": Jobs("philly_6c71a0.csv", DAY_S),
    "all": Jobs("philly_6c71a0.csv", math.inf),
    "other_day": Jobs("philly_b436b2.csv", DAY_S),
}


def choose_jobs(jobs: Jobs) -> list[TraceJob]:
    """The first of one GPU, the first at 0."""
    found = [
        job
        for job in readers.read(DATA / "philly" / jobs.trace, sort=True)
        if job.spec.members == 1 and job.duration_ns <= jobs.most_s * SECOND_NS
    ]
    return found[:JOBS]


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def utilisations(draws: Sequence[float], percent: int) -> list[float]:
    """In percent, with that mean: bisection."""
    low, high = -10.0, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        mean = 100 * math.fsum(logistic(middle + SPREAD * z) for z in draws) / len(draws)
        low, high = (middle, high) if mean < percent else (low, middle)
    return [100 * logistic(low + SPREAD * z) for z in draws]


def rows(jobs: Sequence[TraceJob]) -> list[tuple[object, ...]]:
    """A line for each job."""
    draw, normal = random.Random(SEED), NormalDist()

    def normals() -> list[float]:
        """By the inverse of their distribution: Python's own way to draw them has changed before."""
        return [normal.inv_cdf((draw.getrandbits(32) + 0.5) / 2**32) for _ in jobs]

    used, memory, error = normals(), normals(), normals()
    by_mean = [utilisations(used, mean) for mean in MEANS]
    begin_ns = jobs[0].submitted_ns
    return [
        (
            job.spec.name,
            (job.submitted_ns - begin_ns) // SECOND_NS,
            job.duration_ns // SECOND_NS,
            *(f"{column[index]:.1f}" for column in by_mean),
            min(MEMORY_GIB_MAX, math.ceil(MEDIAN_GIB * math.exp(MEMORY_SPREAD * memory[index]))),
            f"{error[index]:.4f}",
        )
        for index, job in enumerate(jobs)
    ]


def write(folder: Path) -> None:
    """The files and their checksums."""
    sums = {}
    for name, jobs in SETS.items():
        path = folder / f"{name}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(rows(choose_jobs(jobs)))
        sums[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    source = json.loads((DATA / "philly" / "source.json").read_text())
    source["what"] = "1,500 one-GPU jobs of Philly's traces, with utilisation and memory drawn (colocation_draw.py)"
    (folder / "source.json").write_text(json.dumps(source | {"sha256": sums}, indent=1) + "\n")


if __name__ == "__main__":
    write(FOLDER)
