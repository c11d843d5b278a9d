"""Peak memory of convolutional networks and of published models by a dry run, beside what was measured on an A100.

The eight rows of GPUMemNet's table of CNNs and its eighteen published models (of torchvision, timm and transformers, by
configuration, without weights) are trained for some batches on a simulated A100 of 40 GB. What nvidia-smi showed there
is held against what `vgpu predict run` says of the same training (vgpud/predict/dry_run.py): at least, what PyTorch's
tensors take; likely, with the allocator's cache and the largest workspace that copies to the layout of tensor cores
take; and at most. For networks that convolve, the factor of the upper end is from sixteen rows of the table of CNNs,
perhaps some of these. For the others, how much larger the cache may be was chosen with the rows in odd places of these
two tables (first, third, ...): the smallest whole number with which it holds each of their language models. It is
judged on the other half.

The language models are trained as their authors publish it (github.com/itu-rad/CARMA, folder workloads): three of them
by DataParallel on two devices, of which the first is looked at. The lengths of their texts are drawn by a seed. Layers
printed there have GPT2SdpaAttention, which transformers has up to 4.47; other versions take other memory. The versions
that have run are in the result.

The interpreter is the one that VGPU_TORCH_PYTHON names; exit code 3 without the packages.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.pytorch.interpreter import CANNOT, find_python, read_versions
from benchmarks.table import Figure, at_least, at_most, below_bound, format_figures
from vgpud.libraries.environment import preload_simulated
from vgpud.predict import dry_device
from vgpud.predict.dry_run import Counts, DryRun, Range, TorchPeak
from vgpud.simdevice.process import SimulatedDevice

PACKAGES = ("torch", "torchvision", "timm", "transformers")
PROGRAM = "benchmarks.pytorch.convolution_rows"
DATA = harness.ROOT / "benchmarks" / "data" / "gpumemnet"
OTHERS = {"FakeTensor": "faketensor_mib", "Horus": "horus_mib"}
DEVICES = 2  # some models are trained on both
OVER_PERCENT, HELD_PERCENT = 3.0, 90.0
MIB = 1 << 20


def read_rows() -> list[dict[str, Any]]:
    """Of both tables, numbers as such. measured: MiB that nvidia-smi showed at most."""
    rows = []
    for name, column in (("cnn_rows.csv", "measured_peak_mib"), ("real_models.csv", "measured_mib")):
        for row in csv.DictReader((DATA / name).read_text().splitlines()):
            made: dict[str, Any] = {key: int(text) if text.isdigit() else text for key, text in row.items()}
            rows.append({**made, "measured": made[column]})
    return rows


def train(python: str, rows: Sequence[Mapping[str, Any]], device: dry_device.DryDevice) -> list[Any]:
    """What the program says of each row."""
    config = dry_device.make_config(device, dry_device.find_context_size(device), DEVICES)
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as folder:
        asked, answer = Path(folder) / "rows.json", Path(folder) / "answer.json"
        asked.write_text(json.dumps(rows))
        with SimulatedDevice(Path(folder) / "sim", config) as simulated:
            env = simulated.environment(preload_simulated(os.environ))
            subprocess.run([python, "-m", PROGRAM, str(asked), str(answer)], env=env, check=True, cwd=harness.ROOT)
        made: list[Any] = json.loads(answer.read_text())
        return made


def predict_memory(answer: Mapping[str, Any], device: dry_device.DryDevice) -> Range:
    """MiB, as `vgpu predict run` has it."""
    sizes = ("allocated_mib", "reserved_mib", "likely_mib", "most_mib")
    peak = TorchPeak(*(int(answer.get(size, 0) * MIB) for size in sizes))
    context = dry_device.find_context_size(device)
    counts = Counts(
        **{**dict.fromkeys(Counts.__dataclass_fields__, 0), "most_bytes": context.value + peak.reserved_bytes}
    )
    found = DryRun(device, context, counts, (peak,), 0, has_convolutions=peak.workspace_bytes_most > 0).memory()
    return Range(found.low / MIB, found.value / MIB, found.high / MIB)


def name_of(row: Mapping[str, Any]) -> str:
    kind = row.get("model") or f"{row['architecture']}, {row['depth']} layers"
    return f"{kind}, batch {row['batch_size']}"


def percent_off(value: float, real: float) -> float:
    return 100 * (value - real) / real


def median_error(pairs: Iterable[tuple[float, float]]) -> float:
    return statistics.median(abs(percent_off(value, real)) for value, real in pairs)


def judge_rows(rows: Sequence[dict[str, Any]]) -> list[Figure]:
    """Figures of all rows together. Each row has measured, low, value and high, in MiB."""
    over = [percent_off(row["low"], row["measured"]) for row in rows]
    held, others = (
        100 * statistics.mean(row["high"] >= row["measured"] for row in half) for half in (rows, rows[1::2])
    )
    figures = [
        Figure("all", "at least", "the most above the measured, %", max(over), at_most(OVER_PERCENT)),
        Figure("all", "at least", "rows above it by more than that", sum(off > OVER_PERCENT for off in over)),
        Figure("all", "at most", "rows that it holds, %", held, at_least(HELD_PERCENT)),
        Figure("the half that chose nothing", "at most", "rows that it holds, %", others, at_least(HELD_PERCENT)),
        Figure("all", "likely", "median error, %", median_error((row["value"], row["measured"]) for row in rows)),
    ]
    for title, column in OTHERS.items():
        known = [row for row in rows if row.get(column, "-") != "-"]
        theirs = median_error((float(row[column]), row["measured"]) for row in known)
        ours = median_error((row["value"], row["measured"]) for row in known)
        figures.append(Figure(f"rows of {title}", title, "median error, %", theirs))
        figures.append(Figure(f"rows of {title}", "likely", "median error, %", ours, below_bound(theirs / 3)))
    return figures


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    args = made.parse_args()
    if args.real:
        made.error("what a real device takes is measured by python -m benchmarks.qualify")
    python = find_python(PACKAGES)
    if not python:
        return CANNOT
    device = dry_device.find_device("a100-40g")
    rows = read_rows()
    answers = train(python, rows, device)
    failed = [name_of(row) for row, answer in zip(rows, answers, strict=True) if "error" in answer]
    for row, answer in zip(rows, answers, strict=True):
        found = predict_memory(answer, device)
        row["low"], row["value"], row["high"] = found.low, found.value, found.high
    figures = [Figure("all", "all", "rows that failed", len(failed), at_most(0)), *judge_rows(rows)]
    print(format_figures(figures))
    header = ("row", "measured, MiB", "at least", "likely", "at most", "at least is off by, %")
    shown = [
        (
            *(name_of(row), f"{row['measured']}", f"{row['low']:.0f}", f"{row['value']:.0f}", f"{row['high']:.0f}"),
            f"{percent_off(row['low'], row['measured']):+.1f}",
        )
        for row in rows
    ]
    page = results.Page("Memory of convolutional networks by a dry run", [(__doc__ or "").strip()], header, shown)
    paths = results.write_figures(
        "pytorch_convolutions",
        figures,
        page,
        is_simulated=True,
        device=f"SIMULATED {device.title}",
        parameters={
            "context_mib": dry_device.find_context_size(device).value / MIB,
            "failed": failed,
            "packages": read_versions(python, PACKAGES),
        },
        raw={"rows": rows, "answers": answers},
        folder=args.results,
    )
    print(*paths)
    return 1 if any(figure.is_missed for figure in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
