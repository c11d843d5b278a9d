"""PyTorch trainers in slices, alone and in pairs: does a slice get what it may, and what is it said to have used?

A small convolutional network (trainer.py) trains with three batches: of 64, whose kernels are shorter than their
launches, so that most of the time the device is idle; of 1,024, in between; of 8,192, which keep the device at work.
Alone in a slice it may take as long as without a maximum, or as its device time over the maximum. Shares are those of
the device's log, GOT is what vgpud says that the slice used in the same time. The interpreter is the one that
VGPU_TORCH_PYTHON names; exit code 3 without PyTorch's CUDA build.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import harness, results
from benchmarks.pytorch.interpreter import CANNOT, find_python
from benchmarks.table import Figure, at_least, at_most, format_figures
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError
from vgpud.client import calls
from vgpud.simdevice.busy_log import SECOND_NS, mean_share, read_busy_log

BATCHES = (64, 1024, 8192)
ALONE = (0.1, 0.25, 0.5, 0.75)
PAIR = (0.75, 0.25)
#: the batch with which two trainers want more than the device has
FULL_BATCH = 8192
GOAL_RATIO, GOAL_PP, GOAL_SUM = 1.1, 1.0, 99.0
LOOK_S = 0.1
PROGRAM = Path(__file__).with_name("trainer.py")


@dataclass(frozen=True)
class Run:
    """One trainer. share: of the device, by its log; got_share: the same, by vgpud."""

    batch: int
    gpus: float
    others: tuple[float, ...]
    steps_per_s: float
    share: float
    got_share: float


def watch_used(own: OwnSystem, trainers: Sequence[Part]) -> dict[str, list[tuple[int, int]]]:
    """By slice, until all have ended: the times of the looks, and what the slice had used, both in ns."""
    looks: dict[str, list[tuple[int, int]]] = {}
    while any(trainer.running for trainer in trainers):
        with own.client() as client:
            for one in client.all(calls.slices()):
                used_ns = sum(device.charged_ns for device in one.devices)
                looks.setdefault(one.name, []).append((time.monotonic_ns(), used_ns))
        time.sleep(LOOK_S)
    return looks


def measure_got(looks: Sequence[tuple[int, int]], begin_ns: int, end_ns: int) -> float:
    """From the first to the last look within the time."""
    inside = [look for look in looks if begin_ns <= look[0] <= end_ns]
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def train(python: str, batch: int, sizes: Sequence[float], seconds: float) -> list[Run]:
    """Trainers that start together, each in a slice of its size. Raises PartError when one fails."""
    found = []
    with harness.system(harness.one_device()) as own:
        command = [python, str(PROGRAM), str(batch), str(seconds)]
        trainers = [own.run(f"t{i}", ["--gpus", f"{size:g}"], command) for i, size in enumerate(sizes)]
        looks = watch_used(own, trainers)
        spans = read_busy_log(own.busy_log())
        for index, (size, trainer) in enumerate(zip(sizes, trainers, strict=True)):
            line = next(trainer.lines(), None)
            if line is None:
                trainer.check()
                raise PartError(f"{trainer.name} printed nothing")
            begin_ns, end_ns = line["begin_ns"], line["end_ns"]
            found.append(
                Run(
                    batch,
                    size,
                    tuple(sizes[:index]) + tuple(sizes[index + 1 :]),
                    line["steps"] * SECOND_NS / (end_ns - begin_ns),
                    mean_share(spans, line["pid"], begin_ns, end_ns),
                    measure_got(looks[f"t{index}"], begin_ns, end_ns),
                )
            )
    return found


def figures_alone(full: Run, run: Run) -> Iterator[Figure]:
    """full: the same trainer in a slice without a maximum."""
    case = f"batch {run.batch:,}, {run.gpus:g}"
    device_s = full.share / full.steps_per_s  # of a step
    least_s = max(1 / full.steps_per_s, device_s / run.gpus)
    ratio = 1 / run.steps_per_s / least_s
    yield Figure("alone", case, "time over the legitimate one", ratio, at_most(GOAL_RATIO))
    beyond_pp = max(0.0, run.share - run.gpus) * 100
    yield Figure("alone", case, "beyond the maximum, points", beyond_pp, at_most(GOAL_PP))
    yield from figures_of_usage("alone", case, run)


def figures_of_usage(row: str, case: str, run: Run) -> Iterator[Figure]:
    """GOT beside the log."""
    yield Figure(row, case, "share of the device, %", run.share * 100)
    yield Figure(row, case, "GOT off by points", abs(run.got_share - run.share) * 100, at_most(GOAL_PP))


def figures_pair(runs: Sequence[Run]) -> Iterator[Figure]:
    """Only trainers that want more than there is have to get their sizes."""
    batch = runs[0].batch
    for run in runs:
        case = f"batch {batch:,}, {run.gpus:g} of a pair"
        yield from figures_of_usage("pair", case, run)
        if batch == FULL_BATCH:
            short_pp = (run.gpus - run.share) * 100
            yield Figure("pair", case, "off by points", abs(short_pp), at_most(GOAL_PP))
    total = sum(run.share for run in runs) * 100
    goal = at_least(GOAL_SUM) if batch == FULL_BATCH else None
    yield Figure("pair", f"batch {batch:,}, both", "share of the device, %", total, goal)


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--seconds", type=float, default=8, help="of each run (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("it compares with the simulated device's own log")
    python = find_python()
    if not python:
        return CANNOT
    figures, runs = [], []
    for batch in BATCHES:
        (full,) = train(python, batch, [1.0], args.seconds)
        figures += list(figures_of_usage("alone", f"batch {batch:,}, 1", full))
        runs.append(full)
        for size in ALONE:
            (run,) = train(python, batch, [size], args.seconds)
            figures += list(figures_alone(full, run))
            runs.append(run)
        pair = train(python, batch, PAIR, args.seconds)
        figures += list(figures_pair(pair))
        runs += pair
    print(format_figures(figures))
    paths = results.write_figures(
        "pytorch_sharing",
        figures,
        results.Page("PyTorch trainers in slices", [(__doc__ or "").strip()]),
        is_simulated=True,
        device="SIMULATED H200",
        parameters={"seconds": args.seconds, "processors": os.cpu_count()},
        raw={"runs": [asdict(run) for run in runs]},
        folder=args.results,
    )
    print(*paths)
    return 1 if any(figure.is_missed for figure in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
