"""What two models on one device at once cost each other, against their summed utilisation (`collect --pairs N`)."""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.predict.collect_constants import FIRST_S, SIMULATED
from benchmarks.predict.collect_process import Worker, WorkerError
from vgpud.predict import dataset

COLUMNS = (
    "device", "first", "first_batch", "second", "second_batch", "summed_utilisation", "first_slowdown",
    "second_slowdown", "together_bytes",
)  # fmt: skip
#: of the device, that two may be predicted to hold together
MEMORY_PART = 0.9
#: both measure for longer than alone, so that the ends, where one runs alone, weigh little
SECONDS_FACTOR = 2.0


def choose_pairs(rows: Sequence[dataset.Row], count: int, device_bytes: float) -> list[tuple[dataset.Row, dataset.Row]]:
    """Pairs spread over summed utilisation from the least to the greatest, that fit on the device together."""
    known = [row for row in rows if row.utilisation is not None and row.memory_bytes is not None and row.step_ns]
    fitting = [
        (first, second)
        for first, second in itertools.combinations(known, 2)
        if first.memory_bytes + second.memory_bytes <= MEMORY_PART * device_bytes  # type: ignore[operator]
    ]
    fitting.sort(key=_summed_utilisation)
    if len(fitting) <= count:
        return fitting
    # equal steps of the sum, not of the rank: most pairs are busy ones
    low, high = _summed_utilisation(fitting[0]), _summed_utilisation(fitting[-1])
    found: list[tuple[dataset.Row, dataset.Row]] = []
    for number in range(count):
        aim = low + (high - low) * number / max(1, count - 1)
        best = min(
            (pair for pair in fitting if pair not in found), key=lambda pair: abs(_summed_utilisation(pair) - aim)
        )
        found.append(best)
    return found


def _summed_utilisation(pair: tuple[dataset.Row, dataset.Row]) -> float:
    return sum(row.utilisation or 0.0 for row in pair)


def run(args: argparse.Namespace, path: Path, gpu: str, label: str) -> int:
    """Measures pairs of what is in the CSV and appends them beside it."""
    from vgpud.predict import hardware

    rows = [row for row in (dataset.read(path) if path.exists() else []) if row.device == label]
    if args.cpu:  # nothing was measured of a device: any number does to try the program
        rows = [_trial_row(row) for row in rows]
    out = path.with_name(f"{path.stem}-pairs.csv")
    there = _read_keys(out)
    pairs = choose_pairs(rows, args.pairs, hardware.find_gpu(gpu).memory_gb * 1e9)
    todo = [pair for pair in pairs if _key(pair) not in there]
    print(f"collect: {label}, {len(pairs)} pairs, {len(pairs) - len(todo)} are in {out}", flush=True)
    if not pairs:
        print(f"collect: {path} has no two workloads that fit together: collect rows before pairs")
        return 1
    end = time.monotonic() + args.total
    for pair in todo:
        if end - time.monotonic() < FIRST_S:
            break
        found = measure_pair(pair, gpu, args, end - time.monotonic())
        print(f"  {' + '.join(_name(row) for row in pair):<44} {_words(pair, found)}", flush=True)
        if "failed" not in found:
            _append(out, [label, *_key(pair), f"{_summed_utilisation(pair):.4f}", *found["slowdowns"], found["bytes"]])
    return 0


def _trial_row(row: dataset.Row) -> dataset.Row:
    made = {name: getattr(row, name) for name in (*dataset.TEXTS, "features", "step_ns")}
    return dataset.Row(**made, utilisation=0.5, memory_bytes=float(1 << 30))


def measure_pair(
    pair: tuple[dataset.Row, dataset.Row], gpu: str, args: argparse.Namespace, left_s: float
) -> dict[str, Any]:
    """Both at once: how much longer each one's step takes than alone."""
    try:
        with Worker(args.python) as first, Worker(args.python) as second:
            workers = (first, second)
            for worker, row in zip(workers, pair, strict=True):
                failed = worker.prepare(_request(row, gpu, args), min(left_s, FIRST_S))
                if failed:
                    return failed
            for worker in workers:
                worker.start()
            answers = [worker.read_answer(min(left_s, FIRST_S)) for worker in workers]
    except WorkerError as error:
        return {"failed": str(error)}
    for one in answers:
        if "failed" in one:
            return one
    slower = [f"{one['step_ns'] / (row.step_ns or 1.0):.4f}" for one, row in zip(answers, pair, strict=True)]
    held = [one["memory_bytes"] for one in answers]
    return {"slowdowns": slower, "bytes": "" if None in held else f"{sum(held):.9g}"}


def _request(row: dataset.Row, gpu: str, args: argparse.Namespace) -> dict[str, Any]:
    name, _, precision = row.architecture.partition(" ")
    return {
        "name": name,
        "batch": int(row.features["batch"]),
        "precision": precision or "fp32",
        "seconds": args.seconds * SECONDS_FACTOR,
        "gpu": gpu,
        "cpu": row.device.startswith(SIMULATED),
    }


def _name(row: dataset.Row) -> str:
    return f"{row.architecture} batch {row.features['batch']:g}"


def _key(pair: tuple[dataset.Row, dataset.Row]) -> tuple[str, str, str, str]:
    first, second = pair
    return first.architecture, f"{first.features['batch']:g}", second.architecture, f"{second.features['batch']:g}"


def _words(pair: tuple[dataset.Row, dataset.Row], answer: dict[str, Any]) -> str:
    if "failed" in answer:
        return f"not measured: {answer['failed']}"
    return f"sum {_summed_utilisation(pair):.0%}: {' and '.join(answer['slowdowns'])} times as long"


def _read_keys(path: Path) -> set[tuple[str, ...]]:
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {tuple(line[1:5]) for line in csv.reader(file)}


def _append(path: Path, cells: Sequence[str]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        writer.writerow(cells)
