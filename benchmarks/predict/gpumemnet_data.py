"""GPUMemNet's CSV as rows of vgpud's own format, with features as they are known before a run. Pure but for reading.

Of a row only its layers, batch and input size are looked at for features; the program that was measured (its generator
is public) trains with Adam in fp32 on 4,096 made-up samples, one A100 of 40 GB, PyTorch's defaults (no TF32).
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path

from vgpud.predict.dataset import Row
from vgpud.predict.features import features
from vgpud.predict.ops import Hardware, Op, Step, list_ingredients

CSV = Path(__file__).resolve().parents[1] / "data" / "gpumemnet" / "mlp_data_step1.csv"
A100 = Hardware("NVIDIA A100 40GB", 108, 1_555_000_000_000, 19_500_000_000_000)
SAMPLES = 4096
ELEMENT_BYTES = 4
MIB = 1 << 20
_NAME = re.compile(r"input:(\d+)_output:(\d+)_depth:(\d+)_arch:(\w+)_batch:(\d+)\.out")


def rows(samples: int = SAMPLES) -> list[Row]:
    """All of the file. Raises ValueError where it is not as it was published."""
    with CSV.open(encoding="utf-8", newline="") as file:
        return [row(cells, samples) for cells in csv.DictReader(file)]


def row(cells: dict[str, str], samples: int = SAMPLES) -> Row:
    """One line of the file; `samples` as Step has it."""
    named = _NAME.fullmatch(cells["Filename"])
    if named is None:
        raise ValueError(f"{cells['Filename']!r} does not say what was run")
    inputs, outputs, batch = int(named[1]), int(named[2]), int(named[5])
    layers = [(kind, int(width)) for kind, width, _ in ast.literal_eval(cells["Activations-Params"])]
    ops = list(operations(layers, inputs, batch))
    step = Step(batch, inputs, outputs, samples=samples)
    return Row(
        device=A100.name,
        family="mlp",
        architecture=named[4],
        features=features(ops, step, A100),
        utilisation=float(cells["Avg GPUTL"]) / 100,
        sm_activity=float(cells["Avg SMACT"]),
        memory_bytes=float(cells["Max GPU Memory (MiB)"]) * MIB,
        ingredients=list_ingredients(ops),
    )


def operations(layers: list[tuple[str, int]], inputs: int, batch: int) -> Iterator[Op]:
    """Fully connected layers, and what lies between them."""
    width = inputs
    for kind, outputs in layers:
        if kind == "linear":
            read = batch * width + width * outputs + outputs
            yield Op(
                "linear",
                batch * outputs,
                flops=2 * batch * width * outputs,
                bytes=ELEMENT_BYTES * (read + batch * outputs),
                parameters=(width * outputs, outputs),
                is_kept=False,  # ReLU keeps what it wrote itself
            )
            width = outputs
        else:
            yield Op("activation", batch * outputs, flops=batch * outputs, bytes=2 * ELEMENT_BYTES * batch * outputs)


def ran(row: Row) -> bool:
    """Whether the program trained at all: with one output its loss refuses the labels' shape, and it ends at once."""
    return bool(row.sm_activity)
