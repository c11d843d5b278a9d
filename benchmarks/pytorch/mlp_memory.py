"""Memory of PyTorch trainings by a dry run, beside what GPUMemNet measured on an A100 of 40 GB, without that device.

Rows of GPUMemNet's table of linear networks are drawn by a seed, from those with a batch of at least 64 and more than
one output. `vgpu predict run --gpu a100-40g` trains each; its memory is what PyTorch has reserved at most, and a
constant for the context and the libraries' code. The constant is the median of measured less reserved over other rows,
drawn before. The interpreter is the one that VGPU_TORCH_PYTHON names; exit code 3 without PyTorch's CUDA build.
"""

from __future__ import annotations

import ast
import csv
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.predict import gpumemnet_data
from benchmarks.pytorch.interpreter import CANNOT, find_python
from benchmarks.table import Figure, at_least, at_most, format_figures

PROGRAM = Path(__file__).with_name("mlp_rows.py")
DEVICE = "a100-40g"
BATCH_MIN = 64  # the table's small batches end by its time limit, before all of a network is used
#: PyTorch's own workspaces on an A100, whatever version it is
WORKSPACES = {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8"}
_NAME = re.compile(r"input:(\d+)_output:(\d+)_depth:\d+_arch:\w+_batch:(\d+)\.out")


def read_rows() -> list[dict[str, Any]]:
    """Rows that may be drawn: inputs, widths of the layers, batch, and the measured MiB."""
    rows = []
    with gpumemnet_data.CSV.open(encoding="utf-8", newline="") as file:
        for cells in csv.DictReader(file):
            named = _NAME.fullmatch(cells["Filename"])
            assert named is not None
            inputs, outputs, batch = map(int, named.groups())
            layers = ast.literal_eval(cells["Activations-Params"])
            widths = [width for kind, width, _ in layers if kind == "linear"]
            if batch >= BATCH_MIN and outputs > 1:
                mib = float(cells["Max GPU Memory (MiB)"])
                rows.append({"inputs": inputs, "widths": widths, "batch": batch, "measured_mib": mib})
    return rows


def measure_reserved(python: str, rows: list[dict[str, Any]]) -> list[float]:
    """MiB that PyTorch has reserved at most, for each row. Raises RuntimeError when a training failed."""
    with tempfile.TemporaryDirectory(prefix="vgpu-mlp-") as folder:
        wanted, answer = Path(folder, "rows.json"), Path(folder, "reserved.json")
        wanted.write_text(json.dumps(rows))
        command = [sys.executable, "-m", "vgpud.cli.main", "predict", "run", "--gpu", DEVICE, "--"]
        command += [python, str(PROGRAM), str(wanted), str(answer)]
        done = subprocess.run(command, env={**os.environ, **WORKSPACES}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        found = json.loads(answer.read_text())
    if None in found:
        raise RuntimeError(f"row {rows[found.index(None)]} did not train: {done.stderr}")
    return [float(mib) for mib in found]


def compare(rows: list[dict[str, Any]], reserved: list[float], constant_mib: float) -> dict[str, float]:
    """Parts of the rows in percent, errors in percent of the measured memory."""
    errors = [mib + constant_mib - row["measured_mib"] for row, mib in zip(rows, reserved, strict=True)]
    parts = [error / row["measured_mib"] * 100 for row, error in zip(rows, errors, strict=True)]
    return {
        "exact": 100 * sum(error == 0 for error in errors) / len(rows),
        "near": 100 * sum(abs(error) <= 2 for error in errors) / len(rows),
        "mean": statistics.fmean(map(abs, parts)),
        "lowest": min(parts),
        "highest": max(parts),
    }


#: figure -> (its name with its unit, its goal)
FIGURES = {
    "exact": ("exact to the MiB, percent of the rows", at_least(78)),
    "near": ("within 2 MiB, percent of the rows", at_least(90)),
    "mean": ("mean error, percent", at_most(0.15)),
    "lowest": ("lowest error, percent", at_least(-2)),
    "highest": ("highest error, percent", None),
}


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--rows", type=int, default=200, help="rows that are predicted (default: %(default)s)")
    made.add_argument("--fit-rows", type=int, default=40, help="rows for the constant (default: %(default)s)")
    made.add_argument("--seed", type=int, default=36, help="of the draw (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("this benchmark needs no device")
    python = find_python()
    if not python:
        return CANNOT
    drawn = random.Random(args.seed).sample(read_rows(), args.fit_rows + args.rows)
    reserved = measure_reserved(python, drawn)
    fit, rest = slice(args.fit_rows), slice(args.fit_rows, None)
    constant_mib = statistics.median(
        row["measured_mib"] - mib for row, mib in zip(drawn[fit], reserved[fit], strict=True)
    )
    values = compare(drawn[rest], reserved[rest], constant_mib)
    case = f"{args.rows} rows"
    figures = [Figure("GPUMemNet's MLPs", case, what, values[key], goal) for key, (what, goal) in FIGURES.items()]
    figures.append(Figure("GPUMemNet's MLPs", f"{args.fit_rows} other rows", "constant, MiB", constant_mib))
    print(format_figures(figures))
    paths = results.write_figures(
        "pytorch_mlp_memory",
        figures,
        results.Page("Memory of PyTorch trainings by a dry run", [(__doc__ or "").strip()]),
        is_simulated=True,
        device="SIMULATED NVIDIA A100-SXM4-40GB",
        parameters={"rows": args.rows, "fit_rows": args.fit_rows, "seed": args.seed, **WORKSPACES},
        raw={"measured_mib": [row["measured_mib"] for row in drawn], "reserved_mib": reserved},
        folder=args.results,
    )
    print(*paths)
    return 1 if any(figure.is_missed for figure in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
