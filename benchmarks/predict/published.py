"""The rows "published-memory" and "analytic": what graphs say of models whose use of an A100 was published.

The tables are GPUMemNet's: networks that convolve, encoders, and eighteen published models. Samples of the first two
have rows to tune by and rows to judge by, chosen by their place in the file before any was looked at. The spreads in
vgpud/predict/memory.py and analytic.py are those of the rows to tune by, and all figures are of the others, the table
of eight networks and the published models included. `python -m benchmarks.predict.published` prints the ratios of the
rows to tune by.

The interpreter is the one that VGPU_TORCH_PYTHON names, else this one; without torchvision, timm and transformers it
reads the samples alone, and a figure says how many models were read.
"""

from __future__ import annotations

import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.predict import gpumemnet_data
from benchmarks.table import Figure, at_least, at_most
from vgpud.libraries.environment import preload_simulated
from vgpud.predict import analytic, hardware
from vgpud.predict.features import Features

PROGRAM = "benchmarks.predict.published_graphs"
FOLDER = gpumemnet_data.CSV.parent
#: file -> the column of the most MiB that nvidia-smi showed
TABLES = {
    "cnn_sample.csv": "measured_peak_mib",
    "transformer_sample.csv": "measured_peak_mib",
    "cnn_rows.csv": "measured_peak_mib",
    "real_models.csv": "measured_mib",
}
ROW, ANALYTIC_ROW = "published-memory", "analytic"
INSIDE, ABOVE = at_least(85), at_most(3)
UTILISATION_INSIDE = at_least(80)
#: a run that takes more of the device's memory shows the device's size, not the model's
DEVICE_MIB, FULL = 40960, 0.9
#: what is smaller is all context and rounding
LARGE_MIB = 256
MIB = 1 << 20


def read_rows() -> list[dict[str, Any]]:
    """Of all tables, numbers as such; `use` is tune or judge, `measured` the memory in MiB."""
    rows = []
    for name, column in TABLES.items():
        for cells in csv.DictReader((FOLDER / name).read_text().splitlines()):
            row: dict[str, Any] = {key: _parse(text) for key, text in cells.items()}
            rows.append({"use": "judge", **row, "table": name.removesuffix(".csv"), "measured": row[column]})
    return rows


def _parse(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@lru_cache(maxsize=1)
def trace() -> tuple[dict[str, Any], ...]:
    """The rows, each with what its graph says: see published_graphs.py; "error" where it could not be read."""
    python = os.environ.get("VGPU_TORCH_PYTHON", "") or sys.executable
    rows = read_rows()
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as folder:
        asked, answer = Path(folder) / "rows.json", Path(folder) / "answer.json"
        asked.write_text(json.dumps(rows))
        env = preload_simulated(os.environ) if python != sys.executable else dict(os.environ)
        subprocess.run([python, "-m", PROGRAM, str(asked), str(answer)], env=env, check=True, cwd=harness.ROOT)
        answers = json.loads(answer.read_text())
    return tuple({**row, **found} for row, found in zip(rows, answers, strict=True))


def add_context(row: dict[str, Any]) -> tuple[float, float, float]:
    """The whole process, as `vgpu predict` has it: low, value, high, MiB."""
    context = hardware.find_gpu("a100-40g").context_bytes(row["convolves"])
    low, value, high = (row[name] + part for name, part in zip(("low", "value", "high"), context, strict=True))
    return low / MIB, value / MIB, high / MIB


def is_judged(row: dict[str, Any]) -> bool:
    return row["use"] == "judge" and "error" not in row and row["measured"] < FULL * DEVICE_MIB


def memory_figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """How many lie in their interval, and how many are above it and so above --mem."""
    rows = trace()
    judged = [row for row in rows if is_judged(row)]
    intervals = [add_context(row) for row in judged]
    raw["published"] = [
        {"table": row["table"], "model": row.get("model") or row.get("architecture", "encoder")}
        | {"batch_size": row["batch_size"], "measured_mib": row["measured"], "interval_mib": interval}
        for row, interval in zip(judged, intervals, strict=True)
    ]
    raw["errors"] = [row["error"] for row in rows if "error" in row]
    yield Figure(ROW, "published models and samples", "models read", len(judged))
    real = [row for row in rows if row["table"] == "real_models"]
    yield Figure(ROW, "published models", "of eighteen, read", sum("error" not in row for row in real))
    yield from _judge("published models and samples", judged, intervals, INSIDE, ABOVE)
    for table in dict.fromkeys(row["table"] for row in judged):
        chosen = [number for number, row in enumerate(judged) if row["table"] == table]
        yield from _judge(table, [judged[i] for i in chosen], [intervals[i] for i in chosen], None, None)


def _judge(
    case: str, rows: Sequence[dict[str, Any]], intervals: Sequence[tuple[float, float, float]], *goals: Any
) -> Iterator[Figure]:
    inside = [low <= row["measured"] <= high for row, (low, _, high) in zip(rows, intervals, strict=True)]
    above = [row["measured"] > high for row, (_, _, high) in zip(rows, intervals, strict=True)]
    errors = [abs(value / row["measured"] - 1) for row, (_, value, _) in zip(rows, intervals, strict=True)]
    widths = [(high - low) / value for low, value, high in intervals]
    yield Figure(ROW, case, "memory within the interval, %", 100 * statistics.mean(inside), goals[0])
    yield Figure(ROW, case, "above it, and so above --mem, %", 100 * statistics.mean(above), goals[1])
    yield Figure(ROW, case, "error of the likely value, median, %", 100 * statistics.median(errors))
    yield Figure(ROW, case, "width of the interval, median, % of the likely value", 100 * statistics.median(widths))


def utilisation_figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """Of networks that convolve; of no transformer a utilisation was at hand."""
    rows = [row for row in trace() if row["use"] == "judge" and "error" not in row and _has_utilisation(row)]
    found = [analytic.predict_utilisation(Features(row["features"])) for row in rows]
    parts = [interval for interval in found if interval is not None]
    measured = [row["gpu_utilisation_percent"] / 100 for row in rows]
    raw["utilisation"] = [(each.low, each.value, each.high, real) for each, real in zip(parts, measured, strict=True)]
    inside = [each.low <= real <= each.high for each, real in zip(parts, measured, strict=True)]
    case = "networks that convolve"
    yield Figure(ANALYTIC_ROW, case, "measured", len(rows))
    yield Figure(
        ANALYTIC_ROW, case, "utilisation within the interval, %", 100 * statistics.mean(inside), UTILISATION_INSIDE
    )
    widths = [100 * (each.high - each.low) for each in parts]
    yield Figure(ANALYTIC_ROW, case, "width of the interval, median, points", statistics.median(widths))
    errors = [100 * abs(each.value - real) for each, real in zip(parts, measured, strict=True)]
    yield Figure(ANALYTIC_ROW, case, "error, median, points", statistics.median(errors))
    yield from _judge_perceptrons()
    yield Figure(ANALYTIC_ROW, "transformers", "measured", 0)


def _has_utilisation(row: dict[str, Any]) -> bool:
    return isinstance(row.get("gpu_utilisation_percent"), float)


def _judge_perceptrons() -> Iterator[Figure]:
    """Those of the table's perceptrons that the constants are not from: every third."""
    rows = [row for row in gpumemnet_data.rows() if gpumemnet_data.ran(row)][2::3]
    pairs = [(analytic.predict_utilisation(row.features), row.utilisation or 0.0) for row in rows]
    inside = [part is not None and part.low <= real <= part.high for part, real in pairs]
    widths = [100 * (part.high - part.low) for part, _ in pairs if part is not None]
    case = "perceptrons, without the predictor"
    yield Figure(ANALYTIC_ROW, case, "utilisation within the interval, %", 100 * statistics.mean(inside))
    yield Figure(ANALYTIC_ROW, case, "width of the interval, median, points", statistics.median(widths))


def main() -> int:
    """For development: the ratios that the spreads of memory.py are from, and the context of what convolves."""
    for table, convolves in (("cnn_sample", True), ("transformer_sample", False)):
        rows = [row for row in trace() if row["use"] == "tune" and row["table"] == table and "error" not in row]
        rows = [row for row in rows if row["measured"] < FULL * DEVICE_MIB]
        context = hardware.find_gpu("a100-40g").context_bytes(convolves)[1] / MIB
        large = [row for row in rows if row["replayed"] > LARGE_MIB * MIB]
        ratios = sorted((row["measured"] - context) / row["replayed"] * MIB for row in large)
        low, high = ratios[math.ceil(len(ratios) * 0.06)], ratios[-1]
        print(table, len(ratios), f"low {low:.3f}, likely {statistics.median(ratios):.3f}, high {high:.3f}")
        print(
            "  small ones, MiB beyond the replay:",
            [round(r["measured"] - context - r["replayed"] / MIB) for r in rows if r not in large],
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
