"""`vgpu predict train`: trains a site's own predictor from jobs measured on its devices."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings

if TYPE_CHECKING:
    from vgpud.view.fit import Grid

_WORDS = {"utilisation": "utilisation", "sm_activity": "SM activity", "memory_bytes": "memory"}


@click.command("train", cls=VgpuCommand, short_help="Train a predictor from measured jobs.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    multiple=True,
    metavar="CSV",
    help="CSV of measured jobs (may be repeated).",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The new predictor.")
@click.option("--note", default="", metavar="TEXT", help="Stored in the predictor's data card.")
@pass_settings
def train(settings: Settings, data: tuple[Path, ...], out: Path, note: str) -> None:
    """Train a predictor from jobs that were measured on your own devices, and print its errors.

    \b
    vgpu predict train --data measured.csv --out ours.json
    vgpu predict resnet50.onnx --predictor ours.json

    Errors are for jobs that the predictor has not seen (five-fold cross-validation over configurations), beside the
    errors of the shipped predictor for the same jobs. `python -m benchmarks.predict.collect` writes the CSV, and vgpud
    adds jobs to such a file. This command only reads it.
    """
    from vgpud.cli.common.output import emit, say
    from vgpud.predict import dataset, train_file

    train_file.check(out)
    texts = {path: dataset.contents(path) for path in data}
    rows = [row for path, text in texts.items() for row in dataset.parse(text, str(path))]
    card = {
        "data": [{"file": p.name, "sha256": hashlib.sha256(t.encode()).hexdigest()} for p, t in texts.items()],
        "note": note[: dataset.TEXT_MAX],
    }
    made = train_file.train_model(rows, card, say)
    train_file.write(out, made.document)
    shipped = train_file.evaluate_model(rows)
    document = {
        "model": str(out),
        "rows": len(rows),
        "features": len(made.document["features"]),
        "errors": [
            {"target": name, "rows": count, train_file.error_name(name): error, "shipped": shipped.get(name)}
            for name, (count, error) in made.errors.items()
        ],
    }
    emit(settings, document, [str(out)], lambda: _grid(document))


def _grid(document: Mapping[str, Any]) -> Grid:
    from vgpud.view.fit import Grid

    grid = Grid(("PREDICTED", ">ROWS", "ERROR", "SHIPPED MODEL"), [])
    for each in document["errors"]:
        unit = " %" if "mape_percent" in each else " RMSLE"
        own = f"{each.get('mape_percent', each.get('rmsle')):.3g}{unit}"
        other = each["shipped"]
        theirs = (
            "-" if other is None else f"{other['error']:.3g}{unit}, {other['in_range']} of {other['rows']} in range"
        )
        grid.rows.append((_WORDS[each["target"]], str(each["rows"]), own, theirs))
    return grid
