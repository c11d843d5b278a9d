"""The row "ingredients": GPUMemNet's perceptrons with an ingredient, predicted by who has seen only those without it.

Ingredients are types of operations: normalisation, dropout, and the two sorts of activation functions. Settings are
tuned and intervals made without the rows that are judged; these are from its second table of perceptrons.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from benchmarks.predict import gpumemnet_data
from benchmarks.predict.gpumemnet_data import A100, ELEMENT_BYTES, MIB, SAMPLES
from benchmarks.table import Figure, format_line, near
from vgpud.predict.dataset import Row
from vgpud.predict.features import features
from vgpud.predict.ops import Op, Step, list_ingredients

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROW = "ingredients"
CSV = gpumemnet_data.CSV.with_name("mlp_ingredients.csv")
LEFT_OUT = ("norm", "dropout", "smooth activation", "activation")
TARGETS = {"utilisation": "utilisation", "sm_activity": "SM activity", "memory_bytes": "memory"}
#: activation functions by what they keep: what they wrote, or what they read
BY_RESULT = ("ReLU", "Tanh")
COVERED = near(91, 3)
PROCESSES = 2
SEED = 0


def read_rows() -> list[Row]:
    """Those that trained."""
    with CSV.open(encoding="utf-8", newline="") as file:
        return [row for cells in csv.DictReader(file) if gpumemnet_data.ran(row := make_row(cells))]


def make_row(cells: dict[str, str]) -> Row:
    """One line of the file."""
    inputs, outputs, batch = (int(cells[name]) for name in ("inputs", "outputs", "batch_size"))
    ops = tuple(list_operations(cells, inputs, batch))
    return Row(
        device=A100.name,
        family="mlp",
        architecture=cells["architecture"],
        features=features(ops, Step(batch, inputs, outputs, samples=SAMPLES), A100),
        utilisation=float(cells["gpu_utilisation_percent"]) / 100,
        sm_activity=float(cells["sm_activity"]),
        memory_bytes=float(cells["measured_peak_mib"]) * MIB,
        ingredients=list_ingredients(ops),
    )


def list_operations(cells: dict[str, str], inputs: int, batch: int) -> Iterator[Op]:
    """Linear layers, each but the last with what the row has behind it; then a softmax."""
    widths = [int(width) for width in cells["widths"].split()]
    name = cells["activation"]
    activation = "activation" if name in BY_RESULT else "smooth activation"
    between = [("norm", int(cells["batch_norm"])), (activation, int(name != "Identity"))]
    between += [("dropout", int(cells["dropout"]))]
    for number, width in enumerate(widths):
        follows = [kind for kind, has in between if has] if number < len(widths) - 1 else ["softmax"]
        read = batch * inputs + inputs * width + width
        yield Op(
            "linear",
            batch * width,
            flops=2 * batch * inputs * width,
            bytes=ELEMENT_BYTES * (read + batch * width),
            parameters=(inputs * width, width),
            is_kept=follows[:1] not in (["activation"], ["softmax"]),  # these keep what they wrote themselves
        )
        for kind in follows:
            size = batch * width
            parameters = (width, width) if kind == "norm" else ()
            yield Op(kind, size, flops=size, bytes=2 * ELEMENT_BYTES * size, parameters=parameters)
        inputs = width


@lru_cache(maxsize=1)
def _rows() -> list[Row]:
    return read_rows()


def judge(task: tuple[str, str]) -> dict[str, Any]:
    """How many rows with the ingredient lie in their intervals, for a target."""
    import numpy as np

    from vgpud.predict import train, train_file

    target, ingredient = task
    rows = _rows()
    inside: NDArray[np.bool_] = np.array([ingredient in row.ingredients for row in rows])
    table = train.table(rows, target, train_file.varying(rows))
    found = train.leave_out(table, inside, train.inner_folds(rows, SEED), SEED, kinds=train.list_groups(rows))
    logs = table.logs[inside]
    covered = (found.low <= logs) & (logs <= found.high)
    return {
        "target": target,
        "ingredient": ingredient,
        "rows": int(inside.sum()),
        "covered": int(covered.sum()),
        "width": float(np.median(found.high - found.low)),
    }


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """Of all rows that are judged, and of each ingredient."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        passes = list(pool.map(judge, [(target, name) for target in TARGETS for name in LEFT_OUT]))
    raw["ingredients"] = passes
    for target, words in TARGETS.items():
        these = [each for each in passes if each["target"] == target]
        part = 100 * sum(each["covered"] for each in these) / sum(each["rows"] for each in these)
        yield Figure(ROW, "each ingredient left out", f"{words}: in its 90 % interval, %", part, COVERED)
        for each in these:
            part = 100 * each["covered"] / each["rows"]
            yield Figure(ROW, f"without {each['ingredient']}", f"{words}: in its 90 % interval, %", part)


def main() -> int:
    """For development: `python -m benchmarks.predict.gpumemnet_ingredients`."""
    for figure in figures({}):
        print(format_line(figure.cells()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
