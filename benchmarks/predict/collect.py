"""Measures models on a real device, for the predictor: `python -m benchmarks.predict.collect`. No downloads.

Each architecture at several batches trains for some seconds; a row of features and of what NVML and PyTorch say is
appended to a CSV that `vgpu predict train --data` reads. All together take under nine minutes; what is there is not
measured again, so the same command continues after an interruption. --pairs measures what two at once cost each other.
--cpu tries the program where no device is: a few steps on the CPU, rows of a device that is called SIMULATED, in a file
of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.predict.collect_constants import FIRST_S, SIMULATED
from benchmarks.predict.collect_process import Worker, WorkerError
from benchmarks.results import ROOT
from vgpud.predict import dataset, hardware
from vgpud.predict.features import Features

#: with start and end under nine minutes
TOTAL_S = 520.0
#: of one workload: features, warming up, measuring
WORKLOAD_S = 20.0
MEASURE_S = 1.5
NO_DEVICE = 3
PRECISIONS = ("fp32", "fp16")


@dataclass(frozen=True, slots=True)
class Workload:
    """A model, a batch and a precision."""

    name: str
    family: str
    batch: int
    precision: str

    @property
    def architecture(self) -> str:
        """As its rows are called."""
        return self.name if self.precision == "fp32" else f"{self.name} {self.precision}"


def plan(architectures: Sequence[str] = (), batches: int = 0, precisions: Sequence[str] = PRECISIONS) -> list[Workload]:
    """All workloads by architecture; batches: so many of each, spread, instead of all in 32 bits and one in 16."""
    from benchmarks.predict.architectures import ALL

    made = []
    for name, architecture in ALL.items():
        if architectures and name not in architectures:
            continue
        for precision in precisions:
            wanted = batches or (len(architecture.batches) if precision == "fp32" else 1)
            chosen = spread(architecture.batches, wanted)
            made += [Workload(name, architecture.family, batch, precision) for batch in chosen]
    return made


def spread(values: Sequence[int], count: int) -> list[int]:
    """So many of the values, the middle one alone, else from the first to the last."""
    if count >= len(values):
        return list(values)
    if count == 1:
        return [values[len(values) // 2]]
    return [values[i * (len(values) - 1) // (count - 1)] for i in range(count)]


def device(cpu: bool) -> tuple[str, str]:
    """The name of the device's model in the table, and why there is none."""
    try:
        import torch
    except ImportError:
        return "", "PyTorch is not installed"
    if cpu:
        return hardware.GPUS[0].name, ""
    if not torch.cuda.is_available():
        return "", "PyTorch sees no device"
    return hardware.find_gpu(torch.cuda.get_device_name(0)).name, ""


def read_measured(path: Path, label: str) -> set[tuple[str, float]]:
    """(architecture, batch) of the rows that are there. Raises DataError where a file has the other sort of rows."""
    if not path.exists():
        return set()
    rows = dataset.read(path)
    simulated = label.startswith(SIMULATED)
    if any(row.device.startswith(SIMULATED) != simulated for row in rows):
        other = "measured" if simulated else SIMULATED
        raise dataset.DataError(f"{path} has {other} rows: name another file with --data, they are never mixed")
    return {(row.architecture, row.features["batch"]) for row in rows if row.device == label}


def row(label: str, workload: Workload, answer: dict[str, Any]) -> dataset.Row:
    """A worker's report, as a row."""
    values = {name: answer[name] for name in dataset.MEASURED}
    known = Features(answer["features"])
    ingredients = tuple(answer.get("ingredients", ()))
    return dataset.Row(label, workload.family, workload.architecture, known, ingredients=ingredients, **values)


def collect(
    todo: Sequence[Workload], path: Path, gpu: str, label: str, total_s: float, python: str, seconds: float
) -> Iterator[tuple[Workload, dict[str, Any]]]:
    """Measures one after the other, a process for each architecture; yields each report, or why there is none."""
    end = time.monotonic() + total_s
    names = list(dict.fromkeys(workload.name for workload in todo))
    for name in names:
        own = [workload for workload in todo if workload.name == name]
        with Worker(python) as worker:
            for number, workload in enumerate(own):
                left = end - time.monotonic()
                if left < WORKLOAD_S:
                    return
                asked = {
                    "name": name,
                    "batch": workload.batch,
                    "precision": workload.precision,
                    "seconds": seconds,
                    "gpu": gpu,
                    "cpu": label.startswith(SIMULATED),
                }
                try:
                    answer = worker.measure(asked, min(left, WORKLOAD_S if number else FIRST_S))
                except WorkerError as error:
                    yield workload, {"failed": str(error)}
                    break  # the rest of this architecture is for another time
                if "failed" not in answer:
                    dataset.append(path, [row(label, workload, answer)])
                yield workload, answer


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.predict.collect",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--data", type=Path, help="the CSV (default: build/collected.csv, --cpu: collected-cpu.csv)")
    made.add_argument("--only", action="append", default=[], metavar="NAME", help="this architecture; repeatable")
    made.add_argument("--batches", type=int, default=0, metavar="N", help="so many batches of each (default: all)")
    made.add_argument("--total", type=float, default=TOTAL_S, metavar="SECONDS", help="for all together")
    made.add_argument("--seconds", type=float, default=MEASURE_S, help="of measuring each")
    made.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    made.add_argument("--pairs", type=int, default=0, metavar="N", help="measure N pairs of what is in the CSV instead")
    made.add_argument("--cpu", action="store_true", help="a few steps on the CPU: tries the program, measures nothing")
    made.add_argument("--json", action="store_true", help="the last line says in JSON what was done")
    return made.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 3 without a device, 1 when nothing could be measured."""
    args = arguments(argv)
    gpu, why = device(args.cpu)
    if why:
        print(f"collect: {why}: nothing measured; --cpu tries the program")
        return NO_DEVICE
    label = f"{SIMULATED} {gpu}" if args.cpu else gpu
    path = args.data or ROOT / "build" / ("collected-cpu.csv" if args.cpu else "collected.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if args.pairs:
            from benchmarks.predict import collect_pairs

            return collect_pairs.run(args, path, gpu, label)
        return _run(args, path, gpu, label)
    except dataset.DataError as error:
        print(f"collect: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace, path: Path, gpu: str, label: str) -> int:
    workloads = plan(args.only, args.batches)
    there = read_measured(path, label)
    todo = [one for one in workloads if (one.architecture, float(one.batch)) not in there]
    print(f"collect: {label}, {len(workloads)} workloads, {len(workloads) - len(todo)} are in {path}", flush=True)
    done = failed = 0
    for workload, answer in collect(todo, path, gpu, label, args.total, args.python, args.seconds):
        failed += "failed" in answer
        done += "failed" not in answer
        print(f"  {workload.architecture:<18} batch {workload.batch:<5} {words(answer)}", flush=True)
    rows = len(workloads) - len(todo) + done
    left = len(workloads) - rows - failed
    print(f"collect: {rows} of {len(workloads)} rows, {failed} failed" + (f", {left} left" if left else ""))
    if args.json:
        print(json.dumps({"rows": rows, "of": len(workloads), "failed": failed, "data": str(path)}))
    return 0 if rows else 1


def words(answer: dict[str, Any]) -> str:
    """A line of what was measured."""
    if "failed" in answer:
        return f"not measured: {answer['failed']}"
    said = [f"{answer['step_ns'] / 1e6:8.2f} ms a step"]
    for name, title in (("utilisation", "util"), ("sm_activity", "SMs")):
        said += [f"{title} {answer[name]:4.0%}"] if answer[name] is not None else []
    if answer["memory_bytes"] is not None:
        by_graph = answer["estimate_bytes"]
        held = "within" if by_graph["low"] <= answer["memory_bytes"] <= by_graph["high"] else "outside"
        said.append(f"memory {answer['memory_bytes'] / 2**30:.2f} GiB, {held} the graph's interval")
    return ", ".join(said)


if __name__ == "__main__":
    raise SystemExit(main())
